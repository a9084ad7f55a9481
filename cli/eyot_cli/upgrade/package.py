"""A Debian package file: its digest, and the fields of its control file."""

from __future__ import annotations

import hashlib
import io
import lzma
import re
import tarfile
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final

from eyot_cli.terminal.failure import Failure

if TYPE_CHECKING:
    from pathlib import Path

_MAGIC: Final = b"!<arch>\n"
_HEAD_BYTES: Final = 60
#: The control files of a package, packed or not, bytes at most.
_CONTROL_MAX: Final = 4 * 1024 * 1024
_PIECE: Final = 1024 * 1024


@dataclass(frozen=True)
class Package:
    """What a package file says of itself, and its content: hexadecimal SHA-256, bytes."""

    name: str
    version: str
    architecture: str
    sha256: str
    size: int


def read_package(path: Path) -> Package:
    """Read a package file. Raises Failure."""
    try:
        with path.open("rb") as file:
            fields = _fields(_control_of(file))
            file.seek(0)
            digest, size = hashlib.sha256(), 0
            while piece := file.read(_PIECE):
                digest.update(piece)
                size += len(piece)
        return Package(fields["Package"], fields["Version"], fields["Architecture"], digest.hexdigest(), size)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror or error}") from error
    except KeyError as missing:
        raise Failure(f"{path}: its control file has no field {missing.args[0]}: build the package again") from None
    except (ValueError, tarfile.TarError, lzma.LZMAError, zlib.error, EOFError) as error:
        raise Failure(f"{path} is no Debian package: {error}") from None


def _control_of(file: BinaryIO) -> str:
    """Return the text of the control file. Raises ValueError, and what tar and its compressions raise."""
    if file.read(len(_MAGIC)) != _MAGIC:
        raise ValueError("it is no ar archive")
    while head := file.read(_HEAD_BYTES):
        name = head[:16].decode("ascii", "replace").rstrip().rstrip("/")
        size = int(head[48:58])
        if len(head) != _HEAD_BYTES or head[58:] != b"`\n" or size < 0:
            raise ValueError("a member of the archive is malformed")
        if not name.startswith("control.tar"):
            file.seek(size + size % 2, io.SEEK_CUR)
            continue
        if size > _CONTROL_MAX or len(data := file.read(size)) != size:
            raise ValueError("its control files are cut off, or too large")
        with tarfile.open(fileobj=io.BytesIO(_unpacked(name, data))) as control:
            for member in control:
                if member.name in ("control", "./control") and (text := control.extractfile(member)) is not None:
                    return text.read(_CONTROL_MAX).decode()
        raise ValueError("it has no control file")
    raise ValueError("it has no control.tar")


def _unpacked(name: str, data: bytes) -> bytes:
    """Return a tar archive unpacked, at most `_CONTROL_MAX` bytes of it. Raises ValueError, LZMAError, zlib.error."""
    match name:
        case "control.tar":
            return data
        case "control.tar.gz":
            gzip = zlib.decompressobj(wbits=31)
            made, is_whole = gzip.decompress(data, _CONTROL_MAX), gzip.eof
        case "control.tar.xz":
            xz = lzma.LZMADecompressor()
            made, is_whole = xz.decompress(data, _CONTROL_MAX), xz.eof
        case _:
            raise ValueError(f"the compression of {name} is not known: build it with dpkg-deb -Zxz")
    if not is_whole:
        raise ValueError("its control files are cut off, or too large")
    return made


def _fields(control: str) -> dict[str, str]:
    return dict(re.findall(r"^([A-Za-z][A-Za-z0-9-]*):[ \t]*(\S+)", control, re.MULTILINE))
