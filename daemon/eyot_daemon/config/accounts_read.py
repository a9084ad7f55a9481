"""Reading `accounts { }`: users, limits, JetStream, exports, imports, mappings of each account."""

from __future__ import annotations

from typing import Literal

from eyot_daemon.config.accounts import (
    GLOBAL_ACCOUNT,
    AccountJetStreamOptions,
    AccountLimits,
    AccountOptions,
    ExportOptions,
    ImportOptions,
    LatencyOptions,
    ResponseType,
)
from eyot_daemon.config.exports import latency_mistake, merged_exports
from eyot_daemon.config.import_templates import without_last_dot
from eyot_daemon.config.mappings_read import read_mappings
from eyot_daemon.config.permissions_read import read_permissions_of, read_subjects
from eyot_daemon.config.reader import Block, expect_array, expect_string, wrong_type
from eyot_daemon.config.users_read import read_users
from eyot_wire import subject
from eyot_wire.conf import ConfEntry, ConfError, ConfMap, ConfValue
from eyot_wire.digits import parse_uint
from eyot_wire.trust import nkey

_RESPONSE_TYPES: dict[str, ResponseType] = {
    "single": "singleton",
    "singleton": "singleton",
    "stream": "stream",
    "chunk": "chunked",
    "chunked": "chunked",
}


def read_accounts(block: Block) -> tuple[AccountOptions, ...]:
    """`accounts`: a map of names to accounts, or just an array of names."""
    entry = block.entry("accounts")
    if entry is None:
        return ()
    if isinstance(entry.value.value, tuple):
        accounts = []
        for element in expect_array(entry.value, entry.key):
            name = expect_string(element, entry.key)
            _check_name(name, element, entry.key)
            accounts.append(AccountOptions(name=name))
        return tuple(accounts)
    if not isinstance(entry.value.value, ConfMap):
        raise wrong_type("a map or an array of names", entry.value, entry.key)
    block.reading.note_replaced(entry.value.value)
    # Account names are case-sensitive, so the map is walked itself and not through a Block.
    return tuple(_read_account(block, named) for named in entry.value.value if not named.used_as_variable)


def _check_name(name: str, value: ConfValue, key: str) -> None:
    if name == GLOBAL_ACCOUNT:
        raise ConfError(f'"{name}" is a Reserved Account', value.position, key)


def _read_account(parent: Block, named: ConfEntry) -> AccountOptions:
    name = named.key
    _check_name(name, named.value, named.key)
    block = parent.nested(named.value, named.key)
    parent.reading.places[f"account:{name}"] = (named.position, name)
    public_key = block.string("nkey")
    if public_key and not nkey.is_public(public_key, "A"):
        raise block.error("not a valid public nkey for an account", "nkey")
    users = read_users(block, name, "users")
    account = AccountOptions(
        name=name,
        nkey=public_key,
        users=users,
        jetstream=_read_account_jetstream(block),
        exports=_read_exports(block),
        imports=tuple(_read_import(item, name, index) for index, item in enumerate(block.blocks("imports"))),
        mappings=read_mappings(block, "mappings", "maps"),
        limits=_read_limits(block.block("limits")),
        default_permissions=read_permissions_of(block, "default_permissions"),
        trace_destination=_trace(block)[0],
        trace_sampling=_trace(block)[1],
    )
    block.finish()
    return account


def _trace(block: Block) -> tuple[bytes, int]:
    entry = block.entry("msg_trace", "trace_dest")
    if entry is None:
        return b"", 100
    if isinstance(entry.value.value, str):
        return _one_subject(entry), 100
    trace = block.nested(entry.value, entry.key)
    destination = trace.entry("dest")
    sampling = trace.entry("sampling")
    trace.finish()
    percent = 100 if sampling is None else _percent(sampling)
    return (b"" if destination is None else _one_subject(destination)), percent


def _percent(entry: ConfEntry) -> int:
    value = entry.value.value
    if isinstance(value, str):
        number = parse_uint(value.strip().removesuffix("%"))
        value = value if number is None else number
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 100:
        raise ConfError("expected a percentage from 1 to 100", entry.value.position, entry.key)
    return value


