"""The manual pages: what they say of options is what the programs take, all of it and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import pytest

from eyot_cli.connection.anywhere import OptionBehind
from eyot_cli.main import cli
from eyot_cli.trust.group import trust
from eyot_daemon.config.flags import _FLAGS
from eyot_daemon.config.usage import USAGE
from eyot_fleet.main import cli as fleet
from eyot_store.check.main import command_line

PAGES = Path(__file__).parents[2] / "packaging" / "man"
OPTION = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")


def plain(page: str) -> str:
    """A page's text without what sets its fonts."""
    text = re.sub(r"\\f(?:\[[A-Z]*\]|.)", "", (PAGES / page).read_text())
    return text.replace("\\-", "-").replace("\\%", "")


def section(page: str, name: str) -> str:
    return re.split(r"^\.SH ", plain(page).split(f"\n.SH {name}\n")[1], flags=re.MULTILINE)[0]


def described(text: str) -> list[str]:
    """The options that have a paragraph of their own."""
    return [option for head in re.findall(r"^\.TP\n(.*)", text, re.MULTILINE) for option in OPTION.findall(head)]


def options_of(command: click.Command) -> list[str]:
    options = [
        each
        for each in command.params
        if isinstance(each, click.Option) and not isinstance(each, OptionBehind) and not each.hidden
    ]
    return [name for each in options for name in (*each.opts, *each.secondary_opts)]


def commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        whole = f"{path} {name}".strip()
        inner = isinstance(command, click.Group)
        if not inner or getattr(command, "invoke_without_command", False):
            yield whole, command
        if isinstance(command, click.Group):
            yield from commands(command, whole)


def same(page: Iterable[str], program: Iterable[str]) -> None:
    assert sorted(page) == sorted(program)


@pytest.mark.parametrize("page", sorted(each.name for each in PAGES.iterdir()))
def test_no_line_of_text_begins_as_a_macro(page: str) -> None:
    lines = (PAGES / page).read_text().splitlines()
    assert [
        each for each in lines if each[:1] in (".", "'") and not re.match(r"\.(([A-Z]{1,2}|br)\b|\\\")", each)
    ] == []


def test_eyotd() -> None:
    same((each.lstrip("-") for each in described(section("eyotd.8", "OPTIONS"))), _FLAGS)


def test_what_eyotd_says_of_itself() -> None:
    """`--profile` is passed over and not offered."""
    heads = "\n".join(line[:33] for line in USAGE.splitlines() if re.match(r" +-", line))
    same((each.lstrip("-") for each in OPTION.findall(heads)), set(_FLAGS) - {"profile"})


def test_eyot_check() -> None:
    options = [name for action in command_line()._actions for name in action.option_strings]
    same(described(section("eyot-check.8", "OPTIONS")), options)


def test_eyot() -> None:
    page = section("eyot.1", "OPTIONS")
    same(described(page), [*options_of(cli), "-h", "--help"])
    variables = {str(each.envvar) for each in cli.params if isinstance(each, click.Option) and each.envvar}
    assert set(re.findall(r"\b(?:NATS|EYOT)_[A-Z_]+\b", page)) == variables


def heads_of(page: str) -> dict[str, str]:
    """The page's commands, by what stands in the head of each: the command and its arguments."""
    parts = re.split(r"^\.SS ", section(page, "COMMANDS"), flags=re.MULTILINE)[1:]
    return {part.splitlines()[0]: part for part in parts}


def test_commands_of_eyot() -> None:
    page = heads_of("eyot.1")
    heads = {re.sub(r"(?<=[a-z]) *[A-Z[].*", "", head): head for head in page}
    known = {name: command for name, command in commands(cli) if not name.startswith("trust ")}
    same(heads, known)
    for name, command in known.items():
        arguments = [each for each in command.params if isinstance(each, click.Argument)]
        named = [str(each.metavar if each.nargs < 0 else each.name).upper() for each in arguments]
        words = [word if each.required else f"[{word}]" for word, each in zip(named, arguments, strict=True)]
        assert heads[name] == " ".join([name, *words]), name
        same(described(page[heads[name]]), options_of(command))


def test_eyot_trust() -> None:
    """Its commands have a page of their own."""
    own = [*options_of(trust), "-h", "--help"]
    same(described(section("eyot-trust.1", "OPTIONS")), own)
    page = heads_of("eyot-trust.1")
    heads = {re.sub(r"(?<=[a-z]) *[A-Z[].*", "", head): head for head in page}
    known = dict(commands(trust))
    same(heads, known)
    for name, command in known.items():
        arguments = [each for each in command.params if isinstance(each, click.Argument)]
        words = [each.metavar or str(each.name).upper() for each in arguments]
        assert heads[name] == " ".join([name, *words]), name
        options = [
            each for each in command.params if isinstance(each, click.Option) and not isinstance(each, OptionBehind)
        ]
        same(described(page[heads[name]]), [part for each in options for part in (*each.opts, *each.secondary_opts)])


def test_eyot_fleet() -> None:
    same(described(section("eyot-fleet.8", "OPTIONS")), [*options_of(fleet), "-h", "--help"])
    page = heads_of("eyot-fleet.8")
    heads = {re.sub(r"(?<=[a-z]) *[A-Z[].*", "", head): head for head in page}
    known = dict(commands(fleet))
    same(heads, known)
    for name, command in known.items():
        same(described(page[heads[name]]), options_of(command))
        assert not command.get_short_help_str(70).endswith("..."), f"{name} is cut in the list of commands"
