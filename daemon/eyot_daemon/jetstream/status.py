"""JetStream on the status pages: `/jsz`, JetStream's part of `/varz` and `/healthz`, and `/eyot/status`.

Field names are nats-server's. Where no limit is configured `/jsz` shows what nats-server would have chosen (three quarters of
memory and of the disk); Eyot itself then stores until the disk is full.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice

import msgspec

from eyot_daemon.jetstream.account import JetStreamAccount
from eyot_daemon.jetstream.downstream.tracker import downstreams_of
from eyot_daemon.jetstream.ports import ConsumerPort
from eyot_daemon.jetstream.retention.memory_bound import machine_memory
from eyot_daemon.jetstream.service import JetStreamService
from eyot_daemon.jetstream.stream.info import stream_info
from eyot_daemon.jetstream.stream.stream import Stream
from eyot_daemon.router.broker import Broker
from eyot_daemon.router.providers import HealthzQuery, Json, JszQuery, Providers
from eyot_daemon.version import API_LEVEL
from eyot_wire.go.time import ns_to_rfc3339
from eyot_wire.status import StoreStatus, StreamStatus

#: A full disk is held for one that takes messages again when so much is free.
_ROOM_BYTES = 16 << 20
_UNLIMITED_RESERVATION = 2**64 - 1  # how nats-server shows an account without limit


def provide(part: JetStreamService, providers: Providers) -> None:
    """Let the status pages show JetStream."""
    providers.jsz = lambda query: jsz(part, query)
    providers.jetstream_varz = lambda: {"config": _config(part), "stats": _stats(part), "limits": _limits(part)}
    providers.health_checks.append(lambda query: health(part, query))
    providers.streams = lambda: [stream_status(stream) for stream in part.engine.streams()]
    providers.copies = lambda: [task.status() for task in part.sourcing.tasks()]
    providers.downstream = lambda: [
        each for stream in part.engine.streams() for each in downstreams_of(stream).statuses()
    ]
    providers.store = lambda: store_status(part)


def provide_failed(path: str, why: str, providers: Providers) -> None:
    """Let the status pages say that the store cannot be opened."""
    providers.health_checks.append(
        lambda query: None if query.js_enabled_only else (503, f"JetStream storage is not available: {why}")
    )
    providers.store = lambda: StoreStatus(path=path, error=why)


# -- nats-server's pages -----------------------------------------------------------------------------------------------


def jsz(part: JetStreamService, query: JszQuery) -> Json:
    """The members of `/jsz` besides server_id and now."""
    engine = part.engine
    streams = engine.streams()
    states = [stream.log.state for stream in streams]
    page: Json = {"config": _config(part), "limits": _limits(part)} | _stats(part)
    page |= {
        "streams": len(streams),
        "consumers": sum(len(list(_consumers(stream))) for stream in streams),
        "messages": sum(state.messages for state in states),
        "bytes": sum(state.bytes for state in states),
        "total": len(_enabled(part)),
        # Eyot's own: see docs/operate/monitoring.md
        "refused": engine.store_gate.streams_refused,
        "held_back": engine.store_gate.streams_held,
    }
    failing = store_failure(part)
    if failing is not None:
        page["store_error"] = failing
    if engine.offline:
        page["offline"] = {f"{account}/{stream}": why for (account, stream), why in engine.offline.items()}
    if query.account:
        wanted = [jsa for jsa in _enabled(part) if jsa.account.name == query.account]
    elif query.accounts:
        wanted = list(islice(_enabled(part), query.offset, query.offset + query.limit))
    else:
        return page
    if query.raft:
        page |= {"streams_leader": page["streams"], "consumers_leader": page["consumers"]}
    if wanted:
        page["account_details"] = [_account(jsa, query) for jsa in wanted]
    return page


def health(part: JetStreamService, query: HealthzQuery) -> tuple[int, str] | None:
    """What is wrong with JetStream, or with the stream or consumer that was asked for; None: nothing."""
    if query.js_enabled_only:
        return None
    if part.store.closed:
        return 503, "JetStream storage is not available"
    failing = store_failure(part)
    if failing is not None:
        return 503, f"JetStream storage is failing: {failing}"
    for (account, name), why in part.engine.offline.items():
        if query.account in ("", account) and query.stream in ("", name):
            return 503, f"JetStream stream '{account} > {name}' could not be recovered: {why}"
    if not query.account or query.js_server_only:
        return None
    jsa = part.engine.accounts.get(query.account)
    if jsa is None or not jsa.enabled:
        return 404, f'JetStream account "{query.account}" not found'
    if not query.stream:
        return None
    stream = jsa.streams.get(query.stream)
    if stream is None:
        return 404, f'JetStream stream "{query.stream}" not found on account "{query.account}"'
    if query.consumer and query.consumer not in stream.consumers:
        return 404, (
            f'JetStream consumer "{query.consumer}" not found for stream "{query.stream}" on account "{query.account}"'
        )
    return None


def store_failure(part: JetStreamService) -> str | None:
    """Why nothing can be stored at present; None: it can. A full disk that has room again is held for good until it is tried."""
    store = part.store
    if store.closed:
        return "closed"
    if store.failing is not None:
        has_room = store.failing.reason == "full" and os.statvfs(part.path).f_bavail * _block(part) > _ROOM_BYTES
        return None if has_room else store.failing.message
    return store.stats.apply_failed or None


def _block(part: JetStreamService) -> int:
    return os.statvfs(part.path).f_frsize


def _config(part: JetStreamService) -> Json:
    options = part.options
    config: Json = {
        "max_memory": options.memory_max if options.memory_max >= 0 else machine_memory() // 4 * 3,
        "max_storage": options.file_max if options.file_max >= 0 else _disk_bytes(part) // 4 * 3,
        "store_dir": str(part.path),
        "sync_interval": int(options.sync_interval_s * 1e9),
    }
    if options.sync_always:
        config["sync_always"] = True
    if options.domain:
        config["domain"] = options.domain
    if options.memory_max >= 0 and options.file_max >= 0:
        config["compress_ok"] = True  # nats-server says so only where both limits are configured
    config["strict"] = options.strict
    return config


def _limits(part: JetStreamService) -> Json:
    limits = part.options.limits
    shown = {
        "max_request_batch": limits.request_batch_max,
        "max_ack_pending": limits.ack_pending_max,
        "max_ha_assets": limits.ha_assets_max,
        "max_duplicate_window": int(limits.duplicate_window_s * 1e9),
        "max_batch_inflight_per_stream": limits.batch_inflight_per_stream_max,
        "max_batch_inflight_total": limits.batch_inflight_total_max,
        "max_batch_size": limits.batch_size_max,
        "max_batch_timeout": int(limits.batch_timeout_s * 1e9),
    }
    return {name: limit for name, limit in shown.items() if limit}


def _stats(part: JetStreamService) -> Json:
    engine = part.engine
    enabled = _enabled(part)
    return {
        "memory": engine.used("memory"),
        "storage": engine.used("file"),
        "reserved_memory": engine.reserved("memory"),
        "reserved_storage": engine.reserved("file"),
        "accounts": len(enabled),
        "ha_assets": 0,
        "api": {
            "level": API_LEVEL,
            "total": sum(jsa.api_total for jsa in enabled),
            "errors": sum(jsa.api_errors for jsa in enabled),
        },
    }


def _enabled(part: JetStreamService) -> list[JetStreamAccount]:
    return [jsa for _, jsa in sorted(part.engine.accounts.items()) if jsa.enabled]


def _account(jsa: JetStreamAccount, query: JszQuery) -> Json:
    limits = jsa.limits
    assert limits is not None
    details: Json = {
        "name": jsa.account.name,
        "id": jsa.account.name,
        "memory": jsa.used("memory"),
        "storage": jsa.used("file"),
        "reserved_memory": limits.memory_max if limits.memory_max >= 0 else _UNLIMITED_RESERVATION,
        "reserved_storage": limits.file_max if limits.file_max >= 0 else _UNLIMITED_RESERVATION,
        "accounts": 0,
        "ha_assets": 0,
        "api": {"level": API_LEVEL, "total": jsa.api_total, "errors": jsa.api_errors},
    }
    if query.streams and jsa.streams:
        details["stream_detail"] = [_stream(stream, query) for _, stream in sorted(jsa.streams.items())]
    return details


def _stream(stream: Stream, query: JszQuery) -> Json:
    info = stream_info(stream)
    detail: Json = {"name": stream.name, "created": info.created, "state": info.state}
    detail["cluster"] = _cluster(stream.account.broker)
    if query.config:
        detail["config"] = info.config
    if query.consumers:
        detail["consumer_detail"] = [_without_config(consumer.info(), query) for consumer in _consumers(stream)]
    direct = [consumer for consumer in stream.consumers.values() if consumer.config.direct]
    if query.direct_consumers and direct:
        detail["direct_consumer_detail"] = [_without_config(consumer.info(), query) for consumer in direct]
    if info.mirror is not None:
        detail["mirror"] = info.mirror
    if info.sources:
        detail["sources"] = info.sources
    return detail


def _cluster(broker: Broker) -> Json:
    """A server alone leads; one with leaf remotes and no cluster is called after itself."""
    alone = {"leader": broker.server_name}
    return {"name": broker.server_name} | alone if broker.options.leafnodes.remotes else alone


def _without_config(info: msgspec.Struct, query: JszQuery) -> Json:
    page: Json = msgspec.to_builtins(info)
    if not query.config:
        page.pop("config", None)
    return page


def _consumers(stream: Stream) -> Iterator[ConsumerPort]:
    return (consumer for consumer in stream.consumers.values() if not consumer.config.direct)


def _disk_bytes(part: JetStreamService) -> int:
    """What is free on the store's file system, and what the store itself uses of it."""
    disk = os.statvfs(part.path)
    return disk.f_bavail * disk.f_frsize + part.store.disk_bytes()


