"""Every path of a consumer's deliveries does the same: messages one by one, whole reads, runs of stored records.

A history of random publishes, requests, acknowledgements and removals is played once for each path. What subscribers
got, what the API answers and what the stream still holds must be equal. The path that sends message by message is the
rule; the others are its optimisations.
"""

import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec
import pytest

import eyot_store.log.reads as reads
from eyot_daemon.jetstream.consumer import push_delivery
from eyot_daemon.jetstream.consumer.pull import PullQueue
from eyot_daemon.jetstream.consumer.push_delivery import FlowControl
from eyot_daemon.jetstream.consumer.reader import ConsumerReader
from eyot_wire.native import COMPILED, StoredRun
from eyot_wire.stored_run import StoredRun as PlainRun
from support.clients.destinations import Recorder
from support.jetstream.consumers import Box, ConsumerFixture

S = 1_000_000_000

#: Subjects of flow control end with a random token.
_FLOW_TOKEN = re.compile(rb"(\$JS\.FC\.S\.C\.)\w+")
#: What differs from one server to the next in an advisory or an answer.
_OWN = {"id", "timestamp"}

#: A largest flow-control window that a few messages fill, bytes.
WINDOW_MAX = 32_000
STEPS = 60
SEEDS = range(20)


class DeliveryPath(NamedTuple):
    """One path of deliveries. `clients`: subscribers are connections, to whose buffers consumers write."""

    name: str
    clients: bool
    prepare: Callable[[pytest.MonkeyPatch], None]


def _one_by_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PullQueue, "solo", lambda self, now: None)


def _whole_reads(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ConsumerReader, "read_run", lambda self, above, count: None)


def _plain_runs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reads, "StoredRun", PlainRun)


RULE = DeliveryPath("one by one", False, _one_by_one)
PATHS = [
    DeliveryPath("whole reads", False, _whole_reads),
    DeliveryPath("whole reads as frames", True, _whole_reads),
    DeliveryPath("runs, plain", True, _plain_runs),
    DeliveryPath("runs", True, lambda patch: None),
]

PULL: list[dict[str, Any]] = [
    {"ack_policy": "explicit", "ack_wait": 2 * S, "sample_freq": "100"},
    {"ack_policy": "explicit", "ack_wait": S, "max_ack_pending": 7, "max_deliver": 3, "filter_subject": "s.a"},
    {"ack_policy": "all", "max_ack_pending": 20, "deliver_policy": "last_per_subject", "filter_subject": "s.>"},
    {"ack_policy": "none", "filter_subjects": ["s.a", "s.c"]},
    {"ack_policy": "explicit", "headers_only": True},
]
PUSH: list[dict[str, Any]] = [
    {"ack_policy": "none"},
    {"ack_policy": "explicit", "ack_wait": 2 * S, "max_ack_pending": 9, "sample_freq": "100"},
    {"ack_policy": "none", "flow_control": True, "idle_heartbeat": S},
    {"ack_policy": "none", "direct": True, "flow_control": True, "idle_heartbeat": S, "max_deliver": 1},
    {"ack_policy": "explicit", "filter_subject": "s.*", "rate_limit_bps": 80_000},
]


class History:
    """One history of random steps; what it did and saw is in `seen`."""

    def __init__(self, tmp_path: Path, seed: int, *, clients: bool) -> None:
        self.random = Random(seed)
        self.seen: list[Any] = []
        fixture = self.fixture = ConsumerFixture(tmp_path, clients=clients)
        self.events = Recorder()
        fixture.account.subscribe(b"$JS.EVENT.>", self.events)
        retention = self.random.choice(["limits", "interest"])
        assert "error" not in fixture.create(subjects=["s.>"], retention=retention)
        self.push = self.random.random() < 0.5
        config = dict(self.random.choice(PUSH if self.push else PULL))
        if self.push:
            config["deliver_subject"] = "d.1"
        fixture.fill(self.random.randrange(4), b"s.a")
        self.direct = bool(config.get("direct"))
        if self.direct:  # as mirrors request theirs
            body = {"stream_name": "S", "config": {"name": "C", "inactive_threshold": 3600 * S, **config}}
            created = fixture.request("CONSUMER.CREATE.S", body)
        else:
            created = fixture.add(**config)
        assert "error" not in created, created
        self.box: Box = fixture.listen(b"d.1" if self.push else b"w.>")
        self.requests = 0

    def play(self, steps: int) -> list[Any]:
        for _ in range(steps):
            step = self.random.choice(
                [self.publish, self.publish, self.ask, self.ask, self.answer, self.answer, self.wait, self.remove]
            )
            step()
            self.fixture.commit()
            self.fixture.run_on()
            self.look(step.__name__)
        return self.seen

    def publish(self) -> None:
        random, account = self.random, self.fixture.account
        for _ in range(random.choice([1, 2, 40])):
            header = b"NATS/1.0\r\nA: b\r\n\r\n" if random.random() < 0.2 else b""
            payload = b"p" * random.choice([0, 5, 700])
            account.publish(random.choice([b"s.a", b"s.b", b"s.c"]), b"", header, payload, origin=self.fixture.client)

    def ask(self) -> None:
        """Request messages; the subscriber of a push consumer leaves and returns now and then, or answers flow control."""
        random, fixture = self.random, self.fixture
        if self.push:
            for got in self.box.got:
                if got.reply.startswith(b"$JS.FC."):
                    fixture.account.publish(got.reply, origin=fixture.client)
            return
        for _ in range(random.choice([1, 1, 3])):
            wanted: dict[str, Any] = {"batch": random.choice([1, 3, 20]), "expires": random.choice([1, 5]) * S}
            if random.random() < 0.2:
                wanted["max_bytes"] = random.choice([300, 3000])
            if random.random() < 0.2:
                wanted["no_wait"] = True
            self.requests += 1
            reply = b"w.%d" % self.requests
            body = msgspec.json.encode(wanted)
            fixture.account.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.C", reply, b"", body, origin=fixture.client)

    def answer(self) -> None:
        messages = self.box.messages
        for got in self.random.sample(messages, min(len(messages), 12)):
            kind = self.random.choice([b"", b"+ACK", b"-NAK", b"+WPI", b"+TERM"])
            self.fixture.answer_to(got, kind)

    def wait(self) -> None:
        self.fixture.advance(self.random.choice([0.2, 1.1, 2.5]))

    def remove(self) -> None:
        stream = self.fixture.stream()
        first, last = stream.log.state.first_seq, stream.log.state.last_seq
        if self.random.random() < 0.7:
            self.fixture.request("STREAM.MSG.DELETE.S", {"seq": self.random.randint(max(1, first), last + 1)})
        else:
            self.fixture.request("STREAM.PURGE.S", {"filter": self.random.choice(["s.a", "s.b"]), "keep": 3})

    def look(self, step: str) -> None:
        """Note everything that can be seen from outside."""
        fixture = self.fixture
        got = [
            (got.subject, *(_FLOW_TOKEN.sub(rb"\1*", part) for part in (got.reply, got.header)), got.payload)
            for got in self.box.got
        ]
        events = [{k: v for k, v in msgspec.json.decode(e.payload).items() if k not in _OWN} for e in self.events.got]
        self.events.got.clear()
        held = [seq for seq, _ in fixture.held()]
        self.seen.append((step, got, events, held, None if self.direct else fixture.info(), fixture.consumer().info()))


