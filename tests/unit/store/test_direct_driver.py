"""Groups that are written beside the loop: the same results in the same order, also when writes fail."""

from __future__ import annotations

import errno
import os
import random
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from eyot_daemon.turn.hand_over import HandOver
from eyot_store import _frame_writer, direct_driver, frame_writer
from eyot_store.direct_driver import DirectDriver
from eyot_store.errors import StoreError
from eyot_store.log.log import Log
from eyot_store.options import StoreOptions
from eyot_store.store import Store

BLOCK = b"x" * 4096
DSYNC = getattr(os, "RWF_DSYNC", 0)
WRITERS = [pytest.param(frame_writer.FrameWriter, id="plain"), pytest.param(_frame_writer.FrameWriter, id="compiled")]


class Opened:
    """A store with a stream, and the loop that it wakes."""

    def __init__(self, path: Path, wake: HandOver, options: StoreOptions | None = None) -> None:
        self._wake = wake
        self.results: list[StoreError | None] = []
        self.order: list[int] = []
        self.store = Store.open(path, notify=wake.soon, wake=wake, options=options)
        if not self.store.streams():
            txn = self.store.begin()
            self.store.create_stream(txn, "A", "S", b"{}", 1)
            self.store.submit(txn, self.results.append)
            self.run(1)
            assert self.results.pop() is None
        assert isinstance(self.store._driver, DirectDriver)
        self.driver = self.store._driver

    @property
    def log(self) -> Log:
        return self.store.streams()[0]

    def publish(self, number: int, size: int) -> None:
        txn = self.store.begin()
        self.log.append(txn, b"a", b"", b"%09d" % number + bytes(size), number + 1)

        def done(error: StoreError | None) -> None:
            self.order.append(number)
            self.results.append(error)

        self.store.submit(txn, done)

    def run(self, count: int, timeout_s: float = 60) -> None:
        """Wait for so many results."""
        poll = select.poll()
        poll.register(self._wake.fileno(), select.POLLIN)
        while len(self.results) < count:
            assert poll.poll(timeout_s * 1000), f"{len(self.results)} of {count} results"
            self._wake.read()

    def run_until_thread_is_idle(self, count: int) -> None:
        """It reports a little after the loop has the results."""
        self.run(count)
        while self.driver._handed != self.driver._reported:
            time.sleep(0.001)

    def payloads(self) -> list[int]:
        found = map(self.log.get, range(1, self.log.state.last_seq + 1))
        return [int(message.payload[:9]) for message in found if message is not None]


@contextmanager
def opened(path: Path, options: StoreOptions | None = None) -> Iterator[Opened]:
    wake = HandOver()
    made = Opened(path / "store", wake, options)
    try:
        yield made
    finally:
        made.store.close()
        wake.close()


