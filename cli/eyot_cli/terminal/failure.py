"""Errors shown to the operator: one line, with a remedy where there is one."""

from __future__ import annotations


class Failure(Exception):
    """Ends the command with exit status 1 and these lines, usually one."""

    def __init__(self, *lines: str) -> None:
        super().__init__(*lines)
        self.lines = lines


class NoSuchPage(Failure):
    """The daemon does not have the page that was asked for."""
