"""The memory of emptied buffers stays with the process: counted in page faults of a process of its own."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's heap")

#: As a turn does: a buffer is filled message by message and emptied. Once it had a backlog, which makes glibc map it.
TURNS = """
import resource, sys
from eyot_daemon.process.heap import keep_buffers

if sys.argv[1] == "keep":
    assert keep_buffers()
out, message = bytearray(), bytes(4096)


def turn(messages):
    for _ in range(messages):
        out.extend(message)
    out.clear()


turn(512)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(300):
    turn(64)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _faults(how: str) -> int:
    return int(subprocess.run([sys.executable, "-c", TURNS, how], check=True, capture_output=True, text=True).stdout)


def test_a_buffer_that_is_filled_and_emptied_takes_no_new_pages() -> None:
    assert _faults("keep") < 300  # not one page a turn of 64 pages
