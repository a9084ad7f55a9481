"""Members of a tar archive, as far as a stream's backup uses the format (regular files, PAX), in both directions."""

from __future__ import annotations

import tarfile
from typing import NamedTuple

from eyot_wire.archive.errors import ArchiveError, UnexpectedContent
from eyot_wire.digits import is_digits

BLOCK = 512
END = bytes(2 * BLOCK)
PAX_MAX = 64 << 10
"""More than a member's extended header ever needs."""


class Member(NamedTuple):
    """A header: name and size of the following file, or of the extended header (`is_pax`) of the next file."""

    name: str
    size: int
    is_pax: bool

    @property
    def padding(self) -> int:
        """Bytes between the member's end and the next header."""
        return -self.size % BLOCK


def decode_header(block: bytes) -> Member | None:
    """Decode a header of 512 bytes; None for the block of zeros that ends the archive. Raises ArchiveError."""
    if not any(block):
        return None
    try:
        found = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        raise ArchiveError("archive/tar: invalid tar header") from None
    if found.size < 0:
        raise ArchiveError("archive/tar: invalid tar header")
    if found.type in (tarfile.XHDTYPE, tarfile.XGLTYPE):
        if found.size > PAX_MAX:
            raise ArchiveError("archive/tar: header field too long")
        return Member(found.name, found.size, True)
    if found.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
        raise UnexpectedContent(f"{found.name!r} is not a file")
    return Member(found.name, found.size, False)


def decode_pax(data: bytes) -> dict[str, str]:
    """Decode an extended header: lines of `LENGTH NAME=VALUE`. Raises ArchiveError."""
    records: dict[str, str] = {}
    while data:
        digits, _, _ = data.partition(b" ")
        size = int(digits) if bytes.isdigit(digits) and len(digits) < 8 else 0
        record = data[len(digits) + 1 : size]
        name, equals, value = record[:-1].partition(b"=")
        if size > len(data) or not record.endswith(b"\n") or not equals:
            raise ArchiveError("archive/tar: invalid tar header")
        records[name.decode("utf-8", "surrogateescape")] = value.decode("utf-8", "surrogateescape")
        data = data[size:]
    return records


def renamed(member: Member, records: dict[str, str]) -> Member:
    """Return `member` with name and size from its extended header. Raises ArchiveError."""
    size = records.get("size", str(member.size))
    if not is_digits(size) or len(size) > 18 or any(name.startswith("GNU.sparse") for name in records):
        raise ArchiveError("archive/tar: invalid tar header")
    return Member(records.get("path", member.name), int(size), False)


def encode_member(name: str, content: bytes, mtime_s: float) -> bytes:
    """Encode a regular file: header, content, padding."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    info.mode = 0o600
    info.mtime = mtime_s
    info.uname = info.gname = "nats"
    return b"".join((info.tobuf(tarfile.PAX_FORMAT), content, bytes(-len(content) % BLOCK)))
