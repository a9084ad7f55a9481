"""Every state of a store that a power cut could have left, rebuilt from a trace of its writes and flushes, and checked.

    python power_cuts.py [--seconds S] [--seed N] [--part P]     # other seeds, more transactions, until the time is over

What is taken as given: a sector of 512 bytes is written whole or not at all; a flush makes durable what was written to that file
before it; of what was not flushed, any part may be there, sectors in any order; files are there, allocated or cut to size,
in the order in which that was done. What must hold of each state: the store opens, nothing is damaged in it, and it holds exactly
what it held after one of the transactions, all that were acknowledged before the cut among them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from eyot_store.check.check import check
from support.store.power_workload import KINDS, Snapshot, options_for, snapshot
from support.store.store import open_inline

HERE = Path(__file__).parent
HEAD = struct.Struct("<IIIIQ")
WRITE, FLUSH, ALLOCATE, TRUNCATE, UNLINK, MARK = range(1, 7)
SECTOR, PAGE = 512, 4096


class Event(NamedTuple):
    """One record of the trace (see `capture.c`)."""

    kind: int
    durable: bool
    path: str
    at: int
    data: bytes


Write = tuple[str, int, bytes]


class Recording(NamedTuple):
    """A workload as it was played."""

    kind: str
    events: list[Event]
    snapshots: list[Snapshot]


def build_capture(folder: Path) -> Path:
    """Compile `capture.c`."""
    library = folder / "capture.so"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, HERE / "capture.c", "-ldl"], check=True)
    return library


def record(
    library: Path, folder: Path, kind: str, txns: int, seed: int, workload: str = "store/power_workload.py"
) -> Recording:
    """Play the workload (a script in `tests/support`) in a process of its own."""
    folder.mkdir()
    trace, snapshots = folder / "trace", folder / "snapshots"
    subprocess.run(
        [
            sys.executable,
            HERE.parent / workload,
            folder / "store",
            trace,
            snapshots,
            kind,
            str(txns),
            str(seed),
        ],
        env={**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": str(HERE.parents[1])},
        check=True,
    )
    return Recording(
        kind, list(_events(trace.read_bytes())), [json.loads(line) for line in snapshots.read_text().splitlines()]
    )


def _events(data: bytes) -> Iterator[Event]:
    at = 0
    while at < len(data):
        kind, flags, path_size, data_size, offset = HEAD.unpack_from(data, at)
        at += HEAD.size
        path = data[at : at + path_size].decode()
        at += path_size
        yield Event(kind, bool(flags & 1), path, offset, data[at : at + data_size])
        at += data_size


class Disk:
    """Files as they would be found: what is durable, and writes that may be there or not, whole or in part."""

    def __init__(self) -> None:
        self.files: dict[str, bytearray] = {}
        self.pending: list[Write] = []

    def happen(self, event: Event) -> None:
        """The event is over."""
        if event.kind == WRITE and event.durable:
            self.files = self.with_writes([event[2:5]])
            self.pending = [write for write in self.pending if not _within(write, event)]
        elif event.kind == WRITE:
            self.pending.append((event.path, event.at, event.data))
        elif event.kind == FLUSH:
            self.files = self.with_writes([write for write in self.pending if write[0] == event.path])
            self.pending = [write for write in self.pending if write[0] != event.path]
        elif event.kind in (ALLOCATE, TRUNCATE):
            file = self.files.setdefault(event.path, bytearray())
            file.extend(bytes(max(event.at - len(file), 0)))
            if event.kind == TRUNCATE:
                del file[event.at :]
        elif event.kind == UNLINK:
            self.files.pop(event.path, None)
            self.pending = [write for write in self.pending if write[0] != event.path]

    def with_writes(self, writes: list[Write]) -> dict[str, bytearray]:
        """The files, with these writes in them."""
        files = dict(self.files)
        for path in {write[0] for write in writes}:
            files[path] = bytearray(files.get(path, b""))
        for path, at, data in writes:
            file = files[path]
            file.extend(bytes(max(at + len(data) - len(file), 0)))
            file[at : at + len(data)] = data
        return files


def _within(write: Write, event: Event) -> bool:
    path, at, data = write
    return path == event.path and event.at <= at and at + len(data) <= event.at + len(event.data)


def cuts(disk: Disk, running: Event, rng: random.Random, torn_max: int) -> Iterator[tuple[str, list[Write]]]:
    """What of the unflushed writes, that of the event which is running included, may be there: each kept, dropped or torn."""
    writes = list(disk.pending)
    if running.kind == WRITE:
        writes.append((running.path, running.at, running.data))
    yield "nothing", []
    if not writes:
        return
    yield "everything", writes
    for index, write in enumerate(writes):
        rest = writes[:index] + writes[index + 1 :]
        yield f"{index} dropped", rest
        yield f"{index} alone", [write]
    path, at, data = writes[-1]
    parts = [(size, edge) for size in (SECTOR, PAGE) for edge in range(size - at % size, len(data), size)]
    for size, edge in rng.sample(parts, min(torn_max, len(parts))):
        yield f"torn: first {edge} by {size}", [*writes[:-1], (path, at, data[:edge])]
        yield f"torn: all but the first {edge} by {size}", [*writes[:-1], (path, at + edge, data[edge:])]
        yield (
            f"torn: one {size} missing at {edge}",
            [
                *writes[:-1],
                (path, at, data[:edge]),
                (path, at + edge + size, data[edge + size :]),
            ],
        )
    if len(writes) > 1:
        yield "some", [write for write in writes if rng.random() < 0.5]


def check_states(recording: Recording, folder: Path, rng: random.Random, *, torn_max: int, part: float = 1.0) -> int:
    """Rebuild and open every state (or a random ``part`` of them); returns how many. Raises AssertionError."""
    disk = Disk()
    acknowledged, submitted, states, begun = 0, 0, 0, False
    for number, event in enumerate(recording.events):
        if event.kind == MARK:
            begun = True
            acknowledged, submitted = (event.at // 2, submitted) if event.at % 2 else (acknowledged, event.at // 2)
            continue
        if begun and event.kind in (WRITE, FLUSH):
            for name, writes in cuts(disk, event, rng, torn_max):
                if rng.random() < part:
                    states += 1
                    what = f"event {number} ({event.kind} {event.path} {event.at}+{len(event.data)}), {name}"
                    expected = recording.snapshots[acknowledged : max(submitted, acknowledged) + 1]
                    _open(disk.with_writes(writes), folder, recording.kind, expected, what)
        disk.happen(event)
    return states


def _open(files: dict[str, bytearray], folder: Path, kind: str, expected: list[Snapshot], what: str) -> None:
    options = options_for(kind)
    path = folder / "state"
    shutil.rmtree(path, ignore_errors=True)
    (path / "journal").mkdir(parents=True)
    for name, data in files.items():
        if name != "lock.mdb":
            (path / name).write_bytes(data)
    problems = check(path, options.keys).problems
    assert problems == [], f"{what}: {problems}"
    store = open_inline(path, msgspec.structs.replace(options, committer="journal", flush=False))
    found = snapshot(store)
    assert store.damaged == store.recounted == [], f"{what}: {store.damaged} {store.recounted}"
    store.crash()
    assert found in expected, f"{what}: not what was there after any of the {len(expected)} possible transactions"


def main() -> None:
    parser = argparse.ArgumentParser(description="power cuts, rebuilt and judged, until the time is over")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--txns", type=int, default=60)
    parser.add_argument(
        "--part", type=float, default=0.015, help="of the states of each workload, drawn by the seed (1: all)"
    )
    options = parser.parse_args()
    ends, seed = time.monotonic() + options.seconds, options.seed
    with tempfile.TemporaryDirectory(prefix="eyot-cuts-") as name:
        folder = Path(name)
        library = build_capture(folder)
        for kind in itertools.cycle(KINDS):
            play = folder / f"{kind}-{seed}"
            recording = record(library, play, kind, options.txns, seed)
            states = check_states(recording, play, random.Random(seed), torn_max=12, part=options.part)
            print(f"seed {seed}, {kind}: {states} states after a power cut, each as it must be", flush=True)
            shutil.rmtree(play)
            seed += kind == KINDS[-1]
            if time.monotonic() > ends:
                break


if __name__ == "__main__":
    main()
