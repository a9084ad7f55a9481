"""Reading `jetstream { }` and `eyot { }`."""

from __future__ import annotations

import re
from typing import Literal

from eyot_daemon.config.accounts_read import is_enabled
from eyot_daemon.config.bridges_read import read_bridges
from eyot_daemon.config.jetstream import (
    EncryptionOptions,
    EyotDeviceOptions,
    EyotFlashOptions,
    EyotHttpOptions,
    EyotOptions,
    EyotStatusOptions,
    EyotStoreOptions,
    JetStreamLimits,
    JetStreamOptions,
)
from eyot_daemon.config.mqtt_read import read_mqtt_bounds
from eyot_daemon.config.profile import PROFILES, Profile
from eyot_daemon.config.reader import Block, wrong_type
from eyot_daemon.config.sync_read import read_sync
from eyot_wire import subject
from eyot_wire.conf import ConfMap
from eyot_wire.device_requests import ANSWERS, DEFAULT_ANSWERS, is_token

_HINTS: dict[str, Literal["", "will_extend", "no_extend"]] = {"will_extend": "will_extend", "no_extend": "no_extend"}
_COMMITTERS: dict[str, Literal["", "journal", "lmdb"]] = {"journal": "journal", "lmdb": "lmdb"}
#: Clients wait 5 s for the answer to a publish, unless they are told otherwise.
_WINDOW_S_MAX = 4.0
_BUDGET = re.compile(r"([0-9]{1,15})\s*([KMGT]?)i?B?(?:/day)?", re.IGNORECASE)
_POWERS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_BUDGET_MIN = _MAP_SIZE_MIN = _JOURNAL_SIZE_MIN = _BACKLOG_SIZE_MIN = _PENDING_TOTAL_MIN = 1 << 20


def read_jetstream(parent: Block) -> JetStreamOptions | None:
    """`jetstream`: a boolean, `enabled`/`disabled`, or a map; None if absent or off."""
    entry = parent.entry("jetstream")
    if entry is None:
        return None
    value = entry.value.value
    if isinstance(value, bool):
        return jetstream_defaults(parent.reading.profile) if value else None
    if isinstance(value, str):
        return jetstream_defaults(parent.reading.profile) if is_enabled(entry.value, entry.key) else None
    if not isinstance(value, ConfMap):
        raise wrong_type("a map, boolean or string to define JetStream", entry.value, entry.key)
    block = parent.nested(entry.value, entry.key)
    enabled = block.boolean("enabled", "enable", default=True)
    profile = parent.reading.profile
    sync_interval_s, sync_always = _read_sync(block)
    options = JetStreamOptions(
        store_dir=block.string("store_dir", "storedir", "store"),
        domain=_read_domain(block, "domain", "jetstream_domain"),
        sync_interval_s=sync_interval_s,
        sync_always=sync_always,
        memory_max=block.size(
            "max_memory_store", "max_mem_store", "max_mem", "max_memory", default=profile.max_memory_store
        ),
        file_max=block.size("max_file_store", "max_file", default=-1),
        extension_hint=_HINTS.get(block.choice("extension_hint", allowed=tuple(_HINTS)), ""),
        strict=block.boolean("strict", default=True),
        unique_tag=block.string("unique_tag"),
        limits=_read_limits(block.block("limits"), profile),
        request_queue_limit=block.integer("request_queue_limit", default=0, minimum=0),
        encryption=_read_encryption(block),
        buffered_msgs_max=block.integer("max_buffered_msgs", default=profile.max_buffered_msgs),
        buffered_bytes_max=block.size("max_buffered_size", default=profile.max_buffered_size),
    )
    # Of clusters, or of nats-server's own files: nothing to do here.
    block.ignore("max_outstanding_catchup", "info_queue_limit", "max_concurrent_io")
    block.ignore("meta_compact", "meta_compact_size", "meta_compact_sync")
    block.finish()
    return options if enabled else None


