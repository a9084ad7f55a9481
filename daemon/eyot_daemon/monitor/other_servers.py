"""The other servers of a system account that leaf links join.

Tools such as `nats server list` take `active_servers` of the first STATSZ for the number of answers to wait for.
"""

from __future__ import annotations

from collections.abc import Callable

from eyot_daemon.router.broker import Broker
from eyot_daemon.router.subscription import CallbackDest, Kind, Origin, Subscription

#: A server without STATSZ for this long is dropped, as in nats-server: five times its longest pause.
FORGOTTEN_AFTER_S = 150.0
#: Servers that are counted at most, so that a hub's users of the system account cannot fill the memory of its leaf nodes.
SERVERS_MAX = 4096


class OtherServers:
    """Counts the servers whose STATSZ arrives.

    `discovered` is called for each new one, so that the server announces itself to it.
    """

    def __init__(self, broker: Broker, discovered: Callable[[], None]) -> None:
        self._broker = broker
        self._discovered = discovered
        #: server id -> when its last STATSZ arrived, in seconds of the monotonic clock
        self._heard: dict[bytes, float] = {}

    def start(self) -> None:
        """Listen in the system account, if there is one."""
        system = self._broker.system_account
        if system is not None:
            system.subscribe(b"$SYS.SERVER.*.STATSZ", CallbackDest(self._statsz, Kind.SYSTEM, "other servers"))
            system.subscribe(b"$SYS.SERVER.*.SHUTDOWN", CallbackDest(self._shutdown, Kind.SYSTEM, "other servers"))

    def count(self) -> int:
        """Other servers that sent STATSZ recently."""
        limit = self._broker.clock.monotonic() - FORGOTTEN_AFTER_S
        for server in [server for server, at in self._heard.items() if at < limit]:
            del self._heard[server]
        return len(self._heard)

    def _statsz(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> None:
        server = subject.split(b".")[2]
        if server == self._broker.server_id.encode():
            return
        new = server not in self._heard
        if new and self.count() >= SERVERS_MAX:
            return
        self._heard[server] = self._broker.clock.monotonic()
        if new:
            self._discovered()

    def _shutdown(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> None:
        self._heard.pop(subject.split(b".")[2], None)
