"""`link-budgets.json` in the store's directory: what metered links have spent, by remote and month.

Written whole into a new file that then takes the old one's place, so that a power cut leaves one or the other. A file that cannot be read
is said to be so and begun anew.
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
        """What was spent; nothing if there is no file yet."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=_Kept).spent
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError) as error:
            log.error("%s cannot be read, budgets of metered links begin anew: %s", self.path, error)
            return {}

    def write(self, spent: dict[str, dict[str, int]]) -> None:
        """Make `spent` what the file says, on flash when this returns. Raises OSError. Blocks."""
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
