"""Writes configurations in nats-server's grammar. All strings are quoted, since they come from elsewhere."""

from __future__ import annotations

from typing import Any

from eyot_wire.quoting import printable

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


class Quoted(str):
    """A string value."""

    __slots__ = ()


class Block:
    """A map, in the order of `put`; `inline`: on one line. A key that comes again takes the earlier one's place."""

    def __init__(self, *, inline: bool = False) -> None:
        self._inline = inline
        self._values: dict[str, tuple[Any, str]] = {}
        self._comments: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._values)

    def put(self, key: str, value: Any, comment: str = "") -> None:
        self._values[key] = value, comment

    def comment(self, text: str) -> None:
        """Put a comment at the beginning."""
        self._comments.append(text)

    def text(self) -> str:
        """Return the whole as a file."""
        return "".join(f"{line}\n" for line in self._lines(""))

    def _lines(self, indent: str) -> list[str]:
        lines = [f"{indent}# {printable(each)}" for each in self._comments]
        for key, (value, comment) in self._values.items():
            behind = f"  # {printable(comment)}" if comment else ""
            if isinstance(value, Block) and not value._inline:
                lines += [f"{indent}{key} {{{behind}", *value._lines(indent + "    "), f"{indent}}}"]
            elif isinstance(value, list) and value and isinstance(value[0], Block):
                lines += [
                    f"{indent}{key}: [{behind}",
                    *(f"{indent}    {_written(each)}" for each in value),
                    f"{indent}]",
                ]
            else:
                lines.append(f"{indent}{key}: {_written(value)}{behind}")
        return lines

    def written(self) -> str:
        """Return the map on one line."""
        return "{" + ", ".join(f"{key}: {_written(value)}" for key, (value, _) in self._values.items()) + "}"


def _written(value: Any) -> str:
    if isinstance(value, Block):
        return value.written()
    if isinstance(value, list):
        return "[" + ", ".join(map(_written, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return '"' + "".join(_escaped(character) for character in str(value)) + '"'


def _escaped(character: str) -> str:
    return _ESCAPES.get(character) or (f"\\x{ord(character):02x}" if ord(character) < 0x20 else character)
