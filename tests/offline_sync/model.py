"""What must hold in a simulated fleet, checked after every step.

For every stream, be it published to or copied:

- what was acknowledged is there, under the sequence that the acknowledgement named, also after a crash;
- messages of one origin are in order, under the subject that the copy's configuration says, and none is there twice;
- what was committed once stays committed;
- a server says of no copy that it has what it has not (`downstream.py`, what `/eyot/syncz` shows), and calls none synced that lacks
  something which is stored, or which left before it arrived, and was not counted; also in the moment in which a link comes up;
- limits take away what they may, and no age before its time, wherever clocks leap;
- what left a work queue is in its copy, and what left a stream with interest retention in all copies that it knew;
- queues, subscriptions, timers and hidden consumers stay within bounds.

When the faults stop, every copy holds all that was acknowledged at its origin (`missing`), except what was deleted there first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field

import trio

from eyot_daemon.jetstream.sourcing.source_task import ORIGIN_BEHIND
from eyot_daemon.jetstream.stream.stream import Stream
from eyot_store.errors import StoreError
from eyot_wire.jetstream.stream import StreamConfig
from eyot_wire.status import SyncStatus
from offline_sync.domains import node_of
from offline_sync.flows import TOPICS, Flow, Flows, subject_of
from offline_sync.journal import Journal, StreamEpoch, identify
from offline_sync.node import ACCOUNT, Node

_READ_BYTES = 16 << 20
#: Generous, but a leak of one for each reconnect or request goes beyond it.
SUBSCRIPTIONS_MAX = 250
TIMERS_MAX = 400
BACKLOG_TXNS_MAX = 2500
#: Steps of a clock up to this are believed, seconds.
BELIEVED_S = 15.0
#: Of any message that is published, with what a stream counts for it.
_SIZE_MAX = 1200
#: Of one mirror or source: one request a quarter of a second, each consumer there for ten seconds.
HIDDEN_CONSUMERS_MAX = 45


class Violation(AssertionError):
    """Something that must hold does not."""


@dataclass
class Holding:
    """What a stream was seen to hold: per life sequences by number, and how far it was read."""

    checked: int = 0
    numbers: dict[StreamEpoch, dict[int, int]] = field(default_factory=dict)
    last: dict[tuple[StreamEpoch, int], int] = field(default_factory=dict)


class Model:
    """The truth about a fleet."""

    def __init__(self) -> None:
        self.journals: dict[StreamEpoch, Journal] = {}
        self.epochs: dict[tuple[str, str], StreamEpoch] = {}
        self.holdings: dict[tuple[str, str], Holding] = {}
        self.flows = Flows()
        #: Flows whose copier was at work since the copy was made or restored: their origin has heard of them.
        self.known: set[Flow] = set()
        #: Of each node's backup: the flows out of it that had been heard of then.
        self.known_then: dict[str, set[Flow]] = {}
        #: Mirrors whose origin's sequences have come to mean something else, as (node, target): nobody can say what they miss.
        self.diverged: set[tuple[str, str]] = set()
        #: Per flow: what limits had taken and a restored backup brought back. The copy was told that it is gone (known limits).
        self.regained: dict[Flow, set[int]] = {}
        #: Flows that were there from the beginning: of these all is counted that never arrived.
        self.first: set[Flow] = set()
        #: When mirrors and streams of sources were made again, as (node, target), seconds.
        self.remade_at: dict[tuple[str, str], float] = {}
        #: Mirrors that have been told to go on behind their own end, as (node, target): they may hold what they lack as another one's.
        self.skipping: set[tuple[str, str]] = set()
        #: When each flow became known, seconds: what went before that was lost to nobody.
        self.known_at: dict[Flow, float] = {}
        #: What left a stream with interest retention, by its life, before its origin had heard of this copy.
        self.passed: dict[tuple[Flow, StreamEpoch], set[int]] = {}

    # -- publishing ------------------------------------------------------------------------------------------------

    def begin_epoch(self, node: str, stream: str, retention: str = "") -> StreamEpoch:
        before = self.epochs.get((node, stream))
        epoch = StreamEpoch(node, stream, before.number + 1 if before is not None else 1)
        self.epochs[node, stream] = epoch
        self.journals[epoch] = Journal(retention in ("workqueue", "interest"), retention == "interest")
        self.holdings[node, stream] = Holding()
        if self.journals[epoch].interest:  # of whom it has not heard, it keeps nothing
            self.known = {flow for flow in self.known if flow.source != (node, stream)}
        return epoch

    def acked(self, epoch: StreamEpoch, n: int, seq: int) -> None:
        journal = self.journals[epoch]
        if journal.acked.get(n, seq) != seq:
            raise Violation(f"{epoch} {n} was acknowledged as {journal.acked[n]} and as {seq}")
        journal.acked[n] = seq

    def rolled_back(self, node: Node) -> None:
        """A node is what it was when its backup was made: what came later is gone, and it has heard of nothing since."""
        looked_at = {place: holding.checked for place, holding in self.holdings.items()}
        self._note_regained(node)
        self.restarts_sourcing(node.name)
        then = self.known_then.get(node.name, set())
        mirrors = [flow for flow in self.known if flow.mirror and flow.origin_node == node.name]
        self.known = {flow for flow in self.known if flow.origin_node != node.name or flow in then}
        for stream in node.js.streams():
            place = node.name, stream.name
            epoch = self.epochs.get(place)
            if epoch is None:
                if stream.log.committed_seq < looked_at.get(place, 0):
                    self.diverged |= {flow.place for flow in mirrors if flow.source == place}
                continue
            if self._lose(epoch, stream.log.committed_seq):
                self.diverged |= {flow.place for flow in mirrors if flow.source == epoch_place(epoch)}

    def numbers_in(self, node: Node, name: str) -> set[int]:
        """Return what a stream that is published to holds."""
        stream = node.stream(name)
        return set() if stream is None else {identify(payload)[1] for _, payload in all_messages(stream)}

    def put_back(self, place: tuple[str, str], last_seq: int, regained: Set[int]) -> None:
        """One stream was deleted, and will be what it was at `last_seq`: it has heard of nobody since.

        `regained`: what it holds again, and its copies were told is gone.
        """
        mine = {flow for flow in (*self.known, *self.first) if flow.source == place}
        for flow in mine:
            self.regained.setdefault(flow, set()).update(regained)
        self.known -= mine
        self.first -= mine
        self.holdings[place] = Holding()
        if self._lose(self.epochs[place], last_seq):
            self.diverged |= {flow.place for flow in mine if flow.mirror}

    def _lose(self, epoch: StreamEpoch, last_seq: int) -> set[int]:
        """Note that a stream ends earlier than it did; return what was acknowledged and is gone."""
        journal = self.journals[epoch]
        gone = {n for n, seq in journal.acked.items() if seq > last_seq}
        # What is on its way to be acknowledged was of the time before, too.
        journal.lost |= gone | (set(range(1, journal.published + 1)) - journal.acked.keys())
        for n in gone:
            del journal.acked[n]
        return gone

    def _note_regained(self, node: Node) -> None:
        """What limits had taken before its copies had it, and is there again: a copy asks for what follows, and nobody knows better."""
        for flow in self.known:
            epoch, stream = self.epochs.get(flow.source), node.stream(flow.origin)
            if flow.origin_node == node.name and epoch is not None and stream is not None:
                there = {identify(payload)[1] for _, payload in all_messages(stream)}
                self.regained.setdefault(flow, set()).update(there & self.journals[epoch].gone)

    def backed_up(self, node: str) -> None:
        """What a node is backed up with says nothing of readers that it had not heard of yet."""
        self.known_then[node] = {flow for flow in self.known if flow.origin_node == node}

    def has_diverged(self, flow: Flow) -> bool:
        """Does this mirror hold what its origin has lost?"""
        epoch = self.epochs.get(flow.source)
        if flow.place in self.diverged or epoch is None or not flow.mirror:
            return flow.place in self.diverged
        held = self.holdings.get(flow.place, Holding()).numbers.get(epoch, {})
        return not self.journals[epoch].lost.isdisjoint(held)

    def holds_former(self, flow: Flow) -> bool:
        """Does this mirror hold messages of an epoch before the origin's present one? It may not know: it was cut off before it heard."""
        epoch, held = self.epochs.get(flow.source), self.holdings.get(flow.place, Holding()).numbers
        return epoch is not None and any(
            epoch_place(each) == flow.source and each.number < epoch.number for each, numbers in held.items() if numbers
        )

    def passes_over(self, flow: Flow, origin: Node) -> bool:
        """Did this mirror go on behind its own end, and does its origin count everything that it does not take?"""
        stream = origin.stream(flow.origin)
        if flow.place not in self.skipping or stream is None:
            return False
        lacks = len(self.missing(flow))
        return any(
            lacks <= each.backlog + each.never_arrived and each.error
            for each in stream.downstream.statuses()
            if _is_of(each, flow)
        )

    def restarts_sourcing(self, node: str) -> None:
        """All streams of a node were lost or taken back: what it copies begins anew, and its origins have to hear of it."""
        for place in [place for place in self.holdings if place[0] == node]:
            for epoch, numbers in self.holdings[place].numbers.items():
                if self.journals[epoch].workqueue and place != epoch_place(epoch):
                    self.journals[epoch].lost |= numbers.keys()
            self.holdings[place] = Holding()
        self.known = {flow for flow in self.known if flow.node != node}
        for then in self.known_then.values():
            then -= {flow for flow in then if flow.node == node}
        self.diverged = {place for place in self.diverged if place[0] != node}

    def restarts_copy(self, place: tuple[str, str]) -> None:
        """One mirror or stream of sources was deleted and made again: it begins anew, and its origins have to hear of it."""
        self.holdings[place] = Holding()
        self.remade_at[place] = trio.current_time()
        mine = {flow for flow in (*self.known, *self.first) if flow.place == place}
        self.known -= mine
        self.first -= mine
        for then in self.known_then.values():
            then -= mine
        self.diverged.discard(place)
        self.skipping.discard(place)

    # -- after every step ------------------------------------------------------------------------------------------

    def check(self, nodes: Iterable[Node]) -> None:
        running = [node for node in nodes if node.running]
        for node in running:
            self._check_bounds(node)
            self._note_gone(node)
            for stream in list(node.js.accounts[ACCOUNT].streams.values()):
                self._check_new(node, stream)
        self._note_passed({node.name: node for node in running})
        self._note_known(running)
        for node in running:
            self._check_truth(node, {each.name: each for each in running})
        self.check_claims(running)

    def _note_gone(self, node: Node) -> None:
        """What limits took of what was published here, as they may."""
        for stream in node.js.streams():
            epoch = self.epochs.get((node.name, stream.name))
            if epoch is None:
                continue
            journal, config = self.journals[epoch], stream.config
            if config not in journal.configs and _has_limits(config):
                journal.configs.append(config)
            if not journal.configs:
                continue
            held = {identify(payload)[1] for _, payload in all_messages(stream)}
            upto = stream.log.committed_seq
            # Acknowledged or not: a crash may have taken the answer.
            seqs = self.holdings.get((node.name, stream.name), Holding()).numbers.get(epoch, {}) | journal.acked
            known = journal.lost | journal.gone
            left = {
                n for n, seq in seqs.items() if seq <= upto and n not in known and not journal.purged(n, seq)
            } - held
            for n in left:
                after, same = stream.log.state.last_seq - seqs[n], (journal.published - n) // TOPICS
                age_ns = (trio.current_time() - journal.published_at[n] + BELIEVED_S) * 1e9
                if not any(
                    0 < each.max_msgs <= after
                    or 0 < each.max_msgs_per_subject <= same
                    or 0 < each.max_bytes <= stream.log.state.last_seq * _SIZE_MAX
                    or 0 < each.max_age <= age_ns
                    for each in journal.configs
                ):
                    raise Violation(f"{n} of {epoch} is gone, {after} messages and {age_ns / 1e9:.0f} s later")
            journal.gone |= left

    def check_claims(self, nodes: Iterable[Node]) -> None:
        """Whoever is called synced has everything, but for what is said never to have arrived."""
        running = {node.name: node for node in nodes if node.running}
        for node in running.values():
            for stream in node.js.streams():
                epoch = self.epochs.get((node.name, stream.name))
                if epoch is None or self.journals[epoch].workqueue:
                    continue
                for status in stream.downstream.statuses():
                    if status.is_synced:
                        self._check_synced(node, stream, epoch, status, running)

    def _check_synced(
        self, node: Node, stream: Stream, epoch: StreamEpoch, status: SyncStatus, running: dict[str, Node]
    ) -> None:
        reader = running.get(node.name if status.peer == "this server" else node_of(status.peer))
        if reader is None:
            return
        if reader is not node and node.linked_at.get(reader.name, -1.0) < reader.restored_at:
            return  # nobody could have told it yet
        if reader.was_restored and status.peer_domain not in ("", reader.domain):
            return
        for flow in self.flows.at(reader):
            place = flow.source == (node.name, stream.name) and _is_of(status, flow)
            copy = reader.stream(flow.target)
            if not place or copy is None or not (status.linked or flow in self.known):
                continue  # one that was lost while the link is down nobody can know of
            if self.has_diverged(flow) and not skips(copy):
                continue
            if flow not in self.known and node.linked_at.get(reader.name, -1.0) < self.remade_at.get(flow.place, -1.0):
                continue  # nor of one that was made again, whose request is under way
            self._check_new(reader, copy)
            absent = self.absent(flow, epoch, status.last_seq)
            stored = {identify(payload)[1] for _, payload in all_messages(stream)}
            lacking = absent & stored - self.regained.get(flow, set()) - self._named(epoch, status)
            if lacking:
                raise Violation(f"{node.name} calls {flow} synced, but it has not {few(lacking)}")
            counted = self._counted(absent, flow, epoch)
            if self._all_is_counted(node, reader, flow) and len(counted) > status.never_arrived:
                raise Violation(
                    f"{node.name} calls {flow} synced, {status.never_arrived} never arrived: {len(counted)} did not, {few(counted)}"
                )

    def _counted(self, absent: set[int], flow: Flow, epoch: StreamEpoch) -> set[int]:
        """What must be counted of what did not arrive: all that was published when its origin had heard of the copy."""
        since, published_at = self.known_at.get(flow, 1e9), self.journals[epoch].published_at
        return {n for n in absent if published_at[n] > since} if epoch.number == 1 else set()

    def _all_is_counted(self, node: Node, reader: Node, flow: Flow) -> bool:
        """Was this copy there all the time, as it is, under the names of before, and nothing taken back at either end?"""
        mixed = (*flow.place, flow.origin_node) in self.flows.mixed
        renamed = node.domain != node.name  # what its copies had before, they have from another source of theirs
        return flow in self.first and not (mixed or renamed or node.was_restored or reader.was_restored)

    def _named(self, epoch: StreamEpoch, status: SyncStatus) -> set[int]:
        """What is said never to have arrived. A part of it may still be stored: its removal failed, and the reader was past it."""
        ranges = [tuple(map(int, each.split("-"))) for one in status.lost for each in one.sequences]
        acked = self.journals[epoch].acked if ranges else {}
        return {n for n, seq in acked.items() if any(each[0] <= seq <= each[-1] for each in ranges)}

    def absent(self, flow: Flow, epoch: StreamEpoch, upto: int) -> set[int]:
        """What was acknowledged at the origin up to a sequence, is for this copy, and never came there."""
        journal, there = self.journals[epoch], self.holdings.get(flow.place, Holding()).numbers.get(epoch, {})
        return {
            n
            for n, seq in journal.acked.items()
            if seq <= upto
            and n not in there
            and n not in journal.lost
            and flow.takes(subject_of(epoch.node, epoch.stream, n))
        }

    def _unacknowledged(self, flow: Flow, epoch: StreamEpoch) -> set[int]:
        """What may have been stored at the origin without an acknowledgement (it lost power meanwhile), and never came to this copy."""
        journal, there = self.journals[epoch], self.holdings.get(flow.place, Holding()).numbers.get(epoch, {})
        open_numbers = set(range(1, journal.published + 1)) - journal.acked.keys() - there.keys() - journal.lost
        return {n for n in open_numbers if flow.takes(subject_of(epoch.node, epoch.stream, n))}

    def _note_passed(self, running: dict[str, Node]) -> None:
        """What a stream with interest retention let go while it had not heard of a copy."""
        for flow in (flow for node in running.values() for flow in self.flows.at(node)):
            epoch, origin = self.epochs.get(flow.source), running.get(flow.origin_node)
            if flow in self.known or epoch is None or not self.journals[epoch].interest or origin is None:
                continue
            left = set(range(1, self.journals[epoch].published + 1)) - self.numbers_in(origin, flow.origin)
            self.passed.setdefault((flow, epoch), set()).update(left)

    def _note_known(self, running: list[Node]) -> None:
        named = {node.name: node for node in running}
        for node in running:
            flows = self.flows.at(node)
            self.known = {flow for flow in self.known if flow.node != node.name or flow in flows}
            active = {id(task.config) for task in node.sourcing.tasks() if task.source_consumer.is_connected}
            for flow in flows:
                if flow in self.known or not active.issuperset(id(each) for each in _configs(node, flow)):
                    continue
                if self._is_heard_of(flow, named.get(flow.origin_node)):
                    self.known.add(flow)
                    self.known_at.setdefault(flow, trio.current_time())

    def _is_heard_of(self, flow: Flow, origin: Node | None) -> bool:
        """Does the origin keep messages for this copy? One that is connected may not have heard yet that the origin was made again."""
        epoch, stream = self.epochs.get(flow.source), origin and origin.stream(flow.origin)
        if epoch is None or not self.journals[epoch].interest:
            return True
        return stream is not None and any(_is_of(each, flow) for each in stream.downstream.statuses())

    def _check_truth(self, node: Node, looked_at: dict[str, Node]) -> None:
        """What a node says has reached others has, as far as those could be looked at.

        It cannot know that what was renamed, and set up anew before it was heard of again, is the one that it knew by
        its former domain.
        """
        told: dict[str, list[SyncStatus]] = {}
        for flow in self.known:
            if flow.origin_node != node.name or flow.node not in looked_at or self.has_diverged(flow):
                continue
            epoch = self.epochs.get(flow.source)
            stream = node.stream(flow.origin)
            if stream is None or epoch is None:
                continue
            if flow.origin not in told:
                told[flow.origin] = stream.downstream.statuses()
            for status in told[flow.origin]:
                reader = looked_at[flow.node]
                former = reader.was_restored and status.peer_domain not in ("", reader.domain)
                if _is_of(status, flow) and not former:
                    self._check_claim(node, flow, epoch, status)

    def _check_claim(self, node: Node, flow: Flow, epoch: StreamEpoch, status: SyncStatus) -> None:
        """What a mirror passes over is in its backlog."""
        there = self.holdings.get(flow.place, Holding()).numbers.get(epoch, {})
        journal = self.journals[epoch]
        suspects = {n for n, seq in journal.acked.items() if seq <= status.confirmed_seq and n not in there}
        false = suspects & self._wanted(flow, epoch) - self._named(epoch, status) if suspects else suspects
        if len(false) > (status.backlog if flow.place in self.skipping else 0):
            raise Violation(
                f"{node.name} says {flow} is done up to {status.confirmed_seq}, but it has not {few(false)}: {status}"
            )

    def check_forgotten(self, node: Node, nodes: dict[str, Node]) -> None:
        """A server shows nobody as behind who copies no more, unless that was lost with a disk, or cannot be told any
        more, since the server's domain was renamed meanwhile (`eyot sync forget` is for that).
        """
        if node.domain != node.name:
            return
        flows = [flow for other in nodes.values() for flow in self.flows.at(other)]
        for stream in node.js.streams():
            for status in stream.downstream.statuses():
                reader = nodes.get(node_of(status.peer))
                alive = any(_is_of(status, flow) and flow.source == (node.name, stream.name) for flow in flows)
                # What was deleted with its stream the reader does not know any more after a restart.
                alive = alive or (
                    reader is not None
                    and (reader.stream(status.target) is None or (reader.name, status.target) in self.remade_at)
                )
                if not alive and reader is not None and not reader.was_restored and not node.was_restored:
                    raise Violation(f"{node.name} goes on to show {status.kind} {status.target} of {status.peer}")

    def check_told(self, node: Node, nodes: dict[str, Node]) -> None:
        """When all is copied a server says so, of every copy that somebody makes."""
        flows = [flow for flow in self.known if flow.origin_node == node.name and not self.has_diverged(flow)]
        for flow in flows:
            stream = node.stream(flow.origin)
            if stream is None or self.missing(flow):
                continue
            mine = [each for each in stream.downstream.statuses() if _is_of(each, flow)]
            if not any(each.backlog == 0 for each in mine):
                raise Violation(f"{node.name} says of {flow}, which has everything: {mine or 'nothing'}")
            epoch, reader = self.epochs.get(flow.source), nodes.get(flow.node)
            if epoch is None or self.journals[epoch].workqueue or reader is None:
                continue
            absent = self.absent(flow, epoch, stream.log.committed_seq)
            least = len(self._counted(absent, flow, epoch))
            most = len(absent) + len(self._unacknowledged(flow, epoch))
            if self._all_is_counted(node, reader, flow) and not any(
                least <= each.never_arrived <= most for each in mine
            ):
                raise Violation(f"{node.name} says of {flow}, where {least} to {most} never arrived: {mine}")

    def _check_bounds(self, node: Node) -> None:
        broker, store = node.broker, node.store
        bounded = {
            "subscriptions": (len(node.account.sublist), SUBSCRIPTIONS_MAX),
            "timers": (len(broker.timers), TIMERS_MAX),
            "uncommitted transactions": (store.backlog_txns, BACKLOG_TXNS_MAX),
        }
        for link in broker.links.connections.values():
            outbox = link.session.outbox
            bounded[f"bytes waiting on {link!r}"] = (outbox.waiting_bytes, outbox.waiting_bytes_max)
        for stream in node.js.streams():
            readers = sum(flow.source == (node.name, stream.name) for flow in self.known)
            most = HIDDEN_CONSUMERS_MAX * max(2, readers)
            bounded[f"consumers of {stream.name}"] = (len(stream.consumers), most)
        for what, (count, most) in bounded.items():
            if count > most:
                raise Violation(f"{node.name}: {count} {what}, more than {most}")
        if broker.timers.failures:
            raise Violation(f"{node.name}: a timer failed")

    def _check_new(self, node: Node, stream: Stream) -> None:
        """Read what was committed since the last look."""
        holding = self.holdings.setdefault((node.name, stream.name), Holding())
        log = stream.log
        if log.committed_seq < holding.checked:
            raise Violation(f"{node.name}/{stream.name}: ends at {log.committed_seq}, was at {holding.checked}")
        flows = self.flows.of(node, stream)
        seq = holding.checked + 1
        while seq <= log.committed_seq:
            read = log.read(seq, max_messages=10_000, max_bytes=_READ_BYTES)
            for message in read.messages:
                epoch, n = identify(message.payload)
                self._take(node, stream, holding, message.seq, epoch, n)
                self._check_subject(node, stream, flows, epoch, n, message.subject.decode())
            seq = read.next_seq
        holding.checked = log.committed_seq

    def _take(self, node: Node, stream: Stream, holding: Holding, seq: int, epoch: StreamEpoch, n: int) -> None:
        place = f"{node.name}/{stream.name} sequence {seq}"
        numbers = holding.numbers.setdefault(epoch, {})
        if n in numbers:
            raise Violation(f"{place}: {n} of {epoch} is there twice, first as {numbers[n]}")
        row = epoch, n % TOPICS if self._is_mixed(node, stream, epoch) else -1
        if n < holding.last.get(row, 0):
            raise Violation(f"{place}: {n} of {epoch} comes after {holding.last[row]}")
        numbers[n] = seq
        holding.last[row] = n

    def _is_mixed(self, node: Node, stream: Stream, epoch: StreamEpoch) -> bool:
        """What comes from there is in order for each topic only: here, or where this copies from in turn."""
        places = [(node.name, stream.name)] + [flow.source for flow in self.flows.of(node, stream)]
        return any((*place, epoch.node) in self.flows.mixed for place in places)

    def _check_subject(
        self, node: Node, stream: Stream, flows: tuple[Flow, ...], epoch: StreamEpoch, n: int, subject: str
    ) -> None:
        """A copy of what was published bears the subject that some source gives it (before the sources were changed: any)."""
        mine = [flow for flow in flows if flow.source == epoch_place(epoch)]
        if not mine or (node.name, stream.name, epoch.node) in self.flows.mixed:
            return
        published = subject_of(epoch.node, epoch.stream, n)
        if not any(flow.takes(published) and flow.stored_as(published) == subject for flow in mine):
            raise Violation(
                f"{node.name}/{stream.name}: {n} of {epoch} is stored as {subject}, published as {published}"
            )

    def check_whole(self, node: Node) -> None:
        """After a restart and at the end: all that was acknowledged is there, and all that was seen committed."""
        self._note_gone(node)
        for stream in node.js.streams():
            held = {identify(payload): seq for seq, payload in all_messages(stream)}
            epoch = self.epochs.get((node.name, stream.name))
            journal = self.journals[epoch] if epoch is not None else Journal()
            for n in journal.expected if epoch is not None and not journal.workqueue else ():
                if held.get((epoch, n)) != journal.acked[n]:
                    raise Violation(f"{n} of {epoch}: acknowledged as {journal.acked[n]}, is {held.get((epoch, n))}")
            if journal.workqueue:
                continue
            holding = self.holdings.get((node.name, stream.name), Holding())
            for origin, numbers in holding.numbers.items():
                for n, seq in numbers.items():
                    gone = origin == epoch and (n in journal.lost or n in journal.gone or journal.purged(n, seq))
                    if not gone and held.get((origin, n)) != seq:
                        raise Violation(
                            f"{node.name}/{stream.name}: {n} of {origin} was committed as {seq} and is gone"
                        )

    def check_work(self, node: Node) -> None:
        """What is not in a work queue any more is in the copy it was handed to."""
        for stream in node.js.streams():
            epoch = self.epochs.get((node.name, stream.name))
            if epoch is None or not self.journals[epoch].workqueue:
                continue
            left = {identify(payload)[1] for _, payload in all_messages(stream)}
            if self.journals[epoch].interest:
                self._check_interest(epoch, left)
                continue
            handed = [
                each.numbers.get(epoch, {}) for place, each in self.holdings.items() if place != epoch_place(epoch)
            ]
            lost = self.journals[epoch].expected - left - {n for numbers in handed for n in numbers}
            if lost:
                raise Violation(f"{epoch}: {few(lost)} left the work queue and are nowhere")

    def _check_interest(self, epoch: StreamEpoch, left: set[int]) -> None:
        """What is not there any more is in each copy that its origin knew."""
        for flow in (flow for flow in self.known if flow.source == epoch_place(epoch)):
            there = self.holdings.get(flow.place, Holding()).numbers.get(epoch, {})
            lost = self._wanted(flow, epoch) - left - there.keys()
            if lost:
                raise Violation(f"{epoch}: {few(lost)} left, and {flow} has not got them")

    # -- when the faults have stopped --------------------------------------------------------------------------------

    def missing(self, flow: Flow) -> set[int]:
        """Numbers of the origin's present life that its copy does not hold (yet)."""
        target = self.holdings.get(flow.place, Holding())
        epoch = self.epochs.get(flow.source)
        if epoch is None:  # a copy of a copy: everything that the origin holds
            origin = self.holdings.get(flow.source, Holding())
            return {n for one, numbers in origin.numbers.items() for n in numbers.keys() - target.numbers.get(one, {})}
        return self._wanted(flow, epoch) - target.numbers.get(epoch, {}).keys()

    def _wanted(self, flow: Flow, epoch: StreamEpoch) -> set[int]:
        expected = self.journals[epoch].expected - self.passed.get((flow, epoch), set())
        if not flow.filters:
            return expected
        return {n for n in expected if flow.takes(subject_of(epoch.node, epoch.stream, n))}


