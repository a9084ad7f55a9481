"""What becomes of streams and consumers while commits fail at random: a run of one seed.

When the disk is well again, and all is quiet, two things must hold. Memory is what flash is: a server that starts on a copy of the store
answers as the one that lived through the failures. And every consumer gets what its stream holds.

`make failing-disk` runs many seeds.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from support.jetstream.consumers import Box, ConsumerFixture
from support.jetstream.full_disk import Disk
from support.seeds import folder_in_memory, run_seeds

STEPS = 60
STREAMS = ("S", "T")
CONSUMERS = ("C0", "C1", "C2", "C3")
#: A filter is a consumer's own: a changed one leaves messages pending that it does not take.
FILTERS = {"C1": "a", "C2": "b"}
IDS = 8
PAUSE_UNTIL = "2023-11-14T22:13:25Z"
SCHEDULED_AT = "@at 2023-11-14T22:13:40Z"
NS_PER_S = 1_000_000_000

Info = dict[str, Any]


class FailingDiskRun:
    """One seed in an empty directory. Raises AssertionError with what does not hold."""

    def __init__(self, seed: int, path: Path, steps: int = STEPS) -> None:
        self._chance = random.Random(seed)
        self._path = path
        self._fixture = ConsumerFixture(path / "lived")
        self._disk = Disk(self._fixture).stand_before()
        self._boxes: dict[tuple[str, str], Box] = {}
        self._number = 0
        self._steps = steps

    def run(self) -> None:
        """Everything, and the checks."""
        for name in STREAMS:
            self._create_stream(name)
            for _ in range(self._chance.randrange(3)):
                self._create_consumer(name)
        kinds = [kind for kind, weight in STEPS_OF.items() for _ in range(weight)]
        for _ in range(self._steps):
            self._chance.choice(kinds)(self, self._chance.choice(STREAMS))
        try:
            for check in (self._drain, lambda: None):
                self._recover()
                self._compare()
                check()
        finally:
            self._fixture.js.stop()
            self._fixture.store.close()

    # -- what happens --------------------------------------------------------------------------------------------------

    def _create_stream(self, name: str) -> None:
        chance = self._chance
        config: Info = {
            "retention": chance.choice(["limits", "limits", "workqueue", "interest"]),
            "discard": chance.choice(["old", "old", "new"]),
        }
        limits = config["retention"] == "limits"
        for share, key, values in (
            (0.4, "max_msgs", (3, 8)),
            (0.3, "max_msgs_per_subject", (1, 2)),
            (0.2, "max_bytes", (400, 1000)),
            (0.3, "max_age", (5 * NS_PER_S,)),
            (0.5, "allow_msg_ttl", (True,)),
            (0.5, "allow_rollup_hdrs", (True,)),
            (0.5, "allow_atomic", (True,)),
            (0.2 * (limits and config["discard"] == "old"), "allow_msg_counter", (True,)),
            (0.3 * limits, "allow_msg_schedules", (True,)),
        ):
            if chance.random() < share:
                config[key] = chance.choice(values)
        if config.get("allow_msg_counter"):
            config.pop("allow_msg_schedules", None)
        elif config.get("allow_msg_ttl") and chance.random() < 0.5:
            config |= {"subject_delete_marker_ttl": NS_PER_S, "allow_rollup_hdrs": True}
        self._fixture.create(name, **config)

    def _create_consumer(self, stream: str) -> None:
        chance, name = self._chance, self._chance.choice(CONSUMERS)
        config: Info = {
            "durable_name": name,
            "ack_policy": chance.choice(["explicit", "explicit", "all", "none"]),
            "ack_wait": chance.choice([1, 30]) * NS_PER_S,
            "deliver_policy": chance.choice(["all", "all", "new", "last"]),
        }
        if name in FILTERS:
            config["filter_subject"] = f"{stream.lower()}.{FILTERS[name]}"
        if chance.random() < 0.2:
            config["max_deliver"] = 2
        if chance.random() < 0.2:
            config["max_ack_pending"] = chance.choice([1, 3])
        self._ask(f"CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": config, "action": ""})

    def _ask(self, words: str, body: Info) -> None:
        """Send a request of the API, and go on."""
        self._fixture.publish(f"$JS.API.{words}".encode(), msgspec.json.encode(body))

    def _publish(self, stream: str) -> None:
        chance = self._chance
        for _ in range(chance.choice([1, 1, 2, 5])):
            offered = (
                (0.3, "Nats-Msg-Id", f"id{chance.randrange(IDS)}"),
                (0.1, "Nats-TTL", "2s"),
                (0.05, "Nats-Rollup", chance.choice(["sub", "all"])),
                (0.1, "Nats-Expected-Last-Sequence", str(chance.randrange(10))),
                (0.1, "Nats-Incr", str(chance.randrange(5))),
                (0.05, "Nats-Schedule", SCHEDULED_AT),
            )
            header = {key: value for share, key, value in offered if chance.random() < share}
            if "Nats-Schedule" in header:
                header["Nats-Schedule-Target"] = f"{stream.lower()}.a"
            self._number += 1
            self._fixture.publish(f"{stream.lower()}.{chance.choice('abc')}".encode(), b"%d" % self._number, header)

    def _publish_batch(self, stream: str) -> None:
        self._number += 1
        size = self._chance.choice([2, 3])
        for number in range(1, size + 1):
            header = {"Nats-Batch-Id": f"batch{self._number}", "Nats-Batch-Sequence": str(number)}
            if number == size:
                header["Nats-Batch-Commit"] = "1"
            self._fixture.publish(f"{stream.lower()}.{self._chance.choice('abc')}".encode(), b"batch", header)

    def _pull(self, stream: str) -> None:
        name = self._chance.choice(CONSUMERS)
        inbox = f"pull.{stream}.{name}".encode()
        box = self._boxes.get((stream, name))
        if box is None:
            box = self._boxes[stream, name] = Box()
            box.sub = self._fixture.account.subscribe(inbox, box, sid=b"7")
        self._next(stream, name, inbox, self._chance.choice([1, 3, 10]), 2 * NS_PER_S)

    def _next(self, stream: str, name: str, inbox: bytes, batch: int, expires: int) -> None:
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}".encode()
        body = json.dumps({"batch": batch, "expires": expires}).encode()
        self._fixture.account.publish(subject, inbox, b"", body, origin=self._fixture.client)

    def _acknowledge(self, _: str) -> None:
        for box in self._boxes.values():
            share = self._chance.random()
            for got in box.take():
                if self._chance.random() < share:
                    word = self._chance.choice([b"+ACK", b"+ACK", b"+ACK", b"-NAK", b"+TERM", b"+WPI"])
                    self._fixture.answer_to(got, word)

    def _purge(self, stream: str) -> None:
        asked = self._chance.choice(
            [{}, {"keep": 1}, {"seq": self._chance.randrange(1, 20)}, {"filter": f"{stream.lower()}.a"}]
        )
        self._ask(f"STREAM.PURGE.{stream}", asked)

    def _update(self, stream: str) -> None:
        found = self._fixture.jsa.streams.get(stream)
        if found is not None:
            config = {key: value for key, value in msgspec.to_builtins(found.config).items() if value is not None}
            changed = {"max_msgs": self._chance.choice([-1, 2, 6]), "description": str(self._chance.randrange(100))}
            self._ask(f"STREAM.UPDATE.{stream}", config | changed)

    def _make_again(self, stream: str) -> None:
        self._ask(f"STREAM.DELETE.{stream}", {})
        self._ask(f"STREAM.CREATE.{stream}", {"name": stream, "subjects": [f"{stream.lower()}.>"]})

    def _consumer_request(self, stream: str) -> None:
        word, body = self._chance.choice(
            [("DELETE", {}), ("DELETE", {}), ("RESET", {}), ("PAUSE", {"pause_until": PAUSE_UNTIL})]
        )
        self._ask(f"CONSUMER.{word}.{stream}.{self._chance.choice(CONSUMERS)}", body)

    def _delete_message(self, stream: str) -> None:
        self._ask(f"STREAM.MSG.DELETE.{stream}", {"seq": self._chance.randrange(1, 30)})

    def _change_disk(self, _: str) -> None:
        self._disk.trouble = self._chance.choice(["", "", "full", "io"])

    def _end_turn(self, _: str) -> None:
        self._fixture.broker.flush()

    def _commit(self, _: str) -> None:
        self._fixture.commit()

    def _wait(self, _: str) -> None:
        self._fixture.advance(self._chance.choice([0.3, 1.0, 2.5, 6.0]), 0.25)

    # -- what must hold --------------------------------------------------------------------------------------------------

    def _recover(self) -> None:
        """The disk is well again, all that was begun ends, and nobody pulls any more."""
        self._disk.trouble = ""
        fixture = self._fixture
        fixture.commit()
        for box in self._boxes.values():
            fixture.account.unsubscribe(box.sub)
        self._boxes.clear()
        fixture.advance(45.0, 1.0)
        fixture.run_on()
        fixture.commit()

    def _compare(self) -> None:
        """Memory is what flash is."""
        copy = self._path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self._path / "lived", copy)
        started = ConsumerFixture(copy, clock=self._fixture.clock)
        started.commit()
        try:
            lived_view, started_view = view(self._fixture), view(started)
            for what in sorted(lived_view.keys() | started_view.keys()):
                mine, other = lived_view.get(what), started_view.get(what)
                assert mine == other, f"{what}: memory has {mine}, flash {other}"
            self._compare_duplicates(started)
        finally:
            started.js.stop()
            started.store.close()

    def _compare_duplicates(self, started: ConsumerFixture) -> None:
        """Ids of stored messages are known to both; what a restart forgets is what left the stream."""
        for name, stream in self._fixture.jsa.streams.items():
            seqs = {message.seq for message in read_all(stream)}
            for number in range(IDS):
                subject, header = f"{name.lower()}.probe".encode(), {"Nats-Msg-Id": f"id{number}"}
                mine, other = (each.put(subject, b"probe", header) for each in (self._fixture, started))
                assert mine == other or mine["seq"] not in seqs, f"id{number} of {name}: {mine}, after a start {other}"

    def _drain(self) -> None:
        """Every consumer that acknowledges gets all that is stored for it."""
        for name, stream in list(self._fixture.jsa.streams.items()):
            for consumer in list(stream.consumers):
                config = self._fixture.info(consumer, name)["config"]
                if config["ack_policy"] != "none" and config["max_deliver"] == -1:
                    self._take_all(name, consumer)
                    info = self._fixture.info(consumer, name)
                    assert (info["num_pending"], info["num_ack_pending"]) == (0, 0), f"{name}/{consumer}: {info}"
                    wanted = [
                        each.seq for each in read_all(stream) if each.subject.decode() == config.get("filter_subject")
                    ]
                    if stream.config.retention == "workqueue":
                        left = wanted if "filter_subject" in config else [each.seq for each in read_all(stream)]
                        assert not left, f"{name}/{consumer}: {left} stay in the work queue: {info}"

    def _take_all(self, stream: str, consumer: str) -> None:
        fixture, box = self._fixture, Box()
        box.sub = fixture.account.subscribe(b"drain", box, sid=b"7")
        for _ in range(100):
            info = fixture.info(consumer, stream)
            if not info["num_pending"] and not info["num_ack_pending"]:
                break
            self._next(stream, consumer, b"drain", 100, 2 * NS_PER_S)
            fixture.commit()
            fixture.advance(2.0, 0.5)
            for got in box.take():
                fixture.answer_to(got, b"+ACK")
            fixture.commit()
        fixture.account.unsubscribe(box.sub)
        fixture.commit()


Step = Callable[[FailingDiskRun, str], None]
#: Steps, and how often each is taken.
STEPS_OF: dict[Step, int] = {
    FailingDiskRun._publish: 30,
    FailingDiskRun._publish_batch: 3,
    FailingDiskRun._pull: 10,
    FailingDiskRun._acknowledge: 12,
    FailingDiskRun._end_turn: 10,
    FailingDiskRun._commit: 12,
    FailingDiskRun._change_disk: 8,
    FailingDiskRun._purge: 3,
    FailingDiskRun._delete_message: 3,
    FailingDiskRun._update: 2,
    FailingDiskRun._wait: 3,
    FailingDiskRun._create_consumer: 3,
    FailingDiskRun._consumer_request: 4,
    FailingDiskRun._make_again: 1,
}


def read_all(stream: Any) -> list[Any]:
    """Return the messages of a stream."""
    return list(stream.log.read(1, max_messages=10_000, max_bytes=1 << 30).messages)


def view(fixture: ConsumerFixture) -> Info:
    """Return what a server says of its streams and consumers, but for what a restart may change."""
    found: Info = {}
    for name, stream in fixture.jsa.streams.items():
        info = fixture.request(f"STREAM.INFO.{name}", {"subjects_filter": ">", "deleted_details": True})
        found[name] = {key: value for key, value in info.items() if key in ("config", "created", "state")}
        found[f"messages of {name}"] = [
            (each.seq, each.subject, each.header, each.payload, each.ts_ns) for each in read_all(stream)
        ]
        for consumer in stream.consumers:
            told = fixture.info(consumer, name)
            # Up to where it has searched without finding anything is not written.
            positions = {key: told[key]["consumer_seq"] for key in ("delivered", "ack_floor")}
            counts = {
                key: told[key] for key in ("config", "created", "num_ack_pending", "num_redelivered", "num_pending")
            }
            found[f"{name}/{consumer}"] = positions | counts
    return found


def run(seed: int, steps: int = STEPS) -> None:
    """One seed. Raises AssertionError."""
    with folder_in_memory() as path:
        FailingDiskRun(seed, path, steps).run()


if __name__ == "__main__":
    sys.exit(run_seeds("Streams and consumers while commits fail at random.", run, STEPS))
