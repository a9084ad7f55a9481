"""What the MQTT connections of the daemon share: options, bounds, and the sessions of each account."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from eyot_daemon.mqtt.counters import Drops, Traffic
from eyot_daemon.mqtt.replies import Replies
from eyot_daemon.mqtt.session_record import NEVER
from eyot_daemon.mqtt.sessions import AccountSessions, Limits
from eyot_daemon.mqtt.store import MqttStore
from eyot_daemon.mqtt.store_streams import SESSIONS, MqttStoreOptions
from eyot_daemon.router.providers import MqttFigures

if TYPE_CHECKING:
    from eyot_daemon.config.mqtt import MqttBounds, MqttOptions
    from eyot_daemon.jetstream.account import JetStreamAccount
    from eyot_daemon.jetstream.consumer.consumers import Consumers
    from eyot_daemon.mqtt.publication import Result
    from eyot_daemon.router.account import Account
    from eyot_daemon.router.broker import Broker
    from eyot_daemon.router.known_client import KnownClient
    from eyot_wire.mqtt.reason_codes import ReasonCode

log = logging.getLogger("eyot.mqtt")

#: The same refusal of a client is logged at most this often, seconds.
REPEAT_S: Final = 1.0


def limits_of(options: MqttOptions, bounds: MqttBounds, max_payload: int) -> Limits:
    """Return the bounds that options set."""
    return Limits(
        packet_bytes=bounds.packet_bytes(max_payload),
        aliases=bounds.topic_alias_max,
        inflight_in=bounds.inflight_max,
        window=options.max_ack_pending,
        keep_alive_s=bounds.keep_alive_max_s,
        refusal_pause_s=bounds.refusal_pause_s,
        sessions_max=bounds.sessions_max,
        queue_msgs=bounds.queue_msgs,
        queue_bytes=bounds.queue_bytes,
        sys_interval_s=bounds.sys_interval_s,
        store=MqttStoreOptions(
            queue_msgs=bounds.queue_msgs,
            queue_bytes=bounds.queue_bytes,
            queue_age_s=bounds.queue_age_s,
            queued_msgs=bounds.queued_msgs_max,
            queued_bytes=bounds.queued_bytes_max,
            retained_msgs=bounds.retained_msgs_max,
            retained_bytes=bounds.retained_bytes_max,
            retained_age_s=bounds.retained_age_s,
        ),
    )


class MqttServer:
    """`jetstream` finds JetStream in an account, and its consumers; None: it is off there."""

    def __init__(
        self,
        broker: Broker,
        options: MqttOptions,
        jetstream: Callable[[str], tuple[JetStreamAccount, Consumers] | None],
    ) -> None:
        self.broker = broker
        self.drops = Drops()
        #: of connections that are not logged in
        self.traffic = Traffic()
        #: CONNECTs that were refused, by reason code
        self.refused: Counter[ReasonCode] = Counter()
        self._jetstream = jetstream
        self._accounts: dict[str, AccountSessions] = {}
        self._told: dict[int, float] = {}
        self.set_options(options)
        broker.providers.mqtt = self.figures

    def set_options(self, options: MqttOptions) -> None:
        """Use these options for new connections and sessions."""
        self.options = options
        self.bounds = self.broker.options.eyot.mqtt
        self.limits = limits_of(options, self.bounds, self.broker.options.max_payload)
        for account in self._accounts.values():
            account.set_limits(self.limits)

    def sessions_of(self, account: Account) -> AccountSessions:
        """Return the sessions of an account; the first call opens its store, and so does one after it could not be used."""
        found = self._accounts.get(account.name)
        if found is not None and self._is_over(found):
            self._end(found)
            found = None
        if found is None:
            drops = Drops(self.drops)
            store = self._store(account, drops)
            found = self._accounts[account.name] = AccountSessions(account, store, self.limits, drops, Replies(account))
            found.start()
        return found

    def opened(self, account: Account) -> AccountSessions | None:
        """Return the sessions of an account; None: it never had any."""
        return self._accounts.get(account.name)

    def bring_back(self) -> None:
        """Take up the sessions that are on flash: wills fall due, and sessions expire, before any client comes."""
        for account in self.broker.each_account():
            found = self._jetstream(account.name)
            if found is not None and SESSIONS in found[0].streams:
                self.sessions_of(account)

    def jetstream_changed(self) -> None:
        """JetStream went off or on in accounts: end what cannot store any more, and take up what is on flash."""
        for found in self.each_account():
            if self._is_over(found):
                self._end(found)
        self.bring_back()

    def _is_over(self, found: AccountSessions) -> bool:
        return found.over or self.broker.accounts.get(found.account.name) is not found.account

    def _end(self, found: AccountSessions) -> None:
        del self._accounts[found.account.name]
        found.end()

    def _store(self, account: Account, drops: Drops) -> MqttStore | None:
        found = self._jetstream(account.name)
        if found is None:
            return None
        return MqttStore(*found, self.limits.store, drops)

    def each_account(self) -> list[AccountSessions]:
        return list(self._accounts.values())

    def note_refused(self, reason: ReasonCode) -> None:
        """Count a CONNECT that is refused."""
        self.refused[reason] += 1

    def figures(self) -> MqttFigures:
        """Return the figures for `/metrics`."""
        refused = {reason.name.lower(): count for reason, count in self.refused.items()}
        return MqttFigures(refused, [each.figures() for each in self._accounts.values()])

    def session_expiry(self, asked_s: int) -> int:
        """Return how long a session may outlive its connection, seconds."""
        most = self.bounds.session_expiry_max_s
        return min(asked_s, most) if most else min(asked_s, NEVER)

    def tell_refusal(self, connection: KnownClient, result: Result) -> None:
        """Log a publish that was refused, at most once a second for each connection."""
        now = self.broker.clock.monotonic()
        if now - self._told.get(connection.cid, -REPEAT_S) < REPEAT_S:
            return
        if len(self._told) >= 1024:
            self._told.clear()
        self._told[connection.cid] = now
        log.error("%r - a publish is refused: %s", connection, result.text or result.reason.name)

    def stop(self) -> None:
        for account in self._accounts.values():
            account.stop()
