"""Positions in a configuration, and the error that names them."""

from __future__ import annotations

from typing import NamedTuple


class Position(NamedTuple):
    """A place in a configuration file; `line` and `column` count from 1, 0: unknown (as on the command line)."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


class ConfError(Exception):
    """A mistake in a configuration: file, line, column, the key it belongs to ("" if none) and the reason."""

    def __init__(self, message: str, position: Position, key: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.position = position
        self.key = key

    @property
    def file(self) -> str:
        return self.position.file

    @property
    def line(self) -> int:
        return self.position.line

    @property
    def column(self) -> int:
        return self.position.column

    def __str__(self) -> str:
        key = f'key "{self.key}": ' if self.key else ""
        return f"{self.position}: {key}{self.message}"


class ConfFileError(ConfError):
    """A configuration file, or one that it includes, that cannot be read."""


class ConfSyntaxError(ConfError):
    """Text that does not follow the grammar; launchers look for nats-server's words `Parse error on line`."""

    def __str__(self) -> str:
        key = f'key "{self.key}": ' if self.key else ""
        return f"{self.position}: {key}Parse error on line {self.line}: {self.message}"
