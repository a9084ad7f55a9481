"""Small Debian packages for tests, and the programs of dpkg that say what is installed."""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
from pathlib import Path

CONTROL = """\
Package: {name}
Version: {version}
Architecture: {architecture}
Maintainer: Nobody <nobody@example.com>
Description: a package for tests
 Version: 9.9 stands in the description, too.
"""


def make_package(
    folder: Path,
    version: str,
    *,
    name: str = "eyot",
    architecture: str = "amd64",
    content: bytes = b"content",
    packing: str = "xz",
    control: str = CONTROL,
) -> Path:
    """`packing`: `xz`, `gz`, another suffix that nobody knows, or none."""
    text = control.format(name=name, version=version, architecture=architecture)
    members = {
        "debian-binary": b"2.0\n",
        f"control.tar{packing and '.'}{packing}": _packed(_archive({"./control": text.encode()}), packing),
        "data.tar": _archive({"./usr/share/eyot/content": content}),
    }
    made = bytearray(b"!<arch>\n")
    for member, data in members.items():
        made += (
            f"{member:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode() + data + b"\n" * (len(data) % 2)
        )
    path = folder / f"{name}_{version}_{architecture}.deb"
    path.write_bytes(made)
    return path


def make_dpkg(folder: Path, version: str, *, architecture: str = "amd64", status: str = "installed") -> None:
    """Put a `dpkg` and a `dpkg-query` there which know one package, eyot."""
    folder.mkdir(exist_ok=True)
    for name, said in (("dpkg", architecture), ("dpkg-query", f"{status} {version}")):
        program = folder / name
        program.write_text(f"#!/bin/sh\necho '{said}'\n")
        program.chmod(0o755)


def _archive(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return made.getvalue()


def _packed(data: bytes, packing: str) -> bytes:
    if packing == "xz":
        return lzma.compress(data)
    return gzip.compress(data) if packing == "gz" else data
