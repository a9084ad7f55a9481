"""The last step of a restore: configuration and consumers join the messages in one transaction, and the stream lives."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from eyot_daemon.jetstream import advisories
from eyot_daemon.jetstream.backup.consumer_archive import config_of, records_of
from eyot_daemon.jetstream.backup.restored_parts import RestoredParts
from eyot_daemon.jetstream.config.stream import check_no_overlap, checked
from eyot_daemon.jetstream.consumer.consumers import check_restored
from eyot_daemon.jetstream.consumer.reader import ConsumerReader
from eyot_daemon.jetstream.messages.batch import Batch
from eyot_daemon.jetstream.retention import limits
from eyot_daemon.jetstream.stream.stream import Stream
from eyot_store.errors import StoreError
from eyot_wire.archive.errors import ArchiveError
from eyot_wire.jetstream.error_codes import JSStreamNameExistRestoreFailedErr
from eyot_wire.jetstream.errors import JetStreamError, fail
from eyot_wire.jetstream.model import ConsumerConfig, InvalidJson, StreamConfig, encode

if TYPE_CHECKING:
    from eyot_daemon.jetstream.account import JetStreamAccount
    from eyot_store.txn import Txn

#: (the stream, or why there is none)
Done = Callable[[Stream | None, StoreError | None], None]


def commit_stream(jsa: "JetStreamAccount", config: StreamConfig, parts: RestoredParts, done: Done) -> None:
    """Make a stream of what was restored. Raises JetStreamError, ArchiveError; the store holds no stream then."""
    if config.name in jsa.streams:
        raise fail(JSStreamNameExistRestoreFailedErr)
    config = checked(config, jsa.rules(config))  # again: there may be other streams now
    check_no_overlap(config, jsa.rules(config))
    restoring = parts.restoring
    store, log = restoring.store, restoring.log
    txn = store.begin()
    try:
        restoring.go_to(txn, parts.last_seq, parts.last_ts_ns)
        parts.marks.stage(log, txn, jsa.account.broker.clock.now_ns())
        in_memory = _stage_consumers(jsa, config, parts, txn)
        log.set_config(txn, encode(config))
    except BaseException:
        store.abort(txn)
        raise

    def settle(failure: StoreError | None) -> None:
        if failure is not None:
            done(None, failure)
            return
        stream = jsa.engine.bring_live(jsa, log, config)
        advisories.stream_action(jsa.account, config.name, "create", jsa.domain)
        _tidy(stream, in_memory)
        done(stream, None)

    store.submit(txn, settle)


def _stage_consumers(jsa: "JetStreamAccount", config: StreamConfig, parts: RestoredParts, txn: "Txn") -> list[str]:
    """Stage the consumers' records; returns the names of those that live in memory."""
    log = parts.restoring.log
    clock = jsa.account.broker.clock
    found: dict[str, ConsumerConfig] = {}
    for part in parts.consumers:
        try:
            consumer, created_ns = config_of(part)
            if consumer.direct:
                continue  # made anew by whoever copies from here
            check_restored(jsa, config, consumer, lambda: list(found.values()))
            name = consumer.durable_name or consumer.name
            if name in found:
                raise InvalidJson("there are two of the name")
            start = ConsumerReader(log, consumer).start(consumer, config)
            records = records_of(
                part, consumer, created_ns, start, log.state.last_seq, clock.monotonic(), clock.now_ns()
            )
        except (JetStreamError, InvalidJson) as problem:
            why = problem.api_error.description if isinstance(problem, JetStreamError) else problem
            raise ArchiveError(f'error restoring consumer ["{part.name}"]: {why}') from None
        found[name] = consumer
        log.put_consumer(txn, name, *records)
    return [name for name, each in found.items() if each.mem_storage or config.storage == "memory"]


def _tidy(stream: Stream, in_memory: list[str]) -> None:
    """Consumers in memory have no records; and the stream may hold more than its limits now allow."""
    batch = Batch()
    with stream.staging() as txn:
        for name in in_memory:
            stream.log.delete_consumer(txn, name)
        batch.removed = limits.enforce(stream.config, stream.log, txn, ())
        if stream.config.max_msgs_per_subject > 0:
            batch.removed += stream.sweep.begin(txn)
        if not txn.parts:
            stream.store.abort(txn)
            return
    stream.submit(txn, batch)
