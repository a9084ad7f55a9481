"""The rows of `make bench BENCH=growth`: the processor time of a message while subjects, connections and streams grow in number."""

from __future__ import annotations

import resource

import wire
from nodes import Node
from peers import NATS, OURS, running
from processes import cpu_s
from rows import Notes, Say, alternating
from table import Row

TITLE = "Growth in number"
PEERS = [NATS]
ROUNDS = 2
HOW = (
    "Processor time of the broker for a message of 128 bytes that is stored and acknowledged, 256 in flight; the same broker with more of "
    "one kind. Streams: published to in turn. The last rows are the factor from the smallest to the largest number."
)
PAYLOAD = b"x" * 128
MESSAGES = 150_000
SUBJECTS = (1, 1_000, 1_000_000)
CONNECTIONS = (1, 1_000, 10_000)
STREAMS = (1, 100, 1_000)


def measure(scale: float, rounds: int, say: Say, peers: list[str]) -> list[Row]:
    """All rows of the group."""
    notes = Notes(scale)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    def one(peer: str) -> None:
        factors = [
            ("subjects", _over_subjects(notes, peer)),
            ("connections", _over_connections(notes, peer)),
            ("streams", _over_streams(notes, peer)),
        ]
        for what, (least, most) in factors:
            if least:
                notes.note(f"from the fewest {what} to the most", "times", peer, most / least)

    alternating([OURS, *peers], rounds, say, "growth", one)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return notes.rows


def _cpu_us(notes: Notes, peer: str, node: Node, what: str, names: list[str]) -> float:
    """Publish to all names in turn; note and return microseconds a message."""
    count = notes.count(MESSAGES)
    wire.publish_to(node.port, names, PAYLOAD, min(len(names), 10_000))
    before = cpu_s(node)
    wire.publish_to(node.port, names, PAYLOAD, count)
    used = (cpu_s(node) - before) * 1e6 / count
    notes.note(what, "us/message", peer, used)
    return used


def _over_subjects(notes: Notes, peer: str) -> tuple[float, float]:
    figures = []
    with running(peer) as node:
        wire.delete_stream(node.port, "BENCH")
        wire.make_stream(node.port, "MANY", "many.>")
        for number in SUBJECTS:
            number = min(number, notes.count(number)) if number > 1_000 else number
            names = [f"many.{index}" for index in range(number)]
            if number > 10_000:
                wire.publish_to(node.port, names, PAYLOAD, number)
                # Each is known by now; of so many, those in the middle are as good as any.
                names = names[:: max(1, number // 100_000)]
            figures.append(_cpu_us(notes, peer, node, f"{number:,} subjects", names))
    return figures[0], figures[-1]


def _over_connections(notes: Notes, peer: str) -> tuple[float, float]:
    figures = []
    with running(peer) as node:
        held: list[wire.Peer] = []
        try:
            for number in CONNECTIONS:
                number = min(number, notes.count(number)) if number > 1_000 else number
                while len(held) < number - 1:
                    held.append(wire.Peer(node.port))
                figures.append(_cpu_us(notes, peer, node, f"{number:,} connections", ["bench.durable"]))
        finally:
            for each in held:
                each.close()
    return figures[0], figures[-1]


def _over_streams(notes: Notes, peer: str) -> tuple[float, float]:
    figures = []
    with running(peer) as node:
        made = 0
        for number in STREAMS:
            for index in range(made, number):
                wire.make_stream(node.port, f"S{index}", f"s.{index}")
            made = number
            figures.append(_cpu_us(notes, peer, node, f"{number:,} streams", [f"s.{index}" for index in range(number)]))
    return figures[0], figures[-1]
