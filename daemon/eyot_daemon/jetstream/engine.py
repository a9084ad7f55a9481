"""JetStream on this server: the store, the accounts that have it, and bringing everything back at start.

Built by the composition root. `start` restores all streams and consumers from the store, then opens the API; `stop` ends
everything before the store is closed.
"""

import logging
from collections.abc import Iterable

from eyot_daemon.config.accounts import GLOBAL_ACCOUNT, AccountJetStreamOptions
from eyot_daemon.config.jetstream import JetStreamOptions
from eyot_daemon.jetstream.account import JetStreamAccount
from eyot_daemon.jetstream.api.account import AccountPurge
from eyot_daemon.jetstream.api.dispatch import AccountApi, table
from eyot_daemon.jetstream.api_request import Endpoint
from eyot_daemon.jetstream.backup.restored_parts import is_restoring
from eyot_daemon.jetstream.consumer.api import endpoints as consumer_endpoints
from eyot_daemon.jetstream.consumer.consumers import Consumers
from eyot_daemon.jetstream.downstream.missed import messages_missed
from eyot_daemon.jetstream.server_context import Beside, ServerContext
from eyot_daemon.jetstream.sourcing.port import SourcingOff, SourcingPort
from eyot_daemon.jetstream.stream.stream import Stream
from eyot_daemon.router.account import Account
from eyot_daemon.router.broker import Broker
from eyot_daemon.turn.timers import TimerHandle
from eyot_store.errors import StoreError
from eyot_store.log.log import Log
from eyot_store.store import Store
from eyot_wire.jetstream.model import InvalidJson, StreamConfig, decode

log = logging.getLogger("eyot.jetstream")

#: Interval of checks of the wall clock when nothing is stored, seconds, so that a restart does not lose a jump.
CLOCK_CHECK_S = 15.0


