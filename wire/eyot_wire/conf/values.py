"""Parsed configuration values; each keeps its position, so that later checks can name file and line."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TypeAlias

from eyot_wire.conf.errors import Position

Plain: TypeAlias = "bool | int | float | str | datetime | list[Plain] | dict[str, Plain]"


class ConfValue:
    """One value: a scalar, an array (tuple of ConfValue) or a ConfMap."""

    __slots__ = ("position", "value")

    def __init__(
        self, value: bool | int | float | str | datetime | tuple[ConfValue, ...] | ConfMap, position: Position
    ):
        self.value = value
        self.position = position

    def plain(self) -> Plain:
        """Return the value without positions: dicts, lists and scalars."""
        if isinstance(self.value, ConfMap):
            return self.value.plain()
        if isinstance(self.value, tuple):
            return [element.plain() for element in self.value]
        return self.value

    def __repr__(self) -> str:
        return f"ConfValue({self.value!r} at {self.position})"


class ConfEntry:
    """One `key: value` of a map. `used_as_variable` is set once some `$key` was resolved to it."""

    __slots__ = ("key", "position", "used_as_variable", "value")

    def __init__(self, key: str, value: ConfValue, position: Position) -> None:
        self.key = key
        self.value = value
        self.position = position
        self.used_as_variable = False


class ConfMap:
    """A map in order of declaration. Of a key declared twice the last value counts; keys are case-sensitive here."""

    __slots__ = ("_entries", "position", "replaced")

    def __init__(self, position: Position) -> None:
        self.position = position
        self._entries: dict[str, ConfEntry] = {}
        #: entries in whose place a later one of the same key counts
        self.replaced: list[ConfEntry] = []

    def set(self, entry: ConfEntry) -> None:
        """Add or replace an entry; a replaced key moves to the end."""
        before = self._entries.pop(entry.key, None)
        if before is not None:
            self.replaced.append(before)
        self._entries[entry.key] = entry

    def update(self, other: ConfMap) -> None:
        """Add or replace the entries of an included file."""
        self.replaced += other.replaced
        for entry in other:
            self.set(entry)

    def entry(self, key: str) -> ConfEntry | None:
        return self._entries.get(key)

    def __getitem__(self, key: str) -> ConfValue:
        return self._entries[key].value

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[ConfEntry]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def plain(self) -> dict[str, Plain]:
        """Return the whole map without positions."""
        return {entry.key: entry.value.plain() for entry in self}

    def __repr__(self) -> str:
        return f"ConfMap({list(self._entries)} at {self.position})"
