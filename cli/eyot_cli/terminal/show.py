"""Output of `eyot`: tables for people, JSON for scripts.

Names in the output come from peers. This module treats none of them as markup and escapes unprintable characters.
Rich loads with the first line that it lays out: commands that only print payloads or JSON do without.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import click
import msgspec

from eyot_wire.quantities import size as size
from eyot_wire.quantities import span as span
from eyot_wire.quoting import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

#: Output to a pipe or file is not folded to a terminal's width.
PIPE_WIDTH = 240
#: Part of a line: plain text, text with a style of rich (`bold`, `red`), or a whole line of such parts.
Piece: TypeAlias = "str | tuple[str, str] | Text"


def line(*pieces: Piece) -> Text:
    """Join parts to a line."""
    from rich.text import Text

    made = Text()
    for piece in pieces:
        if isinstance(piece, Text):
            made.append_text(piece)
        elif isinstance(piece, str):
            made.append(printable(piece))
        else:
            made.append(printable(piece[0]), style=piece[1])
    return made


def lines(*of: Piece) -> Text:
    """Join lines to the content of one cell."""
    from rich.text import Text

    return Text("\n").join([line(one) for one in of])


class Out:
    """Standard output, folded to the width of the terminal."""

    def __init__(self, console: Console | None = None) -> None:
        self._given = console

    @cached_property
    def _console(self) -> Console:
        from rich.console import Console

        class Output(Console):
            def on_broken_pipe(self) -> None:
                raise  # rich would end the program with status 1

        return self._given or Output(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)

    @property
    def is_terminal(self) -> bool:
        return self._console.is_terminal

    def print(self, *pieces: Piece) -> None:
        """Print one line."""
        self._console.print(line(*pieces))

    def table(self, table: Table) -> None:
        self._console.print(table)

    def holds(self, table: Table) -> bool:
        """Return whether the table fits into a line."""
        from rich.measure import Measurement

        return (
            Measurement.get(self._console, self._console.options.update(width=1 << 16), table).maximum
            <= self._console.width
        )


console = Out()


def print_line(text: str, *, error: bool = False) -> None:
    """Print a line without folding it, for scripts; `error`: on standard error."""
    print(printable(text), file=sys.stderr if error else sys.stdout)


def print_payload(text: str) -> None:
    """Print a message's payload: verbatim into a pipe or file, escaped line by line on a terminal."""
    if sys.stdout.isatty():
        text = "\n".join("\t".join(map(printable, each.split("\t"))) for each in text.split("\n"))
    print(text)


def print_raw(data: bytes) -> None:
    """Print a message's payload byte by byte, and the end of a line."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data + b"\n")
    sys.stdout.buffer.flush()


#: The option of commands that print messages
raw_option = click.option("--raw", "-r", is_flag=True, help="payloads alone, byte by byte")

#: Options of the nats tool that say what eyot does anyway.
all_option = click.option(
    "--all", "-a", is_flag=True, expose_value=False, help="as in the nats tool; eyot hides no stream"
)
no_select_option = click.option(
    "--no-select", is_flag=True, expose_value=False, help="as in the nats tool; eyot offers no list to choose from"
)
#: The option of reports: numbers without units and commas
plain_option = click.option("--raw", "-r", "plain", is_flag=True, help="plain numbers, without units")
progress_option = click.option("--progress/--no-progress", "shows", default=True, help="a bar on a terminal")


def print_json(value: object) -> None:
    """Print one JSON document."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    print("".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text))


#: The option of commands that list what has a name
names_option = click.option("--names", "-n", is_flag=True, help="the names alone")


def print_names(names: Sequence[str], *, as_json: bool) -> None:
    """Print names, a line each."""
    if as_json:
        print_json(names)
        return
    for name in names:
        print_line(name)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Piece]], empty: str) -> None:
    """Print a table, or the line `empty` without rows.

    Columns whose name starts with `>` hold numbers and are aligned right. Without column names there is no head.
    """
    from rich.table import Table

    heads = any(column.lstrip(">") for column in columns)
    table = Table(
        title=line(title) if title else None,
        title_justify="left",
        title_style="bold",
        header_style="bold",
        show_header=heads,
    )
    for column in columns:
        table.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left", overflow="fold")
    shown = [tuple(map(line, row)) for row in rows]
    for row in shown:
        table.add_row(*row)
    if table.row_count and heads and not console.holds(table):
        _print_records(title, [column.lstrip(">") for column in columns], shown)
    elif table.row_count:
        console.table(table)
    else:
        console.print((title, "bold"))
        console.print(f"  {empty}")


def _print_records(title: str, names: Sequence[str], rows: Sequence[Sequence[Text]]) -> None:
    """Print rows that are too wide for a table: one block per row, with a column's name before each value that is present."""
    if title:
        console.print((title, "bold"))
    width = max(map(len, names))
    for row in rows:
        console.print("  ", ("-" * width, "dim"))
        for name, value in zip(names, row, strict=True):
            if value.plain:
                console.print("  ", (name.ljust(width), "dim"), "  ", value)


@contextmanager
def progress(words: str, total: int, *, shows: bool = True) -> Iterator[Callable[[int], None]]:
    """Show a bar on standard error while bytes move, on a terminal only. Yields what counts moved bytes.

    `total`: how many there are, or how many at most; the bar goes at the end.
    """
    if not shows or not sys.stderr.isatty():
        yield lambda moved: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(printable(words), total=max(total, 1))
        yield lambda moved: shown.advance(task, moved)


def count(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"
