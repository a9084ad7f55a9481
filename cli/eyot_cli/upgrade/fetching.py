"""`eyot upgrade fetch`: the package that a device may install, verified on the device."""

from __future__ import annotations

import glob
import hashlib
import os
import stat
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.show import console, print_json, size
from eyot_cli.upgrade.bucket import ObjectRecord, read_object
from eyot_cli.upgrade.device import read_device
from eyot_cli.upgrade.manifest import SUFFIX, Device, Manifest, choose
from eyot_cli.upgrade.offered import Offered, read_offered
from eyot_cli.upgrade.package import read_package
from eyot_cli.upgrade.signing import RefusedManifest, open_signed, pinned_keys

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nats.aio.client import Client

    from eyot_cli.connection.target import Target

#: Exit status when no package of the bucket is to be installed here.
NOTHING_OPEN: Final = 3


def fetch_package(
    target: Target,
    bucket: str,
    ring: str,
    pinned: Path,
    folder: Path,
    refused_file: Path | None,
    released_file: Path | None,
) -> int:
    """Choose, read and verify a package, put it and its signed manifest into `folder`; print which; return the exit status.

    `refused_file`: packages that are passed over, as `eyot-upgrade.service` writes it. `released_file`: the one version that
    may be installed, as `eyot configure` writes it; without that file none may. Raises Failure.
    """
    keys = pinned_keys(pinned)
    released = None if released_file is None else _read_released(released_file)
    left = _read_refused(refused_file)
    device = read_device(ring)
    _check_folder(folder)

    async def run(client: Client) -> tuple[Manifest | None, list[dict[str, str]]]:
        offered = await read_offered(target, client, bucket, lambda data: open_signed(data, keys))
        manifest, refused = _chosen(offered, device, left, released)
        if manifest is not None:
            found = next(each for each in offered if each.name == manifest.object_name)
            await _fetch(target, client, bucket, found.package, manifest, folder)
            # It comes last: whoever sees it finds the package.
            with _new_file(folder / f"{manifest.object_name}{SUFFIX}") as (file, _):
                file.write(found.signed)
        return manifest, refused

    manifest, refused = target.with_client(run)
    path = None if manifest is None else folder / manifest.object_name
    if target.as_json:
        print_json({"installed": device.version, "version": None if manifest is None else manifest.version,
                    "file": None if path is None else str(path), "refused": refused})  # fmt: skip
    elif manifest is None:
        console.print(f"{device.version} is installed, and {bucket} has nothing to install here")
        for each in refused:
            console.print(f"  {each['name']}: {each['why']}")
    else:
        console.print(f"{path}: {size(manifest.size)}, from {device.version} to {manifest.version}")
    return NOTHING_OPEN if manifest is None else 0


def _read_refused(path: Path | None) -> dict[str, str]:
    """Return the packages from which the device went back: their SHA-256 and why. Raises Failure."""
    try:
        lines = [] if path is None else path.read_text().splitlines()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from error
    return {sha256: why for sha256, _, why in (line.partition(" ") for line in lines)}


def _read_released(path: Path) -> str:
    """Return the version that the hub lets this device install, "" for none. Raises Failure."""
    try:
        return path.read_text(errors="replace").strip()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from error


def _is_released(manifest: Manifest, released: str | None) -> bool:
    """Return whether a manifest is of the released version, whatever Debian's release adds to it. None: all are."""
    return released is None or manifest.version == released or manifest.version.startswith(f"{released}+")


def _chosen(
    offered: list[Offered], device: Device, left: dict[str, str], released: str | None
) -> tuple[Manifest | None, list[dict[str, str]]]:
    """Return the manifest to install, and the names of all others with the reasons.

    `left`: of `_read_refused`; `released`: of `_read_released`, None if the hub does not decide.
    """
    manifests = [each.opened.manifest for each in offered if each.opened is not None]
    held = [each for each in manifests if not _is_released(each, released)]
    manifests = [each for each in manifests if _is_released(each, released)]
    choice = choose([each for each in manifests if each.sha256 not in left], device, datetime.now(UTC))
    refused = [{"name": each.name, "why": each.refused} for each in offered if each.opened is None]
    refused += [{"name": each.object_name, "why": "the hub has not released it to this device"} for each in held]
    refused += [
        {"name": each.object_name, "why": f"this device went back from it: {left[each.sha256]}"}
        for each in manifests
        if each.sha256 in left
    ]
    refused += [{"name": manifest.object_name, "why": why} for manifest, why in choice.refused]
    return choice.manifest, sorted(refused, key=lambda each: each["name"])


async def _fetch(
    target: Target, client: Client, bucket: str, record: ObjectRecord | None, manifest: Manifest, folder: Path
) -> None:
    """Write the package into the folder when all of it is here and as the manifest says. Raises Failure."""
    name = manifest.object_name
    if record is None:
        raise Failure(f"{name} is signed but not in {bucket}: wait for the mirror, or publish it again")
    digest = hashlib.sha256()
    try:
        with _new_file(folder / name) as (file, part):

            def sink(chunk: bytes) -> None:
                digest.update(chunk)
                file.write(chunk)

            await read_object(target, client, bucket, record, manifest.size, sink)
            file.flush()
            if digest.hexdigest() != manifest.sha256:
                raise Failure(f"{name} in {bucket} is not the package that was signed: publish it again")
            # dpkg installs what the package says of itself, whatever the file is called.
            package = read_package(part)
            if (package.name, package.version, package.architecture) != (
                manifest.package,
                manifest.version,
                manifest.architecture,
            ):
                raise Failure(
                    f"{name} is {package.name} {package.version} for {package.architecture}, and its manifest says otherwise: sign it again"
                )
    except RefusedManifest as error:
        raise Failure(str(error)) from None


@contextmanager
def _new_file(path: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """Give a new file beside `path`, which replaces `path` on flash if nothing is raised. Raises Failure."""
    part = path.with_name(f"{path.name}.part-{os.getpid()}")
    try:
        for left in path.parent.glob(f"{glob.escape(path.name)}.part-*"):
            left.unlink(missing_ok=True)  # of a command that a power cut ended
        with part.open("xb") as file:
            yield file, part
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from error
    finally:
        part.unlink(missing_ok=True)


def _check_folder(folder: Path) -> None:
    """Refuse a folder in which somebody else could exchange the package before root installs it. Raises Failure."""
    try:
        status = folder.stat()
    except OSError as error:
        raise Failure(f"{folder}: {error.strerror}: name a folder with --output") from error
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid not in (0, os.geteuid()) or (mode & 0o022 and not mode & stat.S_ISVTX):
        raise Failure(f"{folder}: others may change what is in it: name another folder with --output")
