"""Tables and JSON of the command line. What peers chose is escaped for the terminal."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from eyot_wire.quoting import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eyot_fleet.device_record import DeviceRecord

_STYLES: Final = {
    "failing": "red",
    "incomplete": "red",
    "silent": "yellow",
    "not linked": "yellow",
    "revoked": "dim",
    "synced": "green",
}
HEADS: Final = ("device", "state", ">backlog", ">oldest", ">never arrived", ">heard", "version", "labels", "alerts")


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    print(msgspec.json.format(msgspec.json.encode(value)).decode())


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str | tuple[str, str]]], empty: str) -> None:
    """Print rows below heads; `>` aligns a column to the right. A cell may be (text, style)."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not rows:
        print(empty)
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for head in heads:
        table.add_column(head.lstrip(">"), justify="right" if head.startswith(">") else "left", no_wrap=True)
    for row in rows:
        cells = [cell if isinstance(cell, tuple) else (cell, "") for cell in row]
        table.add_row(*(Text(printable(text), style) for text, style in cells))
    Console(highlight=False, width=None if sys.stdout.isatty() else 240).print(table)


def device_row(record: DeviceRecord, now: float) -> list[str | tuple[str, str]]:
    """Return a device as a row under HEADS."""
    oldest = record.oldest_now_s(now) if record.backlog else None
    return [
        record.name,
        (record.state, _STYLES.get(record.state, "")),
        "" if record.backlog is None else f"{record.backlog:,}",
        "" if oldest is None else span(oldest),
        f"{record.never_arrived:,}" if record.never_arrived else "",
        "never" if record.heard_at is None else f"{span(now - record.heard_at)} ago",
        record.version,
        " ".join(record.labels),
        ", ".join(alert.kind for alert in record.alerts),
    ]


def span(seconds: float) -> str:
    """Return a time in its greatest unit."""
    for size, unit in ((86_400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def moment(at: float) -> str:
    """Return a time of day in UTC."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at))
