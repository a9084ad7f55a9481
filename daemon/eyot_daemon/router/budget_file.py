"""`link-budgets.json` in the store's directory: the bytes that metered links have used, by remote and month.

The file is written whole under a temporary name and renamed, so that a power cut leaves one version or the other. An
unreadable file is logged and replaced.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

import msgspec

log = logging.getLogger("eyot.sync")

NAME = "link-budgets.json"


class _Kept(msgspec.Struct):
    """`spent`: bytes by month (its first day) by remote (`account@host:port`)."""

    version: int
    spent: dict[str, dict[str, int]]


class BudgetFile:
    """The file in `directory`."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / NAME

    def read(self) -> dict[str, dict[str, int]]:
        """Return the used bytes; empty without a file."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=_Kept).spent
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError) as error:
            log.error("%s cannot be read, budgets of metered links start from zero: %s", self.path, error)
            return {}

    def write(self, spent: dict[str, dict[str, int]]) -> None:
        """Write `spent` durably; blocks. Raises OSError."""
        data = msgspec.json.format(msgspec.json.encode(_Kept(1, spent)))
        new = self.path.with_suffix(".new")
        with new.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)
        directory = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
