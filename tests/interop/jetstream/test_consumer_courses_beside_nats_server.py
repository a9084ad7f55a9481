"""What becomes of consumers over time, with eyotd and a real nats-server 2.14: starts by time, updates in mid-flight, promoted mirrors.

A seed decides a course. Both servers get the same, and what each answers and delivers is compared, without times and names.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

from eyot_wire.frames import Msg
from eyot_wire.scanner import Scanner
from support.clients.raw_client import RawClient
from support.servers.eyotd import Eyotd
from support.servers.newer_nats_server import NewerNatsServer
from support.servers.server_process import ServerProcess

CONFIG = 'server_name: TALKER\njetstream { store_dir: "%WORKDIR%/js" }'
MS = 1_000_000
#: Nothing more comes after so long, seconds.
QUIET_S = 0.4
#: What the two servers say in words or times of their own.
LEFT_OUT = {
    # Behind the last delivery both move on past what is not for the consumer, nats-server a while later.
    "ack_floor",
    "delivered",
    "num_redelivered",
    "first_ts",
    "last_ts",
    "metadata",
    "opt_start_time",
    "created",
    "ts",
    "time",
    "cluster",
    "last_active",
    "active",
    "lag",
    "domain",
    "id",
    "timestamp",
    "type",
}


def plain(value: Any) -> Any:
    """An answer without what differs by its nature."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items() if key not in LEFT_OUT}
    return [plain(each) for each in value] if isinstance(value, list) else value


class Client:
    """One connection: requests, and what is delivered meanwhile."""

    def __init__(self, server: ServerProcess) -> None:
        self._raw = RawClient(server.client_port, headers=True, no_responders=True)
        self._scanner = Scanner("client")
        self._inboxes = 0
        self._got: list[Msg] = []
        self._raw.send(b"SUB me.> 1\r\n")
        self._raw.ask()

    def close(self) -> None:
        self._raw.sock.close()

    def _read(self, within_s: float) -> bool:
        self._raw.sock.settimeout(within_s)
        try:
            data = self._raw.sock.recv(1 << 16)
        except TimeoutError:
            return False
        assert data, "the server closed the connection"
        for op in self._scanner.feed(data):
            if isinstance(op, Msg):
                self._got.append(Msg(*map(bytes, (op.subject, op.sid, op.reply, op.header, op.payload))))
        return True

    def publish(self, subject: str, payload: bytes = b"", reply: str = "") -> None:
        self._raw.send(b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), reply.encode(), len(payload), payload))

    def ask(self, subject: str, body: Any = "") -> Any:
        """A request and its answer in JSON; None where nobody is there to answer."""
        self._inboxes += 1
        inbox = f"me.ask.{self._inboxes}"
        self.publish(subject, body if isinstance(body, bytes) else json.dumps(body).encode() if body else b"", inbox)
        deadline = time.monotonic() + 15
        while time.monotonic() < deadline:
            for at, got in enumerate(self._got):
                if got.subject == inbox.encode():
                    del self._got[at]
                    return plain(json.loads(got.payload or b"null"))
            self._read(1.0)
        raise AssertionError(f"no answer on {subject}")

    def api(self, words: str, body: Any = "") -> Any:
        return self.ask(f"$JS.API.{words}", body)

    def consumer(self, name: str, stream: str = "S", **config: Any) -> Any:
        config = {"durable_name": name, "name": name, "ack_policy": "explicit", **config}
        return self.api(f"CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": config})

    def pull(self, name: str, count: int, stream: str = "S") -> None:
        body = json.dumps({"batch": count, "expires": 60_000 * MS}).encode()
        self.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}", body, f"me.got.{name}")

    def heard(self, quiet_s: float = QUIET_S) -> list[tuple[Any, ...]]:
        """What was delivered, when nothing more comes: consumer, deliveries, sequences, pending, subject, header, payload."""
        while self._read(quiet_s):
            pass
        found, self._got = self._got, []
        return [_delivery(each) for each in found]

    def acknowledge(self, delivery: tuple[Any, ...], word: bytes = b"+ACK") -> None:
        self.publish(delivery[-1], word)