def _read_limits(block: Block | None) -> AccountLimits:
    if block is None:
        return AccountLimits()
    limits = AccountLimits(
        connections_max=block.integer("max_connections", "max_conn", default=-1, minimum=-1),
        subscriptions_max=block.integer("max_subscriptions", "max_subs", default=-1, minimum=-1),
        payload_max=block.integer("max_payload", "max_pay", default=-1, minimum=-1),
        leafnodes_max=block.integer("max_leafnodes", "max_leafs", default=-1, minimum=-1),
    )
    block.finish()
    return limits


def _read_account_jetstream(parent: Block) -> AccountJetStreamOptions | None:
    entry = parent.entry("jetstream")
    if entry is None:
        return None
    value = entry.value.value
    if isinstance(value, bool):
        return AccountJetStreamOptions() if value else None
    if isinstance(value, str):
        return AccountJetStreamOptions() if is_enabled(entry.value, entry.key) else None
    if not isinstance(value, ConfMap):
        raise wrong_type("a map, boolean or string to define JetStream", entry.value, entry.key)
    block = parent.nested(entry.value, entry.key)
    enabled = block.boolean("enabled", "enable", default=True)
    limits = AccountJetStreamOptions(
        memory_max=block.size("max_memory", "max_mem", "memory", "mem", default=-1),
        file_max=block.size("max_store", "max_file", "max_disk", "store", "disk", "file", default=-1),
        streams_max=block.integer("max_streams", "streams", default=-1),
        consumers_max=block.integer("max_consumers", "consumers", default=-1),
        ack_pending_max=block.integer("max_ack_pending", default=-1),
        memory_stream_bytes_max=block.size("mem_max_stream_bytes", "memory_max_stream_bytes", default=-1),
        file_stream_bytes_max=block.size("disk_max_stream_bytes", "store_max_stream_bytes", default=-1),
        max_bytes_required=block.boolean("max_bytes_required", "max_stream_bytes", "max_bytes"),
    )
    block.choice("cluster_traffic", allowed=("system", "owner"))  # a cluster's matter; nothing to do on one server
    block.finish()
    return limits if enabled else None


def is_enabled(value: ConfValue, key: str) -> bool:
    """Read `enabled` or `disabled`, in all of nats-server's spellings."""
    word = expect_string(value, key).lower()
    if word in ("enabled", "enable"):
        return True
    if word in ("disabled", "disable"):
        return False
    raise ConfError("expected 'enabled' or 'disabled' for string value", value.position, key)


def _one_subject(entry: ConfEntry) -> bytes:
    text = expect_string(entry.value, entry.key)
    if not subject.is_valid(text.encode()):
        raise ConfError(f'subject "{text}" is not a valid subject', entry.value.position, entry.key)
    return text.encode()


def _kind(block: Block, what: str) -> tuple[Literal["stream", "service"], ConfEntry]:
    stream, service = block.entry("stream"), block.entry("service")
    if stream is not None and service is not None:
        later, earlier = ("stream", "service") if stream.position > service.position else ("service", "stream")
        raise block.error(f"detected a {later} but already saw a {earlier}", later)
    if stream is not None:
        return "stream", stream
    if service is not None:
        return "service", service
    raise block.error(f"{what} needs a stream or a service")


def _read_exports(parent: Block) -> tuple[ExportOptions, ...]:
    blocks = parent.blocks("exports")
    exports = merged_exports([_read_export(block) for block in blocks])
    for export in exports:
        wrong = latency_mistake(export, exports)
        if wrong:
            raise parent.error(wrong, "exports")
    return exports


