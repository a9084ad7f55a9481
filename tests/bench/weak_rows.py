"""The rows of `make bench BENCH=weak`: a tenth of one core and 256 MB for the broker, by control groups; as root."""

from __future__ import annotations

import wire
from peers import ALWAYS, NATS, OURS, running
from processes import resident_bytes
from rows import Notes, Say, alternating
from table import Row
from weak_groups import groups, within

TITLE = "A weak machine"
PEERS = [NATS, ALWAYS]
ROUNDS = 3
HOW = (
    "The broker has 10 % of one core and 256 MB from its first instruction on; its clients have the machine. eyotd has `profile: small`. "
    "Resident memory is the process's, with the pages of its store, after all other rows."
)
#: (subscribers, payload bytes, messages)
FANS = [(1, 128, 400_000), (1, 4096, 20_000), (4, 128, 200_000), (4, 4096, 8_000)]
#: (connections, in flight, messages)
PUBLISHES = [(1, 1, 500), (1, 16, 3_000), (1, 256, 10_000), (64, 1, 3_000)]


def measure(scale: float, rounds: int, say: Say, peers: list[str]) -> list[Row]:
    """All rows of the group; none where control groups cannot be made."""
    notes = Notes(scale)

    def one(peer: str) -> None:
        small = "eyot { profile: small }\n" if peer == OURS else ""
        with groups() as limited, running(peer, more=small, before=within(limited), stream=True) as node:
            for subscribers, size, wanted in FANS if peer != ALWAYS else ():
                count = notes.count(wanted)
                rate = subscribers * count / wire.fan_out(node.port, subscribers, b"x" * size, count)
                notes.note(f"1 to {subscribers} at {size:,} B", "deliveries/s", peer, rate)
            for connections, in_flight, wanted in PUBLISHES:
                count = max(notes.count(wanted), connections * in_flight)
                rate = count / wire.publish_acknowledged(node.port, connections, in_flight, b"x" * 200, count)
                many = "1 connection" if connections == 1 else f"{connections} connections"
                notes.note(f"durable, 200 B, {many}, {in_flight} in flight", "msgs/s", peer, rate)
            notes.note("resident", "MiB", peer, resident_bytes(node) / 2**20)
            node.stop()
            notes.note("start to the first greeting, with what was stored", "s", peer, node.timed_start())

    try:
        alternating([OURS, *peers], rounds, say, "weak", one)
    except PermissionError as error:
        say(f"weak: left out, since control groups cannot be made: {error}")
    return notes.rows
