"""The text of a page, indented, in slices: very many rows keep nobody else waiting."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from eyot_daemon.turn.slices import ROWS_MAX, Slices


def page_text(page: object) -> Slices[bytes]:
    """Return a page as `msgspec.json.format(…, indent=2)` writes it."""
    parts: list[bytes] = []
    yield from _write(page, b"\n", parts)
    return b"".join(parts)


def _write(value: object, line: bytes, parts: list[bytes]) -> Iterator[None]:
    """Add a value; `line`: a line's end, with the indent of the value's own lines."""
    if isinstance(value, dict) and _is_long(value):
        for number, (key, member) in enumerate(value.items()):
            parts.append((b"," if number else b"{") + line + b"  " + msgspec.json.encode(key) + b": ")
            yield from _write(member, line + b"  ", parts)
        parts.append(line + b"}")
    elif isinstance(value, list) and _is_long(value):
        opening = b"["
        for first in range(0, len(value), ROWS_MAX):
            rows = value[first : first + ROWS_MAX]
            if any(_is_long(row) for row in rows):
                for row in rows:
                    parts.append(opening + line + b"  ")
                    opening = b","
                    yield from _write(row, line + b"  ", parts)
            else:
                parts += [opening, _plain(rows, line)[1 : -len(line) - 1]]
                opening = b","
            yield
        parts.append(line + b"]")
    else:
        parts.append(_plain(value, line))


def _plain(value: object, line: bytes) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).replace(b"\n", line)


def _is_long(value: object) -> bool:
    """Return whether a value has very many rows, at any depth."""
    if isinstance(value, list):
        return len(value) > ROWS_MAX or any(_is_long(each) for each in value)
    return isinstance(value, dict) and any(_is_long(each) for each in value.values())
