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


def _faults(backlog_messages: int, afterwards: str = "same") -> int:
    command = [sys.executable, "-c", TURNS, str(backlog_messages), afterwards]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_a_buffer_that_is_filled_and_emptied_takes_no_new_pages() -> None:
    assert _faults(512) < 300  # not one page a turn of 64 pages


def test_after_a_backlog_of_megabytes_only_a_new_buffer_takes_no_new_pages() -> None:
    """Why transports renew the buffer of a session after a backlog."""
    assert _faults(4096, "renewed") < 300
    assert _faults(4096) > 3000
