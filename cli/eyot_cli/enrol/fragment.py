"""The part of the daemon's configuration that an enrolled device needs: its name, its domain, its hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.private_files import write_private
from eyot_wire.conf.errors import ConfError
from eyot_wire.conf.parser import parse_file
from eyot_wire.device_requests import ANSWERS
from eyot_wire.quoting import printable

if TYPE_CHECKING:
    from eyot_wire.conf.values import ConfEntry

#: What `eyot configure` writes, where it writes it.
_DESIRED = "desired*.conf"
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
    if "leafnodes" not in present:
        lines.append(f"leafnodes {{ remotes: [ {remote} ] }}")
    elif str(creds) not in _credentials(present["leafnodes"]):
        raise Failure(
            "the configuration has a leafnodes block of its own, which eyot enrol does not change: add to its remotes",
            f"  {remote}",
            "or remove it, and run the command again: the credentials are kept",
        )
    if "eyot" not in present:
        lines.append(f"eyot {{ {', '.join(_for_the_hub(name, creds).values())} }}")
    write_private(path, (_HEAD + "\n".join(lines) + "\n").encode(), mode=0o644)
    return lines


def lines_to_add(config: Path, path: Path, name: str, creds: Path) -> list[str]:
    """Return the lines that a device's own block `eyot { }` lacks for the hub to ask, see and configure it. Raises Failure."""
    found = next((entry for entry in _own_entries(config, path) if entry.key.lower() == "eyot"), None)
    block = None if found is None else found.value.plain()
    if found is None or not isinstance(block, dict):
        return []
    present = {key.lower() for key in block}
    if _DESIRED in Path(found.position.file).read_text(errors="replace"):
        present.add("include")  # its place is not in the parsed block
    return [line for key, line in _for_the_hub(name, creds).items() if key not in present]


def _credentials(leafnodes: object) -> set[object]:
    """Return the credentials files that the remotes of a block name."""
    remotes = leafnodes.get("remotes") if isinstance(leafnodes, dict) else None
    return {each.get("credentials") for each in remotes or () if isinstance(each, dict)}


def _for_the_hub(name: str, creds: Path) -> dict[str, str]:
    """Return the lines of the block `eyot { }` that let the hub ask the device, see it, and say what it should be."""
    return {
        "device": f"device {{ name: {json.dumps(name)}, answers: [{', '.join(ANSWERS)}] }}",
        "status": f'status {{ subject: {json.dumps(f"fleet.{name}.status")}, every: "5m" }}',
        "include": f"include {json.dumps(str(creds.absolute().parent / _DESIRED))}",
    }


def _present(config: Path, own: Path) -> dict[str, object]:
    """Return the keys and values of `_own_entries`. Raises Failure."""
    plain: dict[str, object] = {entry.key.lower(): entry.value.plain() for entry in _own_entries(config, own)}
    return {"leafnodes": plain["leaf"]} | plain if "leaf" in plain else plain  # two names of one block


def _own_entries(config: Path, own: Path) -> list[ConfEntry]:
    """Return the configuration's top-level keys as they are without an earlier fragment, which would hide them. Raises Failure."""
    if not config.exists():
        return []
    try:
        return list(parse_file(config, without=own))
    except ConfError as error:
        raise Failure(f"the present configuration is not valid: {printable(str(error))}") from error
