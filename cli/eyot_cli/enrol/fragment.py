"""The part of the daemon's configuration that an enrolled device needs: its name, its domain, its hub."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from eyot_cli.failure import Failure
from eyot_cli.private_files import write_private
from eyot_wire.conf.errors import ConfError
from eyot_wire.conf.parser import parse_file
from eyot_wire.device_requests import ANSWERS
from eyot_wire.quoting import printable

if TYPE_CHECKING:
    from pathlib import Path

    from eyot_wire.conf.values import ConfMap

_HEAD = "# Made by `eyot enrol`, which replaces this file. Settings of this device's own belong into other files.\n"


def write_fragment(config: Path, path: Path, name: str, creds: Path, leaf_urls: tuple[str, ...]) -> list[str]:
    """Write the fragment, which `config` includes; return what it sets.

    A key of a later file replaces an earlier one as a whole, so settings that the device has already stay as they are:
    Failure names the lines to add there. Raises Failure.
    """
    present = _present(config, path)
    remote = f"{{ urls: [{', '.join(map(json.dumps, leaf_urls))}], credentials: {json.dumps(str(creds))} }}"
    lines: list[str] = []
    if "server_name" not in present:
        lines.append(f"server_name: {json.dumps(name)}")
    jetstream = present.get("jetstream")
    if jetstream in (None, {}, True, "enabled"):
        lines.append(f"jetstream {{ domain: {json.dumps(name)} }}")
    elif not isinstance(jetstream, dict) or jetstream.get("domain") != name:
        raise Failure(
            f"the configuration has a jetstream block of its own without this domain, which eyot enrol does not change: "
            f"add `domain: {json.dumps(name)}` to it in {config} or a file that it includes, and run the command again"
        )
    if "leafnodes" in present:
        raise Failure(
            "the configuration has a leafnodes block of its own, which eyot enrol does not change: add to its remotes",
            f"  {remote}",
            "or remove it, and run the command again: the credentials are kept",
        )
    lines.append(f"leafnodes {{ remotes: [ {remote} ] }}")
    if "eyot" not in present:  # else the device is asked and seen from the hub when its own block says so
        device = f"device {{ name: {json.dumps(name)}, answers: [{', '.join(ANSWERS)}] }}"
        status = f'status {{ subject: {json.dumps(f"fleet.{name}.status")}, every: "5m" }}'
        desired = json.dumps(str(creds.absolute().parent / "desired*.conf"))
        lines.append(f"eyot {{ {device}, {status}, include {desired} }}")
    write_private(path, (_HEAD + "\n".join(lines) + "\n").encode(), mode=0o644)
    return lines


def _present(config: Path, own: Path) -> dict[str, object]:
    """Return the configuration's top-level keys without those that an earlier fragment set. Raises Failure."""
    if not config.exists():
        return {}
    try:
        found: ConfMap = parse_file(config)
    except ConfError as error:
        raise Failure(f"the present configuration is not valid: {printable(str(error))}") from error
    return {entry.key.lower(): entry.value.plain() for entry in found if _file(entry.position.file) != _file(str(own))}


def _file(name: str) -> str:
    from os.path import realpath

    return realpath(name)