def _read_encryption(block: Block) -> EncryptionOptions | None:
    """`key`, `prev_key` and `cipher`, as nats-server spells them; AES-GCM where no cipher is named."""
    key = block.string("key", "ek", "encryption_key")
    previous = block.string("prev_key", "prev_ek", "prev_encryption_key")
    cipher = block.choice("cipher", allowed=("aes", "chacha", "chachapoly"))
    if block.entry("tpm") is not None:
        raise block.error("keys in a TPM are not offered by this version of eyotd", "tpm")
    if not key:
        if previous:
            raise block.error("a previous key without a key", "prev_key", "prev_ek", "prev_encryption_key")
        return None
    return EncryptionOptions(key.encode(), previous.encode(), "chacha" if cipher.startswith("chacha") else "aes")


def _read_domain(block: Block, *keys: str) -> str:
    domain = block.string(*keys)
    if domain and not subject.is_valid_literal(domain.encode()):
        raise block.error(f'invalid domain name: derived "$JS.{domain}.API.>" is not a valid subject', *keys)
    if "." in domain:
        raise block.error("invalid domain name: must be one subject token", *keys)
    return domain


def _read_sync(block: Block) -> tuple[float, bool]:
    """Read `sync_interval`: `always` or a duration. Eyot flushes before each acknowledgement in any case."""
    keys = ("sync_interval", "sync")
    entry = block.entry(*keys)
    if entry is not None and isinstance(entry.value.value, str) and entry.value.value.lower() == "always":
        return 0.0, True
    return block.seconds(*keys, default=120.0), False


def jetstream_defaults(profile: Profile) -> JetStreamOptions:
    """Return the options of JetStream that is switched on without a block."""
    return JetStreamOptions(
        memory_max=profile.max_memory_store,
        limits=_limits_of(profile),
        buffered_msgs_max=profile.max_buffered_msgs,
        buffered_bytes_max=profile.max_buffered_size,
    )


def _limits_of(profile: Profile) -> JetStreamLimits:
    return JetStreamLimits(ack_pending_max=profile.max_ack_pending, duplicate_window_s=profile.duplicate_window_s)


def _read_limits(block: Block | None, profile: Profile) -> JetStreamLimits:
    if block is None:
        return _limits_of(profile)
    batch = block.block("batch")
    limits = JetStreamLimits(
        ack_pending_max=block.integer("max_ack_pending", default=profile.max_ack_pending),
        ha_assets_max=block.integer("max_ha_assets", default=0),
        request_batch_max=block.integer("max_request_batch", default=0),
        duplicate_window_s=block.seconds("duplicate_window", default=profile.duplicate_window_s),
        batch_inflight_per_stream_max=batch.integer("max_inflight_per_stream", default=0) if batch else 0,
        batch_inflight_total_max=batch.integer("max_inflight_total", default=0) if batch else 0,
        batch_size_max=batch.integer("max_msgs", "max_size", default=0) if batch else 0,
        batch_timeout_s=batch.seconds("timeout", default=0.0) if batch else 0.0,
    )
    if batch:
        batch.finish()
    block.finish()
    return limits


def read_profile(block: Block | None) -> str:
    """Return the name of the profile; it is read before all other options."""
    return "standard" if block is None else block.choice("profile", allowed=tuple(PROFILES), default="standard")


def read_eyot(block: Block | None) -> EyotOptions:
    """Eyot's own block."""
    if block is None:
        return EyotOptions()
    max_pending_total = block.size("max_pending_total", default=block.reading.profile.max_pending_total)
    if max_pending_total and max_pending_total < _PENDING_TOTAL_MIN:
        raise block.error("must be 0 or at least 1M", "max_pending_total")
    options = EyotOptions(
        max_pending_total=max_pending_total,
        control_socket=block.string("control_socket", "control"),
        profile=read_profile(block),
        store=_read_store(block.block("store"), block.reading.profile),
        sync=read_sync(block.block("sync")),
        status=_read_status(block.block("status")),
        mqtt=read_mqtt_bounds(block.block("mqtt"), block.reading.profile),
        bridges=read_bridges(block.block("bridges")),
        monitoring_jsonp=block.boolean("monitoring_jsonp"),
        http=_read_http(block.block("http")),
        flash=_read_flash(block.block("flash")),
        device=_read_device(block.block("device")),
    )
    block.finish()
    return options


