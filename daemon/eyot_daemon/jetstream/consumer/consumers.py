"""All consumers: creating, changing and restoring them. Their API is in `jetstream/consumer/api.py`.

A consumer is stored beside its stream's messages: its configuration (with derived data) and its state. Consumers with
`mem_storage` and the hidden ones of mirrors and sources (`direct`) exist in memory only.
"""

import logging
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from eyot_daemon.jetstream.config import consumer as rules
from eyot_daemon.jetstream.config.rules import with_level
from eyot_daemon.jetstream.consumer.consumer import Consumer
from eyot_daemon.jetstream.consumer.reader import ConsumerReader
from eyot_daemon.jetstream.consumer.state import ConsumerState, ack_rules
from eyot_daemon.jetstream.consumer.stored_state import StateFormatError, decode_state
from eyot_store.errors import StoreError
from eyot_wire.jetstream.error_codes import JSConsumerAlreadyExists, JSConsumerDoesNotExist, JSMaximumConsumersLimitErr
from eyot_wire.jetstream.errors import JetStreamError, error, fail
from eyot_wire.jetstream.model import ConsumerAction, ConsumerConfig, InvalidJson, StreamConfig, decode, encode
from eyot_wire.nuid import short_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from eyot_daemon.jetstream.account import JetStreamAccount
    from eyot_daemon.jetstream.stream.stream import Stream

    Created = Callable[[Consumer, StoreError | None], None]

log = logging.getLogger("eyot.jetstream")


class StoredConsumer(msgspec.Struct, kw_only=True):
    """The configuration record of a consumer.

    `resume_seq`: for `last_per_subject`, the stream's last sequence when the consumer was created: up to there it
    delivers the last message of each subject, after it everything.
    """

    config: ConsumerConfig
    created_ns: int
    resume_seq: int = 0


_decode_stored = msgspec.json.Decoder(StoredConsumer).decode


