"""JetStream on this server: the store, the accounts that have it, and bringing everything back at start.

Built by the composition root. `start` restores all streams and consumers from the store, then opens the API; `stop` ends
everything before the store is closed.
"""

import logging

from eyot_daemon.config.accounts import GLOBAL_ACCOUNT, AccountJetStreamOptions
from eyot_daemon.config.jetstream import JetStreamOptions
from eyot_daemon.jetstream.account import JetStreamAccount
from eyot_daemon.jetstream.api import dispatch as api
from eyot_daemon.jetstream.api.account_purge import AccountPurge
from eyot_daemon.jetstream.backup.restoring_log import is_restoring
from eyot_daemon.jetstream.clock_trust import ClockTrust
from eyot_daemon.jetstream.clock_watch import ClockWatch
from eyot_daemon.jetstream.downstream.tracker import downstreams_of, messages_missed
from eyot_daemon.jetstream.ingest.limiter import StoreGate
from eyot_daemon.jetstream.messages.batch_budget import BatchBudget
from eyot_daemon.jetstream.ports import ConsumersPort, SourcingPort
from eyot_daemon.jetstream.read_thread import Beside, Inline
from eyot_daemon.jetstream.retention.memory_bound import MESSAGE_OVERHEAD, MemoryBound
from eyot_daemon.jetstream.sourcing.deregistration import kept
from eyot_daemon.jetstream.sourcing.sourcing_off import SourcingOff
from eyot_daemon.jetstream.stream.stream import Stream
from eyot_daemon.router.account import Account
from eyot_daemon.router.broker import Broker
from eyot_daemon.turn.timers import TimerHandle
from eyot_store.errors import StoreError
from eyot_store.log.log import Log
from eyot_store.store import Store
from eyot_wire.go.time import rfc3339_to_ns
from eyot_wire.jetstream.model import InvalidJson, StorageType, StreamConfig, decode

log = logging.getLogger("eyot.jetstream")

#: The wall clock is looked at this often even if nothing is stored, so that a restart does not lose a jump.
CLOCK_CHECK_S = 15.0


