"""The rows of `make bench BENCH=weak`: a tenth of one core and 256 MB for the broker, by control groups; as root."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import wire
from peers import ALWAYS, NATS, OURS, running
from processes import resident_bytes
from rows import Notes, Say, alternating
from table import Row

TITLE = "A weak machine"
PEERS = [NATS, ALWAYS]
HOW = (
    "The broker has 10 % of one core and 256 MB from its first instruction on; its clients have the machine. eyotd has `profile: small`. "
    "Resident memory is the process's, with the pages of its store, after all other rows."
)
PERIOD_US, SHARE, MEMORY = 100_000, 0.1, 256 << 20
#: (subscribers, payload bytes, messages)
FANS = [(1, 128, 400_000), (1, 4096, 20_000), (4, 128, 200_000), (4, 4096, 8_000)]
#: (connections, in flight, messages)
PUBLISHES = [(1, 1, 500), (1, 16, 3_000), (1, 256, 10_000), (64, 1, 3_000)]


def measure(scale: float, rounds: int, say: Say, peers: list[str]) -> list[Row]:
    """All rows of the group; none where control groups cannot be made."""
    notes = Notes(scale)

    def one(peer: str) -> None:
        small = "eyot { profile: small }\n" if peer == OURS else ""
        with _groups() as groups, running(peer, more=small, before=_within(groups), stream=True) as node:
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


@contextmanager
def _groups() -> Iterator[list[Path]]:
    """Control groups of version 2 or 1 with the limits, for a broker to enter."""
    root = Path("/sys/fs/cgroup")
    quota = int(PERIOD_US * SHARE)
    if (root / "cgroup.controllers").exists():
        limits = {root: {"cpu.max": f"{quota} {PERIOD_US}", "memory.max": str(MEMORY)}}
        (root / "cgroup.subtree_control").write_text("+cpu +memory")
    else:
        limits = {
            root / "cpu": {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": str(quota)},
            root / "memory": {"memory.limit_in_bytes": str(MEMORY)},
        }
    groups: list[Path] = []
    try:
        for folder, values in limits.items():
            group = folder / f"eyot-bench-{os.getpid()}"
            group.mkdir()
            groups.append(group)
            for name, value in values.items():
                (group / name).write_text(value)
        yield groups
    finally:
        for group in groups:
            group.rmdir()


def _within(groups: list[Path]) -> list[str]:
    """The beginning of a command that runs in these groups."""
    enter = 'while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs"; shift; done; shift; exec chrt --other 0 "$@"'  # a quota does not hold for real time
    return ["sh", "-c", enter, "sh", *map(str, groups), "--"]
