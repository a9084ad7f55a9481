"""The stop of a job that goes on: a signal notes it, and waits end with it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Final

LOOK_S: Final = 0.2  # how often a wait looks for a stop


def stop_on_signal() -> Callable[[], bool]:
    """Let SIGTERM and SIGINT end the job after the current round; return what tells whether one has come."""
    came: list[int] = []  # no threading.Event: a second signal within its set() would wait for the first one's lock

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, note)
        signal.signal(signal.SIGINT, note)
    return lambda: bool(came)


def wait(seconds: float, stop: Callable[[], bool]) -> None:
    """Wait, but not beyond a stop. Python itself would go on with a sleep that such a signal interrupts."""
    due = time.monotonic() + seconds
    while not stop() and (left := due - time.monotonic()) > 0:
        time.sleep(min(LOOK_S, left))