class Consumers:
    """Makes, changes and restores the consumers of all streams."""

    def __init__(self) -> None:
        #: Consumers on disk that were not brought back, as (account, stream, consumer, why).
        self.unrestored: list[tuple[str, str, str, str]] = []

    # -- creating and changing -------------------------------------------------------------------------------------

    def create(
        self,
        jsa: "JetStreamAccount",
        stream: "Stream",
        config: ConsumerConfig,
        action: ConsumerAction,
        *,
        pedantic: bool,
        done: "Created",
    ) -> None:
        """Create a consumer, or update the one of this name. Raises JetStreamError.

        `done` is called when it is on flash and started.
        """
        existing = stream.consumers.get(config.durable_name or config.name)
        if existing is not None:
            config.pause_until = existing.config.pause_until  # only CONSUMER.PAUSE changes it
        limits = _rules_of(jsa)
        # As nats-server has it, an ephemeral that left its threshold to the server is another than the one that is there.
        differs = not config.durable_name and not config.inactive_threshold
        durable = bool(existing.config.durable_name) if existing is not None else None
        _complete(config, stream.config, limits, pedantic=pedantic, durable=durable)
        if existing is not None:
            assert isinstance(existing, Consumer)
            if action == "create" and differs:
                raise fail(JSConsumerAlreadyExists)
            self._change(stream, existing, config, action, done)
            return
        if action == "update":
            raise fail(JSConsumerDoesNotExist)
        _check_room(jsa, stream.config, config, partial(_other_configs, stream, None))
        self._make(stream, config, done)

    def configure_internal(
        self, jsa: "JetStreamAccount", stream: "Stream", config: ConsumerConfig, done: "Created"
    ) -> None:
        """Create or change a consumer for the daemon's own use. Its filters may overlap. Raises JetStreamError."""
        limits = _rules_of(jsa)
        rules.complete(config, stream.config, limits, pedantic=False)
        rules.check(config, stream.config, limits, overlapping=True)
        existing = stream.consumers.get(config.durable_name)
        if existing is None:
            _check_room(jsa, stream.config, config, partial(_other_configs, stream, None))
            self._make(stream, config, done)
            return
        assert isinstance(existing, Consumer)
        if rules.same_config(existing.config, config):
            existing.when_stored(lambda failure: done(existing, failure))
        else:
            self.reconfigure(existing, config, lambda failure: done(existing, failure))

    def _change(
        self, stream: "Stream", existing: Consumer, config: ConsumerConfig, action: ConsumerAction, done: "Created"
    ) -> None:
        if rules.same_config(existing.config, config):
            existing.when_stored(lambda failure: done(existing, failure))
            return
        if action == "create":
            raise fail(JSConsumerAlreadyExists)
        if stream.config.retention == "workqueue":
            rules.check_workqueue_filters(config, _other_configs(stream, existing))
        rules.check_update(existing.config, config, bound=existing.bound)
        before = rules.filters_of(existing.config)

        def settle(failure: StoreError | None) -> None:
            if failure is None and before != rules.filters_of(config) and not existing.closed:
                stream.retention.drop_unneeded_now()
            done(existing, failure)

        self.reconfigure(existing, config, settle)

    @staticmethod
    def reconfigure(consumer: Consumer, config: ConsumerConfig, done: "Callable[[StoreError | None], None]") -> None:
        """Apply a checked configuration and store it; rolled back if that fails."""
        consumer.update(config)

        def settle(failure: StoreError | None) -> None:
            if failure is None:
                consumer.committed_config = config
            elif consumer.config is config and not consumer.closed:
                consumer.update(consumer.committed_config)  # changes before this one may have failed, too
            done(failure)

        _store(consumer, settle)

    @staticmethod
    def reset(consumer: Consumer, seq: int, done: "Callable[[int, StoreError | None], None]") -> None:
        """Let a consumer continue at `seq` (0: after its ack floor); `done` receives that position when it is on flash.

        If that fails, the consumer is served again as it is stored.
        """
        at = consumer.reset(seq)

        def settle(failure: StoreError | None) -> None:
            if failure is not None and not consumer.closed:
                consumer.discard()
                consumer.stream.restore_consumer(consumer.name)
            done(at, failure)
            consumer.go_on()

        _store(consumer, settle)

    def _make(self, stream: "Stream", config: ConsumerConfig, done: "Created") -> None:
        reader = ConsumerReader(stream.log, config)
        start_sseq = reader.start(config, stream.config)
        state = ConsumerState(ack_rules(config), start_sseq)
        name = config.durable_name or config.name or _free_name(stream)
        created_ns = stream.broker.clock.now_ns()
        consumer = Consumer(stream, name, config, created_ns, reader, state)
        stream.add_consumer(consumer)

        def staged(failure: StoreError | None) -> None:
            # The start was chosen by messages and removals that were not on flash yet. They never will be.
            if failure is not None:
                state.rewind_to(reader.start(config, stream.config))
                reader.gave_back()
                consumer.writer.acknowledged((), drop=False)  # the start that was written is another one

        stream.after_commits(staged)

        def settle(failure: StoreError | None) -> None:
            if failure is not None:
                consumer.not_created()
                stream.remove_consumer(consumer)
                stream.restore_consumer(name)  # the deletion of the one before it has failed, too
            elif not consumer.closed:
                # Its start is announced when all earlier messages are on flash: a mirror regards everything before
                # `delivered` as removed.
                consumer.hold()
                consumer.start()
            done(consumer, failure)
            if failure is None:
                consumer.advisories.created()
                stream.after_commits(lambda _: consumer.go_on())

        _store(consumer, settle)

    # -- bringing back ---------------------------------------------------------------------------------------------

    def restore(self, stream: "Stream", only: str = "") -> None:
        """Make the stored consumers of a stream live again, or the one with the name `only`."""
        for name, config, state in stream.log.consumers():
            if only and name != only:
                continue
            try:
                consumer = self._restored(stream, name, config, state)
            except (InvalidJson, StateFormatError) as problem:
                self.unrestored.append((stream.account.name, stream.name, name, str(problem)))
                log.error("Consumer '%s > %s > %s' stays unused: %s", stream.account.name, stream.name, name, problem)
                continue
            stream.add_consumer(consumer)
            consumer.start()
            consumer.find_earlier_lasts()

    @staticmethod
    def _restored(stream: "Stream", name: str, config_record: bytes, state_record: bytes) -> Consumer:
        stored = _read_config(config_record)
        config = stored.config
        clock = stream.broker.clock
        state = decode_state(state_record, ack_rules(config), clock.monotonic(), clock.now_ns())
        reader = ConsumerReader(stream.log, config)
        if stored.resume_seq > state.delivered_sseq:
            reader.begin_last_per_subject(stored.resume_seq, state.delivered_sseq)
        consumer = Consumer(stream, name, config, stored.created_ns, reader, state)
        consumer.purged()  # messages may have left the stream while this consumer's state was not written
        return consumer


