"""Values that no parameter can use: each is refused in words, or fits where it goes. Every parameter of every command."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from eyot_cli.connection.anywhere import OptionBehind
from eyot_cli.main import cli
from eyot_cli.terminal.failure import Failure
from eyot_cli.values.numbers import INT64_MAX
from eyot_fleet.main import cli as fleet

HUGE = "9" * 23
BAD = ("", "-1", "0", "x", " ", HUGE, f"-{HUGE}", f"{HUGE}d", f"{HUGE}h", f"{HUGE}m", f"{HUGE}y", f"{HUGE}GiB", "9" * 5000,
       "nan", "inf", "1e999", "1e999d", "300y", "0001-01-01T00:00:00+10:00", "9999-12-31T23:59:59-10:00", "2026-13-45",
       "\n", "\x1b[2J", "*", "a..b", ".", ">", "{{", "{{.Random 1 x}}", '{"a":', '"', "(", "[", "@", "@/", ":", "a:b:c", "=",
       "/", "../../x", "a" * 300)  # fmt: skip


def commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, group
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


@pytest.mark.parametrize("group", [cli, fleet], ids=["eyot", "eyot-fleet"])
def test_a_value_that_is_taken_fits_where_it_goes(group: click.Group) -> None:
    """A number has 64 bits, and a path names something."""
    for path, command in commands(group, ""):
        for parameter in command.params:
            if isinstance(parameter, OptionBehind) or (
                isinstance(parameter, click.Option) and (parameter.is_flag or parameter.is_eager)
            ):
                continue
            for text in BAD:
                value = (text,) if parameter.multiple or parameter.nargs != 1 else text
                with click.Context(command) as context:
                    try:
                        taken = parameter.process_value(context, value)
                    except (click.UsageError, Failure):
                        continue
                wrong = [
                    each for each in (taken if isinstance(taken, tuple) else (taken,)) if not _is_usable(each, text)
                ]
                assert not wrong, f"{path} {parameter.name}: {text[:50]!r}"


def _is_usable(value: Any, text: str) -> bool:
    if isinstance(value, int):
        return abs(value) <= INT64_MAX
    return math.isfinite(value) if isinstance(value, float) else not isinstance(value, Path) or text != ""
