"""How a link's capacity is divided: the policies of `eyot { sync { } }` as values.

A stream's policy applies to what leaves of it over leaf links (deliveries to mirrors, sources and other consumers on
the far side) and to its own mirrors and sources over a link. A remote's policy applies to its link as a whole.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Literal

from msgspec import Struct

from eyot_sync.policy.windows import Window

PRIORITY_DEFAULT = 5
PRIORITY_MAX = 9
#: Streams of this priority and above may use a budget's reserve.
PRIORITY_RESERVE = 8


class StreamPolicy(Struct, frozen=True, kw_only=True):
    """Policy of a stream.

    `priority`: 0 to 9, the higher leaves first. `bandwidth`: bytes per second over each link, 0: unlimited. `windows`:
    when.
    """

    priority: int = PRIORITY_DEFAULT
    bandwidth: int = 0
    windows: tuple[Window, ...] = ()


class MeteredPolicy(Struct, frozen=True, kw_only=True):
    """`metered { }`: bytes a month, both directions; `reserve` of them are for streams of high priority.

    `used_up`: `disconnect` ends the link until the next month, `hold` keeps it for everything but streams.
    `ping_interval_s`: the PING interval of an idle link; after three times that without a byte the link is stale.
    """

    budget: int
    reset_day: int = 1
    reserve: int = 0
    used_up: Literal["disconnect", "hold"] = "disconnect"
    ping_interval_s: float = 300.0


class RemotePolicy(Struct, frozen=True, kw_only=True):
    """One remote of `leafnodes { remotes }`, found by one of its addresses and, if there are several to it, its account."""

    host: str
    port: int
    account: str = ""
    windows: tuple[Window, ...] = ()
    metered: MeteredPolicy | None = None


class StreamRule(Struct, frozen=True, kw_only=True):
    """A policy for the streams whose name matches (`*`: any characters), in one account or in all."""

    name: str
    account: str = ""
    policy: StreamPolicy


class SyncPolicies(Struct, frozen=True, kw_only=True):
    """All of `eyot { sync { } }`."""

    streams: tuple[StreamRule, ...] = ()
    remotes: tuple[RemotePolicy, ...] = ()

    def stream(self, account: str, name: str) -> StreamPolicy:
        """Return the policy of a stream: that of its own name, else the first match."""
        fitting = [rule for rule in self.streams if rule.account in ("", account)]
        for rule in fitting:
            if rule.name == name:
                return rule.policy
        for rule in fitting:
            if fnmatchcase(name, rule.name):
                return rule.policy
        return DEFAULT_STREAM

    def remote(self, addresses: tuple[tuple[str, int], ...], account: str) -> RemotePolicy | None:
        """Return the policy of a remote with these addresses."""
        for policy in self.remotes:
            if policy.account in ("", account) and (policy.host, policy.port) in addresses:
                return policy
        return None


DEFAULT_STREAM = StreamPolicy()
