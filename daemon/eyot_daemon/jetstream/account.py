"""JetStream in one account: its streams, its limits, and the reservations and usage of its streams."""

import logging
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from eyot_daemon.config.accounts import AccountJetStreamOptions
from eyot_daemon.jetstream import advisories
from eyot_daemon.jetstream.config.origins import check_filters
from eyot_daemon.jetstream.config.rules import ConfigRules, Taken
from eyot_daemon.jetstream.config.stream import check_consumer_limits, check_no_overlap, checked, checked_update, same
from eyot_daemon.jetstream.retention.limits import MESSAGE_OVERHEAD
from eyot_daemon.jetstream.sourcing.deregistration import kept
from eyot_daemon.jetstream.stream.stream import RestoreConsumers, Stream
from eyot_daemon.jetstream.stream_core import Batch
from eyot_store.errors import StoreError
from eyot_wire.jetstream.error_codes import (
    JSAccountResourcesExceededErr,
    JSInsufficientResourcesErr,
    JSMaximumConsumersLimitErr,
    JSMaximumStreamsLimitErr,
    JSMemoryResourcesExceededErr,
    JSNoLimitsErr,
    JSNotEnabledForAccountErr,
    JSStorageResourcesExceededErr,
    JSStreamCreateErrF,
    JSStreamNameExistErr,
    JSStreamOfflineReasonErrF,
    JSStreamReplicasNotSupportedErr,
)
from eyot_wire.jetstream.errors import ApiError, error, fail
from eyot_wire.jetstream.model import (
    StorageType,
    StreamConfig,
    decode,
    encode,
)

if TYPE_CHECKING:
    from eyot_daemon.jetstream.server_context import ServerContext
    from eyot_daemon.jetstream.sourcing.port import SourcingPort
    from eyot_daemon.router.account import Account
    from eyot_store.log.log import Log

log = logging.getLogger("eyot.jetstream")

#: Backups and restores at a time, in the whole server: each holds up to some 30 MiB. An account that has none may always begin one.
TRANSFERS_MAX = 8
#: Backups and restores of one account at a time.
ACCOUNT_TRANSFERS_MAX = 4

#: (the stream, why it failed)
StreamDone = Callable[[Stream, StoreError | None], None]


class Transfer(Protocol):
    """A backup under way."""

    def stop(self) -> None:
        """End it."""
        ...


class Incoming(Transfer, Protocol):
    """A restore under way."""

    @property
    def config(self) -> StreamConfig: ...

    @property
    def stored_bytes(self) -> int:
        """Bytes stored so far."""
        ...

    @property
    def stored_messages(self) -> int: ...


