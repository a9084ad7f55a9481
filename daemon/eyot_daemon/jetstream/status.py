"""JetStream on the status pages: `/jsz`, its members of `/varz` and `/healthz`, and `/eyot/status`.

Field names are nats-server's. Without configured limits `/jsz` shows nats-server's defaults (three quarters of memory
and of the disk); Eyot itself then stores until the disk is full.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice

import msgspec

from eyot_daemon.jetstream.account import JetStreamAccount
from eyot_daemon.jetstream.config.rules import SERVER_LEVEL, SERVER_VERSION
from eyot_daemon.jetstream.running import RunningJetStream
from eyot_daemon.jetstream.stream.info import stream_info
from eyot_daemon.jetstream.stream.stream import Stream
from eyot_daemon.jetstream.stream_core import ConsumerPort
from eyot_daemon.machine import memory_bytes
from eyot_daemon.router.broker import Broker
from eyot_daemon.router.providers import HealthzQuery, JetStreamErrors, Json, JszQuery, Providers, Unhealthy
from eyot_daemon.turn.slices import Slices, in_slices
from eyot_daemon.version import API_LEVEL
from eyot_wire.go.time import ns_to_rfc3339
from eyot_wire.status import StoreStatus, StreamStatus

#: Streams or consumers that one slice of `/jsz` describes: 64 take 1 to 4 ms, and others wait meanwhile.
DETAILS_MAX = 64
#: A disk that was full counts as usable again with this much free space, bytes.
_ROOM_BYTES = 16 << 20
_UNLIMITED_RESERVATION = 2**64 - 1  # how nats-server shows an account without limit


def provide(jetstream: RunningJetStream, providers: Providers) -> None:
    """Let the status pages show JetStream."""
    providers.jsz = lambda query: jsz(jetstream, query)
    providers.jetstream_varz = lambda: {
        "config": _config(jetstream),
        "stats": _stats(jetstream),
        "limits": _limits(jetstream),
    }
    providers.streams = lambda: [stream_status(stream) for stream in jetstream.engine.streams()]
    providers.sourcing = lambda: [task.report.status() for task in jetstream.sourcing.tasks()]
    providers.downstream = lambda: [
        each for stream in jetstream.engine.streams() for each in stream.downstream.statuses()
    ]
    providers.store = lambda: store_status(jetstream)
    providers.jetstream_errors = lambda: _errors(jetstream)


def provide_failed(path: str, why: str, remedy: str, providers: Providers) -> None:
    """Let the status pages say that the store cannot be opened, and what to do."""
    providers.store = lambda: StoreStatus(path=path, error=why, remedy=remedy)


def _errors(jetstream: RunningJetStream) -> JetStreamErrors:
    return JetStreamErrors(
        api=[
            (jsa.account.name, code, times)
            for jsa in _enabled(jetstream)
            for code, times in jsa.api_errors_by_code.items()
        ],
        rejected=[
            (stream.account.name, stream.name, code, messages)
            for stream in jetstream.engine.streams()
            for code, messages in stream.core.rejected.items()
        ],
    )


# -- nats-server's pages -----------------------------------------------------------------------------------------------


def jsz(jetstream: RunningJetStream, query: JszQuery) -> Slices[Json]:
    """Return the members of `/jsz` besides server_id and now.

    Totals and streams are those of the first slice; each stream and consumer is as it is when its slice comes.
    """
    engine = jetstream.engine
    streams = engine.streams()
    states = [stream.log.state for stream in streams]
    page: Json = {"config": _config(jetstream), "limits": _limits(jetstream)} | _stats(jetstream)
    page |= {
        "streams": len(streams),
        "consumers": sum(len(list(_consumers(stream))) for stream in streams),
        "messages": sum(state.messages for state in states),
        "bytes": sum(state.bytes for state in states),
        "total": len(_enabled(jetstream)),
        # Eyot's own: see docs/operate/monitoring.md
        "refused": engine.server.store_gate.streams_refused,
        "held_back": engine.server.store_gate.streams_held,
    }
    failing = store_failure(jetstream)
    if failing is not None:
        page["store_error"] = failing
    if engine.server.offline:
        page["offline"] = {f"{account}/{stream}": why for (account, stream), why in engine.server.offline.items()}
    if query.account:
        wanted = [jsa for jsa in _enabled(jetstream) if jsa.account.name == query.account]
    elif query.accounts:
        wanted = list(islice(_enabled(jetstream), query.offset, query.offset + query.limit))
    else:
        return page
    if query.raft:
        page |= {"streams_leader": page["streams"], "consumers_leader": page["consumers"]}
    if wanted:
        details: list[Json] = []
        for jsa in wanted:
            detail = yield from _account(jsa, query)
            details.append(detail)
        page["account_details"] = details
    return page


def health(jetstream: RunningJetStream, query: HealthzQuery) -> Unhealthy | None:
    """Return the error of JetStream, or of the requested stream or consumer; None: healthy."""
    if query.js_server_only:
        return None
    if jetstream.store.closed:
        return 503, "JetStream storage is not available"
    if query.js_enabled_only:
        return None
    failing = store_failure(jetstream)
    if failing is not None:
        return 503, f"JetStream storage is failing: {failing}"
    for (account, name), why in jetstream.engine.server.offline.items():
        if query.account in ("", account) and query.stream in ("", name):
            return 503, f"JetStream stream '{account} > {name}' could not be recovered: {why}"
    if not query.account:
        return None
    jsa = jetstream.engine.accounts.get(query.account)
    if jsa is None or not jsa.streams:  # as in nats-server, which looks for the account's directory of streams
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


def store_failure(jetstream: RunningJetStream) -> str | None:
    """Return why the store cannot write at present; None: it can.

    A full disk that has room again counts as usable until a write fails. Where there was room when it failed, a quota
    or the store's own limit is full: only a write that succeeds shows that this is over.
    """
    store = jetstream.store
    if store.closed:
        return "closed"
    if store.failing is not None:
        was_full = store.failing.reason == "full" and store.free_at_failure <= _ROOM_BYTES
        return None if was_full and store.free_bytes() > _ROOM_BYTES else store.failing.message
    return store.stats.apply_failed or None


def _config(jetstream: RunningJetStream) -> Json:
    options = jetstream.options
    config: Json = {
        "max_memory": options.memory_max if options.memory_max >= 0 else memory_bytes() // 4 * 3,
        "max_storage": options.file_max if options.file_max >= 0 else _disk_bytes(jetstream) // 4 * 3,
        "store_dir": str(jetstream.path),
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


def _limits(jetstream: RunningJetStream) -> Json:
    limits = jetstream.options.limits
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


def _stats(jetstream: RunningJetStream) -> Json:
    engine = jetstream.engine
    enabled = _enabled(jetstream)
    return {
        "memory": engine.server.used("memory"),
        "storage": engine.server.used("file"),
        "reserved_memory": engine.server.reserved("memory"),
        "reserved_storage": engine.server.reserved("file"),
        "accounts": len(enabled),
        "ha_assets": 0,
        "api": {
            "level": API_LEVEL,
            "total": sum(jsa.api_total for jsa in enabled),
            "errors": sum(jsa.api_errors for jsa in enabled),
        },
    }


def _enabled(jetstream: RunningJetStream) -> list[JetStreamAccount]:
    return [jsa for _, jsa in sorted(jetstream.engine.accounts.items()) if jsa.enabled]


def _account(jsa: JetStreamAccount, query: JszQuery) -> Slices[Json]:
    limits = jsa.limits
    assert limits is not None
    details: Json = {
        "name": jsa.account.name_tag,
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
        shown: list[Json] = []
        for each in in_slices(sorted(jsa.streams.items()), DETAILS_MAX):
            if each is None:
                yield
            elif jsa.streams.get(each[0]) is each[1]:  # it is not deleted meanwhile
                shown.append((yield from _stream(jsa, each[1], query)))
        details["stream_detail"] = shown
    return details


def _stream(jsa: JetStreamAccount, stream: Stream, query: JszQuery) -> Slices[Json]:
    info = stream_info(stream, jsa.sourcing)
    detail: Json = {"name": stream.name, "created": info.created, "state": info.state}
    detail["cluster"] = _cluster(stream.broker)
    if query.config:
        detail["config"] = stream.config  # as stored: without the metadata of the server that answers
    if query.consumers:
        detail["consumer_detail"] = yield from _details(stream, list(_consumers(stream)), query)
    direct = [consumer for consumer in stream.consumers.values() if consumer.config.direct]
    if query.direct_consumers and direct:
        detail["direct_consumer_detail"] = yield from _details(stream, direct, query)
    if info.mirror is not None:
        detail["mirror"] = info.mirror
    if info.sources:
        detail["sources"] = info.sources
    return detail


def _details(stream: Stream, consumers: list[ConsumerPort], query: JszQuery) -> Slices[list[Json]]:
    details: list[Json] = []
    for consumer in in_slices(consumers, DETAILS_MAX):
        if consumer is None:
            yield
        elif stream.consumers.get(consumer.name) is consumer:  # it is not deleted meanwhile
            details.append(_without_config(consumer.info(), query))
    return details


def _cluster(broker: Broker) -> Json:
    """Return the cluster of this server, which leads alone."""
    alone = {"leader": broker.server_name}
    return {"name": broker.cluster} | alone if broker.cluster else alone


def _without_config(info: msgspec.Struct, query: JszQuery) -> Json:
    page: Json = msgspec.to_builtins(info)
    if not query.config:
        page.pop("config", None)
    else:
        metadata = page["config"].get("metadata", {})
        for key in (SERVER_VERSION, SERVER_LEVEL):
            metadata.pop(key, None)
    return page


def _consumers(stream: Stream) -> Iterator[ConsumerPort]:
    return (consumer for consumer in stream.consumers.values() if not consumer.config.direct)


def _disk_bytes(jetstream: RunningJetStream) -> int:
    """Return the free bytes of the store's file system, and the bytes that the store uses."""
    return jetstream.store.free_bytes() + jetstream.store.disk_bytes()


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


def store_status(jetstream: RunningJetStream) -> StoreStatus:
    store, stats = jetstream.store, jetstream.store.stats
    free_bytes, total_bytes = _file_system(jetstream)
    return StoreStatus(
        path=str(jetstream.path),
        last_commit=ns_to_rfc3339(store.last_commit_ns) if store.last_commit_ns else None,
        commits=stats.commits,
        flush_ms=stats.flush_ns_last / 1e6 if stats.flush_ns_last else None,
        backlog_bytes=store.backlog_bytes,
        refused=jetstream.engine.server.store_gate.streams_refused,
        held_back=jetstream.engine.server.store_gate.streams_held,
        error=store_failure(jetstream),
        damaged=store.damaged,
        offline=[f"{account}/{stream}: {why}" for (account, stream), why in jetstream.engine.server.offline.items()],
        free_bytes=free_bytes,
        total_bytes=total_bytes,
    )


def _file_system(jetstream: RunningJetStream) -> tuple[int | None, int | None]:
    """Return the free bytes and the size of the store's file system; None: the kernel does not say, as of a disk that is gone."""
    try:
        disk = os.statvfs(jetstream.path)
    except OSError:
        return None, None
    return disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
