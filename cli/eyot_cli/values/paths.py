"""Names of files and folders on the command line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click


class FilePath(click.Path):
    """The path of a file or folder. An empty text is none: as a path it would mean the current folder."""

    def __init__(self, **rules: Any) -> None:
        """`rules`: those of click.Path."""
        super().__init__(path_type=Path, **rules)

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """Parse and check a path. Raises BadParameter."""
        if not os.fspath(value):
            self.fail("an empty name is no file", param, ctx)
        try:
            return super().convert(value, param, ctx)
        except OSError as error:
            self.fail(f"{os.fspath(value)!r}: {error.strerror}", param, ctx)
