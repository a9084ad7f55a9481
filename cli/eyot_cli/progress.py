"""A bar on standard error while bytes move. Without a terminal there is none, so scripts see nothing of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from eyot_wire.quoting import printable


@contextmanager
def progress(words: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield what counts moved bytes. `total`: how many there are, or how many at most; the bar goes at the end."""
    if not sys.stderr.isatty():
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
