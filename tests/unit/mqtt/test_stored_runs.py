"""Runs of QoS 1 that are only stored: those of a turn that follow each other are one, and each client gets its outcomes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eyot_daemon.mqtt.session_record import SessionRecord
from eyot_wire.frames import Published
from eyot_wire.mqtt.plain_publishes import AckedPublishes
from eyot_wire.mqtt.publish_run import AckedScanned
from support.mqtt.fixture import MqttFixture, QueueClient

HEADER = b"NATS/1.0\r\nNmqtt-Pub: 1\r\n\r\n"


class Runs:
    """A fixture with streams A and FULL (two messages), and the outcomes of runs in the order in which they are told."""

    def __init__(self, path: Path) -> None:
        self.fixture = MqttFixture(path)
        self.fixture.create("A", subjects=["a.>"])
        self.fixture.create("FULL", subjects=["full.>"], max_msgs=2, discard="new")
        self.told: list[tuple[str, Any]] = []

    def publish(self, client: str, payloads: list[bytes], *streams: str, queue: bytes = b"") -> bool:
        """Hand in a run of a client; its subject in a stream ends with the client's name."""
        scanned = AckedScanned(
            0, list(range(1, len(payloads) + 1)), payloads, sum(map(len, payloads)), max(map(len, payloads))
        )
        subject = b"$MQTT.msgs." + queue
        targets = self.fixture.mqtt.run_targets(
            [(self.fixture.stream(name), b"%b.%b" % (name.lower().encode(), client.encode())) for name in streams],
            subject,
            self.fixture.mqtt.filters_of(subject),
        )
        return self.fixture.mqtt.publish_run(
            targets,
            HEADER,
            AckedPublishes("t", scanned),
            lambda outcomes: self.told.append(
                (client, outcomes and [0 if each is None else each.err_code for each in outcomes])
            ),
        )

    @property
    def waiting(self) -> int:
        """How many publishes and runs are a transaction at the end of the turn."""
        return len(self.fixture.mqtt._joint._waiting)

    def held(self, name: str) -> list[bytes]:
        return [payload for _, payload in self.fixture.held(name)]


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def test_runs_of_several_clients_are_one(runs: Runs) -> None:
    commits = runs.fixture.store.stats.txns
    assert runs.publish("x", [b"1", b"2"], "A")
    assert runs.publish("y", [b"3"], "A")
    assert runs.publish("x", [b"4"], "A")
    assert runs.waiting == 1
    runs.fixture.broker.flush()
    assert runs.told == []
    runs.fixture.commit()
    assert runs.told == [("x", None), ("y", None), ("x", None)]
    assert runs.held("A") == [b"1", b"2", b"3", b"4"]
    assert [runs.fixture.stream("A").log.get(seq).subject for seq in (1, 2, 3, 4)] == [b"a.x", b"a.x", b"a.y", b"a.x"]
    assert runs.fixture.store.stats.txns == commits + 1


def test_the_order_of_the_turn_stays(runs: Runs) -> None:
    queue = QueueClient(runs.fixture, SessionRecord("away", "", 4))
    queue.follow(b"q")
    assert runs.publish("x", [b"1"], "A")
    assert runs.publish("x", [b"2"], "A", "FULL")
    assert runs.publish("x", [b"3"], "A")
    runs.fixture.mqtt.publish(
        [(runs.fixture.stream("A"), Published(b"a.x", b"", b"", b"4"))],
        done=lambda error: runs.told.append(("one", error)),
    )
    assert runs.publish("y", [b"5"], "A")
    assert runs.publish("y", [b"6"], "A", queue=b"q")
    assert runs.waiting == 6
    runs.fixture.run()
    assert runs.told == [("x", None)] * 3 + [("one", None)] + [("y", None)] * 2
    assert runs.held("A") == [b"1", b"2", b"3", b"4", b"5", b"6"]
    assert runs.held("FULL") == [b"2"]
    assert queue.pull() == [b"6"]


def test_each_client_gets_the_outcomes_of_its_own(runs: Runs) -> None:
    queue = QueueClient(runs.fixture, SessionRecord("away", "", 4))
    queue.follow(b"q")
    assert queue.queue is not None
    assert runs.publish("x", [b"1"], "A", "FULL", queue=b"q")
    assert runs.publish("y", [b"2", b"33"], "A", "FULL", queue=b"q")
    assert runs.publish("z", [b"4444"], "A", "FULL", queue=b"q")
    assert runs.waiting == 1
    runs.fixture.run()
    assert runs.told == [("x", [0]), ("y", [0, 10077]), ("z", [10077])]
    assert runs.held("A") == runs.held("FULL") == [b"1", b"2"]
    each = len(b"$MQTT.msgs.q") + len(HEADER) + 1
    assert queue.queue.backlog == (2, 2 * each)  # type: ignore[union-attr]
    assert queue.pull() == [b"1", b"2"]


@pytest.mark.parametrize("bound", ["msgs_max", "bytes_max"])
def test_a_run_that_a_queue_has_no_room_for_changes_nothing(runs: Runs, bound: str) -> None:
    queue = QueueClient(runs.fixture, SessionRecord("away", "", 4))
    queue.follow(b"q")
    assert queue.queue is not None
    setattr(
        runs.fixture.mqtt._context, bound, 2 if bound == "msgs_max" else 2 * (len(b"$MQTT.msgs.q") + len(HEADER) + 1)
    )
    assert runs.publish("x", [b"1"], queue=b"q")
    assert not runs.publish("y", [b"2", b"3"], queue=b"q")
    assert runs.publish("y", [b"2"], queue=b"q")
    assert runs.waiting == 1
    runs.fixture.run()
    assert runs.told == [("x", None), ("y", None)]
    assert queue.queue.backlog[0] == 2  # type: ignore[union-attr]
    assert queue.pull() == [b"1", b"2"]
