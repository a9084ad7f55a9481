"""An account in small, made from a seed out of the classes of one twin of the hot room: the same seed must come to the same."""

from __future__ import annotations

from random import Random
from types import ModuleType

from eyot_wire.frames import Publishes
from eyot_wire.mapping import MappingTable
from eyot_wire.sublist import SubList
from support.clients import hostile
from support.clients.twins import FAN_OUTS, GRAMMARS, SCANNERS


class Fixture:
    """An account in small, made of one twin's classes, with clients, subscriptions and a publisher."""

    def __init__(self, twin: ModuleType, seed: int) -> None:
        rng = Random(seed)
        self.draws = Random(seed)
        remembered = rng.choice([4, 4096])
        self.index: SubList = SubList(remembered_subjects_max=remembered)
        self.mappings = MappingTable(rng=Random(1))
        self.traffic = twin.Traffic()
        self.dirty: list[str] = []
        self.left: list[object] = []
        self.clients = {f"c{number}": twin.OutBuffer() for number in range(4)}
        self.subs: list[object] = []
        for client in self.clients.values():
            client.headers = rng.random() < 0.7
            client.closed = rng.random() < 0.1
        self.streams = {f"s{number}": Stream(twin) for number in range(2)}
        sub_type = type("Sub", (twin.Interest,), {"__slots__": ("queue", "subject")})
        for number in range(rng.randrange(8)):
            out_buffer = rng.choice([*self.clients.values(), *self.streams.values()])
            sub = sub_type(object() if rng.random() < 0.05 else out_buffer, b"%d" % number)
            sub.subject = rng.choice(
                [b"a", b"b", b"a.*", b"a.b", b">", b"c.d.e", b"_INBOX.x.*", b"$KV.b.>", b"*.b", b"c.*.>"]
            )
            sub.queue = rng.choice([b"", b"", b"q", b"p"])
            # Takers hang on matches; which of them a short memory forgets is the twins' own business.
            if isinstance(out_buffer, Stream) and (remembered == 4 or rng.random() < 0.5):
                sub.ingest_queue = out_buffer.ingest_queue
            sub.slow = rng.random() < 0.05
            self.subs.append(sub)
            self.index.insert(sub)
        if rng.random() < 0.3:
            self.mappings.add(rng.choice([b"a", b"a.*", b"z"]), [b"mapped"])
        self.access = Access(rng) if rng.random() < 0.3 else None
        self.publisher = self.clients["c0"]
        self.no_responders = rng.random() < 0.5
        self.fan_out = twin.FanOut(self.traffic, self.index, self.mappings, self.draws.random, self._mark)

    def _mark(self, dest: object) -> None:
        self.dirty += [name for name, one in (*self.clients.items(), *self.streams.items()) if one is dest]

    def publish(self, row: Publishes) -> None:
        """What is not plain is noted and passed over."""
        at = 0
        while at < len(row) and not self.publisher.closed:
            at = self.fan_out.publish(row, at, self.publisher, self.access, self.no_responders)
            if at < len(row):
                self.left.append((row.line(at).subject, row.line(at).reply, row.content(at)))
                self._route(row.line(at).subject)
            at += 1

    def _route(self, subject: bytes) -> None:
        """A stream that is the only destination takes the messages that come next."""
        match = self.index.match(subject)
        if len(match.plain) == 1 and not match.groups and isinstance(match.plain[0].dest, Stream):
            match.sink = match.plain[0].dest.ingest_queue

    def answer(self, answers: list[tuple[bytes, bytes]]) -> None:
        """What does not go to one client is noted and passed over."""
        at = 0
        while at < len(answers):
            at = self.fan_out.answer(answers, at)
            self.left += answers[at : at + 1]
            at += 1

    def hand_out(self, rng: Random, tails: list[bytes]) -> None:
        """Frames of messages for one client, and for the members of a group, as routes lead to them."""
        clients = [sub for sub in self.subs if sub.dest in self.clients.values()]  # type: ignore[attr-defined]
        has_header = rng.random() < 0.3
        for sub in clients[:2]:
            self.left.append(self.fan_out.append(sub, b"known", tails, sum(map(len, tails)), has_header))
        members = [(sub, rng.choice([b"a", b"b.c"])) for sub in clients]
        if members:
            self.left.append(self.fan_out.share(members, tails, 7, has_header))

    def state(self) -> list[object]:
        counts = [
            (one.in_msgs, one.in_bytes, one.out_msgs, one.out_bytes) for one in (self.traffic, *self.clients.values())
        ]
        outs = [(bytes(one.out), one.dirty, one.closed) for one in self.clients.values()]
        taken = [[tuple(message) for message in stream.ingest_queue.take()] for stream in self.streams.values()]
        return [counts, outs, taken, self.dirty, self.left, [sub.delivered for sub in self.subs], self.draws.random()]  # type: ignore[attr-defined]


class Stream:
    def __init__(self, twin: ModuleType) -> None:
        self.ingest_queue = twin.IngestQueue(self)


class Access:
    def __init__(self, rng: Random) -> None:
        self._allowed = set(rng.sample([b"a", b"b", b"a.b", b"c.d.e", b"_INBOX.x.1"], 3))
        self.publish_recent: dict[bytes, bool] = {b"a": b"a" in self._allowed}

    def may_publish_always(self, subject: bytes) -> bool:
        return self.publish_recent.setdefault(subject, subject in self._allowed)


def fanned_out(twin: int, seed: int) -> list[object]:
    """What a world of this seed looks like after a good deal was published in it, by twin 0 (plain) or 1 (compiled)."""
    rng = Random(seed)
    data = b""
    while len(data) < 4000:
        subject = rng.choice(
            [
                b"a",
                b"b",
                b"a.b",
                b"c.d.e",
                b"_INBOX.x.1",
                b"_INBOX.x.2",
                b"a.c",
                b"$JS.x",
                b"$KV.b.k",
                b"$KVx",
                b"none",
                b"c.x.e",
                b"c..e",
                b"c.*.e",
            ]
        )
        reply = rng.choice([b"", b"", b"r ", b"$JS.ACK.x ", b"_R_.x ", b"r@a "])
        payload = b"x" * rng.randrange(30)
        if rng.random() < 0.2:
            frame = b"HPUB %b %b12 %d\r\nNATS/1.0\r\n\r\n%b\r\n" % (subject, reply, 12 + len(payload), payload)
        else:
            frame = b"PUB %b %b%d\r\n%b\r\n" % (subject, reply, len(payload), payload)
        data += frame * rng.choice([1, 1, 1, 5])
    fixture = Fixture(FAN_OUTS[twin], seed)
    scanner = SCANNERS[twin](GRAMMARS["PUB"], batches=True, max_control_line=4096, max_payload=1 << 20)
    for piece in hostile.cut(rng, data):
        for row in scanner.feed(piece):
            fixture.publish(row)
    inboxes = [b"a", b"b", b"a.b", b"a.c", b"_INBOX.x.1", b"_INBOX.x.2", b"none", b"c.d.e"]
    fixture.answer([(rng.choice(inboxes), b"y" * rng.choice([0, 3, 11, 1000])) for _ in range(rng.randrange(40))])
    fixture.hand_out(rng, [b"%d\r\n%b\r\n" % (size, b"z" * size) for size in rng.sample(range(20), 3)])
    return fixture.state()
