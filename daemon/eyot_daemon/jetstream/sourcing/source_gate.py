"""The policies of `eyot { sync { } }` for a mirror or source here whose origin is behind a leaf link.

The other side sends the messages, so a held mirror or source has no consumer there: it requests one when it may resume.
Its rate is part of that request. It also waits for a more important one of its account that is far behind. Origins on
this server are exempt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from eyot_sync.policy.policy import StreamPolicy
from eyot_sync.policy.stream_gate import LOOK_AGAIN_S, Hold, StreamGate
from eyot_sync.sourcing.source_consumer import SourceConsumer
from eyot_sync.sourcing.source_state import HEARTBEAT_S, RequestTerms

if TYPE_CHECKING:
    from eyot_daemon.leaf.link import LeafConnection
    from eyot_daemon.router.account import Account
    from eyot_daemon.router.broker import Broker

#: Backlog of a mirror or source, messages, above which ones of lower priority wait.
BEHIND_MESSAGES = 256
_OUTRANKED_S = 5.0
#: Interval of heartbeats over a metered link, seconds: a message of about 200 bytes, packet headers included.
HEARTBEAT_METERED_S = 15.0


class SourceGate:
    """The gate of one mirror or source of the stream `stream_name`. `others`: the gates of all mirrors and sources of the daemon."""

    def __init__(
        self,
        broker: Broker,
        account: Account,
        stream_name: str,
        source_consumer: SourceConsumer,
        *,
        others: Callable[[], Iterable[SourceGate]],
    ) -> None:
        self._broker = broker
        self._account = account
        self._stream_name = stream_name
        self._source_consumer = source_consumer
        self._others = others
        #: The policy at work, and the generation of the configuration that it is from.
        self._gate: StreamGate | None = None
        self._generation = -1

    @property
    def policy(self) -> StreamPolicy:
        return self._follow().policy

    @property
    def terms(self) -> RequestTerms:
        """The rate and the heartbeat interval to request from the origin; on a metered link heartbeats are rarer."""
        links = self._links()
        heartbeat_s = HEARTBEAT_S
        for link in links:
            link.policies.gate.link_hold()  # lets it follow a reload
            if link.policies.gate.meter is not None:
                heartbeat_s = HEARTBEAT_METERED_S
                break
        return RequestTerms(self.policy.bandwidth * 8 if links else 0, heartbeat_s)

    def hold(self) -> Hold | None:
        """Return the policy that makes the mirror or source wait now; None: none does."""
        links = self._links()
        if not links:
            return None
        broker = self._broker
        now_s = broker.clock.now_ns() / 1e9
        gate = self._follow()
        for link in links:
            link.policies.gate.link_hold()  # lets it follow a reload
            held = gate.hold(broker.clock.monotonic(), now_s, link.policies.gate.meter)
            if held is not None:
                return held
        return self._outranked()

    def look_again_s(self) -> float:
        """After how long an answer may be another one, seconds."""
        now_s = self._broker.clock.now_ns() / 1e9
        until_s = self._follow().opening(now_s).until_s
        return min(LOOK_AGAIN_S, max(0.1, until_s - now_s))

    def _outranked(self) -> Hold | None:
        mine = self.policy.priority
        for other in self._others():
            if other is self or other._account is not self._account or other.policy.priority <= mine:
                continue
            if other._catches_up():
                return Hold(f"{other._stream_name} is more important and catches up", _OUTRANKED_S)
        return None

    def _catches_up(self) -> bool:
        """Return whether it reads over a link and lacks many messages, which its origin does not hold back."""
        progress = self._source_consumer.progress
        is_behind = progress.lag > BEHIND_MESSAGES and not progress.held_back
        return self._source_consumer.is_connected and is_behind and bool(self._links())

    def _links(self) -> list[LeafConnection]:
        """Return the links over which the origin is reached."""
        api_subject = self._source_consumer.api_subject
        routed = self._account.mappings.apply(api_subject) or api_subject
        by_id = {id(link): link for link in self._broker.links.connections.values()}
        members = self._account.route(routed).leaf_links
        return [by_id[id(member.dest)] for member in members if id(member.dest) in by_id]

    def _follow(self) -> StreamGate:
        control = self._broker.sync
        if self._gate is None or self._generation != control.generation:
            self._generation = control.generation
            policy = control.stream(self._account.name, self._stream_name)
            self._gate = StreamGate(policy, self._broker.clock.monotonic(), control.tz)
        return self._gate
