"""The memory of emptied buffers stays with the process: counted in page faults of a process of its own."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from eyot_daemon.net.heap import lazy_buffer

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's heap")

#: As a turn does: a buffer is filled message by message and emptied. Once it had a backlog, which makes glibc map it.
TURNS = """
import resource, sys
from eyot_daemon.net.heap import keep_buffers

assert keep_buffers()
out, message = bytearray(), bytes(4096)


def turn(messages):
    for _ in range(messages):
        out.extend(message)
    out.clear()


turn(int(sys.argv[1]))
if sys.argv[2] == "renewed":
    out = bytearray()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(300):
    turn(64)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


#: Frees 6 MB: how much the heap shrinks by itself, and how much when it is told to.
FREED = """
from pathlib import Path
from eyot_daemon.net.heap import give_back, keep_buffers


def anonymous():
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) << 10


assert keep_buffers()
held = [b"x" * number for number in range(10_000, 10_600)]
most = anonymous()
held.clear()
kept = anonymous()
give_back()
print(most - kept, kept - anonymous())
"""


def _faults(backlog_messages: int, afterwards: str = "same") -> int:
    command = [sys.executable, "-c", TURNS, str(backlog_messages), afterwards]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_a_buffer_that_is_filled_and_emptied_takes_no_new_pages() -> None:
    assert _faults(512) < 300  # not one page a turn of 64 pages


def test_after_a_backlog_of_megabytes_only_a_new_buffer_takes_no_new_pages() -> None:
    """Why transports renew the buffer of a session after a backlog."""
    assert _faults(4096, "renewed") < 300
    assert _faults(4096) > 3000


def anonymous_bytes() -> int:
    """The memory of this process that is no file's."""
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"RssAnon:\s+(\d+) kB", status)[0]) << 10


def test_a_lazy_buffer_takes_memory_where_it_is_written() -> None:
    size = 64 << 20
    before = anonymous_bytes()
    made = lazy_buffer(size)
    assert len(made) == size
    assert anonymous_bytes() - before < size // 4
    assert made[size // 2 : size // 2 + 3] == bytes(3)
    made[: size // 2] = bytes(size // 2)
    assert anonymous_bytes() - before > size // 4


def test_free_memory_goes_back() -> None:
    done = subprocess.run([sys.executable, "-c", FREED], check=True, capture_output=True, text=True)
    kept, given_back = map(int, done.stdout.split())
    assert kept < 1 << 20, "below KEPT_BYTES, what is freed stays"
    assert given_back > 4 << 20
