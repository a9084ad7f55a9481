"""A thread that reads the store for the broker: long reads done beside the loop, their results handed back as turns."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, Protocol

from eyot_store.errors import StoreError

Done = Callable[[Any, StoreError | None], None]
"""Called in the loop's thread with the result of the work, or with its failure."""


class Beside(Protocol):
    """Runs work in another thread than the loop's."""

    def run(self, work: Callable[[], Any], done: Done) -> None: ...

    def stop(self) -> None:
        """Drop the work that has not begun; its `done` is not called."""


class Inline:
    """Does the work at once, in the caller's thread (simulations, tests)."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[[], Any], Done]] = deque()
        self._busy = False

    def run(self, work: Callable[[], Any], done: Done) -> None:
        self._waiting.append((work, done))
        if self._busy:
            return  # a `done` submitted it: the loop that called this `done` continues with it
        self._busy = True
        try:
            while self._waiting:
                work, done = self._waiting.popleft()
                done(*_attempt(work))
        finally:
            self._busy = False

    def stop(self) -> None:
        self._waiting.clear()


class ReadThread:
    """One thread, started when it is first needed; it does its work in order.

    `notify` has a function called in the loop's thread, as a turn of the broker.
    """

    def __init__(self, notify: Callable[[Callable[[], None]], None]) -> None:
        self._notify = notify
        self._queue: SimpleQueue[tuple[Callable[[], Any], Done] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def run(self, work: Callable[[], Any], done: Done) -> None:
        if self._stopped:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="eyot-read", daemon=True)
            self._thread.start()
        self._queue.put((work, done))

    def stop(self) -> None:
        self._stopped = True
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _serve(self) -> None:
        while (item := self._queue.get()) is not None:
            work, done = item
            if self._stopped:
                continue
            result, failure = _attempt(work)
            self._notify(partial(self._hand_over, result, failure, done))

    def _hand_over(self, result: Any, failure: StoreError | None, done: Done) -> None:
        if not self._stopped:
            done(result, failure)


def _attempt(work: Callable[[], Any]) -> tuple[Any, StoreError | None]:
    try:
        return work(), None
    except StoreError as failure:
        return None, failure
    except Exception as failure:
        return None, StoreError("io", f"reading failed: {failure}")
