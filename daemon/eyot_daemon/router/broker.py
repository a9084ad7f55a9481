"""The broker: all accounts of the server, and the leaf links between them and other servers. `BrokerCore` is the turn."""

import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from eyot_daemon.config.accounts import GLOBAL_ACCOUNT
from eyot_daemon.config.options import Options
from eyot_daemon.router.account import Account
from eyot_daemon.router.core import BrokerCore
from eyot_daemon.router.leaf_links import LeafLinks
from eyot_daemon.turn.clock import Clock

if TYPE_CHECKING:
    from eyot_daemon.leaf.link import LeafConnection

#: INFO's `proto`: the client handles asynchronous INFO.
CLIENT_PROTO = 1


class Broker(BrokerCore):
    """The daemon's heart. Built by the composition root, which hands in options, clock and randomness."""

    def __init__(
        self,
        options: Options | None = None,
        *,
        server_id: str = "",
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        super().__init__(options or Options(), server_id, clock, rng)
        self.accounts: dict[str, Account] = {}
        #: called with every account created from now on
        self.account_listeners: list[Callable[[Account], None]] = []
        self.global_account = self.add_account(GLOBAL_ACCOUNT)
        self.system_account: Account | None = None
        if self.options.system_account:
            self.system_account = self.add_account(self.options.system_account)
            self.system_account.is_system = True
        self.links: LeafLinks[LeafConnection] = LeafLinks(self, self.add_account)
        self.leaf_connections, self.link_states = self.links.connections.values, self.links.states

    def add_account(self, name: str) -> Account:
        """Return the account of that name, created if missing."""
        account = self.accounts.get(name)
        if account is None:
            account = self.accounts[name] = Account(name, self)
            for listener in self.account_listeners:
                listener(account)
        return account

    def remove_account(self, name: str) -> None:
        """Forget an account that no connection uses any more. One of the same name that comes later is another one."""
        del self.accounts[name]
        self.links.account_removed(name)

    # messages and payload bytes over all clients and leaf links

    @property
    def in_msgs(self) -> int:
        return sum(account.in_msgs for account in self.accounts.values())

    @property
    def in_bytes(self) -> int:
        return sum(account.in_bytes for account in self.accounts.values())

    @property
    def out_msgs(self) -> int:
        return sum(account.out_msgs for account in self.accounts.values())

    @property
    def out_bytes(self) -> int:
        return sum(account.out_bytes for account in self.accounts.values())

    @property
    def subscriptions(self) -> int:
        """Subscriptions over all accounts."""
        return sum(len(account.sublist) for account in self.accounts.values())

    def each_account(self) -> Iterator[Account]:
        return iter(self.accounts.values())
