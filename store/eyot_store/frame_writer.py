"""Writes frames of the journal beside the loop; `_frame_writer.pyx` is the compiled twin, whose thread runs no Python."""

from __future__ import annotations

import errno
import os
import threading
import time
from queue import SimpleQueue

#: A file descriptor, what to write, and where.
Mark = tuple[int, bytes, int]


class FrameWriter:
    """One write at a time: `start`, then `result` or `wait`, once. All are called from one thread."""

    def __init__(self, event: int) -> None:
        """Begin the thread; `event` is the eventfd that tells of each finished write. Raises OSError: there is no thread."""
        self._event = event
        self.flush_ns = 0  # how long the last write of a frame took, with its flush
        self._todo: SimpleQueue[tuple[int, bytes, int, int, bool, Mark | None] | None] = SimpleQueue()
        self._done: SimpleQueue[int] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="eyot-write", daemon=True)
        self._thread.start()

    def start(self, fd: int, data: bytes, at: int, flags: int, flush: bool, mark: Mark | None) -> None:
        """Write `data` at `at` into `fd` with the flags of pwritev2, then, with `flush`, `fdatasync`; when that succeeded, write `mark`."""
        self._todo.put((fd, data, at, flags, flush, mark))

    def result(self) -> int | None:
        """Return 0 or the errno of the frame's write; None: it is under way, or there is none."""
        return None if self._done.empty() else self._done.get()

    def wait(self) -> int:
        """Wait for the write that was started, and return its result."""
        return self._done.get()

    def close(self) -> None:
        """End the thread. No write may be under way."""
        if self._thread.is_alive():
            self._todo.put(None)
            self._thread.join()

    def _run(self) -> None:
        while (todo := self._todo.get()) is not None:
            fd, data, at, flags, flush, mark = todo
            began_ns = time.perf_counter_ns()
            error = _frame_written(fd, data, at, flags, flush)
            self.flush_ns = time.perf_counter_ns() - began_ns
            if mark is not None and not error:
                _write_mark(mark)
            self._done.put(error)
            os.eventfd_write(self._event, 1)


def _frame_written(fd: int, data: bytes, at: int, flags: int, flush: bool) -> int:
    try:
        _write_all(fd, data, at, flags)
        if flush:
            os.fdatasync(fd)
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def _write_mark(mark: Mark) -> None:
    try:
        _write_all(*mark, 0)
    except OSError:
        pass  # it only confirms the journal's end


def _write_all(fd: int, data: bytes, at: int, flags: int) -> None:
    written = 0
    while written < len(data):
        more = os.pwritev(fd, [data[written:]], at + written, flags)
        if not more:
            raise OSError(errno.EIO, "the disk accepts no more bytes")
        written += more