class JetStream:
    """`consumers` and `sourcing` are the rooms next door; see `ports.py`. `beside` takes long reads off the loop.

    The store's `notify` must end each turn with the broker's flush, since answers leave from commit callbacks.
    """

    def __init__(
        self,
        broker: Broker,
        store: Store,
        options: JetStreamOptions,
        *,
        consumers: ConsumersPort,
        sourcing: SourcingPort | None = None,
        beside: Beside | None = None,
        machine_bytes: int = -1,
    ) -> None:
        self.broker = broker
        self.store = store
        self.options = options
        self.consumers = consumers
        self.sourcing: SourcingPort = sourcing or SourcingOff()
        self.beside: Beside = beside or Inline()
        #: of streams in memory, where no limit of theirs is configured
        self.memory_bound = MemoryBound(machine_bytes // 4 * 3, self._taken_in_memory)
        self.packed_reads_open = 0
        self.batch_budget = BatchBudget()
        self.store_gate = StoreGate(broker.timers, store)
        self.clock_watch = ClockWatch(broker.clock)
        self.clock_trust = ClockTrust(broker.clock, store.path)
        self._clock_timer: TimerHandle | None = None
        self.accounts: dict[str, JetStreamAccount] = {}
        self.endpoints = api.table(tuple(consumers.endpoints))
        #: Streams on disk that were not brought back, as (account, stream, why).
        self.unrestored: list[tuple[str, str, str]] = []
        #: Streams that are damaged on disk, by account and name, and why nothing of them is served.
        self.offline: dict[tuple[str, str], str] = {}
        store.on_fence = self._went_offline

    # -- life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Restore what the store holds, then take messages and requests."""
        for account in self.broker.each_account():
            if not account.is_system:
                self.accounts[account.name] = JetStreamAccount(self, account, self._limits_for(account.name))
        for stream_log in self.store.streams():
            if is_restoring(stream_log.config):
                self._forget_restoring(stream_log)
            else:
                self._restore(stream_log)
        self.clock_trust.begin(max((each.log.state.last_ts_ns for each in self.streams()), default=0))
        # Mirrors and sources ask as soon as they start: whom they ask, of this account or another, must be there.
        for jsa in self.accounts.values():
            jsa.start()
        for stream in self.streams():
            self._start_stream(stream)
        self.clock_trust.begun()
        if self.broker.system_account is not None:
            AccountPurge(self, self.broker.system_account)
        self.broker.links.messages_missed = self._copies_missed
        self._watch_clock_on()

    def _copies_missed(self, account: Account) -> bool:
        jsa = self.accounts.get(account.name)
        return jsa is not None and messages_missed(jsa.streams.values())

    def _watch_clock_on(self) -> None:
        self.watch_clock()
        self.clock_trust.touch()
        if self.clock_trust.is_settled():
            self._clock_was_right()
        timers = self.broker.timers
        self._clock_timer = timers.call_at(self.broker.clock.monotonic() + CLOCK_CHECK_S, self._watch_clock_on)

    def watch_clock(self) -> None:
        """Asked before anything is stored or expires by time: if the wall clock has jumped, no message has aged by that."""
        jump_ns = self.clock_watch.jumped_ns()
        if jump_ns:
            log.warning("The clock jumped by %.1f s", jump_ns / 1e9)
            self.clock_trust.end()  # whoever starts next compares with the clock as it is from now on
            for stream in self.streams():
                if stream.live:
                    stream.dedupe.clock_jumped(jump_ns)
                    stream.expiry.clock_jumped(jump_ns)

    def heard_time(self, told: str) -> None:
        """A linked server that believes its clock says what time it is (RFC 3339)."""
        if not self.clock_trust.is_doubted:
            return
        try:
            peer_ns = rfc3339_to_ns(told)
        except ValueError:
            return
        self.watch_clock()
        if self.clock_trust.heard(peer_ns):
            self._clock_was_right()

    def _clock_was_right(self) -> None:
        for stream in self.streams():
            if stream.live:
                stream.expiry.clock_was_right()

    def stop(self) -> None:
        """End everything that runs; what was submitted to the store still commits."""
        if self._clock_timer is not None:
            self._clock_timer.cancel()
        self.clock_trust.end()
        self.sourcing.stop()
        self.beside.stop()
        for jsa in self.accounts.values():
            jsa.stop()

    def reload(self, options: JetStreamOptions) -> None:
        """The configuration changed (the broker's options are the new ones): limits, and which accounts have JetStream."""
        self.options = options
        for account in tuple(self.broker.each_account()):
            if account.is_system:
                continue
            limits = self._limits_for(account.name)
            jsa = self.accounts.get(account.name)
            if jsa is None:
                jsa = self.accounts[account.name] = JetStreamAccount(self, account, None)
                jsa.start()
            had, has = jsa.enabled, limits is not None
            if had and not has:
                self._disable(jsa)
            jsa.set_limits(limits)
            jsa.answer()
            if has and not had:
                self._restore_streams(jsa)
        for name in [name for name in self.accounts if name not in self.broker.accounts]:
            jsa = self.accounts.pop(name)
            self._disable(jsa)
            jsa.stop()

    def _disable(self, jsa: JetStreamAccount) -> None:
        """JetStream is off for this account from now on; its streams stay on disk."""
        jsa.stop_transfers()
        for stream in tuple(jsa.streams.values()):
            if stream.config.mirror is not None or stream.config.sources:
                self.sourcing.stream_stopped(stream)
            stream.stop()
        jsa.streams.clear()

    def _restore_streams(self, jsa: JetStreamAccount) -> None:
        for stream_log in self.store.streams():
            known = stream_log.name in jsa.streams or is_restoring(stream_log.config)
            if stream_log.account == jsa.account.name and not known:
                self._restore(stream_log)
        for stream in tuple(jsa.streams.values()):
            self._start_stream(stream)

    def _limits_for(self, name: str) -> AccountJetStreamOptions | None:
        """The account's limits, None where JetStream is off: on by itself only in a server with the global account alone."""
        configured = {account.name: account for account in self.broker.options.accounts}
        if name in configured:
            return configured[name].jetstream
        others = [other for other in configured if other != self.broker.options.system_account]
        return AccountJetStreamOptions() if name == GLOBAL_ACCOUNT and not others else None

    def _restore(self, stream_log: Log) -> None:
        jsa = self.accounts.get(stream_log.account)
        if jsa is None or not jsa.enabled:
            self._left_alone(stream_log, "JetStream is not enabled for its account")
            return
        try:
            config = decode(stream_log.config, StreamConfig, strict=False)
        except InvalidJson as err:
            self._left_alone(stream_log, f"its configuration cannot be read: {err}")
            return
        damaged = self.store.why_fenced(stream_log)
        try:
            if damaged is None:
                self._restore_stream(jsa, stream_log, config)
        except StoreError as error:
            damaged = error
            self._take_out(jsa, config.name)
        if damaged is not None:
            self._left_offline(stream_log, damaged)
            return
        log.info("Restored %d messages for stream '%s > %s'", stream_log.state.messages, jsa.account.name, config.name)

    def bring_live(self, jsa: JetStreamAccount, stream_log: Log, config: StreamConfig) -> Stream:
        """A stream whose log is in the store, consumers included, lives from now on (a restored backup)."""
        stream = self._restore_stream(jsa, stream_log, config)
        self._start_stream(stream)
        return stream

    def _restore_stream(self, jsa: JetStreamAccount, stream_log: Log, config: StreamConfig) -> Stream:
        stream = Stream(jsa, stream_log, config)
        stream.rebuild_dedupe()
        jsa.streams[config.name] = stream
        self.consumers.restore(stream)
        return stream

    def _start_stream(self, stream: Stream) -> None:
        if self.clock_trust.leap_ns:
            stream.rebuild_dedupe(self.clock_trust.leap_ns)
        stream.start()
        downstreams_of(stream).start()
        if stream.config.mirror is not None or stream.config.sources or kept(stream):
            self.sourcing.stream_created(stream)

    def _forget_restoring(self, stream_log: Log) -> None:
        """The server ended in the midst of a restore: what had come is of no use."""
        log.warning("The restore of stream '%s > %s' was not completed", stream_log.account, stream_log.name)
        txn = self.store.begin()
        stream_log.delete(txn)
        self.store.submit(txn)

    def _take_out(self, jsa: JetStreamAccount, name: str) -> None:
        """The stream is served no more; it stays on disk."""
        stream = jsa.streams.pop(name, None)
        if stream is not None:
            if stream.config.mirror is not None or stream.config.sources:
                self.sourcing.stream_stopped(stream)
            stream.stop()

    def _went_offline(self, stream_log: Log, error: StoreError) -> None:
        """A stream was found damaged while it was served."""
        jsa = self.accounts.get(stream_log.account)
        if jsa is not None and stream_log.name in jsa.streams:
            self._take_out(jsa, stream_log.name)
            self._left_offline(stream_log, error)

    def _left_offline(self, stream_log: Log, error: StoreError) -> None:
        where = f"stream {stream_log.account}/{stream_log.name}: "
        self.offline[stream_log.account, stream_log.name] = error.message.removeprefix(where)
        log.error(
            "Stream '%s > %s' is damaged, and offline: %s. `eyot-check --repair` keeps what can be read",
            stream_log.account,
            stream_log.name,
            error.message.removeprefix(where),
        )

    def _left_alone(self, stream_log: Log, why: str) -> None:
        self.unrestored.append((stream_log.account, stream_log.name, why))
        log.warning("Stream '%s > %s' stays on disk, unused: %s", stream_log.account, stream_log.name, why)

    # -- over all accounts -----------------------------------------------------------------------------------------

    def _taken_in_memory(self) -> int:
        logs = [stream.log for stream in self.streams() if stream.config.storage == "memory"]
        logs += [
            restore.parts.restoring.log
            for jsa in self.accounts.values()
            for restore in jsa.restores.values()
            if restore.config.storage == "memory" and restore.parts.has_begun
        ]
        return sum(log.state.bytes + log.state.messages * MESSAGE_OVERHEAD for log in logs)

    def used(self, storage: StorageType) -> int:
        """Bytes stored in all accounts."""
        return sum(jsa.used(storage) for jsa in self.accounts.values())

    def reserved(self, storage: StorageType) -> int:
        """Bytes that all streams with a limit may grow to."""
        return sum(jsa.reserved(storage) for jsa in self.accounts.values())

    def streams(self) -> list[Stream]:
        """All live streams."""
        return [stream for jsa in self.accounts.values() for stream in jsa.streams.values()]
