"""`--watch [SECONDS]`: a report again and again, in place on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from time import sleep
from typing import TypeVar

import click

from eyot_cli.connection.target import Target
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.show import print_line, span
from eyot_cli.values.seconds import seconds

#: Go to the first cell and clear the screen, without what scrolled out of it.
CLEAR = "\x1b[H\x1b[2J"
SHORTEST_S = 0.1
T = TypeVar("T")


def _interval(context: click.Context, option: click.Parameter, text: str | None) -> float | None:
    return None if text is None else max(SHORTEST_S, seconds(context, option, text))


#: The option, for a function with the parameter `watch_s`: seconds between reports, None for one report.
watch_option = click.option(
    "--watch",
    "watch_s",
    is_flag=False,
    flag_value="2",
    default=None,
    callback=_interval,
    metavar="[TIME]",
    help="again and again until Ctrl-C, by default every 2 s",
)


def watched(target: Target, watch_s: float | None, read: Callable[[], T], show: Callable[[T], None]) -> None:
    """Show what `read` returns, once or every `watch_s` seconds. Raises Failure of the first reading.

    A later reading that fails is one line, and the next one may succeed: the daemon may restart.
    """
    show(read())
    while watch_s is not None:
        sys.stdout.flush()
        sleep(watch_s)
        try:
            found, failure = read(), None
        except Failure as error:
            found, failure = None, error
        if not target.as_json:
            sys.stdout.write(CLEAR if sys.stdout.isatty() else "\n")
            print_line(f"Every {span(watch_s)}: {datetime.now(UTC).astimezone():%H:%M:%S}")
        if failure is not None:
            for each in failure.lines:
                print_line(f"eyot: {each}", error=True)
        elif found is not None:
            show(found)
