"""Commands of `eyot trust`: nsc's flags that every command takes, the session, and flags that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from itertools import chain
from typing import Any, Final, TypeVar

import click

from eyot_cli.connection.anywhere import OptionBehind
from eyot_cli.connection.target import Target
from eyot_cli.terminal.failure import Failure
from eyot_cli.trust.directories import Directories, Environment
from eyot_cli.trust.session import Report, Session
from eyot_cli.values.paths import FilePath

_META: Final = "eyot.trust."
FOLDER: Final = FilePath(file_okay=False)
#: What stands behind the `=` of a switch, as Go reads it.
_SWITCH_VALUES: Final = dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True) | dict.fromkeys(
    ("0", "f", "F", "false", "FALSE", "False"), False
)
_SECOND_NAMES: Final = {
    "create": "add",
    "operator": "operators",
    "account": "accounts",
    "user": "users",
    "key": "keys",
    "add_user": "add-user",
    "delete_user": "delete-user",
    "list_users": "list-users",
    "add-activation": "add_activation",
    "delete-activation": "delete_activation",
    "list-activations": "list_activations",
}
Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def _remember(context: click.Context, option: click.Parameter, value: Any) -> None:
    if value is not None:
        context.meta[_META + str(option.name)] = value


def _everywhere() -> list[click.Option]:
    """Return the options of nsc that may stand before or after each command."""
    texts = {
        ("-H", "--all-dirs"): ("DIR", FOLDER, "sets --config-dir, --data-dir and --keystore-dir to the same value"),
        ("--config-dir",): ("DIR", FOLDER, "folder of nsc.json"),
        ("--data-dir",): ("DIR", FOLDER, "folder of the stores"),
        ("--keystore-dir",): ("DIR", FOLDER, "folder of keys and credentials"),
        ("-K", "--private-key"): ("KEY", str, "key to sign with: a scope's role, a public key, a seed, or a file"),
    }
    return [
        click.Option(names, metavar=metavar, type=kind, help=text, expose_value=False, callback=_remember)
        for names, (metavar, kind, text) in texts.items()
    ]


class TrustCommand(click.Command):
    """A command that also takes the options of `eyot trust`, as nsc's commands do. Its help does not repeat them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        taken = {name for each in self.params for name in each.opts}
        for option in _everywhere():
            option.__class__ = OptionBehind
            if taken.isdisjoint(option.opts):
                self.params.append(option)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments; a switch may have a value behind `=`, as with nsc (`--bearer=false`)."""
        end = args.index("--") if "--" in args else len(args)
        return super().parse_args(ctx, [*chain.from_iterable(map(self._plain, args[:end])), *args[end:]])

    def _plain(self, argument: str) -> tuple[str, ...]:
        """Return an argument as click takes it: a switch without its value."""
        name, equals, text = argument.partition("=")
        switch = next((each for each in self.params if equals and name in each.opts), None)
        if not isinstance(switch, click.Option) or not switch.is_flag or text not in _SWITCH_VALUES:
            return (argument,)
        if _SWITCH_VALUES[text]:
            return (name,)
        return tuple(switch.secondary_opts[:1])


class TrustGroup(click.Group):
    """A group of such commands. Commands have nsc's second names, too."""

    command_class = TrustCommand
    group_class = type

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        return found or super().get_command(ctx, _SECOND_NAMES.get(cmd_name, cmd_name))


def with_everywhere(group: click.Group) -> click.Group:
    """Let the outermost group take these options, and show them."""
    group.params += _everywhere()
    return group


def in_session(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command its session as the first argument, and print its report at the end."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> None:
        context = click.get_current_context()
        target = context.find_object(Target)
        assert target is not None
        given = {
            name: context.meta.get(_META + name) for name in ("all_dirs", "config_dir", "data_dir", "keystore_dir")
        }
        directories = Directories.of(given["all_dirs"], given["config_dir"], given["data_dir"], given["keystore_dir"])
        key = str(context.meta.get(_META + "private_key") or "")
        report = Report(target.as_json)
        session = Session(Environment(directories), key, report)
        try:
            function(session, *args, **kwargs)
        finally:
            session.keystore.close()
        report.finish()

    return run


def in_changing_session(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command that changes a store its session, with the operator in use locked against others that change it."""

    @functools.wraps(function)
    def run(session: Session, *args: Any, **kwargs: Any) -> None:
        if not session.environment.operator:
            function(session, *args, **kwargs)
            return
        session.store.lock()
        try:
            function(session, *args, **kwargs)
        finally:
            session.store.unlock()

    return in_session(run)


def account_option(function: Decorated) -> Decorated:
    return click.option("-a", "--account", metavar="NAME", help="account (the one in use)")(function)


def time_options(function: Decorated) -> Decorated:
    """Add `--start` and `--expiry`."""
    text = "0 for always, yyyy-mm-dd, or a span: #m, #h, #d, #w, #M, #y"
    function = click.option("--expiry", metavar="TIME", help=f"valid until: {text}")(function)
    return click.option("--start", metavar="TIME", help=f"valid from: {text}")(function)


def name_options(what: str) -> Callable[[Decorated], Decorated]:
    """Add a name as argument or as `-n`."""

    def add(function: Decorated) -> Decorated:
        function = click.option("-n", "--name", metavar="NAME", help=f"name of the {what}")(function)
        return click.argument("given", metavar="[NAME]", required=False)(function)

    return add


def name_of(given: str | None, name: str | None, what: str) -> str:
    """Return the name of argument or option. Raises Failure without one."""
    if given and name and given != name:
        raise Failure(f"the {what} has two names, {given} and {name}: leave one out")
    found = given or name
    if not found:
        raise Failure(f"which {what}? Name it with -n NAME")
    return found
