"""`make bench`: Eyot against nats-server in the same run, alternating; prints a table, writes docs/measured.md.

Peers: Debian's `nats-server` with its defaults (no flush before an acknowledgement), and a newer one from PyPI with
`sync_interval: always`, which makes Eyot's promise (an acknowledgement means on flash) and which Debian's does not know.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "story")]

import mqtt_rows
import wire
from drain import drain
from nodes import Node
from page import write_section
from rich.console import Console
from table import Row, conditions, markdown

from support.newer_nats_server import VERSION, binary
from support.server_process import executable

OURS = "eyotd"
DEBIAN = "nats-server"
ALWAYS = "nats-server always"
PAYLOAD = b"x" * 128
console = Console(highlight=False)


class Bench:
    """The measurements, each a method that takes a running node and returns one figure."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def _count(self, count: int) -> int:
        return max(100, int(count * self.scale))

    def publish_only(self, node: Node) -> float:
        count = self._count(400_000)
        peer = wire.Peer(node.port)
        elapsed = wire.timed(lambda: wire.publish(peer, "bench.nobody", PAYLOAD, count))
        peer.close()
        return count / elapsed

    def one_to_one(self, node: Node) -> float:
        count = self._count(300_000)
        return count / wire.fan_out(node.port, 1, PAYLOAD, count)

    def one_to_four(self, node: Node) -> float:
        count = self._count(150_000)
        return 4 * count / wire.fan_out(node.port, 4, PAYLOAD, count)

    def delivered(self, subscribers: int, size: int, count: int) -> Callable[[Node], float]:
        """Deliveries per second of messages of `size` bytes."""

        def measure(node: Node) -> float:
            wanted = self._count(count)
            return subscribers * wanted / wire.fan_out(node.port, subscribers, b"x" * size, wanted)

        return measure

    def round_trip_p50_us(self, node: Node) -> float:
        return statistics.median(wire.request_reply(node.port, PAYLOAD, self._count(5_000))) * 1e6

    def round_trip_p99_us(self, node: Node) -> float:
        times = sorted(wire.request_reply(node.port, PAYLOAD, self._count(5_000)))
        return times[int(len(times) * 0.99)] * 1e6

    def durable(self, connections: int, in_flight: int, count: int, *, ids: bool = False) -> Callable[[Node], float]:
        def measure(node: Node) -> float:
            wanted = self._count(count)
            return wanted / wire.publish_acknowledged(node.port, connections, in_flight, PAYLOAD, wanted, ids=ids)

        return measure

    def fetch(self, node: Node) -> float:
        count = self._count(40_000) // 500 * 500 or 500
        return count / wire.fetch_acknowledged(node.port, "BENCH", 500, count)

    def ordered_replay(self, node: Node) -> float:
        """Of a stream of its own, which is filled first."""
        count = self._count(1_000_000)
        wire.make_stream(node.port, "REPLAY", "bench.replay")
        wire.publish_acknowledged(node.port, 1, 1024, PAYLOAD, count, subject="bench.replay")
        rate = count / wire.ordered_replay(node.port, "REPLAY", count)
        wire.delete_stream(node.port, "REPLAY")
        return rate


@contextmanager
def running(kind: str, jetstream: str = "") -> Iterator[Node]:
    with tempfile.TemporaryDirectory(prefix="eyot-bench-", dir="/var/tmp") as folder:
        node = Node(kind, "bench", Path(folder), jetstream=jetstream)
        node.start()
        try:
            wire.make_stream(node.port, "BENCH", "bench.durable")
            yield node
        finally:
            node.stop()


def measure(bench: Bench, kinds: dict[str, tuple[str, str]], rounds: int) -> list[Row]:
    """All rows: every round starts each peer anew, so that neither profits from the other's warm caches."""
    core = [
        ("core publish, no subscriber", "msgs/s", bench.publish_only),
        ("publish to one subscriber", "deliveries/s", bench.one_to_one),
        ("publish to four subscribers", "deliveries/s", bench.one_to_four),
        ("request/reply, p50", "us", bench.round_trip_p50_us),
        ("request/reply, p99", "us", bench.round_trip_p99_us),
    ]
    durable = [
        ("durable publish, 1 in flight", "msgs/s", bench.durable(1, 1, 2_000)),
        ("durable publish, 16 in flight", "msgs/s", bench.durable(1, 16, 10_000)),
        ("durable publish, 256 in flight", "msgs/s", bench.durable(1, 256, 40_000)),
        ("durable publish with Nats-Msg-Id, 256 in flight", "msgs/s", bench.durable(1, 256, 40_000, ids=True)),
        ("durable publish, 16 connections with 1 in flight", "msgs/s", bench.durable(16, 1, 10_000)),
        ("durable publish, 64 connections with 1 in flight", "msgs/s", bench.durable(64, 1, 20_000)),
        ("pull fetch of 500, explicit acks", "msgs/s", bench.fetch),
    ]
    rows = [Row(what, unit) for what, unit, _ in (*core, *durable)]
    replay = Row(f"ordered replay of {bench._count(1_000_000):,} messages", "msgs/s")
    drains = [Row("backlog drain over a leaf link", "msgs/s"), Row("link-up to first message at the hub", "s")]
    for number in range(rounds):
        for peer, (kind, jetstream) in kinds.items():
            console.print(f"round {number + 1} of {rounds}: {peer}")
            with running(kind, jetstream) as node:
                for row, (_, _, action) in zip(rows, (*core, *durable), strict=True):
                    if peer == ALWAYS and action not in [each[2] for each in durable]:
                        continue
                    row.figures.setdefault(peer, []).append(action(node))
            # Reading does not depend on when it was flushed, and filling would.
            with running(kind) as node:
                replay.figures.setdefault(peer, []).append(bench.ordered_replay(node))
            drained = drain(kind, bench._count(200_000), hub_jetstream=jetstream)
            drains[0].figures.setdefault(peer, []).append(drained.rate)
            drains[1].figures.setdefault(peer, []).append(drained.first_s)
    return [*rows, replay, *drains]