# -- /eyot/status ------------------------------------------------------------------------------------------------------


def stream_status(stream: Stream) -> StreamStatus:
    state = stream.log.state
    return StreamStatus(
        account=stream.account.name,
        name=stream.name,
        messages=state.messages,
        bytes=state.bytes,
        first_seq=state.first_seq,
        last_seq=state.last_seq,
        committed_seq=stream.log.committed_seq,
        last_time=ns_to_rfc3339(state.last_ts_ns) if state.last_ts_ns else None,
        consumers=len(list(_consumers(stream))),
        storage=stream.config.storage,
        refused=stream.ingest_limiter.refused,
    )


def store_status(part: JetStreamService) -> StoreStatus:
    store, stats = part.store, part.store.stats
    disk = os.statvfs(part.path)
    return StoreStatus(
        path=str(part.path),
        last_commit=ns_to_rfc3339(store.last_commit_ns) if store.last_commit_ns else None,
        commits=stats.commits,
        flush_ms=stats.flush_ns_last / 1e6 if stats.flush_ns_last else None,
        backlog_bytes=store.backlog_bytes,
        refused=part.engine.store_gate.streams_refused,
        held_back=part.engine.store_gate.streams_held,
        error=store_failure(part),
        damaged=store.damaged,
        offline=[f"{account}/{stream}: {why}" for (account, stream), why in part.engine.offline.items()],
        free_bytes=disk.f_bavail * disk.f_frsize,
        total_bytes=disk.f_blocks * disk.f_frsize,
    )
