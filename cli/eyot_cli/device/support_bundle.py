"""`eyot support-bundle`: one archive with what a person needs who helps from far away, and without secrets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from eyot_cli.terminal.failure import Failure, NoSuchPage
from eyot_cli.terminal.private_files import write_new
from eyot_cli.terminal.show import print_json, print_line
from eyot_cli.values.paths import FilePath

if TYPE_CHECKING:
    from nats.aio.client import Client

    from eyot_cli.connection.target import Target

PATH = "/eyot/support-bundle"
#: What an archive's name may be made of; a peer names it.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,150}")
_GZIP = b"\x1f\x8b"


@click.command("support-bundle")
@click.option(
    "-o",
    "--output",
    type=FilePath(),
    metavar="FILE",
    help="file, or folder; by default the archive's own name in this folder",
)
@click.option("-F", "--force", is_flag=True, help="replace the file")
@click.pass_obj
def support_bundle(target: Target, output: Path | None, force: bool) -> None:
    """Write state, log and configuration into one archive.

    The archive holds no passwords, keys or tokens. --device fetches it from a device over the hub, --group from each
    device of a group.
    """
    if target.group:
        from eyot_cli.device.group_reports import support_bundles

        support_bundles(target, output or Path())
        return
    name, content = _fetch(target)
    if not _NAME.fullmatch(name) or not content.startswith(_GZIP):
        raise Failure("what answered sent no support bundle: nothing is written")
    path = output or Path(f"{name}.tar.gz")
    if path.is_dir():
        path /= f"{name}.tar.gz"
    write_new(path.absolute(), content, replace=force)
    if target.as_json:
        print_json({"file": str(path), "bytes": len(content)})
    else:
        print_line(f"{path}: {len(content):,} bytes")


def _fetch(target: Target) -> tuple[str, bytes]:
    """Return the name and content of an archive: of the control socket's daemon, or of a device. Raises Failure."""
    if target.device:
        from dataclasses import replace

        from eyot_cli.connection import device

        async def fetch(client: Client) -> tuple[str, bytes]:
            return await device.support_bundle(client, target.device)

        return replace(target, device="").with_client(fetch)
    from datetime import UTC, datetime

    try:
        return f"eyot-support-{datetime.now(UTC):%Y-%m-%dT%H%M%S}", target.get(PATH)
    except NoSuchPage:
        raise Failure(
            f"{target.control} gives no support bundle: the control socket does, and a monitoring port with eyot {{ http {{ page: true }} }}"
        ) from None