def _read_http(block: Block | None) -> EyotHttpOptions:
    if block is None:
        return EyotHttpOptions()
    page, hosts = block.boolean("page"), block.strings("hosts")
    if any(not host or "/" in host or ":" in host for host in hosts):
        raise block.error("expected names of hosts, without scheme and port", "hosts")
    users = block.strings("users")
    block.finish()
    return EyotHttpOptions(page=page, hosts=tuple(host.lower() for host in hosts), users=tuple(users))


def _read_flash(block: Block | None) -> EyotFlashOptions:
    if block is None:
        return EyotFlashOptions()
    endurance = block.size("endurance", default=0)
    if endurance < 0:
        raise block.error("must not be negative", "endurance")
    max_window_s = block.seconds("max_window", default=1.0, minimum=0.01, maximum=_WINDOW_S_MAX)
    options = EyotFlashOptions(endurance_bytes=endurance, budget_bytes=_read_budget(block), max_window_s=max_window_s)
    block.finish()
    return options


def _read_budget(block: Block) -> int:
    """Read bytes a day: a size, or a text such as "2GB/day"."""
    entry = block.entry("budget")
    if entry is None:
        return 0
    text = entry.value.value
    if isinstance(text, str):
        found = _BUDGET.fullmatch(text.strip())
        budget = int(found[1]) << _POWERS[found[2].lower()] if found else 0
    else:
        budget = block.size("budget", default=0)
    if budget < _BUDGET_MIN:
        raise block.error('expected a size of at least 1M, such as "2GB/day"', "budget")
    return budget


def _read_status(block: Block | None) -> EyotStatusOptions | None:
    if block is None:
        return None
    status = EyotStatusOptions(
        subject=block.subject("subject"),
        every_s=block.seconds("every", "interval", default=60.0, minimum=1.0),
        account=block.string("account", default="$G"),
        streams=block.integer("streams", default=20, minimum=0, maximum=1000),
    )
    block.remember("status_account", "account")
    block.finish()
    if not status.subject or not subject.is_literal(status.subject):
        raise block.error("must be a subject to publish to, without wildcards", "subject")
    return status


def _read_device(block: Block | None) -> EyotDeviceOptions | None:
    if block is None:
        return None
    device = EyotDeviceOptions(
        name=block.string("name"),
        account=block.string("account", default="$G"),
        answers=block.strings("answers") or DEFAULT_ANSWERS,
    )
    block.remember("device_account", "account")
    block.remember("device_name", "name", "answers")
    if device.name and not is_token(device.name):
        raise block.error("must be one token of a subject", "name")
    unknown = [each for each in device.answers if each not in ANSWERS]
    if unknown:
        raise block.error(f"{unknown[0]} is none of {', '.join(ANSWERS)}", "answers")
    block.finish()
    return device


def _read_store(block: Block | None, profile: Profile) -> EyotStoreOptions:
    if block is None:
        return EyotStoreOptions(journal_size=profile.journal_size, backlog_size=profile.backlog_size)
    map_size = block.size("map_size", default=0)
    if map_size and map_size < _MAP_SIZE_MIN:
        raise block.error("must be at least 1M", "map_size")
    committer = _COMMITTERS.get(block.choice("committer", allowed=tuple(_COMMITTERS)), "")
    journal_size = block.size("journal_size", default=0)
    if journal_size and committer == "lmdb":
        raise block.error('means nothing without a journal ("committer" is "lmdb")', "journal_size")
    if journal_size and journal_size < _JOURNAL_SIZE_MIN:
        raise block.error("must be at least 1M", "journal_size")
    if not journal_size and committer != "lmdb":
        journal_size = profile.journal_size
    backlog_size = block.size("backlog_size", default=profile.backlog_size)
    if backlog_size and backlog_size < _BACKLOG_SIZE_MIN:
        raise block.error("must be at least 1M", "backlog_size")
    key_file, prev_key_file = block.string("key_file"), block.string("prev_key_file")
    if prev_key_file and not key_file:
        raise block.error("a previous key without a key", "prev_key_file")
    block.finish()
    return EyotStoreOptions(
        map_size=map_size,
        committer=committer,
        journal_size=journal_size,
        backlog_size=backlog_size,
        key_file=key_file,
        prev_key_file=prev_key_file,
    )
