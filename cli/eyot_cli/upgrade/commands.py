"""The group `eyot upgrade`."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from nats.errors import Error as NatsError

from eyot_cli.buckets.putting import put_object
from eyot_cli.connection.answers import tell
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.private_files import write_private
from eyot_cli.terminal.show import print_json, print_table, size
from eyot_cli.upgrade.bucket import ObjectRecord, list_objects
from eyot_cli.upgrade.fetching import fetch_package
from eyot_cli.upgrade.install.places import Places
from eyot_cli.upgrade.leftovers import remove_leftovers
from eyot_cli.upgrade.manifest import NAME_RULE, PACKAGE, SUFFIX, Manifest, shown_time
from eyot_cli.upgrade.offered import Offered, read_offered
from eyot_cli.upgrade.package import Package, read_package
from eyot_cli.upgrade.signing import (
    PINNED,
    PUBLIC_SUFFIX,
    SIGNED_MAX,
    RefusedManifest,
    make_key,
    open_signed,
    pinned_keys,
    read_signing_key,
    read_unverified,
    sign,
)
from eyot_cli.upgrade.status import read_status, show_status
from eyot_cli.upgrade.versions import compare
from eyot_cli.values.ages import age_ns
from eyot_cli.values.names import bucket_name
from eyot_cli.values.paths import FilePath
from eyot_wire.quantities import counted

if TYPE_CHECKING:
    from nats.aio.client import Client

    from eyot_cli.connection.target import Target

FILE: Final = FilePath(dir_okay=False)
FOLDER: Final = FilePath(file_okay=False)
#: What a manifest takes of each option
_RULES: Final = {
    "rings": f"--ring: {NAME_RULE}; at most 100 rings",
    "release": f"--release: {NAME_RULE}",
    "minimum": "--minimum: a version of Debian, such as 0.2.0+deb12",
    "rollback_from": "--rollback-from: versions of Debian, such as 0.2.0+deb12",
}
#: The end of a version that says for which release of Debian the package is.
_RELEASE: Final = re.compile(r"\+(deb[0-9.]+)\Z")


@click.group()
def upgrade() -> None:
    """Signed packages for devices, by rings."""


@upgrade.command("keygen")
@click.argument("file", type=FILE)
@click.pass_obj
def keygen(target: Target, file: Path) -> None:
    """Make a signing key: FILE, and FILE.pub for devices."""
    made = make_key(file)
    public = f"{file}{PUBLIC_SUFFIX}"
    tell(target, {"key": made, "file": str(file), "public": public}, f"key {made}: {file}, and {public} for devices")


def _refused(error: Exception) -> str:
    """Return which option a manifest refuses, and what it takes."""
    field = re.search(r"\$\.(\w+)", str(error))
    rule = _RULES.get(field[1]) if field else None
    return rule or f"no manifest can say this: {error}"


@upgrade.command("sign")
@click.argument("package", type=FILE)
@click.option(
    "--key", "key_file", type=FILE, required=True, metavar="FILE", help="private key of `eyot upgrade keygen`"
)
@click.option(
    "--ring",
    "rings",
    multiple=True,
    required=True,
    metavar="NAME",
    help="ring that may install it; may be given several times",
)
@click.option("--expires", callback=age_ns, default="30d", metavar="TIME", help="how long devices accept it")
@click.option(
    "--minimum", default="", metavar="VERSION", help="oldest installed version from which devices may go to it"
)
@click.option(
    "--rollback-from",
    multiple=True,
    metavar="VERSION",
    help="version to leave for this older one; may be given several times",
)
@click.option("--release", metavar="NAME", help="release of Debian; what the version ends with (+deb12) without it")
@click.pass_obj
def sign_package(
    target: Target,
    package: Path,
    key_file: Path,
    rings: tuple[str, ...],
    expires: int,
    minimum: str,
    rollback_from: tuple[str, ...],
    release: str | None,
) -> None:
    """Sign PACKAGE: writes its manifest to PACKAGE.signed.

    A manifest that is signed again and published replaces the one before: so the next ring opens.
    """
    found = read_package(package)
    if found.name != PACKAGE:
        raise Failure(f"{package} is the package {found.name}: devices install {PACKAGE} only")
    release = release or _release_of(found.version)
    if expires < 10**9:
        raise click.UsageError("--expires is at least a second: 30d")
    now = datetime.now(UTC).replace(microsecond=0)
    try:
        until = now + timedelta(seconds=expires // 10**9)
        described = {"format": 1, "package": found.name, "version": found.version, "architecture": found.architecture,
                     "release": release, "sha256": found.sha256, "size": found.size, "rings": list(dict.fromkeys(rings)),
                     "issued": now, "expires": until, "minimum": minimum, "rollback_from": list(rollback_from)}  # fmt: skip
        manifest = msgspec.convert(described, Manifest)
    except (msgspec.ValidationError, OverflowError) as error:
        raise click.UsageError(_refused(error)) from error
    _check_versions(manifest)
    signed = sign(manifest, read_signing_key(key_file))
    path = package.with_name(package.name + SUFFIX)
    write_private(path, signed, mode=0o644)
    text = f"{path}: {manifest.version} for {', '.join(manifest.rings)} until {shown_time(until)}"
    tell(target, {"file": str(path), "manifest": msgspec.to_builtins(manifest)}, text)


def _check_versions(manifest: Manifest) -> None:
    """Raise UsageError for versions by which no device would install the package: it would be signed and published for nothing."""
    version = manifest.version
    for each in manifest.rollback_from:
        if compare(each, version) <= 0:
            raise click.UsageError(f"--rollback-from {each}: devices leave versions that are newer than {version}")
        if _RELEASE.search(version) and not _RELEASE.search(each):
            raise click.UsageError(
                f"--rollback-from {each}: name the whole version, which ends with a release as {version} does"
            )
    if manifest.minimum and not manifest.rollback_from and compare(manifest.minimum, version) >= 0:
        raise click.UsageError(f"--minimum {manifest.minimum}: the oldest version to come from is older than {version}")


def _release_of(version: str) -> str:
    if (found := _RELEASE.search(version)) is None:
        raise click.UsageError(f"the version {version} does not end with a release of Debian: name one with --release")
    return found[1]


@upgrade.command("publish")
@click.argument("bucket", callback=bucket_name)
@click.argument("package", type=FILE)
@click.option("--keys", type=FOLDER, metavar="FOLDER", help="verify the signature by these public keys first")
@click.pass_obj
def publish(target: Target, bucket: str, package: Path, keys: Path | None) -> None:
    """Store PACKAGE and PACKAGE.signed in BUCKET.

    A package that is there already is not sent again. What a put that was killed an hour ago has left in BUCKET is removed.
    """
    if target.is_elsewhere:
        raise Failure(
            "objects are written where the bucket is: name that server with -s, and leave out --domain and --js-api-prefix"
        )
    found, signed = read_package(package), _signed_file(package)
    try:
        opened = read_unverified(signed) if keys is None else open_signed(signed, pinned_keys(keys))
    except RefusedManifest as error:
        raise Failure(f"{package}{SUFFIX}: {error}") from None
    manifest = opened.manifest
    if found != Package(manifest.package, manifest.version, manifest.architecture, manifest.sha256, manifest.size):
        raise Failure(f"{package}{SUFFIX} is the manifest of another file: eyot upgrade sign {package}")

    async def send(client: Client) -> tuple[bool, int | None]:
        there = (await list_objects(target, client, bucket)).get(manifest.object_name)
        is_new = not _is_there(there, found, bucket)
        if is_new:
            with package.open("rb") as file:
                await put_object(target, client, bucket, manifest.object_name, file)
        # The manifest comes last: a mirror that has it has the package, too.
        await put_object(target, client, bucket, manifest.object_name + SUFFIX, signed)
        try:
            return is_new, await remove_leftovers(target, client, bucket)
        except (Failure, NatsError, TimeoutError):  # of a user who may put, and no more
            return is_new, None

    is_new, removed = target.with_client(send)
    text = f"{manifest.object_name}: open to {', '.join(manifest.rings)} until {shown_time(manifest.expires)}"
    if removed:
        text += f"; {counted(removed, 'chunk')} of broken puts removed"
    done = {"name": manifest.object_name, "package_sent": is_new, "rings": manifest.rings, "chunks_removed": removed}
    tell(target, done, text)


def _signed_file(package: Path) -> bytes:
    path = package.with_name(package.name + SUFFIX)
    try:
        with path.open("rb") as file:
            return file.read(SIGNED_MAX)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}: eyot upgrade sign {package} makes it") from error


def _is_there(there: ObjectRecord | None, package: Package, bucket: str) -> bool:
    """Return whether the bucket has the package. Raises Failure if it has another one of that name."""
    if there is None:
        return False
    digest = base64.urlsafe_b64encode(bytes.fromhex(package.sha256)).decode()
    if there.digest.removeprefix("SHA-256=") != digest:
        raise Failure(
            f"{bucket} has another {there.name}: build a new version, or eyot object del {bucket} {there.name}"
        )
    return True


@upgrade.command("ls")
@click.argument("bucket", callback=bucket_name)
@click.option("--keys", type=FOLDER, metavar="FOLDER", help="verify the signatures by these public keys")
@click.pass_obj
def listing(target: Target, bucket: str, keys: Path | None) -> None:
    """List the manifests of BUCKET."""
    pinned = None if keys is None else pinned_keys(keys)

    async def read(client: Client) -> list[Offered]:
        return await read_offered(
            target, client, bucket, read_unverified if pinned is None else lambda data: open_signed(data, pinned)
        )

    offered = target.with_client(read)
    now = datetime.now(UTC)
    if target.as_json:
        print_json([_as_json(each, pinned is not None) for each in offered])
        return
    rows = [
        (each.name, ", ".join(each.opened.manifest.rings), shown_time(each.opened.manifest.expires),
         "missing" if each.package is None else size(each.package.size), _state(each, now, pinned is not None))
        if each.opened is not None else (each.name, "", "", "", f"refused: {each.refused}")
        for each in offered
    ]  # fmt: skip
    print_table(f"Upgrades in {bucket}", ("Package", "Rings", "Expires", ">Size", "State"), rows, "none")


def _state(offered: Offered, now: datetime, verified: bool) -> str:
    assert offered.opened is not None
    state = "expired" if now >= offered.opened.manifest.expires else "open"
    return f"{state}, signed by {offered.opened.key}{'' if verified else ' (not verified)'}"


def _as_json(offered: Offered, verified: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"name": offered.name, "package_stored": offered.package is not None}
    if offered.opened is None:
        return found | {"refused": offered.refused}
    return found | {
        "key": offered.opened.key, "verified": verified, "manifest": msgspec.to_builtins(offered.opened.manifest)
    }  # fmt: skip


@upgrade.command("fetch")
@click.argument("bucket", callback=bucket_name)
@click.option("--ring", required=True, metavar="NAME", help="ring of this device")
@click.option("--keys", type=FOLDER, default=PINNED, metavar="FOLDER", help="the public keys that this device trusts")
@click.option("--output", "-O", type=FOLDER, default=Path(), metavar="FOLDER", help="where the package goes")
@click.option("--refused", type=FILE, metavar="FILE", help="packages to pass over: /var/lib/eyot-upgrade/refused")
@click.option(
    "--released",
    type=FILE,
    metavar="FILE",
    envvar="EYOT_UPGRADE_RELEASED",
    help="only the version in this file: /etc/eyot/enrolled/release",
)
@click.pass_context
def fetch(
    context: click.Context,
    bucket: str,
    ring: str,
    keys: Path,
    output: Path,
    refused: Path | None,
    released: Path | None,
) -> None:
    """Read the package that this device may install.

    The file appears when its signature, digest and size are right, and the signed manifest beside it. Exit status 3: there is nothing to install.
    """
    context.exit(fetch_package(context.obj, bucket, ring, keys, output, refused, released))


@upgrade.command("status")
@click.option("--state", type=FOLDER, default=Places.state, metavar="FOLDER", help="where root keeps upgrades")
@click.pass_context
def status(context: click.Context, state: Path) -> None:
    """Show where this device stands.

    Exit status 4: the last upgrade was rolled back, and the version before it is still installed.
    """
    found = read_status(Places(state=state))
    if context.obj.as_json:
        print_json(found)
    else:
        show_status(found)
    context.exit(4 if found.was_rolled_back else 0)
