"""The command line of programs without click."""

from __future__ import annotations

import argparse
import sys
from typing import IO


class ArgumentParser(argparse.ArgumentParser):
    """A parser whose help and version fail where they cannot be written. argparse itself passes over that."""

    def _print_message(self, message: str, file: IO[str] | None = None) -> None:  # type: ignore[override]
        """Write a text of argparse's to `file`. Raises OSError when that is standard output."""
        if file is sys.stdout:
            print(message, end="", file=file)
        else:
            super()._print_message(message, file)
