"""A day of an MQTT client on the account's store, with its writes and flushes noted as in `support/store/power_workload.py`.

    LD_PRELOAD=capture.so python power_workload.py DIRECTORY TRACE SNAPSHOTS KIND STEPS SEED

QoS 2 publishes into a stream, the queue of the session, and the retained messages; releases; deliveries; clean starts.
`check_agreement` holds in every snapshot: a power cut leaves one of them.
"""

from __future__ import annotations

import ctypes
import json
import random
import sys
from pathlib import Path

from eyot_daemon.mqtt.session_record import SessionRecord, SubOptions
from eyot_wire.frames import Published
from support.mqtt.fixture import MqttFixture, QueueClient
from support.store.power_workload import Snapshot, options_for, snapshot


class Day:
    """The client, and what it does next."""

    def __init__(self, fixture: MqttFixture, rng: random.Random) -> None:
        self.fixture = fixture
        self._rng = rng
        self._number = 0
        self._starts = 0
        self.begin()

    def begin(self) -> None:
        """A new session of the same client id."""
        self._starts += 1
        self.record = SessionRecord("c", owner=f"start {self._starts}", subs={"s/#": SubOptions(qos=2)})
        self.client = QueueClient(self.fixture, self.record)
        assert self.client.queue is not None
        self.client.queue.configure([b"$MQTT.msgs.s.>", b"$MQTT.msgs.*.a"], 10, self.fixture.done)  # type: ignore[union-attr]
        self.fixture.mqtt.put_session(self.record, self.fixture.done)

    def step(self) -> None:
        fixture, kind = self.fixture, self._rng.random()
        if kind < 0.5:
            self._number += 1
            payload, mqtt = b"%d" % self._number, fixture.mqtt
            mqtt.publish(
                [(fixture.stream(), Published(b"s.a", b"", b"", payload))],
                hold=(self.record, self._number % 3 + 1, payload),
                queue=Published(b"$MQTT.msgs.s.a", b"", b"", payload),
                retain=Published(b"$MQTT.rmsgs.s.a", b"", b"", payload),
                done=fixture.done,
            )
        elif kind < 0.65:
            for packet_id in fixture.mqtt.held_ids(self.record):
                fixture.mqtt.release(self.record, packet_id, fixture.done)
        elif kind < 0.8:
            assert self.client.queue is not None
            self.client.queue.pull(2, 1000)
        elif kind < 0.9:
            for sseq in self.client.queue.pending():  # type: ignore[union-attr]
                fixture.mqtt.put_pubrel(self.record, sseq % 100, sseq, fixture.done)
                self.client.queue.ack(sseq)  # type: ignore[union-attr]
        else:
            fixture.mqtt.delete_session(self.record, fixture.done)
            self.begin()


def check_agreement(found: Snapshot) -> None:
    """What holds whenever the power is cut."""
    stored = [payload for *_, payload in found["S"]["messages"]]
    retained = [payload for *_, payload in found["$MQTT_rmsgs"]["messages"]]
    assert retained == stored[-1:], "the newest message is retained"
    held = [
        bytes.fromhex(value)
        for key, value in found["$MQTT_sess"]["positions"]
        if bytes.fromhex(key).startswith(b"mqtt.held.")
    ]
    assert {value.hex() for value in held} <= set(stored), "an identifier is held only with its message"
    queued = [payload for *_, payload in found["$MQTT_msgs"]["messages"]]
    assert queued == [each for each in stored if each in queued], "the queue has what the stream has, in its order"
    records = [json.loads(bytes.fromhex(payload)) for *_, payload in found["$MQTT_sess"]["messages"]]
    assert len(records) <= 1
    if not records:
        assert not held, "identifiers end with their session"


def main() -> None:
    directory, trace, snapshots = (Path(arg) for arg in sys.argv[1:4])
    rng = random.Random(int(sys.argv[6]))
    capture = ctypes.CDLL(None)
    capture.capture_start(str(directory).encode(), str(trace).encode())
    fixture = MqttFixture(directory, store_options=options_for(sys.argv[4]))
    fixture.create("S")
    fixture.run()
    group = 0
    with snapshots.open("w") as out:

        def note() -> None:
            capture.capture_mark(ctypes.c_uint64(2 * group + 1))
            found = snapshot(fixture.store)
            check_agreement(found)
            out.write(json.dumps(found) + "\n")

        note()
        day = Day(fixture, rng)
        for _ in range(int(sys.argv[5])):
            fixture.clock.advance(0.06)
            fixture.broker.timers.run_due(fixture.clock.monotonic())
            fixture.broker.flush()
            while fixture.store.backlog_txns:
                group += 1
                capture.capture_mark(ctypes.c_uint64(2 * group))
                fixture.store.commit_now()
                note()
                fixture.broker.flush()
            day.step()
    fixture.store.crash()


if __name__ == "__main__":
    main()
