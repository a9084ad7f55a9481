"""`eyot sub --graph`, `--report-subjects`, `--report-subscriptions`: counts of messages in their place.

On a terminal the report is drawn again every second, elsewhere it stands at the end.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from eyot_cli.connection.watch import CLEAR
from eyot_cli.terminal.show import console, count, print_json, print_line, print_table, size
from eyot_cli.values.numbers import at_least
from eyot_wire.quantities import counted
from eyot_wire.subject import is_subset

if TYPE_CHECKING:
    from nats.aio.msg import Msg

    from eyot_cli.connection.target import Target

F = TypeVar("F", bound=Callable[..., Any])
EVERY_S = 1.0
#: Subjects that are counted one by one; later ones are counted together.
_SUBJECTS = 100_000
_OTHERS = "(others)"
#: Seconds that a graph keeps, rows that it has, and what a cell is filled with.
_SECONDS = 512
_ROWS = 10
_CELLS = " ▁▂▃▄▅▆▇█"
#: Columns beside the graph for its scale.
_SCALE = 12


def report_options(command: F) -> F:
    """Add the options of `report_of`."""
    for option in (
        click.option("--report-top", type=at_least(1), default=10, metavar="N", help="the N with the most messages"),
        click.option("--report-subscriptions", is_flag=True, help="count messages by SUBJECT, instead of showing them"),
        click.option(
            "--report-subjects", is_flag=True, help="count messages by their subjects, instead of showing them"
        ),
        click.option("--graph", is_flag=True, help="show messages a second as a graph, instead of the messages"),
    ):
        command = option(command)
    return command


class Tally:
    """Messages and bytes by subject, or by the subscription that a subject belongs to."""

    def __init__(self, target: Target, most: int, patterns: tuple[str, ...] = ()) -> None:
        self._target = target
        self._most = most
        self._patterns = patterns
        self._found: dict[str, list[int]] = {}

    def add(self, message: Msg) -> None:
        """Count one message."""
        key = message.subject
        if self._patterns:
            key = next((each for each in self._patterns if is_subset(key.encode(), each.encode())), _OTHERS)
        elif key not in self._found and len(self._found) >= _SUBJECTS:
            key = _OTHERS
        one = self._found.setdefault(key, [0, 0])
        one[0] += 1
        one[1] += len(message.data)

    def draw(self) -> None:
        """Show those with the most messages, and the sum of all."""
        rows = sorted(self._found.items(), key=lambda each: (-each[1][0], each[0]))[: self._most]
        if self._target.as_json:
            print_json([{"subject": key, "messages": messages, "bytes": held} for key, (messages, held) in rows])
            return
        head = "Subscription" if self._patterns else "Subject"
        shown = [(key, count(messages), size(held)) for key, (messages, held) in rows]
        print_table("Messages", (head, ">Messages", ">Bytes"), shown, "none yet")
        messages, held = (sum(each[at] for each in self._found.values()) for at in (0, 1))
        console.print(f"{count(len(self._found))} in all: {counted(messages, 'message')}, {size(held)}")

    def tick(self) -> None:
        """Note that a second is over."""


class Graph:
    """Messages of each second."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._rates: deque[int] = deque(maxlen=_SECONDS)
        self._now = 0
        self._total = 0

    def add(self, _message: Msg) -> None:
        """Count one message."""
        self._now += 1
        self._total += 1

    def tick(self) -> None:
        """Note that a second is over."""
        self._rates.append(self._now)
        self._now = 0
        if not sys.stdout.isatty() and not self._target.as_json:
            print_line(f"{datetime.now(UTC).astimezone():%H:%M:%S} {self._rates[-1]:,} messages/s")

    def draw(self) -> None:
        """Show the seconds as columns, the last one at the right."""
        if self._target.as_json:
            print_json({"messages": self._total, "messages_per_second": [*self._rates]})
            return
        if sys.stdout.isatty():
            width = max(shutil.get_terminal_size().columns - _SCALE, 10)
            for each in plot([*self._rates][-width:], _ROWS):
                print_line(each)
        console.print(
            f"{counted(self._total, 'message')}, {count(self._rates[-1] if self._rates else 0)} in the last second"
        )


def plot(values: list[int], rows: int) -> list[str]:
    """Return lines of columns of blocks, with the scale at the right."""
    most = max(values, default=0) or 1
    lines = []
    for row in reversed(range(rows)):
        cells = (min(max(round(each * rows * 8 / most) - row * 8, 0), 8) for each in values)
        scale = f" {count(most)}" if row == rows - 1 else " 0" if row == 0 else ""
        lines.append("".join(_CELLS[each] for each in cells) + scale)
    return lines


def report_of(
    target: Target, asked: tuple[str, ...], *, graph: bool, subjects: bool, subscriptions: bool, most: int
) -> Tally | Graph | None:
    """Return what the options want instead of messages; None: the messages. Raises UsageError."""
    if graph + subjects + subscriptions > 1:
        raise click.UsageError("--graph, --report-subjects and --report-subscriptions exclude each other")
    if graph:
        return Graph(target)
    if subjects or subscriptions:
        return Tally(target, most, asked if subscriptions else ())
    return None


@asynccontextmanager
async def drawn(report: Tally | Graph | None) -> AsyncGenerator[None, None]:
    """Draw a report every second on a terminal, and once at the end."""
    if report is None:
        yield
        return
    task = asyncio.create_task(_draw(report))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        report.draw()


async def _draw(report: Tally | Graph) -> None:
    while True:
        await asyncio.sleep(EVERY_S)
        report.tick()
        if sys.stdout.isatty():
            sys.stdout.write(CLEAR)
            report.draw()
        sys.stdout.flush()
