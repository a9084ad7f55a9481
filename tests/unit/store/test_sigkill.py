"""A real process writes and reports what was acknowledged; it is killed at random moments, over and over on one store.

Nothing acknowledged may be missing, what belongs together must be there together, and the store must be sound.
"""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eyot_store import Store, StoreOptions
from eyot_store.check.check import check
from support.store.store import FAST, JOURNAL, open_inline
from support.store.writer import payload_of

pytestmark = pytest.mark.slow

ROUNDS = int(os.environ.get("EYOT_SIGKILL_ROUNDS", "12"))
WRITER = Path(__file__).parents[2] / "support" / "store" / "writer.py"


def killed_run(directory: Path, seed: int, rng: random.Random) -> list[bytes]:
    """Let a writer run for a moment, kill it, return the complete lines that it wrote."""
    writer = subprocess.Popen([sys.executable, WRITER, directory, str(seed)], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    fd = writer.stdout.fileno()
    out = os.read(fd, 65536)  # it has begun
    deadline = time.monotonic() + rng.uniform(0.0, 0.25)
    while time.monotonic() < deadline:
        out += os.read(fd, 65536)
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    while chunk := os.read(fd, 65536):
        out += chunk
    writer.stdout.close()
    return out.split(b"\n")[:-1]


def verify(directory: Path, acked: tuple[int, int], removed_below: int, options: StoreOptions) -> None:
    report = check(directory)
    assert report.problems == []
    store: Store = open_inline(directory, options)
    assert store.damaged == []
    assert store.recounted == []
    first, second = store.streams()
    assert first.state.last_seq >= acked[0]
    assert second.state.last_seq >= acked[1]
    # What belongs together is there together.
    assert second.positions() == {b"S": b"%d" % first.state.last_seq}
    assert first.consumers() == [("c", b"config", b"%d" % first.state.last_seq)]
    newest = second.get(second.state.last_seq)
    assert newest is not None
    assert newest.payload == b"%d" % first.state.last_seq
    # Every message is there from the first live one on, and as it was written.
    assert first.state.first_seq >= removed_below
    assert first.state.num_deleted == second.state.num_deleted == 0
    expected = first.state.first_seq
    while expected <= first.state.last_seq:
        for message in first.read(expected, max_messages=500, max_bytes=1 << 20).messages:
            assert (message.seq, message.payload) == (expected, payload_of(expected))
            expected += 1
    store.crash()


def test_nothing_acknowledged_is_lost_by_sigkill(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    directory = tmp_path / "store"
    acked, removed_below = (0, 0), 0
    for round_ in range(ROUNDS):
        for line in killed_run(directory, seed + round_, rng):
            if line.startswith(b"removed "):
                removed_below = int(line[8:])
            else:
                first, second = line.split()
                acked = (int(first), int(second))
        verify(directory, acked, removed_below, JOURNAL if round_ % 2 else FAST)
    assert acked[0] > ROUNDS
