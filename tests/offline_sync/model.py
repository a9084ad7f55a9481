"""What must hold in a simulated fleet, checked after every step.

Publishers number their messages per stream and life of the stream: the payload `<node>/<stream>/<life>/<n> ...` says what it is,
wherever it is found. For every stream, be it published to or copied:

- what was acknowledged is there, under the sequence that the acknowledgement named, also after a crash;
- messages of one origin are in order, and none is there twice;
- what was committed once stays committed;
- queues, subscriptions, timers and hidden consumers stay within bounds.

When the faults stop, every copy holds all that was acknowledged at its origin (`missing`), except what was deleted there first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from eyot_daemon.jetstream.copied_out import copied_out_of
from eyot_daemon.jetstream.stream import Stream
from eyot_store.errors import StoreError
from offline_sync.node import ACCOUNT, Node

_READ_BYTES = 16 << 20
#: Generous, but a leak of one for each reconnect or request goes beyond it.
SUBSCRIPTIONS_MAX = 150
TIMERS_MAX = 300
BACKLOG_TXNS_MAX = 500
HIDDEN_CONSUMERS_MAX = 45


class Violation(AssertionError):
    """Something that must hold does not."""


@dataclass(frozen=True, slots=True)
class Life:
    """One life of a published stream: from its creation to its deletion."""

    node: str
    stream: str
    number: int

    def payload(self, n: int, padding: int) -> bytes:
        return f"{self.node}/{self.stream}/{self.number}/{n} ".encode() + b"x" * padding


def identify(payload: bytes) -> tuple[Life, int]:
    node, stream, number, n = payload.split(b" ", 1)[0].decode().split("/")
    return Life(node, stream, int(number)), int(n)


@dataclass
class Journal:
    """What the publishers of one life know. `gone`: deleted on purpose, by number."""

    published: int = 0
    acked: dict[int, int] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    seq_before: int = 0

    @property
    def expected(self) -> set[int]:
        return self.acked.keys() - self.gone


@dataclass
class Holding:
    """What a stream was seen to hold: per life the numbers in order, and how far it was read."""

    checked: int = 0
    numbers: dict[Life, dict[int, int]] = field(default_factory=dict)
    last: dict[Life, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Flow:
    """A mirror or source: `target` of `node` copies `origin` of `origin_node`. `across`: the leaf over whose link."""

    origin_node: str
    origin: str
    node: str
    target: str
    across: str
    mirror: bool = False


class Model:
    """The truth about a fleet."""

    def __init__(self) -> None:
        self.journals: dict[Life, Journal] = {}
        self.lives: dict[tuple[str, str], Life] = {}
        self.holdings: dict[tuple[str, str], Holding] = {}
        self.flows: list[Flow] = []

    # -- publishing ------------------------------------------------------------------------------------------------

    def begin_life(self, node: str, stream: str) -> Life:
        before = self.lives.get((node, stream))
        life = Life(node, stream, before.number + 1 if before is not None else 1)
        self.lives[node, stream] = life
        self.journals[life] = Journal()
        self.holdings[node, stream] = Holding()
        return life

    def acked(self, life: Life, n: int, seq: int) -> None:
        journal = self.journals[life]
        if seq in journal.acked.values() and journal.acked.get(n) != seq:
            raise Violation(f"{life}: sequence {seq} was acknowledged twice")
        journal.acked[n] = seq

    # -- after every step ------------------------------------------------------------------------------------------

    def check(self, nodes: Iterable[Node]) -> None:
        nodes = list(nodes)
        for node in nodes:
            if node.running:
                self._check_node(node)
                for stream in list(node.js.accounts[ACCOUNT].streams.values()):
                    self._check_new(node, stream)
        for node in nodes:
            if node.running:
                self._check_truth(node, {each.name for each in nodes if each.running})

    def _check_truth(self, node: Node, looked_at: set[str]) -> None:
        """What a node says has reached others has, as far as those could be looked at."""
        for flow in self.flows:
            if flow.node not in looked_at:
                continue
            life = self.lives.get((flow.origin_node, flow.origin))
            stream = node.stream(flow.origin) if flow.origin_node == node.name else None
            if stream is None or life is None:
                continue
            peer = flow.node if flow.node != node.name else "this server"
            kind = "mirror" if flow.mirror else "source"
            there = self.holdings.get((flow.node, flow.target), Holding()).numbers.get(life, {})
            journal = self.journals[life]
            for status in copied_out_of(stream).statuses():
                if (status.peer, status.kind) != (peer, kind):
                    continue
                false = [n for n in journal.expected - there.keys() if journal.acked[n] <= status.confirmed_seq]
                if false:
                    raise Violation(
                        f"{node.name} says {peer} has {flow.origin} up to {status.confirmed_seq}, but not {false}"
                    )

    def _check_node(self, node: Node) -> None:
        broker, store = node.broker, node.store
        bounded = {
            "subscriptions": (len(node.account.sublist), SUBSCRIPTIONS_MAX),
            "timers": (len(broker.timers), TIMERS_MAX),
            "uncommitted transactions": (store.backlog_txns, BACKLOG_TXNS_MAX),
        }
        for link in broker.links.connections.values():
            outbox = link.session.outbox
            bounded[f"bytes waiting on {link!r}"] = (outbox.message_bytes, outbox.message_bytes_max)
        for stream in node.js.streams():
            bounded[f"consumers of {stream.name}"] = (len(stream.consumers), HIDDEN_CONSUMERS_MAX)
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
        seq = holding.checked + 1
        while seq <= log.committed_seq:
            read = log.read(seq, max_messages=10_000, max_bytes=_READ_BYTES)
            for message in read.messages:
                self._take(node, stream, holding, message.seq, message.payload)
            seq = read.next_seq
        holding.checked = log.committed_seq

    def _take(self, node: Node, stream: Stream, holding: Holding, seq: int, payload: bytes) -> None:
        life, n = identify(payload)
        place = f"{node.name}/{stream.name} sequence {seq}"
        numbers = holding.numbers.setdefault(life, {})
        if n in numbers:
            raise Violation(f"{place}: {life} {n} is there twice, first as {numbers[n]}")
        if n < holding.last.get(life, 0):
            raise Violation(f"{place}: {life} {n} comes after {holding.last[life]}")
        numbers[n] = seq
        holding.last[life] = n

    def check_whole(self, node: Node) -> None:
        """After a restart and at the end: all that was acknowledged is there, and all that was seen committed."""
        for stream in node.js.streams():
            held = {identify(payload): seq for seq, payload in _all(stream)}
            life = self.lives.get((node.name, stream.name))
            if life is not None:
                journal = self.journals[life]
                for n in journal.expected:
                    if held.get((life, n)) != journal.acked[n]:
                        raise Violation(f"{life} {n}: acknowledged as {journal.acked[n]}, is {held.get((life, n))}")
            holding = self.holdings.get((node.name, stream.name), Holding())
            for origin, numbers in holding.numbers.items():
                gone = self.journals[origin].gone if origin == life else set()
                for n, seq in numbers.items():
                    if n not in gone and held.get((origin, n)) != seq:
                        raise Violation(f"{node.name}/{stream.name}: {origin} {n} was committed as {seq} and is gone")

    # -- when the faults have stopped --------------------------------------------------------------------------------

    def missing(self, flow: Flow) -> set[int]:
        """Numbers of the origin's present life that its copy does not hold (yet)."""
        life = self.lives.get((flow.origin_node, flow.origin))
        target = self.holdings.get((flow.node, flow.target), Holding())
        if life is None:  # a copy of a copy: everything that the origin holds
            origin = self.holdings.get((flow.origin_node, flow.origin), Holding())
            return {
                n
                for one, numbers in origin.numbers.items()
                for n in numbers.keys() - target.numbers.get(one, {}).keys()
            }
        return self.journals[life].expected - target.numbers.get(life, {}).keys()


def _all(stream: Stream) -> Iterable[tuple[int, bytes]]:
    log = stream.log
    seq = log.state.first_seq
    while 0 < seq <= log.committed_seq:
        try:
            read = log.read(seq, max_messages=10_000, max_bytes=_READ_BYTES)
        except StoreError as failure:
            raise Violation(f"{stream!r} cannot be read: {failure}") from failure
        for message in read.messages:
            yield message.seq, message.payload
        seq = read.next_seq
