"""Every command of `eyot`: help, documentation, completion."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from eyot_cli.connection.anywhere import OptionBehind
from eyot_cli.main import COMMANDS, cli
from eyot_cli.terminal.aliases import GROUPS, OUTER

DOCS = Path(__file__).parents[3] / "docs"


def commands(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)


EVERY = list(commands(cli))


@pytest.mark.parametrize(("path", "command"), EVERY, ids=[" ".join(path) for path, _ in EVERY])
def test_every_command_says_what_it_does(path: tuple[str, ...], command: click.Command) -> None:
    done = CliRunner().invoke(cli, [*path, "--help"])
    assert done.exit_code == 0
    line = command.get_short_help_str(60)
    assert line
    assert not line.endswith("..."), "cut in the list of commands"
    for option in command.params:
        if isinstance(option, click.Option) and not isinstance(option, OptionBehind):
            assert option.help, option.name


def test_the_groups_stand_in_the_table_of_their_page() -> None:
    page = (DOCS / "operate" / "streams-and-buckets.md").read_text()
    for name in ("stream", "consumer", "kv", "object", "context"):
        group = cli.commands[name]
        assert isinstance(group, click.Group)
        (row,) = (line for line in page.splitlines() if line.startswith(f"| `eyot {name}` |"))
        assert set(row.split("|")[2].replace("`", "").replace(" ", "").split(",")) == set(group.commands)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("eyot str", "stream"),
        ("eyot kv hi", "history"),
        ("eyot stream add --reten", "--retention"),
        ("eyot stream ls --js", "--json"),  # an option of `eyot` itself, behind a command
    ],
)
def test_bash_completes(words: str, expected: str) -> None:
    asked = {"_EYOT_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    done = subprocess.run(
        [sys.executable, "-m", "eyot_cli.main"], env=os.environ | asked, capture_output=True, text=True, check=True
    )
    assert expected in [line.partition(",")[2] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script(shell: str) -> None:
    done = CliRunner().invoke(cli, ["completion", shell])
    assert done.exit_code == 0
    assert "_EYOT_COMPLETE" in done.output


@pytest.mark.parametrize("name", list(COMMANDS))
def test_the_list_says_of_a_command_what_the_command_says_of_itself(name: str) -> None:
    command = cli.commands[name]
    assert command.name == name
    assert command.get_short_help_str(60) == COMMANDS[name].line


def same_help(other: list[str], own: list[str]) -> None:
    """Both are the same command."""
    told, expected = (CliRunner().invoke(cli, [*each, "--help"]).output.splitlines() for each in (other, own))
    assert told[0].startswith(f"Usage: cli {' '.join(other)} ")
    assert told[1:] == expected[1:]


@pytest.mark.parametrize(
    ("group", "alias", "name"), [(group, *each) for group, names in GROUPS.items() for each in names.items()]
)
def test_the_other_names_of_the_nats_tool_work(group: str, alias: str, name: str) -> None:
    path = [] if group == "cli" else group.split()
    owner: click.Command = cli
    for each in path:
        assert isinstance(owner, click.Group)
        owner = owner.commands[each]
    assert isinstance(owner, click.Group)
    assert alias not in owner.commands
    same_help([*path, alias], [*path, name])


@pytest.mark.parametrize(("group", "name"), [(group, each) for group, names in OUTER.items() for each in names])
def test_commands_that_the_nats_tool_has_within_a_group(group: str, name: str) -> None:
    owner = cli.commands[group]
    assert isinstance(owner, click.Group)
    assert name not in owner.commands
    same_help([group, name], [name])


#: What `eyot` never loads for these words, with all below each: as it starts on every call of a script.
CLIENTS = {"httpx", "rich", "bcrypt", "cryptography", "nacl", "paho"}
OTHER_COMMANDS = {place.module for place in COMMANDS.values()} - {
    "eyot_cli.messages.pub",
    "eyot_cli.terminal.completion",
}


@pytest.mark.parametrize(
    ("words", "never"),
    [
        (["--help"], {*CLIENTS, *OTHER_COMMANDS, "nats", "asyncio", "eyot_cli.messages.pub"}),
        (["pub", "--help"], {*CLIENTS, *OTHER_COMMANDS, "eyot_cli.trust", "eyot_cli.mqtt"}),
        (["status", "--help"], {*CLIENTS, *OTHER_COMMANDS, "nats", "asyncio"} - {"eyot_cli.device.status"}),
    ],
    ids=["eyot", "eyot pub", "eyot status"],
)
def test_a_command_loads_only_what_it_needs(words: list[str], never: set[str]) -> None:
    program = "import sys; from eyot_cli.main import main; main(); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    loaded = done.stderr.split()
    assert "eyot_cli.main" in loaded
    assert [each for each in loaded if any(each == name or each.startswith(f"{name}.") for name in never)] == []