def _read_export(block: Block) -> ExportOptions:
    kind, entry = _kind(block, "an export")
    exported = _one_subject(entry)
    accounts: tuple[str, ...] | None = block.strings("accounts") if "accounts" in block else None
    for name in accounts or ():
        block.reading.places.setdefault(f"export_account:{name}", (block.position, "accounts"))
    export = ExportOptions(
        kind=kind,
        subject=exported,
        accounts=accounts or None,
        response_type=_read_response_type(block, kind),
        response_threshold_s=_read_threshold(block, kind),
        latency=_read_latency(block, kind),
        account_token_position=_read_token_position(block, exported),
        allow_trace=block.boolean("allow_trace"),
    )
    if kind == "stream" and "allow_trace" in block:
        raise block.error("Detected allow_trace directive on non-service", "allow_trace")
    block.finish()
    return export


def _read_response_type(block: Block, kind: str) -> ResponseType:
    entry = block.entry("response_type", "response")
    if entry is None:
        return "singleton"
    if kind == "stream":
        raise ConfError("detected response directive on non-service", entry.value.position, entry.key)
    word = expect_string(entry.value, entry.key)
    if word.lower() not in _RESPONSE_TYPES:
        raise ConfError(f'Unknown response type: "{word}"', entry.value.position, entry.key)
    return _RESPONSE_TYPES[word.lower()]


def _read_threshold(block: Block, kind: str) -> float:
    keys = ("threshold", "response_threshold", "response_max_time", "response_time")
    if kind == "stream" and block.entry(*keys) is not None:
        raise block.error("detected response directive on non-service", *keys)
    return block.seconds(*keys, default=120.0)


def _read_latency(block: Block, kind: str) -> LatencyOptions | None:
    entry = block.entry("latency")
    if entry is None:
        return None
    if kind == "stream":
        raise ConfError("detected latency directive on non-service", entry.value.position, entry.key)
    if isinstance(entry.value.value, str):
        return LatencyOptions(subject=_one_subject(entry))
    latency = block.nested(entry.value, entry.key)
    destination = latency.entry("subject")
    if destination is None:
        raise latency.error("latency sampling needs a subject")
    sampling = latency.entry("sampling")
    latency.finish()
    if sampling is None:
        percent = 100
    elif isinstance(sampling.value.value, str) and sampling.value.value.strip().lower() == "headers":
        percent = 0
    else:
        percent = _percent(sampling)
    return LatencyOptions(subject=_one_subject(destination), sampling=percent)


def _read_token_position(block: Block, exported: bytes) -> int:
    position = block.integer("account_token_position", default=0, minimum=0)
    if position:
        parts = subject.tokens(exported)
        if position > len(parts) or parts[position - 1] != subject.STAR:
            raise block.error(
                "account_token_position must name a '*' token of the exported subject", "account_token_position"
            )
    return position


def _read_import(block: Block, account: str, index: int) -> ImportOptions:
    kind, entry = _kind(block, "an import")
    origin = block.nested(entry.value, entry.key)
    exporter = origin.string("account")
    if not exporter:
        raise origin.error("expect an account name and a subject", "account")
    origin.remember(f"import:{account}:{index}", "account")
    named = origin.entry("subject")
    if named is None:
        raise origin.error("expect an account name and a subject")
    origin.finish()
    imported = ImportOptions(
        kind=kind,
        account=exporter,
        subject=_one_subject(named),
        to=_read_local(block, "to"),
        prefix=_read_local(block, "prefix"),
        share=block.boolean("share"),
        allow_trace=block.boolean("allow_trace"),
    )
    block.finish()
    if kind == "service" and "allow_trace" in block:
        raise block.error("Detected allow_trace directive on a non-stream", "allow_trace")
    if imported.prefix and kind == "service":
        raise block.error("prefix is only for imported streams", "prefix")
    if imported.prefix and imported.to:
        raise block.error("only one of to and prefix may be given", "prefix")
    return imported


def _read_local(block: Block, key: str) -> bytes:
    entry = block.entry(key)
    if entry is None:
        return b""
    value = entry.value
    if key == "prefix" and isinstance(value.value, str):
        value = ConfValue(without_last_dot(value.value), value.position)
    local = read_subjects(value, key)
    if len(local) != 1:
        raise wrong_type("a subject", entry.value, key)
    return local[0]