class Failing:
    """A writer whose writes fail as it is told, after a part of them."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self.next: list[int] = []
        self._failed = 0
        self.started = 0

    def start(self, fd: int, data: bytes, at: int, flags: int, flush: bool, mark: Any) -> None:
        self.started += 1
        self._failed = self.next.pop() if self.next else 0
        if self._failed:
            data, mark = data[: len(data) // 2], None
        self._writer.start(fd, data, at, flags, flush, mark)

    def result(self) -> int | None:
        result: int | None = self._writer.result()
        return result if result is None else self._failed or result

    def wait(self) -> int:
        result: int = self._writer.wait()
        return self._failed or result

    @property
    def flush_ns(self) -> int:
        flush_ns: int = self._writer.flush_ns
        return flush_ns

    def close(self) -> None:
        self._writer.close()


@pytest.mark.parametrize("make", WRITERS)
@pytest.mark.parametrize("flush", [False, True])
def test_a_writer_writes_the_frame_then_the_mark_and_tells(tmp_path: Path, make: Any, flush: bool) -> None:
    event = os.eventfd(0, os.EFD_NONBLOCK)
    fds = [os.open(tmp_path / name, os.O_RDWR | os.O_CREAT) for name in ("frame", "mark")]
    writer = make(event)
    try:
        for number in range(50):
            assert writer.result() is None
            writer.start(fds[0], BLOCK * 3, 4096 * number, DSYNC, flush, (fds[1], b"m%03d" % number, 8))
            assert select.select([event], [], [], 30)[0]
            assert os.eventfd_read(event) == 1
            assert writer.result() == 0
            assert 0 < writer.flush_ns < 60e9
            assert os.pread(fds[1], 99, 8) == b"m%03d" % number
        writer.start(fds[0], b"end", 0, 0, flush, None)
        assert writer.wait() == 0
        assert writer.result() is None
        assert (tmp_path / "frame").read_bytes() == b"end" + (BLOCK * 52)[3:]
    finally:
        writer.close()
        writer.close()
        for fd in (*fds, event):
            os.close(fd)


@pytest.mark.parametrize("make", WRITERS)
def test_a_failed_write_gives_its_errno_and_no_mark(tmp_path: Path, make: Any) -> None:
    event = os.eventfd(0, os.EFD_NONBLOCK)
    mark = os.open(tmp_path / "mark", os.O_RDWR | os.O_CREAT)
    read_only = os.open(tmp_path / "mark", os.O_RDONLY)
    writer = make(event)
    try:
        for fd, expected in ((read_only, errno.EBADF), (mark, errno.EINVAL)):
            writer.start(fd, BLOCK, 0 if fd is read_only else -7, 0, True, (mark, b"never", 0))
            assert writer.wait() == expected
        assert (tmp_path / "mark").read_bytes() == b""
        writer.start(mark, BLOCK, 0, 0, True, (read_only, b"no matter", 0))
        assert writer.wait() == 0
    finally:
        writer.close()
        for fd in (mark, read_only, event):
            os.close(fd)


def test_small_groups_are_written_beside_the_loop_and_large_ones_by_the_thread(tmp_path: Path) -> None:
    with opened(tmp_path) as made:
        made.publish(0, 100)  # the journal gets its first segment
        made.run_until_thread_is_idle(1)
        handed = made.driver._handed
        for number in range(1, 20):
            made.publish(number, 100)
            made.run(number + 1)
        assert made.driver._handed == handed
        made.publish(20, direct_driver.DIRECT_BYTES_MAX)
        assert made.driver._handed == handed + 1
        made.publish(21, 100)  # behind it
        assert made.driver._handed == handed + 2
        made.run_until_thread_is_idle(22)
        made.store.set_group_window(0.001)  # only the thread waits for more
        made.publish(22, 100)
        assert made.driver._handed == handed + 3
        made.run(23)
        assert made.order == list(range(23))
        assert made.payloads() == list(range(23))


def test_what_comes_during_a_write_is_one_group(tmp_path: Path) -> None:
    with opened(tmp_path) as made:
        made.publish(0, 100)
        made.run_until_thread_is_idle(1)
        commits = made.store.stats.commits
        for number in range(1, 101):
            made.publish(number, 10)
        made.run(101)
        assert made.store.stats.commits == commits + 2


@pytest.mark.parametrize("seed", range(12))
def test_results_come_in_order_and_are_true_while_writes_fail(tmp_path: Path, seed: int) -> None:
    random_ = random.Random(seed)
    options = StoreOptions(journal_segment_bytes=256 << 10)
    with opened(tmp_path, options) as made:
        writer = made.driver._writer = Failing(made.driver._writer)  # type: ignore[assignment]
        number = 0
        for _ in range(120):
            made.store.hold()
            for _ in range(random_.randrange(5)):
                made.publish(
                    number, random_.choice((0, 100, 100, 2_000, 5_000) if random_.random() < 0.95 else (90_000,))
                )
                number += 1
            made.store.release()
            if random_.random() < 0.2:
                writer.next.append(random_.choice((errno.EIO, errno.ENOSPC)))
            if random_.random() < 0.5:
                made.run(random_.randint(len(made.results), number))
            elif random_.random() < 0.3:
                made.run_until_thread_is_idle(
                    number
                )  # the next one is written beside the loop, however slow the thread is
        made.run(number)
        assert made.order == list(range(number))
        # The thread tried again what a write beside the loop could not do.
        assert made.results == [None] * number
        assert made.payloads() == list(range(number))
        assert writer.started > 5
    with opened(tmp_path, options) as again:
        assert again.payloads() == list(range(number))


@pytest.mark.parametrize("step", ["encode", "begin"])
def test_a_lack_of_memory_in_the_loop_leaves_the_group_to_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    with opened(tmp_path) as made:
        made.publish(0, 100)
        made.run_until_thread_is_idle(1)
        committer: Any = made.store._committer
        owner, name = (committer, "_body") if step == "encode" else (committer._high, "begin")
        whole = getattr(owner, name)

        def once(*args: Any) -> Any:
            setattr(owner, name, whole)
            raise MemoryError

        monkeypatch.setattr(owner, name, once)
        for number in range(1, 4):
            made.publish(number, 100)
        made.run(4)
        assert made.results == [None] * 4
        assert made.payloads() == list(range(4))
    with opened(tmp_path) as again:
        assert again.payloads() == list(range(4))


@pytest.mark.parametrize("seed", range(6))
def test_a_store_that_is_closed_during_a_write_has_all_that_was_submitted(tmp_path: Path, seed: int) -> None:
    random_ = random.Random(seed)
    count = random_.randrange(1, 40)
    with opened(tmp_path) as made:
        made.publish(0, 100)
        made.run_until_thread_is_idle(1)
        for number in range(1, count):
            made.publish(number, random_.choice((10, 70_000)))
    assert made.order == list(range(count))
    assert made.results == [None] * count
    with opened(tmp_path) as again:
        assert again.payloads() == list(range(count))


def test_a_process_that_ends_during_a_write_leaves_what_was_told(tmp_path: Path) -> None:
    """The journal is replayed: every acknowledged message is there, once, in order."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.close(read)
            made = Opened(tmp_path / "store", HandOver())
            for number in range(200):
                made.publish(number, 100)
                if number % 3 == 0:
                    made.run(number + 1)
                    os.write(write, b"%d\n" % number)
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as told:
        last = int(told.read().split()[-1])
    assert os.waitpid(pid, 0)[1] == 0
    with opened(tmp_path) as again:
        assert again.payloads()[: last + 1] == list(range(last + 1))


def test_a_stuck_write_is_reported(tmp_path: Path) -> None:
    with opened(tmp_path) as made:
        made.publish(0, 100)
        made.run_until_thread_is_idle(1)
        assert made.store.commit_stalled_s() == 0
        made.publish(1, 100)
        assert made.store.commit_stalled_s() > 0
        made.run(2)
        assert made.store.commit_stalled_s() == 0
