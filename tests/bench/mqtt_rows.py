"""The MQTT rows of `make bench`: Eyot beside Debian's mosquitto and nats-server, in the same run, alternating."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import wire
from mqtt_peers import (
    Connections,
    Floor,
    Mosquitto,
    NatsPeer,
    Peer,
    allow_files,
    load,
    lost_by_kill,
    nats_server,
    wait_listens,
)
from processes import cpu_s, resident_bytes
from table import Row

OURS = "eyotd"
MOSQUITTO = "mosquitto"
NATS = "nats-server"
ALWAYS = "nats-server always"
FLOOR = "floor"
PEERS = [MOSQUITTO, NATS, ALWAYS, FLOOR]
ROUNDS = 2
PAYLOAD = 128
HOW = (
    "Clients of MQTT 3.1.1 in C, payloads of 128 bytes. mosquitto has persistence on, nats-server its defaults, and "
    "`nats-server always` has `sync_interval: always`. The floor is a C program that appends to a file, and flushes it once for "
    "all that came at a time (`tests/bench/mqtt_floor.c`). The queue belongs to a session of QoS 1 that is away. Memory, "
    "restarts and kills are measured once."
)
SESSIONS = 10_000
#: What freed memory takes to go back, and first timers to have run, seconds.
SETTLE_S = 3.0

MAKE: dict[str, Callable[[Path], Peer]] = {
    OURS: lambda folder: NatsPeer("eyotd", folder),
    MOSQUITTO: lambda folder: Mosquitto(folder, persistence=True),
    NATS: nats_server,
    ALWAYS: lambda folder: nats_server(folder, ", sync_interval: always"),
    FLOOR: Floor,
}


@contextmanager
def running(name: str) -> Iterator[Peer]:
    with tempfile.TemporaryDirectory(prefix="eyot-bench-", dir="/var/tmp") as folder:
        peer = MAKE[name](Path(folder))
        peer.start()
        try:
            wait_listens(peer)
            yield peer
        finally:
            peer.stop()


class MqttBench:
    """The rows, each a method that measures one running broker. `scale`: factor on all counts."""

    def __init__(self, scale: float) -> None:
        self.scale = scale
        self.rows: list[Row] = []

    def run(self, rounds: int, tell: Callable[[str], None]) -> list[Row]:
        """Measure everything; sessions by the thousand once."""
        allow_files()
        for number in range(rounds):
            for name in (OURS, *PEERS):
                tell(f"MQTT, round {number + 1} of {rounds}: {name}")
                self._rates(name)
        for name in (OURS, MOSQUITTO, NATS):
            tell(f"MQTT, {SESSIONS:,} sessions: {name}")
            self._killed(name)
            self._sessions(name)
        return self.rows

    def _count(self, count: int) -> int:
        return max(100, int(count * self.scale))

    def _note(self, what: str, unit: str, name: str, figure: float) -> None:
        row = next((each for each in self.rows if each.what == what), None)
        if row is None:
            self.rows.append(row := Row(what, unit))
        row.figures.setdefault(name, []).append(figure)

    def _rates(self, name: str) -> None:
        if name not in (ALWAYS, FLOOR):
            with running(name) as peer:
                for subscribers, count, topics in ((1, 500_000, 1), (4, 200_000, 1), (1, 300_000, 100)):
                    self._fan_out(peer, name, subscribers, self._count(count), topics)
        if name in (OURS, ALWAYS, FLOOR):
            for publishers, count in ((1, 1_000), (64, 8_000), (1_000, 8_000)):
                with running(name) as peer:
                    if name != FLOOR:
                        wire.make_stream(peer.client_port, "BENCH", "bench.durable")
                    self._publish(peer, name, "into a stream", publishers, self._count(count), "bench/durable")
        if name not in (NATS, FLOOR):
            with running(name) as peer:
                load("queue", peer.mqtt_port, "away", "bench/queued")
                self._publish(peer, name, "into a session's queue", 64, self._count(8_000), "bench/queued")

    def _fan_out(self, peer: Peer, name: str, subscribers: int, count: int, topics: int) -> None:
        deliveries = subscribers * count
        before = cpu_s(peer)
        seconds = load("fan-out", peer.mqtt_port, subscribers, PAYLOAD, count, topics)
        used = cpu_s(peer) - before
        what = f"MQTT QoS 0, 1 publisher to {subscribers} subscriber{'s' if subscribers > 1 else ''}"
        what += f", {topics} topics in turn" if topics > 1 else ""
        self._note(what, "deliveries/s", name, deliveries / seconds)
        self._note(f"{what}: the broker's CPU", "us/delivery", name, used / deliveries * 1e6)

    def _publish(self, peer: Peer, name: str, where: str, publishers: int, count: int, topic: str) -> None:
        seconds = load("publish", peer.mqtt_port, publishers, PAYLOAD, count, topic)
        one = "1 publisher" if publishers == 1 else f"{publishers:,} publishers"
        self._note(f"MQTT QoS 1 {where}, {one} with 1 in flight", "msgs/s", name, count / seconds)

    def _killed(self, name: str) -> None:
        with running(name) as peer:
            acknowledged, lost = lost_by_kill(peer, 64, PAYLOAD, int(500 * min(1.0, self.scale)) or 1)
            self._note("MQTT QoS 1: acknowledged messages that a SIGKILL loses", "%", name, 100 * lost / acknowledged)

    def _sessions(self, name: str) -> None:
        count = self._count(SESSIONS)
        with running(name) as peer:
            with Connections(peer, 1, "clean"):
                time.sleep(SETTLE_S)
                before = resident_bytes(peer)
            with Connections(peer, count, "clean"):
                time.sleep(SETTLE_S)
                each = (resident_bytes(peer) - before) / count
            self._note(f"MQTT, {count:,} idle clients: memory of each", "KiB", name, each / 1024)
        with running(name) as peer:
            with Connections(peer, count, "kept"):
                pass
            peer.stop()
            begun = time.monotonic()
            peer.start()
            wait_listens(peer)
            with Connections(peer, count, "again"):
                what = f"MQTT, {count:,} sessions reconnect after a restart: start to all served"
                self._note(what, "s", name, time.monotonic() - begun)
