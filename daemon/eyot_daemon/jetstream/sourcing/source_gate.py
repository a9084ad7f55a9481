"""The policies of `eyot { sync { } }` for a mirror or source here that is read over a leaf link.

What comes in is sent by the other side, so a copy that has to wait has no consumer there: it asks for one when it may. Its rate is asked of
the origin with the consumer. A copy waits for a more important one of its account that is far behind. Copies whose origin is at home
are nobody's traffic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from eyot_sync.policy.policy import StreamPolicy
from eyot_sync.policy.stream_gate import LOOK_AGAIN_S, Hold, StreamGate
from eyot_sync.sourcing.actions import Phase
from eyot_sync.sourcing.source_consumer import HEARTBEAT_S

if TYPE_CHECKING:
    from eyot_daemon.jetstream.sourcing.source_task import SourceTask
    from eyot_daemon.leaf.link import LeafConnection

#: A more important copy that lacks more messages than this makes others wait.
BEHIND_MESSAGES = 256
_OUTRANKED_S = 5.0
#: A copy that reads over a metered link asks for a heartbeat so often, seconds: a message of about 200 bytes, packet headers included.
HEARTBEAT_METERED_S = 15.0


class SourceGate:
    """The gate of one copy. `others`: all copies of the daemon."""

    def __init__(self, task: SourceTask, others: Callable[[], Iterable[SourceTask]]) -> None:
        self._task = task
        self._others = others
        self._gate: StreamGate | None = None
        self._generation = -1

    @property
    def policy(self) -> StreamPolicy:
        return self._follow().policy

    @property
    def rate_limit_bps(self) -> int:
        """What to ask of the origin, bits per second; 0: no limit."""
        return self.policy.bandwidth * 8 if self._links() else 0

    @property
    def heartbeat_s(self) -> float:
        """How long the origin may be silent: heartbeats cost on a metered link."""
        for link in self._links():
            link.policies.gate.link_hold()  # lets it follow a reload
            if link.policies.gate.meter is not None:
                return HEARTBEAT_METERED_S
        return HEARTBEAT_S

    def hold(self) -> Hold | None:
        """What keeps the copy from being read now."""
        links = self._links()
        if not links:
            return None
        broker = self._task.stream.broker
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
        now_s = self._task.stream.broker.clock.now_ns() / 1e9
        until_s = self._follow().opening(now_s).until_s
        return min(LOOK_AGAIN_S, max(0.1, until_s - now_s))

    def _outranked(self) -> Hold | None:
        task, mine = self._task, self.policy.priority
        for other in self._others():
            if other is task or other.account is not task.account or other.gate.policy.priority <= mine:
                continue
            source_consumer = other.source_consumer
            if (
                source_consumer.phase is Phase.ACTIVE
                and source_consumer.progress.lag > BEHIND_MESSAGES
                and other.gate._links()
            ):
                return Hold(f"{other.stream.name} is more important and catches up", _OUTRANKED_S)
        return None

    def _links(self) -> list[LeafConnection]:
        """The links over which the origin is reached."""
        connections = self._task.stream.broker.links.connections.values()
        by_id = {id(link): link for link in connections}
        members = self._task.account.route(self._task.api_subject()).leaf_links
        return [by_id[id(member.dest)] for member in members if id(member.dest) in by_id]

    def _follow(self) -> StreamGate:
        task = self._task
        broker = task.stream.broker
        control = broker.sync
        if self._gate is None or self._generation != control.generation:
            self._generation = control.generation
            policy = control.stream(task.account.name, task.stream.name)
            self._gate = StreamGate(policy, broker.clock.monotonic(), control.tz)
        return self._gate
