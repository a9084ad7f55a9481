"""The package that is installed, as a package file again: for going back without asking anybody for it."""

from __future__ import annotations

import gzip
import io
import os
import re
import stat
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from eyot_cli.upgrade.install.files import private_folder, sync_folder
from eyot_cli.upgrade.install.refusal import Refused

if TYPE_CHECKING:
    from eyot_cli.upgrade.install.dpkg import Dpkg

#: Fast rather than small: the file stays on the device.
_LEVEL: Final = 1
#: Fields that dpkg adds to the paragraph of an installed package, with their further lines.
_ADDED: Final = re.compile(r"^(?:Status|Conffiles|Config-Version|Triggers-\w+):.*\n(?:[ \t].*\n)*", re.MULTILINE)
_CONFFILE: Final = re.compile(r"^ (/\S+) [0-9a-f]+$", re.MULTILINE)
#: What small devices leave out of every package (`path-exclude` of dpkg).
_MAY_LACK: Final = ("/usr/share/doc", "/usr/share/man", "/usr/share/locale", "/usr/share/info", "/usr/share/lintian")


def repack(dpkg: Dpkg, package: str, folder: Path) -> Path:
    """Write the installed package into `folder` as `PACKAGE_VERSION_ARCHITECTURE.deb`; return its path.

    Configuration files are packed as they are now; dpkg keeps the operator's at an installation. Raises Refused, OSError.
    """
    _, version = dpkg.installed(package)
    architecture = _field(dpkg.record(package), "Architecture")
    path = private_folder(folder) / f"{package}_{version}_{architecture}.deb"
    part = path.with_name(f".{path.name}.part")
    with part.open("wb") as file:
        file.write(b"!<arch>\n")
        _member(file, "debian-binary", lambda inner: inner.write(b"2.0\n"))
        _member(file, "control.tar.gz", lambda inner: _write_control(dpkg, package, inner))
        _member(file, "data.tar.gz", lambda inner: _write_data(dpkg, package, inner))
        file.flush()
        os.fsync(file.fileno())
    _check(dpkg, part, version)
    part.replace(path)
    sync_folder(folder)
    return path


def _member(file: BinaryIO, name: str, write: Callable[[BinaryIO], object]) -> None:
    """Append a member to an ar archive: its head has the size, which is known at the end."""
    head = file.tell()
    file.write(b" " * 60)
    begin = file.tell()
    write(file)
    size = file.tell() - begin
    file.write(b"\n" * (size % 2))
    end = file.tell()
    file.seek(head)
    file.write(f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{size:<10}`\n".encode())
    file.seek(end)


def _write_control(dpkg: Dpkg, package: str, file: BinaryIO) -> None:
    record = dpkg.record(package)
    made = {"control": _ADDED.sub("", record).strip() + "\n"}
    conffiles = _CONFFILE.findall(record)
    if conffiles:
        made["conffiles"] = "".join(f"{path}\n" for path in conffiles)
    with _archive(file) as archive:
        for name, text in made.items():
            member = _owned_by_root(tarfile.TarInfo(f"./{name}"))
            data = text.encode()
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        for name, path in sorted(dpkg.control_files(package).items()):
            if name not in made:
                archive.add(path, f"./{name}", filter=_owned_by_root)


def _write_data(dpkg: Dpkg, package: str, file: BinaryIO) -> None:
    """Pack the files as they are. Raises Refused if one that matters is missing."""
    with _archive(file) as archive:
        for name in dpkg.files(package):
            path = dpkg.root / name.lstrip("/")
            try:
                mode = path.lstat().st_mode
            except FileNotFoundError:
                if name.startswith(_MAY_LACK):
                    continue
                raise Refused(f"{path} is missing: install {package} again before it is upgraded") from None
            if name != "/." and (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode)):
                archive.add(path, f".{name}", recursive=False, filter=_owned_by_root)


@contextmanager
def _archive(file: BinaryIO) -> Iterator[tarfile.TarFile]:
    """Write a tar archive in gzip into a file that goes on after it. dpkg reads GNU's form of long names, not POSIX's."""
    with (
        gzip.GzipFile(fileobj=file, mode="wb", compresslevel=_LEVEL, filename="", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        yield archive


def _owned_by_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Give a file of the package to root, as its build does."""
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member


def _check(dpkg: Dpkg, path: Path, version: str) -> None:
    """Read the whole file back, as dpkg would. Raises Refused."""
    if dpkg.field(path, "Version") != version:
        raise Refused(f"{path}: the present package could not be kept")
    command = ["dpkg-deb", "--fsys-tarfile", str(path)]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise Refused(f"{path}: the present package could not be kept: {done.stderr.strip()}")


def _field(record: str, name: str) -> str:
    found = re.search(rf"^{name}: (\S+)$", record, re.MULTILINE)
    if found is None:
        raise Refused(f"dpkg knows no {name} of the installed package")
    return found[1]
