"""Reading `leafnodes { }`."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from eyot_daemon.config.accounts import GLOBAL_ACCOUNT
from eyot_daemon.config.leaf import (
    LEAF_PORT_DEFAULT,
    URL_RULES,
    CompressionOptions,
    LeafAuthorization,
    LeafNodesOptions,
    LeafUrl,
    RemoteOptions,
)
from eyot_daemon.config.listen import read_listen
from eyot_daemon.config.permissions_read import read_subjects
from eyot_daemon.config.reader import Block, expect_string
from eyot_daemon.config.tls_read import read_tls
from eyot_daemon.config.users_read import read_leaf_users, refuse_proxy_required
from eyot_sync.leaf.compression import ACCEPT, AUTO, BEST, BETTER, FAST, NOT_SUPPORTED, OFF, THRESHOLDS_S
from eyot_wire.conf import ConfEntry, ConfError, ConfMap, ConfValue
from eyot_wire.digits import parse_uint
from eyot_wire.go.duration import parse_duration_ns
from eyot_wire.trust import nkey

_WEBSOCKET_SCHEMES = ("ws", "wss")
_PORTS = {"ws": 80, "wss": 443}
#: Schemes with a meaning; any other (`leaf`, `nats-leaf`) is a plain link, as in nats-server.
_SCHEMES = ("nats", "tls", *_WEBSOCKET_SCHEMES)
#: The words for compression.
_MODES = {
    **dict.fromkeys(("on", "enabled", "true", "auto", AUTO), AUTO),
    **dict.fromkeys((OFF, "disabled", "false"), OFF),
    **dict.fromkeys((NOT_SUPPORTED, "not_supported"), NOT_SUPPORTED),
    ACCEPT: ACCEPT,
    **dict.fromkeys(("fast", FAST), FAST),
    **dict.fromkeys(("better", BETTER), BETTER),
    **dict.fromkeys(("best", BEST), BEST),
}


def read_leafnodes(block: Block | None) -> LeafNodesOptions:
    """Read the block; defaults if absent."""
    if block is None:
        return LeafNodesOptions()
    reading = block.reading
    host, port = read_listen(block)
    remotes = tuple(_read_remote(remote, index) for index, remote in enumerate(block.blocks("remotes")))
    authorization = _read_authorization(block.block("authorization"))
    if authorization is not None:
        block.remember("leaf_authorization", "authorization")
    leafnodes = LeafNodesOptions(
        host=host or "0.0.0.0",
        port=port,
        authorization=authorization,
        tls=read_tls(block, "tls"),
        advertise=block.string("advertise", "leafnode_advertise"),
        no_advertise=block.boolean("no_advertise"),
        min_version=_read_min_version(block),
        compression=_read_compression(block),
        isolate_leafnode_interest=block.boolean("isolate_leafnode_interest", "isolate"),
        reconnect_delay_s=block.seconds_or_default("reconnect", "reconnect_delay", "reconnect_interval", default=1.0),
        dial_timeout_s=block.seconds_or_default("dial_timeout", default=1.0),
        write_deadline_s=_optional_seconds(block, "write_deadline"),
        remotes=remotes,
    )
    block.choice("write_timeout", allowed=("default", "close", "retry"))
    block.finish()
    if leafnodes.port is None and not remotes:
        reading.warn(block.position, "leafnodes", "neither a port to listen on nor remotes to dial")
    return leafnodes


def _optional_seconds(block: Block, key: str) -> float | None:
    return block.seconds(key, default=0.0) if key in block else None


def _read_authorization(block: Block | None) -> LeafAuthorization | None:
    if block is None:
        return None
    refuse_proxy_required(block)
    public_key = block.string("nkey")
    if public_key and not nkey.is_public(public_key, "U"):
        raise block.error("Not a valid public nkey for a user", "nkey")
    block.remember("leaf_authorization_account", "account")
    authorization = LeafAuthorization(
        user=block.string("user", "username"),
        password=block.string("pass", "password"),
        nkey=public_key,
        account=block.string("account"),
        timeout_s=block.timeout("timeout", default=2.0),
        users=read_leaf_users(block),
    )
    block.finish()
    if authorization.users and (authorization.user or authorization.nkey):
        raise block.error("can not have a single user/pass or nkey and a users array", "users")
    if authorization.user and authorization.nkey:
        raise block.error("can not have a user/pass and an nkey", "nkey")
    return authorization


def _read_min_version(block: Block) -> str:
    """Read a version as `x.y.z`; versions below 2.8.0 are refused."""
    keys = ("min_version", "minimum_version")
    version = block.string(*keys)
    if not version:
        return ""
    parts = version.removeprefix("v").split("-")[0].split(".")
    numbers = [number for number in map(parse_uint, parts) if number is not None]
    if len(parts) != 3 or len(numbers) != 3:
        raise block.error(f'invalid leafnode\'s minimum version "{version}"', *keys)
    if numbers < [2, 8, 0]:
        raise block.error("the minimum version should be at least 2.8.0", *keys)
    return ".".join(parts)


def _read_compression(block: Block) -> CompressionOptions:
    entry = block.entry("compression")
    if entry is None:
        return CompressionOptions()
    value = entry.value.value
    thresholds: tuple[float, ...] = THRESHOLDS_S
    if isinstance(value, ConfMap):
        nested = block.nested(entry.value, entry.key)
        word = nested.string("mode", default=AUTO)
        thresholds = _read_thresholds(nested)
        nested.finish()
    elif isinstance(value, bool):
        word = "on" if value else OFF
    else:
        word = expect_string(entry.value, entry.key)
    mode = _MODES.get(word.lower())
    if mode is None:
        raise block.error(f'unsupported compression mode "{word}"', "compression")
    return CompressionOptions(mode=mode, thresholds_s=thresholds)


def _read_thresholds(block: Block) -> tuple[float, ...]:
    """Read the round-trip times of uncompressed, fast, better and best; 0 skips a level. Without any, return the default."""
    keys = ("rtt_thresholds", "thresholds", "rtts", "rtt")
    texts = block.strings(*keys)
    if not texts:
        return THRESHOLDS_S
    try:
        found = [max(0.0, parse_duration_ns(text) / 1e9) for text in texts]
    except ValueError as error:
        raise block.error(str(error), *keys) from None
    said = [each for each in found if each]
    if said != sorted(said):
        raise block.error("RTT threshold values should be in ascending order", *keys)
    while found and not found[-1]:
        found.pop()
    if not 1 <= len(found) <= 4:
        raise block.error("one to four RTT threshold values are needed", *keys)
    return tuple(found)


def _read_remote(block: Block, index: int) -> RemoteOptions:
    _refuse_proxy(block)
    block.remember(f"remote:{index}", "account", "local")
    block.remember(f"remote_creds:{index}", "credentials", "creds")
    remote = RemoteOptions(
        urls=_read_urls(block),
        account=block.string("account", "local", default=GLOBAL_ACCOUNT),
        credentials=block.string("credentials", "creds"),
        nkey=block.string("nkey", "seed"),
        tls=read_tls(block, "tls", client=True),
        hub=block.boolean("hub"),
        deny_imports=_read_denies(block, "deny_imports", "deny_import"),
        deny_exports=_read_denies(block, "deny_exports", "deny_export"),
        no_randomize=block.boolean("no_randomize", "dont_randomize"),
        ws_compression=block.boolean("ws_compression", "ws_compress", "websocket_compression", "websocket_compress"),
        ws_no_masking=block.boolean("ws_no_masking", "websocket_no_masking"),
        isolate=block.boolean("isolate", "isolate_leafnode_interest"),
        request_isolation=block.boolean("request_isolation"),
        compression=_read_compression(block),
        first_info_timeout_s=block.seconds_or_default("first_info_timeout", default=1.0),
        dial_timeout_s=block.seconds_or_default("dial_timeout", default=1.0),
        disabled=block.boolean("disabled"),
        ignore_discovered_servers=block.boolean("ignore_discovered_servers"),
    )
    block.ignore("jetstream_cluster_migrate", "js_cluster_migrate")  # a cluster's matter; nothing to do on one server
    block.finish()
    if remote.credentials and remote.nkey:
        raise block.error("a remote takes credentials or an nkey, not both", "nkey", "seed")
    return remote


def _refuse_proxy(block: Block) -> None:
    if block.entry("proxy") is not None:
        raise block.error("HTTP proxies for remotes are not offered by this version of eyotd", "proxy")


def _read_denies(block: Block, *keys: str) -> tuple[bytes, ...]:
    entry = block.entry(*keys)
    return () if entry is None else read_subjects(entry.value, entry.key)


def _read_urls(block: Block) -> tuple[LeafUrl, ...]:
    entry = block.entry("urls", "url")
    if entry is None:
        raise block.error("a remote needs urls")
    values = entry.value.value if isinstance(entry.value.value, tuple) else (entry.value,)
    urls = tuple(_read_url(value, entry) for value in values)
    if not urls:
        raise block.error("a remote needs urls", "urls", "url")
    if len({url.scheme in _WEBSOCKET_SCHEMES for url in urls}) > 1:
        raise block.error(
            "remote leaf node configuration cannot have a mix of websocket and non-websocket urls", "urls", "url"
        )
    return urls


def _read_url(value: ConfValue, entry: ConfEntry) -> LeafUrl:
    """One URL. The error repeats nothing of it: it may hold a password."""
    text = expect_string(value, entry.key).strip()
    try:
        parts = urlsplit(text if "://" in text else f"nats://{text}")
        host, port = parts.hostname or "", parts.port
        if not host:
            raise ValueError("no host")
    except ValueError:
        raise ConfError(
            f"error parsing url: expected {', '.join(_SCHEMES)}://[user:password@]host[:port]: {URL_RULES}",
            value.position,
            entry.key,
        ) from None
    scheme = parts.scheme if parts.scheme in _SCHEMES else "nats"
    return LeafUrl(
        scheme=scheme,
        host=host,
        port=port or _PORTS.get(scheme, LEAF_PORT_DEFAULT),
        user=unquote(parts.username or ""),
        password=None if parts.password is None else unquote(parts.password),
        path=parts.path if scheme in _WEBSOCKET_SCHEMES else "",
    )
