"""The MQTT store of an account on a real broker and store (see `support/jetstream/fixture.py`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eyot_daemon.mqtt.session_queue import QueueMember, SessionQueue
from eyot_daemon.mqtt.session_record import SessionRecord
from eyot_daemon.mqtt.store import MqttStore
from eyot_daemon.mqtt.store_streams import MqttStoreOptions
from eyot_wire.frames import Published
from support.jetstream.fixture import Fixture


class MqttFixture(Fixture):
    """A fixture whose account has an open MQTT store. `results`: what operations ended with, "" for success."""

    def __init__(self, path: Path, *, mqtt: MqttStoreOptions | None = None, **options: Any) -> None:
        super().__init__(path, **options)
        self.results: list[str] = []
        self.mqtt = MqttStore(self.jsa, self.js.consumers, mqtt or MqttStoreOptions())
        self.mqtt.open(self.results.append)
        self.run()

    def run(self) -> None:
        """Commit, and run what is due now."""
        for _ in range(20):
            self.commit()
            self.broker.timers.run_due(self.clock.monotonic())
        self.commit()

    def done(self, error: Any) -> None:
        """The `done` of an operation: its text, or its error's."""
        self.results.append(error if isinstance(error, str) else "" if error is None else error.description)

    def send(self, subject: bytes, payload: bytes, header: bytes = b"", **more: Any) -> None:
        """Publish to the queues; nothing is committed."""
        queue = Published(b"$MQTT.msgs." + subject, b"", header, payload)
        self.mqtt.publish([], queue=queue, done=self.done, **more)

    def retain(self, subject: bytes, payload: bytes, header: bytes = b"") -> None:
        retain = Published(b"$MQTT.rmsgs." + subject, b"", header, payload) if payload else None
        self.mqtt.publish([], retain=retain, unretain=None if payload else subject, done=self.done)

    def records(self) -> dict[str, SessionRecord]:
        return {record.client_id: record for record in self.mqtt.sessions()}

    def reopened(self, *, crash: bool, mqtt: MqttStoreOptions | None = None) -> MqttFixture:
        """Restart, with the loss of what was not committed if it is a crash."""
        if crash:
            self.store.crash()
        else:
            self.js.stop()
            self.store.close()
        return MqttFixture(self.path, options=self.js.options, clock=self.clock, mqtt=mqtt or self.mqtt.options)


class QueueClient:
    """A client of a queue: what it got, as (sequence, deliveries, subject, payload)."""

    def __init__(self, fixture: MqttFixture, record: SessionRecord | None = None) -> None:
        self.got: list[tuple[int, int, bytes, bytes]] = []
        self.fixture = fixture
        self.queue: SessionQueue | QueueMember | None = None
        if record is not None:
            self.queue = fixture.mqtt.queue(record, self.on_message)

    def on_message(self, sseq: int, deliveries: int, subject: bytes, header: bytes, payload: bytes) -> None:
        self.got.append((sseq, deliveries, subject, payload))

    def follow(self, *subjects: bytes, window: int = 100) -> None:
        assert isinstance(self.queue, SessionQueue)
        self.queue.configure([b"$MQTT.msgs." + subject for subject in subjects], window, self.fixture.done)
        self.fixture.run()

    def pull(self, count: int = 1000, max_bytes: int = 1 << 20) -> list[bytes]:
        """Pull, and return the payloads that came."""
        assert self.queue is not None
        before = len(self.got)
        self.queue.pull(count, max_bytes)
        self.fixture.run()
        return [payload for *_, payload in self.got[before:]]

    def ack(self, *sseqs: int) -> None:
        assert self.queue is not None
        for sseq in sseqs:
            self.queue.ack(sseq)
        self.fixture.run()