class JetStream:
    """`sourcing` runs mirrors and sources; `beside` is the thread for long reads.

    The store's `notify` must end each turn with the broker's flush, since answers leave from commit callbacks.
    """

    def __init__(
        self,
        broker: Broker,
        store: Store,
        options: JetStreamOptions,
        *,
        sourcing: SourcingPort | None = None,
        beside: Beside | None = None,
        machine_bytes: int = -1,
    ) -> None:
        self.broker = broker
        self.store = store
        self.sourcing: SourcingPort = sourcing or SourcingOff()
        self.accounts: dict[str, JetStreamAccount] = {}
        self.server = ServerContext(broker, store, options, self.accounts, beside=beside, machine_bytes=machine_bytes)
        self.consumers = Consumers()
        self.endpoints = table(consumer_endpoints(self.consumers))
        #: Streams on disk that were not brought back, as (account, stream, why).
        self.unrestored: list[tuple[str, str, str]] = []
        self._apis: dict[str, AccountApi] = {}
        self._clock_timer: TimerHandle | None = None
        self.server.wall_clock.on_jump = self._clock_jumped
        self.server.wall_clock.on_right = self._clock_was_right
        store.on_fence = self._went_offline
        store.on_damaged = _log_damaged
        broker.turn_store = store

    @property
    def options(self) -> JetStreamOptions:
        """The configured options."""
        return self.server.options

    # -- start and stop --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Restore the stored streams, then accept messages and requests."""
        for account in self.broker.each_account():
            if not account.is_system:
                self._add_account(account, self._limits_for(account.name))
        for stream_log in self.store.streams():
            if is_restoring(stream_log.config):
                self._forget_restoring(stream_log)
            else:
                self._restore(stream_log)
        self.server.wall_clock.trust.begin(max((each.log.state.last_ts_ns for each in self.streams()), default=0))
        # Mirrors and sources ask as soon as they start: whom they ask, of this account or another, must be there.
        for api in self._apis.values():
            api.start()
        for jsa in self.accounts.values():
            self._start_streams(jsa)
        self._settle(self.server.wall_clock.trust.begun())
        if self.broker.system_account is not None:
            AccountPurge(self.accounts, self.store, self.unrestored, self.broker.system_account)
        self.broker.links.messages_missed = self._downstream_missed
        self._watch_clock_on()

    def _downstream_missed(self, account: Account, compares_identities: bool) -> bool:
        jsa = self.accounts.get(account.name)
        return jsa is not None and messages_missed(
            (stream.downstream for stream in jsa.streams.values()), compares_identities=compares_identities
        )

    def add_endpoints(self, endpoints: Iterable[Endpoint]) -> None:
        """Answer these requests in every account, too."""
        self.endpoints.update((tuple(each.words.split(".")), each) for each in endpoints)

    def _add_account(self, account: Account, limits: AccountJetStreamOptions | None) -> AccountApi:
        jsa = JetStreamAccount(self.server, account, limits, self.sourcing, self.consumers.restore)
        self.accounts[account.name] = jsa
        api = self._apis[account.name] = AccountApi(jsa, self.endpoints)
        return api

    def _watch_clock_on(self) -> None:
        self.server.wall_clock.look()
        timers = self.broker.timers
        self._clock_timer = timers.call_at(self.broker.clock.monotonic() + CLOCK_CHECK_S, self._watch_clock_on)

    def _clock_jumped(self, jump_ns: int) -> None:
        for stream in self.streams():
            if stream.live:
                stream.dedupe.clock_jumped(jump_ns)
                stream.expiry.clock_jumped(jump_ns)
                stream.schedules.clock_jumped(jump_ns)
        self._settle(jump_ns)

    def _settle(self, jump_ns: int) -> None:
        """Have a jump's record beside the store end when all streams have their corrections on flash."""
        live = [stream for stream in self.streams() if stream.live]
        waiting = len(live)

        def through(failure: StoreError | None) -> None:
            nonlocal waiting
            waiting -= (
                failure is None
            )  # else the record stays: the next start corrects once more, and messages stay longer
            if not waiting:
                self.server.wall_clock.trust.settled(jump_ns)

        for stream in live:
            stream.after_commits(through)
        if not live:
            self.server.wall_clock.trust.settled(jump_ns)

    def _clock_was_right(self) -> None:
        for stream in self.streams():
            if stream.live:
                stream.expiry.clock_was_right()

    def stop(self) -> None:
        """End everything that runs; what was submitted to the store still commits."""
        if self._clock_timer is not None:
            self._clock_timer.cancel()
        self.server.wall_clock.trust.end()
        self.sourcing.stop()
        self.server.beside.stop()
        for name, jsa in self.accounts.items():
            self._apis[name].stop()
            jsa.stop()

    def reload(self, options: JetStreamOptions) -> None:
        """Apply a changed configuration: limits, and the accounts that have JetStream from now on.

        The broker's options are the new ones already.
        """
        self.server.options = options
        for account in tuple(self.broker.each_account()):
            if account.is_system:
                continue
            limits = self._limits_for(account.name)
            jsa = self.accounts.get(account.name)
            if jsa is None:
                self._add_account(account, None).start()
                jsa = self.accounts[account.name]
            had, has = jsa.enabled, limits is not None
            if had and not has:
                continue
            jsa.set_limits(limits)
            self._apis[account.name].answer()
            if has and not had:
                self._restore_streams(jsa)

    def disable_accounts(self) -> None:
        """End JetStream for accounts that do not have it any more, and for removed accounts."""
        for name, jsa in tuple(self.accounts.items()):
            if name not in self.broker.accounts:
                del self.accounts[name]
                self._disable(jsa)
                self._apis.pop(name).stop()
                jsa.stop()
            elif jsa.enabled and self._limits_for(name) is None:
                self._disable(jsa)
                self._apis[name].answer()

    def _disable(self, jsa: JetStreamAccount) -> None:
        """JetStream is off for this account from now on; its streams stay on disk."""
        jsa.stop_transfers()
        for stream in tuple(jsa.streams.values()):
            if stream.config.mirror is not None or stream.config.sources:
                self.sourcing.stream_stopped(stream)
            stream.stop()
        jsa.streams.clear()
        jsa.set_limits(None)  # what waited for a commit is refused from now on

    def _restore_streams(self, jsa: JetStreamAccount) -> None:
        for stream_log in self.store.streams():
            known = stream_log.name in jsa.streams or is_restoring(stream_log.config)
            if stream_log.account == jsa.account.name and not known:
                self._restore(stream_log)
        self._start_streams(jsa)

    def _start_streams(self, jsa: JetStreamAccount) -> None:
        """Start all streams of an account; one that turns out to be damaged is offline."""
        for stream in tuple(jsa.streams.values()):
            try:
                jsa.start_stream(stream)
            except StoreError as error:
                self._take_out(jsa, stream.name)
                self._left_offline(stream.log, error)

    def _limits_for(self, name: str) -> AccountJetStreamOptions | None:
        """Return the account's limits, None where JetStream is off: on by itself only in a server with the global account alone."""
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
                jsa.restore_stream(stream_log, config)
        except StoreError as error:
            damaged = error
            self._take_out(jsa, config.name)
        if damaged is not None:
            self._left_offline(stream_log, damaged)
            return
        log.info("Restored %d messages for stream '%s > %s'", stream_log.state.messages, jsa.account.name, config.name)

    def _forget_restoring(self, stream_log: Log) -> None:
        """Remove an incomplete restore that the server's end interrupted."""
        log.warning("The restore of stream '%s > %s' was not completed", stream_log.account, stream_log.name)
        txn = self.store.begin()
        stream_log.delete(txn)
        self.store.submit(txn)

    def _take_out(self, jsa: JetStreamAccount, name: str) -> None:
        """Stop serving a stream, which stays on disk."""
        stream = jsa.streams.pop(name, None)
        if stream is not None:
            if stream.config.mirror is not None or stream.config.sources:
                self.sourcing.stream_stopped(stream)
            stream.stop()

    def _went_offline(self, stream_log: Log, error: StoreError) -> None:
        """Take a stream offline that was found damaged while it was served."""
        jsa = self.accounts.get(stream_log.account)
        if jsa is not None and stream_log.name in jsa.streams:
            self._take_out(jsa, stream_log.name)
            self._left_offline(stream_log, error)

    def _left_offline(self, stream_log: Log, error: StoreError) -> None:
        where = f"stream {stream_log.account}/{stream_log.name}: "
        self.server.offline[stream_log.account, stream_log.name] = error.message.removeprefix(where)
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

    def streams(self) -> list[Stream]:
        """Return all live streams."""
        return [stream for jsa in self.accounts.values() for stream in jsa.streams.values()]


def _log_damaged(stream_log: Log, seq: int) -> None:
    log.error("Stream '%s > %s': message %d is damaged", stream_log.account, stream_log.name, seq)
