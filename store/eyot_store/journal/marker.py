"""One durable bit that can be changed on a full disk: a file in the store's directory with one of two names.

A rename within a directory needs no space. The bit is durable when `turn` returns.
"""

from __future__ import annotations

from pathlib import Path

from eyot_store.directories import flush_directory

DOUBTED = "readers-doubted"
"""The marker that says: a downstream's record counts only after the downstream has sent its next request."""


class Marker:
    """A bit called `name` in the directory `path`; off until it is turned on."""

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self._names = path / f"{name}.off", path / f"{name}.on"
        if not any(each.exists() for each in self._names):
            try:
                self._names[False].touch(mode=0o600)
                flush_directory(path)
            except OSError:
                pass  # as good as off; `turn` tries again

    @property
    def is_on(self) -> bool:
        return self._names[True].exists()

    def turn(self, *, on: bool) -> bool:
        """Set the bit; return whether that succeeded."""
        try:
            if self.is_on != on:
                self._names[not on].touch(mode=0o600)
                self._names[not on].rename(self._names[on])
                flush_directory(self._path)
        except OSError:
            return False
        return True
