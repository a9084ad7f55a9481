"""The exit of command-line tools whose output is no longer read (`eyot stream ls | head -1`): silent, like SIGPIPE."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

#: The exit status that a shell reports for a program that SIGPIPE ended.
CLOSED_PIPE = 128 + 13


def until_closed(main: Callable[[], int]) -> int:
    """Run `main` and flush its output; return its exit status, or `CLOSED_PIPE` when the reader closed the output."""
    try:
        try:
            return main()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more at exit and would report the same error.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
        return CLOSED_PIPE
