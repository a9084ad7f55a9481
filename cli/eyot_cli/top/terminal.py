"""A terminal that gives single keys and shows one screen; outside of a terminal nothing changes."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from shutil import get_terminal_size

from eyot_cli.top.screen import fitted

#: Switches to the terminal's second screen and hides the cursor; and back.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
#: Go to the first cell; clear the rest of a line; clear all below.
_HOME, _REST, _BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


class Screen:
    """The terminal while `eyot top` runs."""

    def __init__(self) -> None:
        self._keys: asyncio.Queue[str] = asyncio.Queue()

    def draw(self, lines: list[str], footer: str) -> None:
        """Show lines, as many as fit, and the footer in the last row."""
        columns, rows = get_terminal_size()
        shown = [*fitted(lines, columns, max(1, rows - 1)), footer[:columns]]
        sys.stdout.write(_HOME + f"{_REST}\r\n".join(shown) + _REST + _BELOW)
        sys.stdout.flush()

    def typed(self) -> None:
        """Take what was typed. The end of the input is as `q`."""
        with suppress(BlockingIOError):
            for key in os.read(sys.stdin.fileno(), 64).decode("ascii", "replace") or "q":
                self._keys.put_nowait(key)

    async def key(self, timeout_s: float) -> str:
        """Return the next key; "" when none is pressed in time."""
        with suppress(TimeoutError):
            return await asyncio.wait_for(self._keys.get(), timeout_s)
        return ""


def is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


@contextmanager
def screen() -> Iterator[Screen]:
    """Take over the terminal, and give it back as it was. Needs a running event loop."""
    import termios
    import tty

    made, loop, keyboard = Screen(), asyncio.get_running_loop(), sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    tty.setcbreak(keyboard)
    loop.add_reader(keyboard, made.typed)
    sys.stdout.write(_ENTER)
    try:
        yield made
    finally:
        loop.remove_reader(keyboard)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
