"""A group of commands whose modules load when a command is used: `eyot pub` pays for no other command's imports."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from eyot_cli.terminal import aliases


class Place(NamedTuple):
    """A command that is not loaded yet."""

    module: str
    attribute: str
    #: one line for the list of commands, equal to the first line of the command's help
    line: str


class LazyCommands(MutableMapping[str, click.Command]):
    """Commands by name, each loaded when it is first asked for and then handed to `loaded`."""

    def __init__(self, places: Mapping[str, Place], loaded: Callable[[click.Command], None]) -> None:
        self._places = dict(places)
        self._loaded = loaded
        self._commands: dict[str, click.Command] = {}

    def line(self, name: str) -> str:
        """Return one line of help, without loading the command."""
        return self._places[name].line if name in self._places else self._commands[name].get_short_help_str(80)

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._commands:
            place = self._places[name]
            command: click.Command = getattr(importlib.import_module(place.module), place.attribute)
            self._loaded(command)
            self._commands[name] = command
        return self._commands[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._places.pop(name, None)
        self._commands[name] = command

    def __delitem__(self, name: str) -> None:
        known = self._places.pop(name, None) is not None
        if self._commands.pop(name, None) is None and not known:
            raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return name in self._places or name in self._commands

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._places, *self._commands)))

    def __len__(self) -> int:
        return len(set(self._places) | set(self._commands))


class AliasGroup(click.Group):
    """A group whose commands have other names, too (`eyot_cli.terminal.aliases`)."""

    def __init__(self, *args: Any, path: str = "", **more: Any) -> None:
        """`path`: of a group within a group, with its own name."""
        super().__init__(*args, **more)
        self._aliases: Mapping[str, str] = aliases.GROUPS.get(path or self.name or "", {})
        #: commands of `eyot` itself that also work behind this group's name
        self._outer = aliases.OUTER.get(self.name or "", ())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self._outer:
            root = ctx.find_root()
            assert isinstance(root.command, click.Group)
            return root.command.get_command(root, cmd_name)
        return super().get_command(ctx, self._aliases.get(cmd_name, cmd_name))


class LazyGroup(AliasGroup):
    """A group that lists and completes its commands without loading them."""

    def take(self, places: Mapping[str, Place], loaded: Callable[[click.Command], None]) -> None:
        """Set the group's commands; `loaded` gets each command once, before its first use."""
        self.commands = LazyCommands(places, loaded)

    def _line(self, name: str) -> str:
        assert isinstance(self.commands, LazyCommands)
        return self.commands.line(name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._line(name)) for name in self.list_commands(ctx)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        found = [
            CompletionItem(name, help=self._line(name))
            for name in self.list_commands(ctx)
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)
