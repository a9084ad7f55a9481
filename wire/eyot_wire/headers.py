r"""Message headers (ADR-4).

A header block is the bytes `NATS/1.0[ <status>[ <description>]]\r\n`, lines `Name: value\r\n`, and an empty line
`\r\n`. Message paths pass a header as that whole block, `b""` when there is none. The functions here read or rewrite
the block, without parsing all of it where one lookup suffices. Names keep their case and are compared exactly; a name
may occur several times.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

VERSION: Final = b"NATS/1.0"
END: Final = b"\r\n\r\n"
NO_RESPONDERS: Final = b"NATS/1.0 503\r\n\r\n"


class HeaderError(ValueError):
    """A header block that does not follow ADR-4."""


class Headers:
    """A parsed header block: status, description and the fields in their order."""

    __slots__ = ("description", "fields", "status")

    def __init__(self, status: int = 0, description: str = "", fields: Iterable[tuple[bytes, bytes]] = ()) -> None:
        self.status = status
        self.description = description
        self.fields = list(fields)

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __contains__(self, name: bytes) -> bool:
        return any(have == name for have, _ in self.fields)

    def get(self, name: bytes) -> bytes | None:
        """Return the first value of `name`, or None."""
        for have, value in self.fields:
            if have == name:
                return value
        return None

    def encode(self) -> bytes:
        """Encode the header block; b"" when there is neither a status nor a field."""
        if not self.status and not self.fields:
            return b""
        first = VERSION
        if self.status:
            first += b" %d" % self.status
            if self.description:
                first += b" " + self.description.encode()
        return _join(first, self.fields)

    def __repr__(self) -> str:
        return f"Headers({self.status}, {self.description!r}, {self.fields!r})"


def is_block(header: bytes) -> bool:
    """Return whether `header` has the outline of a header block: version line first, empty line last."""
    return header.startswith(VERSION) and header.endswith(END)


def parse(header: bytes) -> Headers:
    """Parse a whole block; b"" gives empty Headers.

    Raises HeaderError without version line, without final empty line, and for a line without a colon or with an empty
    name.
    """
    if not header:
        return Headers()
    if not is_block(header):
        raise HeaderError("header block must begin with NATS/1.0 and end with an empty line")
    lines = header[:-4].split(b"\r\n")
    code, description = _status_line(lines[0])
    fields: list[tuple[bytes, bytes]] = []
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        if not colon or not name:
            raise HeaderError(f"header line {line!r} is not 'Name: value'")
        fields.append((name, value.strip(b" \t")))
    return Headers(code, description, fields)


def status(header: bytes) -> tuple[int, str] | None:
    """Return the inline status `(code, description)` of a block such as `NATS/1.0 100 Idle Heartbeat`, or None."""
    if not header.startswith(VERSION + b" "):
        return None
    end = header.find(b"\r\n")
    code, description = _status_line(header[:end] if end >= 0 else header)
    return (code, description) if code else None


def get(header: bytes, name: bytes) -> bytes | None:
    """Return the first value of `name`, white space around it removed, or None. Case-sensitive."""
    if not header:
        return None
    at = header.find(b"\r\n" + name + b":")
    if at < 0:
        return None
    start = at + len(name) + 3
    end = header.find(b"\r\n", start)
    return header[start : end if end >= 0 else len(header)].strip(b" \t")


def build(status: str = "", fields: Iterable[tuple[str, str]] = ()) -> bytes:
    """Build a header block. `status` follows the version: `"503"`, `"100 Idle Heartbeat"`, or nothing."""
    first = VERSION + b" " + status.encode() if status else VERSION
    return _join(first, ((name.encode(), value.encode("utf-8", "surrogateescape")) for name, value in fields))


def set_field(header: bytes, name: bytes, value: bytes) -> bytes:
    """Return the block with exactly one field `name`, placed last; b"" becomes a block."""
    if not header:
        return VERSION + b"\r\n" + name + b": " + value + END
    kept = remove(header, name)
    if not kept:
        return VERSION + b"\r\n" + name + b": " + value + END
    return kept[:-2] + name + b": " + value + END


def add_field(header: bytes, name: bytes, value: bytes) -> bytes:
    """Return the block with one more field `name`; earlier fields of that name stay."""
    if not header:
        return VERSION + b"\r\n" + name + b": " + value + END
    return header[:-2] + name + b": " + value + END


def replace(header: bytes, name: bytes, value: bytes) -> bytes:
    """Return the block with the first field `name` replaced in its place; unchanged without one."""
    at = header.find(b"\r\n" + name + b":")
    if at < 0:
        return header
    end = header.find(b"\r\n", at + 2)
    return header[: at + len(name) + 3] + b" " + value + header[end:]


def remove(header: bytes, name: bytes) -> bytes:
    """Return the block without fields `name`; b"" when nothing is left."""
    return _filtered(header, (b"\r\n" + name + b":",), lambda line: line.partition(b":")[0] == name)


def strip(header: bytes, prefixes: Iterable[bytes]) -> bytes:
    """Return the block without fields whose name starts with one of `prefixes`; b"" without any field and status."""
    starts = tuple(prefixes)
    return _filtered(header, tuple(b"\r\n" + start for start in starts), lambda line: line.startswith(starts))


def _filtered(header: bytes, marks: tuple[bytes, ...], drop: Callable[[bytes], bool]) -> bytes:
    for mark in marks:
        if header.find(mark) >= 0:
            break
    else:
        return header
    lines = header[:-4].split(b"\r\n")
    kept = [line for line in lines[1:] if not drop(line)]
    if not kept and lines[0].strip() == VERSION:
        return b""
    return b"\r\n".join([lines[0], *kept]) + END


def _status_line(line: bytes) -> tuple[int, str]:
    rest = line[len(VERSION) :].strip()
    code, _, description = rest.partition(b" ")
    if len(code) != 3 or not bytes.isdigit(code):
        # Not a status code: the whole text is description, as nats clients read it.
        return 0, rest.decode("utf-8", "surrogateescape")
    return int(code), description.strip().decode("utf-8", "surrogateescape")


def _join(first: bytes, fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"\r\n".join([first, *[name + b": " + value for name, value in fields]]) + END
