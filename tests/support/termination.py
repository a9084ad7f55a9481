"""SIGTERM for a program that has started others: what the program does at its end, it does then, too."""

from __future__ import annotations

import signal
import sys

#: The exit status that a shell reports for a program that SIGTERM ended.
TERMINATED = 128 + signal.SIGTERM


def exit_at_sigterm() -> None:
    """Let the first SIGTERM raise SystemExit in the main thread, as SIGINT raises KeyboardInterrupt. Others do not disturb the end."""

    def end(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(TERMINATED)

    signal.signal(signal.SIGTERM, end)
