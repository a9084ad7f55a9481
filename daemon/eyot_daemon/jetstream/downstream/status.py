"""What is said of a stream's downstreams: the messages and bytes that each lacks, and why it does not make progress.

Every read of `/eyot/syncz` and `/metrics` uses the backlogs, while weeks of messages wait for a link: they are computed
again only when something has changed. The reasons are those that the origin's server can know.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from eyot_daemon.jetstream.downstream.downstream import BRIDGE, LOCAL, BridgeReader, Downstream
from eyot_store.log.log import Log
from eyot_sync.link.state import LinkState
from eyot_wire.go.time import ns_to_rfc3339
from eyot_wire.quantities import counted
from eyot_wire.status import SyncStatus

if TYPE_CHECKING:
    from eyot_daemon.jetstream.downstream.never_arrived import NeverArrived
    from eyot_daemon.jetstream.stream_core import StreamCore

#: Backlog up to which sizes are summed; a larger one is estimated from the stream's average.
_SUMMED_MAX = 1000
_SUMMED_BYTES = 16 << 20
#: So long after a confirmation the rate before it is no longer that of the present, seconds.
_RATE_S = 60


class Backlog(NamedTuple):
    """The backlog of a downstream: messages, their bytes, and the stored time of the oldest (ns since the epoch, 0: none)."""

    messages: int
    bytes: int
    oldest_ns: int


class Backlogs:
    """The backlogs of one stream's downstreams."""

    def __init__(self, log: Log) -> None:
        self._log = log
        # By downstream: the inputs of the last result, and the result.
        self._known: dict[bytes, tuple[object, Backlog]] = {}
        self._unmatched: tuple[object, int] = None, 0

    def of(self, key: bytes, downstream: Downstream, seq: int, passed_over: int) -> Backlog:
        """Return the backlog of a downstream that has everything up to `seq`, without the messages that it skips."""
        log = self._log
        state = log.state
        present = (log.committed_seq, state.first_seq, state.messages, state.bytes)
        asked = (seq, passed_over, downstream.ahead_from, downstream.ahead, downstream.filters, present)
        known = self._known.get(key)
        if known is None or known[0] != asked:
            known = self._known[key] = asked, self._work_out(downstream, seq, passed_over)
        return known[1]

    def unmatched(self, readers: Iterable[Downstream]) -> int:
        """Return how many stored messages match the filters of none of these."""
        log, state = self._log, self._log.state
        filters: set[bytes] = set()
        for downstream in readers:
            if not downstream.filters:
                return 0
            filters.update(downstream.filters)
        if not filters:
            return 0
        present = (log.committed_seq, state.first_seq, state.messages, filters)
        if self._unmatched[0] != present:
            self._unmatched = present, log.count(1) - log.count(1, tuple(sorted(filters)))
        return self._unmatched[1]

    def _work_out(self, downstream: Downstream, seq: int, passed_over: int) -> Backlog:
        log = self._log
        backlog, begin = log.count(seq + 1, downstream.filters), seq + 1
        if downstream.ahead and seq >= downstream.ahead_from:
            backlog, begin = (
                log.count(max(seq, downstream.ahead) + 1, downstream.filters) + passed_over,
                downstream.ahead_from + 1,
            )
        if not backlog:
            return Backlog(0, 0, 0)
        read = log.read_on(begin, max_messages=_SUMMED_MAX, max_bytes=_SUMMED_BYTES, filters=downstream.filters)
        sizes = [log.message_bytes(each.subject, each.header, each.payload) for each in read.messages]
        size, state = sum(sizes), log.state
        if len(sizes) < backlog and state.messages:
            size = max(size, state.bytes * backlog // state.messages)
        return Backlog(backlog, size, read.messages[0].ts_ns if read.messages else 0)


#: A linked downstream with a backlog confirms more often than this, seconds.
SILENT_S = 30.0


class Standing(Struct, kw_only=True):
    """The state of a downstream.

    `downstream`: its server or cluster; `target`: its stream ("": unknown); `link`: the failed link. `behind_s`: for
    how long it has had a backlog without confirmation; 0 while a policy holds it. `passed_over`: messages that it skips
    because it is `ahead` of the stream. `through`: the linked server behind which it is, if it is not linked itself.
    """

    stream: str
    downstream: str
    target: str = ""
    link: LinkState | None = None
    linked: bool = True
    reads: bool = True
    passed_over: int = 0
    ahead: int = 0
    through: str = ""
    behind_s: float = 0.0


def trouble(at: Standing) -> tuple[str, str]:
    """(error, remedy); empty where nothing is wrong."""
    if at.passed_over:
        return (
            f"{at.downstream} had copied up to {at.ahead} of an earlier {at.stream}, and does not take what is stored here "
            f"under these sequences: {counted(at.passed_over, 'message')}",
            f"let it copy them under another name (a stream here that sources {at.stream}), or create {at.stream} again with first_seq "
            f"{at.ahead + 1} and publish them again",
        )
    if not at.linked:
        return (at.link.last_error, at.link.remedy) if at.link is not None else ("", "")
    copy = at.target or "its copy"
    if not at.reads:
        return (
            f"{at.through or at.downstream} is linked but {copy}{f' at {at.downstream}' if at.through else ''} does not read {at.stream} at the moment",
            f"if that lasts, see there whether {copy} still exists and what error it shows (nats stream info); if it is gone for "
            f"good: eyot sync forget {at.stream} {at.downstream}{f' --copy {at.target}' if at.target else ''}",
        )
    if at.behind_s > SILENT_S:
        return (
            f"{at.downstream} has confirmed nothing for {at.behind_s:.0f} s",
            f"see there whether {copy} or the disk is full (nats stream info), and here what the link carries (eyot status)",
        )
    return "", ""


def bridge_trouble(bridge: BridgeReader | None, stream: str, name: str) -> tuple[str, str]:
    """(error, remedy); empty where nothing is wrong."""
    if bridge is None:
        return (
            f"no bridge {name} forwards {stream} at present",
            f"if it was removed for good: eyot sync forget {stream} {name}",
        )
    return bridge.trouble


class Present(NamedTuple):
    """What the tracker knows of a downstream at present, besides its record."""

    #: Its record may claim too much: it has not resumed since a start with open corrections.
    doubted: bool
    #: It withdrew a confirmation recently.
    unsteady: bool
    #: It has a consumer and is subscribed to it; a bridge: it reads the log.
    reads: bool
    #: The link's policy that holds back deliveries to it; "": none does.
    held: str
    #: The bridge that reads for it; None: it is none, or none forwards the stream at present.
    bridge: BridgeReader | None


class DownstreamStatuses:
    """The statuses of one stream's downstreams."""

    def __init__(self, stream: StreamCore, never_arrived: NeverArrived) -> None:
        self._stream = stream
        self._never_arrived = never_arrived
        self._backlogs = Backlogs(stream.log)

    def _links(self) -> list[LinkState]:
        account = self._stream.account
        return [one for one in account.broker.link_states() if one.account in ("", account.name)]

    def is_linked(self, downstream: Downstream) -> bool:
        """Return whether the downstream's server, or the one through which it is linked, is linked."""
        via = downstream.via or downstream.peer
        return downstream.peer == LOCAL or any(one.is_up and one.peer_group == via for one in self._links())

    def of(self, key: bytes, downstream: Downstream, present: Present, readers: Collection[Downstream]) -> SyncStatus:
        """Return the status of the downstream with the record under `key`; `readers`: all downstreams of the stream."""
        bridge, doubted, reads = present.bridge, present.doubted, present.reads
        unknown = bridge is not None and not bridge.acknowledged
        stream = self._stream
        log = stream.log
        seq = 0 if doubted else min(downstream.seq, log.committed_seq)
        passed_over = downstream.passed_over(log)
        backlog, size, oldest_ns = self._backlogs.of(key, downstream, seq, passed_over)
        now_ns = self._stream.clock.now_ns()
        links = self._links()
        linked = self.is_linked(downstream)
        waiting = next((one.waiting for one in links if one.waiting), "") if not linked else present.held
        if downstream.kind == BRIDGE:
            linked, waiting = (False, "") if bridge is None else (bridge.linked, bridge.waiting)
        error, remedy = trouble(
            Standing(
                stream=stream.name,
                downstream=downstream.peer,
                target=downstream.target,
                link=None if linked else next((one for one in links if not one.is_up and one.last_error), None),
                linked=linked,
                reads=reads,
                passed_over=passed_over,
                ahead=downstream.ahead,
                through=downstream.via,
                behind_s=(now_ns - max(downstream.at_ns, oldest_ns)) / 1e9 if backlog and not waiting else 0.0,
            )
        )
        if downstream.kind == BRIDGE:
            error, remedy = bridge_trouble(bridge, stream.name, downstream.peer)
        is_recent = now_ns - downstream.at_ns < _RATE_S * 1_000_000_000
        rate = downstream.rate if linked and reads and is_recent else 0.0
        return SyncStatus(
            account=stream.account.name,
            stream=stream.name,
            peer=downstream.peer,
            peer_domain=downstream.domain,
            kind=downstream.kind,
            target=downstream.target,
            filters=[each.decode("utf-8", "replace") for each in downstream.filters],
            linked=linked,
            confirmed_seq=seq,
            confirmed_at=None if doubted else ns_to_rfc3339(downstream.at_ns),
            # A linked downstream that has not resumed since may have been wiped, restored or deleted meanwhile.
            uncertain=doubted or unknown or (linked and not reads) or present.unsteady,
            last_seq=log.committed_seq,
            backlog=backlog + self._never_arrived.open_messages(key),
            backlog_bytes=size,
            never_arrived=self._never_arrived.of(key).messages,
            lost=self._never_arrived.statuses(key),
            unmatched=self._backlogs.unmatched(readers),
            oldest_s=max(0.0, (now_ns - oldest_ns) / 1e9) if oldest_ns else None,
            rate=rate,
            eta_s=backlog / rate if backlog and rate and not (error or waiting) else None,
            error=error or None,
            remedy=remedy or None,
            waiting=waiting or None,
        )
