"""JetStream in one account: its streams, its limits, and the subscription through which its API is reached."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from eyot_daemon.config.accounts import AccountJetStreamOptions
from eyot_daemon.jetstream import advisories
from eyot_daemon.jetstream.api import dispatch as api
from eyot_daemon.jetstream.api_request import ApiRequest
from eyot_daemon.jetstream.backup.restore import Restore
from eyot_daemon.jetstream.backup.snapshot import Snapshot
from eyot_daemon.jetstream.config.origins import check_filters
from eyot_daemon.jetstream.config.rules import ConfigRules
from eyot_daemon.jetstream.config.stream import check_no_overlap, checked, same
from eyot_daemon.jetstream.config.taken import Taken
from eyot_daemon.jetstream.config.update import check_consumer_limits, checked_update
from eyot_daemon.jetstream.messages.batch import Batch
from eyot_daemon.jetstream.stream.stream import Stream
from eyot_daemon.router.account_setup import add_domain_mappings
from eyot_daemon.router.subscription import Kind, Origin, Subscription
from eyot_daemon.version import API_LEVEL
from eyot_store.errors import StoreError
from eyot_wire.jetstream.error_codes import (
    JSAccountResourcesExceededErr,
    JSInsufficientResourcesErr,
    JSMaximumConsumersLimitErr,
    JSMaximumStreamsLimitErr,
    JSMemoryResourcesExceededErr,
    JSNoLimitsErr,
    JSStorageResourcesExceededErr,
    JSStreamCreateErrF,
    JSStreamNameExistErr,
    JSStreamOfflineReasonErrF,
    JSStreamReplicasNotSupportedErr,
)
from eyot_wire.jetstream.errors import ApiError, error, fail
from eyot_wire.jetstream.model import (
    AccountInfo,
    AccountLimits,
    AccountTier,
    ApiStats,
    StorageType,
    StreamConfig,
    encode,
)
from eyot_wire.subject import matches

if TYPE_CHECKING:
    from eyot_daemon.jetstream.engine import JetStream
    from eyot_daemon.router.account import Account

log = logging.getLogger("eyot.jetstream")

API_SUBJECT = b"$JS.API.>"
_INFO_SUBJECT = b"$JS.API.INFO"
#: (the stream, why it failed)
StreamDone = Callable[[Stream, StoreError | None], None]

#: The tier of all that one server has.
OUR_TIER = "R1"

_Queued = tuple[bytes, bytes, bytes, bytes, Origin | None]


#: What stands in the place of the limits where there are tiers.
_IN_TIERS = AccountLimits(
    max_memory=0,
    max_storage=0,
    max_streams=0,
    max_consumers=0,
    max_ack_pending=0,
    memory_max_stream_bytes=0,
    storage_max_stream_bytes=0,
)


class JetStreamAccount:
    """`limits` None: JetStream is off for this account; its API answers 10039 to everything."""

    kind = Kind.JETSTREAM

    def __init__(self, engine: "JetStream", account: "Account", limits: AccountJetStreamOptions | None) -> None:
        self.engine = engine
        self.account = account
        self.set_limits(limits)
        self.domain = engine.options.domain
        self.strict = engine.options.strict
        self.streams: dict[str, Stream] = {}
        #: Backups under way (None: about to begin), and restores by the stream's name.
        self.snapshots: dict[Stream, Snapshot | None] = {}
        self.restores: dict[str, Restore] = {}
        self.api_total = 0
        self.api_errors = 0
        self._inbox: list[_Queued] = []
        self._taken = Taken()
        self._subscription: Subscription | None = None

    def __repr__(self) -> str:
        return f"<JetStreamAccount {self.account.name}>"

    def set_limits(self, limits: AccountJetStreamOptions | None) -> None:
        """At the start, and when the configuration changes; the server's own limits are looked at again too."""
        self.limits = limits
        options = self.engine.options
        own_limits = (limits.file_max, limits.memory_max) if limits is not None else ()
        #: Whether publishing must look at what account and server have left.
        limited = max(options.file_max, options.memory_max, *own_limits) >= 0
        self.storage_limited = {"file": limited, "memory": limited or self.engine.memory_bound.bytes_max >= 0}

    @property
    def enabled(self) -> bool:
        return self.limits is not None

    # -- life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Answer the API from now on, under the domain's name too."""
        if self.domain:
            add_domain_mappings(self.account, self.domain)
        self.answer()

    def answer(self) -> None:
        """Subscribe to the API, or leave it: an account without JetStream that imports `$JS.API.INFO` asks others alone."""
        wanted = self.enabled or not self._imports_info()
        if wanted and self._subscription is None:
            self._subscription = self.account.subscribe(API_SUBJECT, self)
        elif not wanted and self._subscription is not None:
            self.account.unsubscribe(self._subscription)
            self._subscription = None

    def _imports_info(self) -> bool:
        configured = next((one for one in self.account.broker.options.accounts if one.name == self.account.name), None)
        imports = () if configured is None else configured.imports
        return any(matches(one.to or one.subject, _INFO_SUBJECT) for one in imports if one.kind == "service")

    def stop(self) -> None:
        """The daemon stops."""
        if self._subscription is not None:
            self.account.unsubscribe(self._subscription)
            self._subscription = None
        self.stop_transfers()
        for stream in list(self.streams.values()):
            stream.stop()

    def stop_transfers(self) -> None:
        """End backups and restores."""
        for session in (*self.snapshots.values(), *self.restores.values()):
            if session is not None:
                session.stop()

    # -- Destination: the API --------------------------------------------------------------------------------------

    def deliver(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> bool:
        """Take a request; it is answered at the end of the turn, after what the turn published before it."""
        if not self._inbox:
            self.account.broker.mark_dirty(self)
        self._inbox.append((subject, reply, header, payload, origin))
        return True

    def flush(self) -> None:
        inbox, self._inbox = self._inbox, []
        for subject, reply, header, payload, origin in inbox:
            api.dispatch(self, subject, reply, header, payload, origin)

    def answered(self, request: ApiRequest, response: bytes, *, failed: bool) -> None:
        """Send the answer of a request."""
        endpoint = request.endpoint
        told = not endpoint.untold and (failed or not endpoint.quiet)
        self.api_total += told
        if told and failed:
            self.api_errors += 1
        if request.reply:
            self.account.publish(request.reply, payload=response)
        if told:
            advisories.api_audit(request, response)

    # -- streams ---------------------------------------------------------------------------------------------------

    def rules(self, asked: StreamConfig) -> ConfigRules:
        """What the checks of a configuration in this account depend on."""
        limit_s = self.engine.options.limits.duplicate_window_s
        limits = self.limits.of_replicas(asked.num_replicas) if self.limits is not None else None
        self._taken.follow((name, stream.config, stream.config.subjects) for name, stream in self.streams.items())
        return ConfigRules(
            taken=self._taken,
            max_bytes_required=limits is not None and limits.max_bytes_required,
            stream_bytes_max=limits.stream_bytes_max(asked.storage) if limits is not None else -1,
            streams={name: stream.config for name, stream in self.streams.items()},
            duplicate_window_max_ns=int(limit_s * 1e9),
        )

    def create_stream(self, asked: StreamConfig, *, pedantic: bool, storage_named: bool, done: StreamDone) -> None:
        """Create a stream, or find that it is there with this configuration. `storage_named`: it was asked for, and is not the default.
        Raises JetStreamError."""
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
        damaged = self.engine.offline.get((self.account.name, config.name))
        if damaged is not None:
            raise fail(JSStreamOfflineReasonErrF, err=damaged)
        if self.engine.store.stream(self.account.name, config.name) is not None:
            raise fail(JSStreamCreateErrF, err="a stream of this name is on disk and could not be restored")

        def settle(stream: Stream, failure: StoreError | None) -> None:
            if failure is not None:
                if self.streams.get(config.name) is stream:
                    del self.streams[config.name]
            else:
                stream.start()
                if config.mirror is not None or config.sources:
                    self.engine.sourcing.stream_created(stream)
                advisories.stream_action(self.account, config.name, "create", self.domain)
            done(stream, failure)

        self._stage_stream(config, settle)

    def _stage_stream(self, config: StreamConfig, done: StreamDone) -> None:
        store = self.engine.store
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
        stream = Stream(self, stream_log, config)
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
                    self.engine.sourcing.stream_updated(stream, old)
                advisories.stream_action(self.account, config.name, "modify", self.domain)
            done(stream, failure)

        stream.update(config, settle)

    def delete_stream(self, stream: Stream, done: StreamDone) -> None:
        """Remove a stream with everything in it."""
        self.streams.pop(stream.name, None)
        if stream.config.mirror is not None or stream.config.sources:
            self.engine.sourcing.stream_deleted(stream)

        def settle(failure: StoreError | None) -> None:
            if failure is None:
                advisories.stream_action(self.account, stream.name, "delete", self.domain)
            done(stream, failure)

        stream.delete(settle)

    def delete_offline(self, name: str, done: Callable[[StoreError | None], None]) -> None:
        """Remove a stream that is damaged on disk."""
        engine = self.engine
        stream_log = engine.store.stream(self.account.name, name)
        engine.offline.pop((self.account.name, name), None)
        if stream_log is None:
            done(None)
            return
        txn = engine.store.begin()
        stream_log.delete(txn)
        engine.store.submit(txn, done)

    # -- limits ----------------------------------------------------------------------------------------------------

    def used(self, storage: StorageType) -> int:
        """Bytes that the account's streams hold, those that are being restored included."""
        held = sum(s.log.state.bytes for s in self.streams.values() if s.config.storage == storage)
        return held + sum(r.parts.stored_bytes for r in self.restores.values() if r.config.storage == storage)

    def reserved(self, storage: StorageType, but: str = "") -> int:
        """Bytes that the account's streams may grow to, as far as they have a limit; all `but` one of this name."""
        configs = [s.config for s in self.streams.values()] + [r.config for r in self.restores.values()]
        return sum(
            each.max_bytes for each in configs if each.storage == storage and each.max_bytes > 0 and each.name != but
        )

    def no_storage_for(self, storage: StorageType, size: int, messages: int = 1) -> ApiError | None:
        """Why `size` more bytes cannot be stored: the server's limit (10023) or the account's (10002)."""
        options, limits = self.engine.options, self.limits
        if storage == "memory" and options.memory_max < 0 and not self.engine.memory_bound.has_room(size, messages):
            return error(JSInsufficientResourcesErr)
        server_max = options.file_max if storage == "file" else options.memory_max
        if 0 <= server_max < self.engine.used(storage) + size:
            return error(JSInsufficientResourcesErr)
        if limits is not None:
            account_max = limits.file_max if storage == "file" else limits.memory_max
            if 0 <= account_max < self.used(storage) + size:
                return error(JSAccountResourcesExceededErr)
        return None

    def limits_of(self, replicas: int) -> AccountJetStreamOptions:
        """The limits of streams with so many replicas. Raises JetStreamError 10120 where the account has other tiers only."""
        assert self.limits is not None, "JetStream is on for this account"
        limits = self.limits.of_replicas(replicas)
        if limits is None:
            raise fail(JSNoLimitsErr)
        return limits

    def check_stream_limits(self, config: StreamConfig, old: StreamConfig | None) -> None:
        """Limits on what a stream may have and reserve, for a new one or one that changes. Raises JetStreamError."""
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
        """Whether it counts together with what is here: where there are tiers, each counts for itself."""
        return config.num_replicas <= 1 or not (self.limits and self.limits.tiers)

    @staticmethod
    def _check_consumers(config: StreamConfig, limits: AccountJetStreamOptions) -> None:
        if 0 < limits.consumers_max < config.max_consumers:
            raise fail(JSMaximumConsumersLimitErr)

    def _check_reservation(self, config: StreamConfig, limits: AccountJetStreamOptions, more: int) -> None:
        """Whether a stream may reserve `more` than it has; one without a limit (-1) asks for a byte."""
        storage, options = config.storage, self.engine.options
        account_max = limits.file_max if storage == "file" else limits.memory_max
        server_max = options.file_max if storage == "file" else options.memory_max
        more = more if more >= 0 else 1
        own = max(config.max_bytes, 0) - more if config.max_bytes > 0 else 0
        others = own + (self.reserved(storage, but=config.name) if self._is_ours(config) else 0)
        if 0 <= account_max < others + more or 0 <= server_max < self.engine.reserved(storage) + more:
            raise fail(JSStorageResourcesExceededErr if storage == "file" else JSMemoryResourcesExceededErr)

    # -- account info ----------------------------------------------------------------------------------------------

    def info(self) -> AccountInfo:
        """Usage and limits; in an account with tiers, the limits are the tier's."""
        limits = self.limits or AccountJetStreamOptions()
        usage = {
            "memory": self.used("memory"),
            "storage": self.used("file"),
            "reserved_memory": self.reserved("memory"),
            "reserved_storage": self.reserved("file"),
            "streams": len(self.streams),
            "consumers": sum(
                1 for s in self.streams.values() for consumer in s.consumers.values() if not consumer.config.direct
            ),
        }
        tiers = {
            name: AccountTier(**usage, limits=_shown(tier)) if name == OUR_TIER else AccountTier(limits=_shown(tier))
            for name, tier in limits.tiers
        }
        return AccountInfo(
            **usage,
            limits=_IN_TIERS if tiers else _shown(limits),
            domain=self.domain,
            # A request counts once it is answered; messages that were read do not count at all.
            api=ApiStats(level=API_LEVEL, total=self.api_total, errors=self.api_errors),
            tiers=tiers,
        )


def _shown(limits: AccountJetStreamOptions) -> AccountLimits:
    return AccountLimits(
        max_memory=limits.memory_max,
        max_storage=limits.file_max,
        max_streams=limits.streams_max,
        max_consumers=limits.consumers_max,
        max_ack_pending=limits.ack_pending_max,
        memory_max_stream_bytes=limits.memory_stream_bytes_max,
        storage_max_stream_bytes=limits.file_stream_bytes_max,
        max_bytes_required=limits.max_bytes_required,
    )
