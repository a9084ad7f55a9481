"""Lets options of `eyot` itself stand after a command: `eyot stream ls --json` equals `eyot --json stream ls`."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import click
from click.core import ParameterSource

from eyot_cli.connection.target import Target, TlsFiles

#: Options of `eyot` by the members of `Target` and `TlsFiles`, where the names differ.
_MEMBERS = {"tlsca": "ca", "tlscert": "cert", "tlskey": "key", "tlsfirst": "first"}
_RENAMED = {"server": "given_server", "domain": "given_domain", "context_name": "context"}
#: Prefix of the parameter names of options after a command.
_BEHIND = "behind_"


def take_anywhere(group: click.Group, command: click.Command) -> None:
    """Let `command` and every command below accept the options of `group`. A command's own option of the same name keeps its meaning."""
    options = [each for each in group.params if isinstance(each, click.Option) and each.expose_value]
    for each in _with_those_below(command):
        own = {name for parameter in each.params for name in parameter.opts}
        each.params += [_behind(option) for option in options if own.isdisjoint(option.opts)]


def _with_those_below(command: click.Command) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group):
        for each in command.commands.values():
            yield from _with_those_below(each)


class OptionBehind(click.Option):
    """No help tells of it, for it would stand there at every command; shells complete it."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        return None


def _behind(option: click.Option) -> click.Option:
    """Return an option for use after a command: it changes the target in the command's context."""
    made = copy.copy(option)
    made.__class__ = OptionBehind
    made.name = f"{_BEHIND}{option.name}"  # `eyot sync forget STREAM SERVER` has an argument with the option's name
    made.envvar = None
    made.expose_value = False
    made.callback = partial(_change, option.callback)
    return made


def _change(
    parse: Callable[[click.Context, click.Parameter, Any], Any] | None,
    context: click.Context,
    option: click.Parameter,
    value: Any,
) -> None:
    assert option.name is not None
    if context.get_parameter_source(option.name) is not ParameterSource.COMMANDLINE:
        return
    if parse is not None:
        value = parse(context, option, value)
    name = option.name.removeprefix(_BEHIND)
    target = context.obj
    assert isinstance(target, Target)
    if name == "no_context":
        context.obj = dataclasses.replace(target, context="" if value else target.context)
    elif name == "token":
        context.obj = dataclasses.replace(target, user=value, password=None)
    elif name in _MEMBERS:
        tls: TlsFiles = dataclasses.replace(target.tls, **{_MEMBERS[name]: value})
        context.obj = dataclasses.replace(target, tls=tls)
    else:
        context.obj = dataclasses.replace(target, **{_RENAMED.get(name, name): value})
