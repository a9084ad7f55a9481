"""What our tools do when whoever reads their output goes away (`eyot stream ls | head -1`): they end, and say nothing of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

#: What a shell shows of a program that SIGPIPE ended.
CLOSED_PIPE = 128 + 13


def until_closed(main: Callable[[], int]) -> int:
    """The exit status of `main`, whose output has then been taken; `CLOSED_PIPE` when nobody was there to take it."""
    try:
        try:
            return main()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more at its end, and would tell of the same.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
        return CLOSED_PIPE
