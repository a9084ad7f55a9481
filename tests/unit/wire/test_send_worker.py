"""The second thread of `send_out` and `FanOut.publish`: used where it pays, by one caller at a time, and never waited for in vain."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from eyot_wire import native
from eyot_wire.out_buffer import SHARED_BYTES

CONNECTIONS = 8
SIZE = SHARED_BYTES // 4  # of each connection: together enough for two threads
TASKS = Path("/proc/self/task")

pytestmark = pytest.mark.skipif(not native.COMPILED, reason="the plain twin leaves everything to `flush`")
together = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="with one processor, one thread sends everything"
)


class Peers:
    """Connections, each with a peer that reads what it is sent."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self.dests: list[Any] = []
        self._peers: list[socket.socket] = []
        for _ in range(CONNECTIONS):
            ours, peer = map(self._open.enter_context, socket.socketpair())
            ours.setblocking(False)
            dest = native.OutBuffer()
            dest.fd = ours.fileno()
            self.dests.append(dest)
            self._peers.append(peer)

    def exchange(self, letter: bytes) -> None:
        """Send every connection its bytes at once; they arrive whole."""
        for number, dest in enumerate(self.dests):
            dest.out.extend(letter + bytes([number]) * SIZE)
            dest.dirty = True
        assert native.send_out(self.dests, 0) == CONNECTIONS
        for number, peer in enumerate(self._peers):
            assert peer.recv(2 * SIZE, socket.MSG_WAITALL | socket.MSG_DONTWAIT) == letter + bytes([number]) * SIZE

    def close(self) -> None:
        self._open.close()


@pytest.fixture
def peers() -> Iterator[Peers]:
    made = Peers()
    yield made
    made.close()


def _workers() -> list[str]:
    """The status of each such thread of this process."""
    return [(task / "status").read_text() for task in TASKS.iterdir() if (task / "comm").read_text() == "eyot-send\n"]


@together
def test_one_thread_more_that_no_signal_reaches(peers: Peers) -> None:
    for letter in (b"a", b"b", b"c"):
        peers.exchange(letter)
    (status,) = _workers()
    blocked = next(line.split()[1] for line in status.splitlines() if line.startswith("SigBlk:"))
    for signal in (1, 2, 10, 15):
        assert int(blocked, 16) & 1 << signal - 1


def test_callers_in_several_threads_do_not_share_it(peers: Peers) -> None:
    failures: list[BaseException] = []

    def call() -> None:
        own = Peers()
        try:
            for number in range(300):
                own.exchange(bytes([number % 256]))
        except BaseException as error:
            failures.append(error)
        finally:
            own.close()

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    peers.exchange(b"z")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_has_one_of_its_own(peers: Peers) -> None:
    peers.exchange(b"a")
    child = os.fork()
    if not child:
        code = 1
        try:
            own = Peers()
            for letter in (b"c", b"d"):
                own.exchange(letter)
            code = 0 if len(_workers()) == min(len(os.sched_getaffinity(0)) - 1, 1) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    peers.exchange(b"b")


def test_one_processor_has_no_second_thread() -> None:
    program = (
        "import os, sys; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); sys.path.insert(0, sys.argv[1]); import test_send_worker as t; "
        "p = t.Peers(); p.exchange(b'a'); p.close(); print(len(t._workers()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(Path(__file__).parent)], capture_output=True, text=True, check=False
    )
    assert done.stdout == "0\n", done.stderr