class JetStreamAccount:
    """`limits` None: JetStream is off for this account."""

    def __init__(
        self,
        server: "ServerContext",
        account: "Account",
        limits: AccountJetStreamOptions | None,
        sourcing: "SourcingPort",
        restore_consumers: RestoreConsumers,
    ) -> None:
        self.server = server
        self._restore_consumers = restore_consumers
        self.account = account
        self.sourcing = sourcing
        self.set_limits(limits)
        self.domain = server.options.domain
        self.strict = server.options.strict
        self.streams: dict[str, Stream] = {}
        #: Backups under way (None: about to begin), and restores by the stream's name.
        self.snapshots: dict[Stream, Transfer | None] = {}
        self.restores: dict[str, Incoming] = {}
        #: requests of the API that were answered, and with an error
        self.api_total = 0
        self.api_errors = 0
        #: JetStream's error code -> requests answered with it
        self.api_errors_by_code: Counter[int] = Counter()
        self._taken = Taken()

    def __repr__(self) -> str:
        return f"<JetStreamAccount {self.account.name}>"

    def set_limits(self, limits: AccountJetStreamOptions | None) -> None:
        """Set the limits, at the start and after a reload; the server's own limits are checked again, too."""
        self.limits = limits
        options = self.server.options
        own_limits = (limits.file_max, limits.memory_max) if limits is not None else ()
        #: Whether publishing must check the remaining limits of account and server.
        limited = max(options.file_max, options.memory_max, *own_limits) >= 0
        self.storage_limited: dict[StorageType, bool] = {
            "file": limited,
            "memory": limited or self.server.memory_bound.bytes_max >= 0,
        }

    @property
    def enabled(self) -> bool:
        return self.limits is not None

    # -- life cycle --------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop with the daemon."""
        self.stop_transfers()
        for stream in list(self.streams.values()):
            stream.stop()

    def stop_transfers(self) -> None:
        """End backups and restores."""
        for session in (*self.snapshots.values(), *self.restores.values()):
            if session is not None:
                session.stop()

    # -- streams ---------------------------------------------------------------------------------------------------

    def rules(self, asked: StreamConfig) -> ConfigRules:
        """Return the context of configuration checks in this account."""
        limit_s = self.server.options.limits.duplicate_window_s
        limits = self.limits.of_replicas(asked.num_replicas) if self.limits is not None else None
        configs = {name: stream.config for name, stream in self.streams.items()}
        self._taken.follow((name, config, config.subjects) for name, config in configs.items())
        return ConfigRules(
            taken=self._taken,
            max_bytes_required=limits is not None and limits.max_bytes_required,
            stream_bytes_max=limits.stream_bytes_max(asked.storage) if limits is not None else -1,
            streams=configs,
            duplicate_window_max_ns=int(limit_s * 1e9),
        )

    def create_stream(self, asked: StreamConfig, *, pedantic: bool, storage_named: bool, done: StreamDone) -> None:
        """Create a stream, or return the existing one with this configuration. Raises JetStreamError.

        `storage_named`: the request names the storage; it is not the default.
        """
        self._check_count(asked)
        limits = self.limits_of(asked.num_replicas)
        self._check_consumers(asked, limits)
        if storage_named:
            self._check_reservation(asked, limits, asked.max_bytes)
        config = checked(asked, self.rules(asked), pedantic=pedantic)
        if config.num_replicas > 1:
            raise fail(JSStreamReplicasNotSupportedErr)
        existing = self.streams.get(config.name)
        if existing is not None:
            if not same(existing.config, config):
                raise fail(JSStreamNameExistErr)
            existing.after_commits(lambda failure: done(existing, failure))
            return
        self.check_stream_limits(config, None)
        check_filters(config)
        check_no_overlap(config, self.rules(config))
        if config.name in self.restores:
            raise fail(JSStreamCreateErrF, err="a stream of this name is being restored")
        damaged = self.server.offline.get((self.account.name, config.name))
        if damaged is not None:
            raise fail(JSStreamOfflineReasonErrF, err=damaged)
        if self.server.store.stream(self.account.name, config.name) is not None:
            raise fail(JSStreamCreateErrF, err="a stream of this name is on disk and could not be restored")

        def settle(stream: Stream, failure: StoreError | None) -> None:
            if failure is not None:
                if self.streams.get(config.name) is stream:
                    del self.streams[config.name]
                self._serve_again(config.name)
            else:
                if not stream.ended:  # a request to delete it may have come meanwhile
                    stream.start()
                    if config.mirror is not None or config.sources:
                        self.sourcing.stream_created(stream)
                advisories.stream_action(self.account, config.name, "create", self.domain)
            done(stream, failure)

        self._stage_stream(config, settle)

    def new_stream(self, stream_log: "Log", config: StreamConfig) -> Stream:
        """Return a stream of this account, not started yet."""
        return Stream(self.account, stream_log, config, self.server, self, self._restore_consumers)

    def restore_stream(self, stream_log: "Log", config: StreamConfig) -> Stream:
        """Return the stream of a stored log, with its consumers, not started yet. Raises StoreError."""
        stream = self.new_stream(stream_log, config)
        stream.rebuild_dedupe()
        self.streams[config.name] = stream
        self._restore_consumers(stream, "")
        return stream

    def start_stream(self, stream: Stream) -> None:
        """Start a restored stream."""
        self.server.wall_clock.watch()  # a jump from before is none of this stream's
        leap_ns = self.server.wall_clock.trust.leap_ns
        if leap_ns:
            stream.rebuild_dedupe(leap_ns)
        stream.start()
        stream.downstream.start()
        if stream.config.mirror is not None or stream.config.sources or kept(stream.log):
            self.sourcing.stream_created(stream)

    def _stage_stream(self, config: StreamConfig, done: StreamDone) -> None:
        store = self.server.store
        txn = store.begin()
        stream_log = store.create_stream(
            txn,
            self.account.name,
            config.name,
            encode(config),
            self.account.broker.clock.now_ns(),
            memory=config.storage == "memory",
        )
        if config.first_seq > 1:
            stream_log.skip_to(txn, config.first_seq - 1)
        stream = self.new_stream(stream_log, config)
        stream.ids.created(txn)
        self.streams[config.name] = stream
        batch = Batch()
        batch.then.append(lambda failure: done(stream, failure))
        stream.submit(txn, batch)

    def update_stream(self, stream: Stream, asked: StreamConfig, *, pedantic: bool, done: StreamDone) -> None:
        """Change a stream's configuration. Raises JetStreamError."""
        old = stream.config
        config = checked_update(old, asked, self.rules(asked), pedantic=pedantic)
        self.check_stream_limits(config, old)
        check_consumer_limits(old, config, [each.config for each in stream.consumers.values()])
        check_no_overlap(config, self.rules(config))
        if config.republish is not None and not config.republish.dest:
            config.republish.dest = ">"  # at updates only

        def settle(failure: StoreError | None) -> None:
            if failure is None:
                if any((old.mirror, old.sources, config.mirror, config.sources)):
                    self.sourcing.stream_updated(stream, old)
                advisories.stream_action(self.account, config.name, "modify", self.domain)
            done(stream, failure)

        stream.update(config, settle)

    def delete_stream(self, stream: Stream, done: StreamDone) -> None:
        """Remove a stream with everything in it."""
        self.streams.pop(stream.name, None)
        if stream.config.mirror is not None or stream.config.sources:
            self.sourcing.stream_deleted(stream)

        def settle(failure: StoreError | None) -> None:
            if failure is None:
                advisories.stream_action(self.account, stream.name, "delete", self.domain)
            else:
                self._serve_again(stream.name)
            done(stream, failure)

        stream.delete(settle)

    def _serve_again(self, name: str) -> None:
        """Serve a stream that is still on flash: its deletion failed, and so did the creation of a successor."""
        stream_log = self.server.store.stream(self.account.name, name)
        if stream_log is None or name in self.streams or not self.enabled:
            return
        try:
            self.start_stream(self.restore_stream(stream_log, decode(stream_log.config, StreamConfig, strict=False)))
        except StoreError as error:
            self.streams.pop(name, None)
            log.error("Stream '%s > %s' cannot be served again: %s", self.account.name, name, error)

    def delete_offline(self, name: str, done: Callable[[StoreError | None], None]) -> None:
        """Remove a stream that is damaged on disk."""
        store = self.server.store
        stream_log = store.stream(self.account.name, name)
        self.server.offline.pop((self.account.name, name), None)
        if stream_log is None:
            done(None)
            return
        txn = store.begin()
        stream_log.delete(txn)
        store.submit(txn, done)

    # -- limits ----------------------------------------------------------------------------------------------------

    def used(self, storage: StorageType) -> int:
        """Bytes that the account's streams hold, those that are being restored included."""
        held = sum(s.log.state.bytes for s in self.streams.values() if s.config.storage == storage)
        return held + sum(r.stored_bytes for r in self.restores.values() if r.config.storage == storage)

    def reserved(self, storage: StorageType, but: str = "") -> int:
        """Bytes that the account's streams may grow to, as far as they have a limit; all `but` one of this name."""
        configs = [s.config for s in self.streams.values()] + [r.config for r in self.restores.values()]
        return sum(
            each.max_bytes for each in configs if each.storage == storage and each.max_bytes > 0 and each.name != but
        )

    def no_storage_for(self, storage: StorageType, size: int, messages: int = 1) -> ApiError | None:
        """Return why `size` more bytes cannot be stored: the server's limit (10023) or the account's (10002)."""
        options, limits = self.server.options, self.limits
        if storage == "memory" and options.memory_max < 0 and not self.server.memory_bound.has_room(size, messages):
            return error(JSInsufficientResourcesErr)
        server_max = options.file_max if storage == "file" else options.memory_max
        if 0 <= server_max < self.server.used(storage) + size:
            return error(JSInsufficientResourcesErr)
        if limits is not None:
            account_max = limits.file_max if storage == "file" else limits.memory_max
            if 0 <= account_max < self.used(storage) + size:
                return error(JSAccountResourcesExceededErr)
        return None

    @property
    def transfers(self) -> int:
        """Backups and restores under way."""
        return len(self.snapshots) + len(self.restores)

    def has_transfer_room(self) -> bool:
        """Return whether one more backup or restore may begin."""
        own, total = self.transfers, self.server.transfers()
        return own < min(ACCOUNT_TRANSFERS_MAX, TRANSFERS_MAX) and (own == 0 or total < TRANSFERS_MAX)

    def taken_in_memory(self) -> int:
        """Return the bytes of streams in memory in this process, those being restored included."""
        states = [s.log.state for s in self.streams.values() if s.config.storage == "memory"]
        taken = sum(state.bytes + state.messages * MESSAGE_OVERHEAD for state in states)
        coming = [each for each in self.restores.values() if each.config.storage == "memory"]
        return taken + sum(each.stored_bytes + each.stored_messages * MESSAGE_OVERHEAD for each in coming)

    def limits_of(self, replicas: int) -> AccountJetStreamOptions:
        """Return the limits of streams with this many replicas.

        Raises JetStreamError 10120 where the account has other tiers only, 10039 where JetStream went off meanwhile.
        """
        if self.limits is None:
            raise fail(JSNotEnabledForAccountErr)
        limits = self.limits.of_replicas(replicas)
        if limits is None:
            raise fail(JSNoLimitsErr)
        return limits

    def check_stream_limits(self, config: StreamConfig, old: StreamConfig | None) -> None:
        """Check the limits of a new or changed stream, and of its reservation. Raises JetStreamError."""
        limits = self.limits_of(config.num_replicas)
        self._check_consumers(config, limits)
        if old is None:
            self._check_count(config)
            more = config.max_bytes
        else:
            more = max(0, max(config.max_bytes, 0) - max(old.max_bytes, 0))
        self._check_reservation(config, limits, more)

    def _check_count(self, config: StreamConfig) -> None:
        others = sum(name != config.name for name in (*self.streams, *self.restores)) if self._is_ours(config) else 0
        if 0 < self.limits_of(config.num_replicas).streams_max <= others:
            raise fail(JSMaximumStreamsLimitErr)

    def _is_ours(self, config: StreamConfig) -> bool:
        """Return whether a configuration counts with the existing streams: each tier counts separately."""
        return config.num_replicas <= 1 or not (self.limits and self.limits.tiers)

    @staticmethod
    def _check_consumers(config: StreamConfig, limits: AccountJetStreamOptions) -> None:
        if 0 < limits.consumers_max < config.max_consumers:
            raise fail(JSMaximumConsumersLimitErr)

    def _check_reservation(self, config: StreamConfig, limits: AccountJetStreamOptions, more: int) -> None:
        """Check that a stream may reserve `more`; a stream without limit (-1) requests one byte."""
        storage, options = config.storage, self.server.options
        account_max = limits.file_max if storage == "file" else limits.memory_max
        server_max = options.file_max if storage == "file" else options.memory_max
        more = more if more >= 0 else 1
        own = max(config.max_bytes, 0) - more if config.max_bytes > 0 else 0
        others = own + (self.reserved(storage, but=config.name) if self._is_ours(config) else 0)
        if 0 <= account_max < others + more or 0 <= server_max < self.server.reserved(storage) + more:
            raise fail(JSStorageResourcesExceededErr if storage == "file" else JSMemoryResourcesExceededErr)
