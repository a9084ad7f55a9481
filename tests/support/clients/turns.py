"""A broker whose turns a test takes one by one."""

from __future__ import annotations

from typing import Protocol

from eyot_daemon.config.options import Options
from eyot_daemon.router.account import Account
from eyot_daemon.router.account_setup import set_up_accounts
from eyot_daemon.router.broker import Broker
from support.manual_clock import ManualClock


class Receiver(Protocol):
    """A connection."""

    def received(self, data: bytes) -> None: ...


class Turns:
    """Base of fixtures: a broker without services, and its clock, which stands still."""

    def __init__(self) -> None:
        self.options = Options()
        self.clock = ManualClock()
        self.broker = Broker(self.options, clock=self.clock)
        set_up_accounts(self.broker, self.options)
        self.account: Account = self.broker.global_account

    def send(self, connection: Receiver, data: bytes) -> None:
        """One read of a socket, and the end of the turn."""
        connection.received(data)
        self.broker.flush()

    def later_turn(self) -> bool:
        """One turn that nobody's bytes begin; False: nothing is due."""
        ran = bool(self.broker.timers.run_due(self.clock.monotonic(), 1))
        self.broker.flush()
        return ran

    def rest(self) -> None:
        while self.later_turn():
            pass
