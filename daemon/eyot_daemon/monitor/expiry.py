"""Tells in the log what expires: this server's own certificates, and the tokens that it presents to its hubs.

Peers refuse what has expired, and on an unattended device the failing link would otherwise be the first sign.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Final

from eyot_daemon.config.options import Options
from eyot_daemon.net.cert_dates import out_of_date
from eyot_daemon.process.service import ReloadSteps, Runtime
from eyot_daemon.router.broker import Broker
from eyot_daemon.router.providers import HealthzQuery, Unhealthy
from eyot_daemon.turn.timers import TimerHandle
from eyot_wire.status import LinkStatus

log = logging.getLogger("eyot")

#: A token is told once when so many days are left.
DAYS: Final = (30, 7, 1)
EVERY_S: Final = 21_600.0
_DAY_S: Final = 86_400.0


class ExpiryService:
    """Looks at the start, at a reload, and four times a day."""

    name = "expiry"

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._timer: TimerHandle | None = None
        #: by link: expiry of the token, and the least of `DAYS` that was told for it, 0 once it had expired
        self._told: dict[str, tuple[str, int]] = {}

    def configure(self, options: Options) -> None:
        return None

    def start(self, prepared: None, runtime: Runtime) -> None:
        runtime.when_open(self._look)

    def reload(self, prepared: None, steps: ReloadSteps) -> None:
        steps.last(self._look)

    def health(self, query: HealthzQuery) -> Unhealthy | None:
        return None

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self.stop()
        self._timer = self._broker.timers.call_later(EVERY_S, self._look)
        now = datetime.fromtimestamp(self._broker.clock.now_ns() / 1e9, UTC)
        for file, trouble in out_of_date(self._broker.options, now):
            log.warning("TLS certificate %s %s", file, trouble)
        for link in self._broker.providers.links():
            self._look_at(link)

    def _look_at(self, link: LinkStatus) -> None:
        expires, left_s = link.credentials_expire, link.credentials_left_s
        if expires is None or left_s is None:
            return
        days = 0 if left_s <= 0 else min((each for each in DAYS if left_s <= each * _DAY_S), default=None)
        told = self._told.get(link.name)
        if days is None or (told is not None and told[0] == expires and told[1] <= days):
            return
        self._told[link.name] = (expires, days)
        if days == 0:
            log.warning(
                "The token for link %s expired on %s: the hub refuses it, publishing here goes on", link.name, expires
            )
        else:
            log.warning("The token for link %s expires on %s, in less than %d days", link.name, expires, days)