def _play(path: DeliveryPath, seed: int, tmp_path: Path) -> History:
    with pytest.MonkeyPatch.context() as patch:
        path.prepare(patch)
        patch.setattr(push_delivery, "FlowControl", lambda: FlowControl(WINDOW_MAX))
        history = History(tmp_path / path.name, seed, clients=path.clients)
        history.play(STEPS)
        return history


@pytest.mark.parametrize("seed", SEEDS)
def test_every_path_does_as_the_one_that_sends_one_by_one(tmp_path: Path, seed: int) -> None:
    rule = _play(RULE, seed, tmp_path)
    assert rule.box.messages
    for path in PATHS:
        history = _play(path, seed, tmp_path)
        for at, (expected, found) in enumerate(zip(rule.seen, history.seen, strict=True)):
            assert found == expected, f"{path.name}, step {at}: {expected[0]}"


def test_the_compiled_runs_are_among_the_paths() -> None:
    assert COMPILED
    assert StoredRun is not PlainRun
    assert reads.StoredRun is StoredRun


@pytest.mark.parametrize("clients", [False, True], ids=["services", "clients"])
def test_a_filtered_consumer_stands_at_the_message_that_it_delivered(tmp_path: Path, *, clients: bool) -> None:
    """As in nats-server 2.9 to 2.14: what follows for other consumers does not count, wanted or not."""
    fixture = ConsumerFixture(tmp_path, clients=clients)
    fixture.create(subjects=["s.>"])
    for at in range(20):
        fixture.put(b"s.b" if at % 3 else b"s.a")
    fixture.add(ack_policy="explicit", filter_subject="s.a")
    assert fixture.pull(batch=2, expires=5 * S).seqs == [1, 4]
    info = fixture.info()
    assert (info["delivered"]["stream_seq"], info["ack_floor"]["stream_seq"], info["num_pending"]) == (4, 0, 5)
    assert fixture.pull(batch=5, expires=5 * S).seqs == [7, 10, 13, 16, 19]
    assert fixture.info()["delivered"]["stream_seq"] == 19


# -- receivers within the daemon -----------------------------------------------------------------------------------


def test_a_stream_lets_go_of_what_receivers_within_the_daemon_got_unacknowledged(tmp_path: Path) -> None:
    fixture = ConsumerFixture(tmp_path)
    fixture.create(subjects=["s.>"], retention="interest")
    fixture.add(ack_policy="none")
    got: list[int] = []
    pull = fixture.consumer().pull
    assert pull is not None
    receiver = pull.receivers().join(lambda sseq, *_: got.append(sseq))
    receiver.pull(10, 1 << 20)
    fixture.fill(3)
    assert (got, fixture.held()) == ([1, 2, 3], [])


def test_acknowledgements_of_receivers_within_the_daemon_are_sampled(tmp_path: Path) -> None:
    fixture = ConsumerFixture(tmp_path)
    fixture.create(subjects=["s.>"])
    fixture.add(ack_policy="explicit", sample_freq="100")
    samples = fixture.listen(b"$JS.EVENT.METRIC.CONSUMER.ACK.S.C")
    pull = fixture.consumer().pull
    assert pull is not None
    receiver = pull.receivers().join(lambda *_: None)
    receiver.pull(10, 1 << 20)
    fixture.fill(2)
    receiver.ack(2)
    receiver.ack(1)
    fixture.commit()
    assert [msgspec.json.decode(got.payload)["stream_seq"] for got in samples.got] == [2, 1]
