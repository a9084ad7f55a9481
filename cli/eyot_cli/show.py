"""Tables for people, JSON for scripts."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import msgspec
from rich.console import Console
from rich.table import Table

#: In a pipe or a file nothing is folded to the width of a terminal that is not there.
PIPE_WIDTH = 240
console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)


def print_json(value: object) -> None:
    """One JSON document on stdout."""
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], empty: str) -> None:
    """A table; columns whose name starts with `>` are figures, set to the right. No names: no head.
    Without rows, the line `empty`."""
    heads = any(column.lstrip(">") for column in columns)
    table = Table(title=title or None, title_justify="left", title_style="bold", header_style="bold", show_header=heads)
    for column in columns:
        table.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    if table.row_count:
        console.print(table)
    else:
        console.print(f"[bold]{title}[/bold]\n  {empty}")


def count(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def size(value: int | None) -> str:
    """Bytes in binary units: `1.5 MiB`."""
    if value is None:
        return "?"
    amount = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def span(seconds: float | None, none: str = "never") -> str:
    """A length of time at a glance: `0.2s`, `42s`, `3m05s`, `2h10m`, `9d4h`; `none` where there is none."""
    if seconds is None:
        return none
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600}h"
