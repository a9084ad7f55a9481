"""Results on standard output: lines and tables for people, or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

from eyot_hub.progress import BatchProgress
from eyot_wire.quoting import printable

CELL_MAX: Final = 100  # characters of a value in a table for people


class OutputFailed(Exception):
    """Standard output takes nothing more: no fault of the job's files."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class Show:
    """Prints results as lines and tables, or as JSON. All functions raise OutputFailed."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def value(self, value: Any, text: str) -> None:
        self.lines([json.dumps(value, default=plain) if self.as_json else shown(text)])

    def lines(self, lines: Iterable[str]) -> None:
        """Print lines as they are."""
        try:
            for line in lines:
                print(line)
            sys.stdout.flush()
        except OSError as error:
            raise OutputFailed(error) from None

    def batch(self, done: BatchProgress) -> None:
        """Print a batch of a streaming query."""
        self.value(asdict(done), str(done))

    def table(self, rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> None:
        """Print rows as an aligned table."""
        if self.as_json:
            self.lines(json.dumps(row, default=plain) for row in rows)
            return
        cells = [[_shortened(printable(_cell(row.get(column)))) for column in columns] for row in rows]
        widths = [max(len(line[index]) for line in [list(columns), *cells]) for index in range(len(columns))]
        self.lines(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in [[column.upper() for column in columns], *cells]
        )


def shown(text: str) -> str:
    """Escape text with names of devices and streams, which must not forge lines or control the terminal."""
    return "\n".join(map(printable, text.split("\n")))


def plain(value: Any) -> Any:
    """Return a value that JSON does not know as a text."""
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _shortened(text: str) -> str:
    return text if len(text) <= CELL_MAX else f"{text[: CELL_MAX - 1]}…"


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 999.5 else f"{value:.0f}"
    return str(value)
