"""Options of `eyot` behind a command keep out of the way of the command's own parameters."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from eyot_cli.main import cli


def commands(group: click.Group, path: str = "eyot") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")


@pytest.mark.parametrize(("path", "command"), list(commands(cli)), ids=[path for path, _ in commands(cli)])
def test_every_parameter_has_a_name_of_its_own(path: str, command: click.Command) -> None:
    names = [each.name for each in command.params]
    assert len(set(names)) == len(names)
