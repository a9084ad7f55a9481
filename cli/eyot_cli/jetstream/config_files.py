"""Configurations of streams and consumers that go to a file, to an editor or to a check instead of the server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import msgspec

from eyot_cli.connection.target import Target
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.private_files import write_private
from eyot_cli.terminal.show import print_json, print_line, print_raw
from eyot_cli.values.paths import FilePath
from eyot_wire.jetstream.consumer import ConsumerConfig
from eyot_wire.jetstream.stream import StreamConfig

F = TypeVar("F", bound=Callable[..., Any])
#: What a configuration may hold, by what it is of.
_KINDS: Final[dict[str, type[msgspec.Struct]]] = {"stream": StreamConfig, "consumer": ConsumerConfig}


def instead_options(command: F) -> F:
    """Add `--validate` and `--output` of `add`, as the parameters of `went_elsewhere`."""
    for add in (
        click.option(
            "--output",
            type=FilePath(dir_okay=False, allow_dash=True),
            metavar="FILE",
            help="write the configuration there instead, for --config",
        ),
        click.option("--validate", is_flag=True, help="check the configuration and print it instead"),
    ):
        command = add(command)
    return command


interactive_option = click.option("--interactive", "-i", is_flag=True, help="change it in the editor that EDITOR names")


def check_config(config: dict[str, Any], what: str) -> None:
    """Check members and their values, `what` being `stream` or `consumer`. Raises Failure."""
    try:
        msgspec.convert(config, _KINDS[what])
    except (msgspec.ValidationError, ValueError) as error:
        raise Failure(f"this is no configuration of a {what}: {error}") from error


def went_elsewhere(target: Target, config: dict[str, Any], what: str, *, validate: bool, output: Path | None) -> bool:
    """Check a configuration that is not for the server, and print it or write it; return whether it was that. Raises Failure."""
    if validate:
        check_config(config, what)
        print_json(config)
        if not target.as_json:
            print_line(f"This is a valid configuration of a {what}")
    elif output is not None:
        check_config(config, what)
        data = msgspec.json.format(msgspec.json.encode(config), indent=2)
        if output == Path("-"):
            print_raw(data)
        else:
            write_private(output, data + b"\n")
    return validate or output is not None


def edited(config: dict[str, Any], what: str) -> dict[str, Any]:
    """Return what the operator made of a configuration in an editor. Raises Failure."""
    before = msgspec.json.format(msgspec.json.encode(config), indent=2).decode()
    try:
        after = click.edit(before, extension=".json")
    except click.ClickException as error:
        raise Failure(f"{error.message}: EDITOR names another editor") from error
    if after is None:
        return config
    try:
        found = msgspec.json.decode(after, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise Failure(f"the {what} is as it was: {error}") from error
    check_config(found, what)
    return found
