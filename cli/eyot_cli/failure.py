"""What goes wrong in front of the operator: one line, with the remedy where there is one."""

from __future__ import annotations


class Failure(Exception):
    """Ends the command with exit status 1 and this text."""
