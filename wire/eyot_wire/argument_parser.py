"""The command line of programs without click."""

from __future__ import annotations

import argparse
from typing import IO


class ArgumentParser(argparse.ArgumentParser):
    """A parser whose help fails where it cannot be written. argparse's own help passes over that."""

    def print_help(self, file: IO[str] | None = None) -> None:  # type: ignore[override]
        """Write the help to `file`, without one to standard output. Raises OSError."""
        print(self.format_help(), end="", file=file)