def _read_config(record: bytes) -> StoredConsumer:
    """Return a configuration record. Raises InvalidJson.

    Read as what this release writes first: reading as leniently as nats-server takes ten times as long.
    """
    try:
        return _decode_stored(record)
    except msgspec.MsgspecError:
        return decode(record, StoredConsumer, strict=False)


def _store(consumer: Consumer, done: "Callable[[StoreError | None], None]") -> None:
    """Write configuration and state; consumers in memory are done at once."""
    if not consumer.durable:
        done(None)
        return
    stream = consumer.stream
    listed = consumer.reader.last_per_subject
    record = StoredConsumer(
        config=consumer.config,
        created_ns=consumer.created_ns,
        resume_seq=listed.resume if listed is not None else 0,
    )
    txn = stream.store.begin()
    stream.log.put_consumer(txn, consumer.name, encode(record), consumer.encoded_state())
    consumer.storing(txn, done)


def check_restored(
    jsa: "JetStreamAccount",
    stream: StreamConfig,
    config: ConsumerConfig,
    others: "Callable[[], list[ConsumerConfig]]",
) -> None:
    """Check a consumer from a backup for a stream about to start, beside `others`; fill in its defaults.

    Raises JetStreamError.
    """
    _complete(config, stream, _rules_of(jsa), pedantic=False)
    _check_room(jsa, stream, config, others)


def _complete(
    config: ConsumerConfig,
    stream: StreamConfig,
    limits: rules.ConsumerRules,
    *,
    pedantic: bool,
    durable: bool | None = None,
) -> None:
    """Fill in the defaults and check. Raises JetStreamError."""
    config.metadata = with_level(
        config.metadata, rules.consumer_level(config)
    )  # the level of the requested configuration
    rules.complete(config, stream, limits, pedantic=pedantic, durable=durable)
    rules.check(config, stream, limits)


def _rules_of(jsa: "JetStreamAccount") -> rules.ConsumerRules:
    limits = jsa.server.options.limits
    account = jsa.limits
    return rules.ConsumerRules(
        max_ack_pending=limits.ack_pending_max,
        max_ack_pending_account=account.ack_pending_max if account is not None else 0,
        max_request_batch=limits.request_batch_max,
    )


def _other_configs(stream: "Stream", than: Consumer | None) -> list[ConsumerConfig]:
    return [other.config for other in stream.consumers.values() if other is not than and not other.config.direct]


def _check_room(
    jsa: "JetStreamAccount",
    stream: StreamConfig,
    config: ConsumerConfig,
    others: "Callable[[], list[ConsumerConfig]]",
) -> None:
    """Is another consumer allowed on the stream? The others may be very many: they are listed only where it matters."""
    most = stream.max_consumers
    account_most = jsa.limits.consumers_max if jsa.limits is not None else -1
    if most <= 0 or 0 < account_most < most:
        most = account_most
    if most > 0 and not config.direct and most <= len(others()):
        raise JetStreamError(error(JSMaximumConsumersLimitErr))
    if stream.retention == "workqueue" and not config.direct:
        rules.check_workqueue(config, others())


def _free_name(stream: "Stream") -> str:
    while True:
        name = short_id()
        if name not in stream.consumers:
            return name
