"""A process's clock that a test sets while the process runs (libfaketime): of its libraries in other languages, too.

Monotonic clocks and the times of files stay as they are.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

_LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))


class FakedClock:
    """`environment` is the process's; `set` takes seconds."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self.set(0)
        self.environment = os.environ | {
            "LD_PRELOAD": str(_LIBRARIES[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            # A way around a bug of some versions of glibc, by which each wait of a thread for Python's interpreter would last 20 ms.
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
            "NO_FAKE_STAT": "1",
        }

    def set(self, ahead_s: int) -> None:
        """Sets the clock to so much ahead of the true one."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{ahead_s:+d}\n")
        new.replace(self._file)

    @contextmanager
    def stepping(self, steps_s: list[int], every_s: float) -> Iterator[None]:
        """Sets the clock to one of the steps after the other, again and again."""
        done = threading.Event()

        def step() -> None:
            for ahead_s in cycle(steps_s):
                self.set(ahead_s)
                if done.wait(every_s):
                    return

        thread = threading.Thread(target=step)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
