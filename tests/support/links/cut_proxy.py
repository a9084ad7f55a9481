"""A TCP proxy as a process of its own, whose death cuts all connections through it: a server that is killed, and comes back.

As a program: `cut_proxy.py PORT TARGET DELAY [REQUESTS [lose]]`; it hands on each portion that clients send after DELAY seconds,
and ends by itself before the REQUESTS-th. With `lose` it goes on instead: the portion arrives, and its answer is lost with the connection.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from types import TracebackType

READ_BYTES = 64 * 1024
START_S_MAX = 60.0
LOSE_AFTER_S = 0.5  # the time in which the target handles a portion


class CutProxy:
    """Forwards a free port of 127.0.0.1 to `target` between `start` and `cut`."""

    def __init__(self, port: int, target: int) -> None:
        self.port = port
        self.delay_s = 0.0  # of each portion that clients send, from the next `start` on
        self._target = target
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, cut_at: int | None = None, *, lose: bool = False) -> None:
        """Forward; `cut_at`: until clients have sent so many portions; `lose`: all but the answer to that one."""
        more = [] if cut_at is None else [str(cut_at), *(["lose"] if lose else [])]
        command = [sys.executable, __file__, str(self.port), str(self._target), str(self.delay_s)]
        self._process = subprocess.Popen([*command, *more])
        deadline = time.monotonic() + START_S_MAX
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 10).close()
                return
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.02)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def cut(self) -> None:
        """End all connections, and refuse new ones."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> CutProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()


class _Forwarder:
    def __init__(self, target: int, delay_s: float, cut_at: int | None, lose: bool) -> None:
        self._lose = lose
        self._target = target
        self._delay_s = delay_s
        self._left = cut_at
        self._lock = threading.Lock()

    def serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self._target), 30)
        except OSError:
            client.close()
            return
        answers = threading.Event()  # set: they are lost
        threading.Thread(target=self._copy, args=(server, client, answers), daemon=True).start()
        try:
            while data := client.recv(READ_BYTES):
                time.sleep(self._delay_s)
                last = self._count()
                if last:
                    answers.set()
                server.sendall(data)
                if last:
                    time.sleep(LOSE_AFTER_S)
                    client.shutdown(socket.SHUT_RDWR)
                    break
        except OSError:
            pass
        _shut(server)

    def _count(self) -> bool:
        """Return whether the answer to this portion is to be lost."""
        if self._left is None:
            return False
        with self._lock:
            self._left -= 1
            if self._left < 0 and not self._lose:
                os._exit(0)
            return self._left == -1

    def _copy(self, source: socket.socket, sink: socket.socket, lost: threading.Event) -> None:
        try:
            while data := source.recv(READ_BYTES):
                if not lost.is_set():
                    sink.sendall(data)
        except OSError:
            pass
        _shut(sink)


def _shut(one: socket.socket) -> None:
    try:
        one.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def main(port: int, target: int, delay_s: float, cut_at: int | None, lose: bool) -> None:
    forwarder = _Forwarder(target, delay_s, cut_at, lose)
    listener = socket.create_server(("127.0.0.1", port))
    while True:
        client, _ = listener.accept()
        threading.Thread(target=forwarder.serve, args=(client,), daemon=True).start()


if __name__ == "__main__":
    port_, target_, delay_, *requests = sys.argv[1:]
    main(int(port_), int(target_), float(delay_), int(requests[0]) if requests else None, "lose" in requests)