def skips(stream: Stream) -> bool:
    """Does this mirror go on behind its own end when its origin has lost messages?"""
    return (stream.config.metadata or {}).get(ORIGIN_BEHIND) == "skip"


def _has_limits(config: StreamConfig) -> bool:
    return max(config.max_msgs, config.max_bytes, config.max_msgs_per_subject, config.max_age) > 0


def epoch_place(epoch: StreamEpoch) -> tuple[str, str]:
    """(node, stream)"""
    return epoch.node, epoch.stream


def _is_of(status: SyncStatus, flow: Flow) -> bool:
    """Is this said of that copy?"""
    peer = flow.node if flow.across else "this server"
    kind = "mirror" if flow.mirror else "source"
    said = (node_of(status.peer), status.kind, tuple(status.filters))
    return said == (peer, kind, flow.filters) and status.target in ("", flow.target)


def _configs(node: Node, flow: Flow) -> Iterator[object]:
    """The source or mirror configurations behind a flow."""
    for task in node.sourcing.tasks():
        config = task.config
        filters = [config.filter_subject] if config.filter_subject else [each.src for each in config.subject_transforms]
        domain = node_of(config.external.api.split(".")[1]) if config.external is not None else node.name
        mine = task.stream.name == flow.target and task.mirror == flow.mirror and tuple(filters) == flow.filters
        if mine and (domain, config.name) == flow.source:
            yield config


def few(numbers: Iterable[int]) -> str:
    """Some of these numbers, for people."""
    some = sorted(numbers)
    return f"{some[:8]}" + (f" and {len(some) - 8} more" if len(some) > 8 else "")


def all_messages(stream: Stream, begin: int = 0) -> Iterable[tuple[int, bytes]]:
    """Sequences and payloads of what is committed, from `begin` on."""
    log = stream.log
    seq = max(begin, log.state.first_seq)
    while 0 < seq <= log.committed_seq:
        try:
            read = log.read(seq, max_messages=10_000, max_bytes=_READ_BYTES)
        except StoreError as failure:
            raise Violation(f"{stream!r} cannot be read: {failure}") from failure
        for message in read.messages:
            yield message.seq, message.payload
        seq = read.next_seq