def _delivery(got: Msg) -> tuple[Any, ...]:
    reply = got.reply.decode()
    if not reply.startswith("$JS.ACK."):
        return ("status", got.header, got.payload, reply)
    _, _, _, name, deliveries, sseq, cseq, _, pending = reply.split(".")
    place = name, int(deliveries), int(sseq), int(cseq), int(pending)
    return (*place, got.subject, got.header, got.payload, reply)


def shown(deliveries: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Deliveries without their acknowledgement subjects, which hold times."""
    return [each[:-1] for each in deliveries]


PATIENCE_S = 60
Course = Callable[[Client, Random], Iterator[Any]]
#: Wall clock times between two messages, for both servers' courses.
Moments = list[str]


def starts_by_time(client: Client, rng: Random) -> Iterator[Any]:
    """Messages some time apart, some removed; consumers that start between two of them, before the first, behind the last."""
    yield client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.*"], "storage": rng.choice(["file", "memory"])})
    moments: Moments = [_now()]
    count = rng.randrange(4, 10)
    for number in range(count):
        time.sleep(0.03)
        for _ in range(rng.randrange(1, 4)):
            yield client.ask(rng.choice(["s.a", "s.b"]), b"%d" % number)
        time.sleep(0.03)
        moments.append(_now())
    last = client.api("STREAM.INFO.S")["state"]["last_seq"]
    for seq in sorted(rng.sample(range(1, last + 1), rng.randrange(last))):
        yield client.api("STREAM.MSG.DELETE.S", {"seq": seq})
    for number, moment in enumerate(moments):
        # With several filters nats-server 2.14.6 leaves out messages between the moment and the first message of one of them.
        filters = rng.choice([{}, {"filter_subject": "s.a"}])
        name = f"c{number}"
        yield client.consumer(name, deliver_policy="by_start_time", opt_start_time=moment, **filters)
        client.pull(name, 3)
        yield shown(client.heard(0.1))
        yield client.api(f"CONSUMER.INFO.S.{name}")
    yield client.api("STREAM.PURGE.S")
    yield client.consumer("late", deliver_policy="by_start_time", opt_start_time=rng.choice(moments))
    yield client.ask("s.a", b"after")
    client.pull("late", 3)
    yield sorted(shown(client.heard(0.2)))


def _now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def changes_in_mid_flight(client: Client, rng: Random) -> Iterator[Any]:
    """A consumer's filters, bounds and pace change while messages of it wait for their acknowledgement.

    Filters become fewer only: whether wider ones reach back depends, with nats-server, on whether it has searched meanwhile.
    """
    yield client.api(
        "STREAM.CREATE.S",
        {"name": "S", "subjects": ["s.*"], "retention": rng.choice(["limits", "limits", "workqueue"])},
    )
    config: dict[str, Any] = {"filter_subjects": ["s.a", "s.b"], "max_ack_pending": 20, "ack_wait": 60_000 * MS}
    yield client.consumer("c", **config)
    waiting: list[tuple[Any, ...]] = []
    for _ in range(14):
        what = rng.randrange(6)
        if what == 0:
            for _ in range(rng.randrange(1, 6)):
                yield client.ask(f"s.{rng.choice('abc')}", b"x")
        elif what == 1:
            client.pull("c", rng.randrange(1, 5))
            heard = client.heard(0.15)
            waiting += [each for each in heard if each[0] != "status"]
            yield shown(heard)
        elif what == 2 and waiting:
            client.acknowledge(waiting.pop(rng.randrange(len(waiting))), rng.choice([b"+ACK", b"+ACK", b"-NAK"]))
            heard = client.heard(0.15)
            waiting += [each for each in heard if each[0] != "status"]
            yield shown(heard)
        elif what == 3:
            config |= rng.choice(
                [
                    {"filter_subjects": ["s.a"]},
                    {"max_ack_pending": rng.choice([1, 3, 50])},
                    {"headers_only": rng.random() < 0.5},
                    {"max_deliver": rng.choice([-1, 2, 5])},
                ]
            )
            yield client.consumer("c", **config)["config"]
        elif what == 4:
            last = client.api("STREAM.INFO.S")["state"]["last_seq"]
            # Of a message that its filters no longer match nats-server does not notice the removal.
            if last and len(config["filter_subjects"]) > 1:
                yield client.api("STREAM.MSG.DELETE.S", {"seq": rng.randrange(1, last + 1)})
        else:
            yield from _at_rest(client, waiting)
    yield from _at_rest(client, waiting)
    yield client.api("STREAM.INFO.S")["state"]


def _at_rest(client: Client, waiting: list[tuple[Any, ...]]) -> Iterator[Any]:
    """What a consumer says of itself when nothing more is delivered."""
    heard = client.heard(0.2)
    waiting += [each for each in heard if each[0] != "status"]
    yield shown(heard)
    yield client.api("CONSUMER.INFO.S.c")


def promotes_a_mirror(client: Client, rng: Random) -> Iterator[Any]:
    """A mirror becomes a stream of its own, under its origin's subjects, with the sequences that it has."""
    yield client.api("STREAM.CREATE.O", {"name": "O", "subjects": ["o.*"]})
    count = rng.randrange(0, 6)
    for number in range(count):
        yield client.ask("o.a", b"%d" % number)
    part = rng.choice([{}, {}, {"filter_subject": "o.a"}, {"opt_start_seq": 3}])
    mirror = {"name": "M", "mirror": {"name": "O"} | part}
    yield client.api("STREAM.CREATE.M", mirror)["config"]
    wanted, until = max(0, count - 2) if "opt_start_seq" in part else count, time.monotonic() + PATIENCE_S
    while client.api("STREAM.INFO.M")["state"]["messages"] < wanted:
        assert time.monotonic() < until, "the mirror does not get everything"
        time.sleep(0.02)
    yield client.api("STREAM.INFO.M")["state"]
    yield client.api("STREAM.UPDATE.M", {"name": "M", "subjects": ["o.*"]})
    if rng.random() < 0.8:
        yield client.api("STREAM.DELETE.O")
    yield _with_config(client.api("STREAM.UPDATE.M", {"name": "M", "subjects": ["o.*"]}))
    yield _with_config(client.api("STREAM.UPDATE.M", {"name": "M"}))
    yield _with_config(client.api("STREAM.UPDATE.M", {"name": "M", "subjects": ["p.*"]}))
    for subject in ("o.a", "p.a"):
        yield client.ask(subject, b"new")
    yield client.api("STREAM.INFO.M")["state"]
    yield _with_config(client.api("STREAM.UPDATE.M", mirror))
    yield client.api("STREAM.INFO.M")["state"]


def _with_config(answer: Any) -> Any:
    return answer.get("error") or (answer["config"], answer.get("mirror"))


COURSES: dict[str, Course] = {
    "starts by time": starts_by_time,
    "changes in mid-flight": changes_in_mid_flight,
    "promotes a mirror": promotes_a_mirror,
}
SEEDS = 4


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    folder: Path = tmp_path_factory.mktemp("courses")
    with Eyotd(CONFIG, folder / "eyotd") as ours, NewerNatsServer(CONFIG, folder / "theirs") as theirs:
        theirs.hold_directories()
        yield ours, theirs


def played(server: ServerProcess, course: Course, seed: int) -> list[Any]:
    client = Client(server)
    try:
        for stream in client.api("STREAM.NAMES").get("streams") or ():
            client.api(f"STREAM.DELETE.{stream}")
        client.heard(0.1)  # requests that ended with their consumers
        return list(course(client, Random(seed)))
    finally:
        client.close()


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("course", COURSES)
def test_both_do_the_same(servers: tuple[ServerProcess, ServerProcess], course: str, seed: int) -> None:
    ours, theirs = (played(server, COURSES[course], seed) for server in servers)
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        assert one == other, f"step {number}"