def measure_payloads(bench: Bench, kinds: dict[str, str], rounds: int) -> list[Row]:
    """One to one, to four and to sixteen at the sizes that applications send; the peers alternate within each round."""
    cases = [(1, 1024 * kib, 1_600_000 // (kib + 3)) for kib in (1, 4, 16, 64, 512)]
    cases += [(4, 4096, 100_000), (16, 128, 400_000), (16, 4096, 24_000)]
    rows = [Row(f"publish to {subscribers} at {size:,} B", "deliveries/s") for subscribers, size, _ in cases]
    for number in range(rounds):
        for peer, kind in kinds.items():
            console.print(f"round {number + 1} of {rounds}: {peer}")
            with running(kind) as node:
                for row, case in zip(rows, cases, strict=True):
                    row.figures.setdefault(peer, []).append(bench.delivered(*case)(node))
    return rows


def _version(kind: str) -> str:
    return subprocess.run([executable(kind), "-v"], capture_output=True, text=True, check=True).stdout.strip()


def _mosquitto() -> str:
    said = subprocess.run([executable("mosquitto"), "-h"], capture_output=True, text=True, check=False).stdout
    return said.partition("\n")[0].strip()


def main() -> None:
    parser = argparse.ArgumentParser(description="measures Eyot against nats-server in the same run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="factor on all message counts")
    parser.add_argument("--no-always", action="store_true", help="leave out the nats-server that flushes always")
    parser.add_argument("--only", choices=(OURS, DEBIAN), help="measure one peer only, for profiling")
    parser.add_argument("--write", type=Path, default=HERE.parents[1] / "docs" / "measured.md")
    parser.add_argument(
        "group", nargs="?", choices=("nats", "core", "mqtt"), help="measure only these rows; default: all"
    )
    options = parser.parse_args()
    if options.group in (None, "nats"):
        _nats(options)
    if options.group in (None, "core") and not options.only:
        _core(options)
    if options.group in (None, "mqtt") and not options.only:
        _mqtt(options)


def _nats(options: argparse.Namespace) -> None:
    kinds = {OURS: ("eyotd", ""), DEBIAN: ("nats-server", "")}
    if not options.no_always:
        kinds[ALWAYS] = (binary(VERSION), ", sync_interval: always")
    if options.only:
        kinds = {options.only: kinds[options.only]}
    rows = measure(Bench(options.scale), kinds, options.rounds)
    peers = [peer for peer in kinds if peer != OURS]
    table = markdown(rows, OURS, peers)
    console.print(table, soft_wrap=True)
    if not options.only:
        text = conditions(options.rounds, {peer: _version(kind) for peer, (kind, _) in kinds.items()})
        write_section(options.write, "Beside nats-server", f"Written by `make bench`.\n\n{text}\n{table}")
        console.print(f"written to {options.write}")


def _core(options: argparse.Namespace) -> None:
    kinds = {OURS: "eyotd", DEBIAN: binary(VERSION)}
    table = markdown(measure_payloads(Bench(options.scale), kinds, options.rounds), OURS, [DEBIAN])
    console.print(table, soft_wrap=True)
    text = conditions(options.rounds, {peer: _version(kind) for peer, kind in kinds.items()})
    write_section(
        options.write, "Payloads beside nats-server", f"Written by `make bench BENCH=core`.\n\n{text}\n{table}"
    )
    console.print(f"written to {options.write}")


def _mqtt(options: argparse.Namespace) -> None:
    rounds = max(1, options.rounds - 1)
    table = markdown(mqtt_rows.MqttBench(options.scale).run(rounds, console.print), OURS, mqtt_rows.PEERS)
    console.print(table, soft_wrap=True)
    versions = {OURS: _version("eyotd"), mqtt_rows.MOSQUITTO: _mosquitto(), mqtt_rows.NATS: _version(binary(VERSION))}
    text = f"Written by `make bench BENCH=mqtt`. {mqtt_rows.HOW}\n\n{conditions(rounds, versions)}"
    write_section(options.write, "MQTT beside mosquitto and nats-server", f"{text}\n{table}")
    console.print(f"written to {options.write}")


if __name__ == "__main__":
    main()
