"""`eyot context`: the contexts of the `nats` tool."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click
import msgspec

from eyot_cli.connection import contexts
from eyot_cli.connection.answers import tell
from eyot_cli.connection.logins import without_login
from eyot_cli.connection.target import Target
from eyot_cli.terminal.confirm import confirm, force
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.lazy import AliasGroup
from eyot_cli.terminal.private_files import remove, write_private
from eyot_cli.terminal.show import names_option, print_json, print_names, print_table

#: Members whose values are not shown.
_SECRETS = ("password", "token", "user_jwt", "user_seed")


def _names(_context: click.Context, _argument: click.Parameter, begun: str) -> list[str]:
    """Return the names that a shell completes."""
    try:
        return [each for each in contexts.known() if each.startswith(begun)]
    except Failure:
        return []


@click.group("context", cls=AliasGroup)
def context() -> None:
    """Named connections, shared with the nats tool."""


@context.command("ls")
@names_option
@click.pass_obj
def list_contexts(target: Target, names: bool) -> None:
    """List the contexts; * marks the selected one."""
    if names:
        print_names(contexts.known(), as_json=target.as_json)
        return
    selected = contexts.selected()
    rows, told = [], []
    for name in contexts.known():
        try:
            each = contexts.checked(name, contexts.members(name))
            shown = (each.description, each.url)
        except Failure as failure:
            shown = (failure.lines[0], "")
        rows.append((f"{name}*" if name == selected else name, *shown))
        told.append({"name": name, "description": shown[0], "url": shown[1], "selected": name == selected})
    if target.as_json:
        print_json(told)
    else:
        print_table("Contexts", ("Name", "Description", "Server"), rows, "none: eyot context add NAME makes one")


@context.command("show")
@click.argument("name", required=False, shell_complete=_names)
@click.option("--connect", is_flag=True, help="connect with it, too")
@click.pass_obj
def show(target: Target, name: str | None, connect: bool) -> None:
    """Show the context NAME, or the one in use."""
    name = name or target.context_name()
    if name is None:
        raise Failure("no context is selected: name one, or eyot context select NAME")
    found = contexts.members(name)
    contexts.checked(name, found)
    if connect:
        replace(target, context=name).with_client(lambda client: client.flush())
    shown = {key: "***" if key in _SECRETS and value else value for key, value in found.items()}
    if isinstance(proxy := shown.get("socks_proxy"), str):
        shown["socks_proxy"] = without_login(proxy)
    if target.as_json:
        print_json({"name": name} | shown)
        return
    rows = [("file", str(contexts.path_of(name)))]
    rows += [(key, str(value)) for key, value in shown.items() if value not in ("", None, False)]
    print_table(f"Context {name}", ("", ""), rows, "none")


@context.command("select")
@click.argument("name", shell_complete=_names)
@click.pass_obj
def select(target: Target, name: str) -> None:
    """Use the context NAME from now on."""
    contexts.usable(name)
    before = contexts.selected()
    contexts.make_folder()
    if before is not None and before != name:
        write_private(contexts.previous_path(), before.encode())
    write_private(contexts.selected_path(), name.encode())
    tell(target, {"selected": name}, f"context {name} is selected")


@context.command("add")
@click.argument("name", shell_complete=_names)
@click.option("--description", metavar="TEXT", help="what the context is for")
@click.option("--select", "selects", is_flag=True, help="use it from now on")
@click.pass_context
def add(click_context: click.Context, name: str, description: str | None, selects: bool) -> None:
    """Make or change the context NAME.

    It keeps the options of eyot itself: --server, --user, --password, --creds, --nkey, --tlsca, --tlscert, --tlskey,
    --tlsfirst, --domain, --js-api-prefix, --js-event-prefix, --inbox-prefix and --socks-proxy, also from the environment. A new login replaces the old one.
    """
    target = click_context.obj
    assert isinstance(target, Target)
    path = contexts.path_of(name)
    found = contexts.members(name) if path.exists() else {"url": "nats://127.0.0.1:4222"}
    changed = _given(target) | ({} if description is None else {"description": description})
    if any(changed.get(each) for each in ("user", "token", "creds", "nkey")):
        found |= dict.fromkeys(("user", "password", "token", "creds", "nkey", "user_jwt", "nsc"), "")
    found |= changed
    contexts.checked(name, found)
    contexts.make_folder()
    write_private(path, msgspec.json.format(msgspec.json.encode(found), indent=2))
    if selects:
        click_context.invoke(select, name=name)
    else:
        tell(target, {"saved": name}, f"context {name} is saved")


def _given(target: Target) -> dict[str, Any]:
    """Return what the options say as members of a context; file names become absolute. Raises Failure."""
    if sum(each is not None for each in (target.user, target.creds, target.nkey)) > 1:
        raise Failure("a context has one login: give --user, --creds or --nkey")
    files = {
        "creds": target.creds,
        "nkey": target.nkey,
        "ca": target.tls.ca,
        "cert": target.tls.cert,
        "key": target.tls.key,
    }
    given: dict[str, Any] = {name: str(file.absolute()) for name, file in files.items() if file is not None}
    if target.given_server is not None:
        given["url"] = target.given_server
    if target.given_domain is not None:
        given["jetstream_domain"] = target.given_domain
        given["jetstream_api_prefix"] = ""
    if target.given_api_prefix is not None:
        given["jetstream_domain"] = ""
        given["jetstream_api_prefix"] = target.given_api_prefix
    texts = {
        "inbox_prefix": target.inbox_prefix,
        "jetstream_event_prefix": target.given_event_prefix,
        "socks_proxy": target.socks_proxy,
    }
    given |= {name: text for name, text in texts.items() if text}
    if target.user is not None and target.password is None:
        given["token"] = target.user
    elif target.user is not None:
        given |= {"user": target.user, "password": target.password}
    if target.tls.first:
        given["tls_first"] = True
    return given


@context.command("copy")
@click.argument("source", shell_complete=_names)
@click.argument("name")
@click.option("--description", metavar="TEXT", help="what the context is for")
@click.option("--select", "selects", is_flag=True, help="use it from now on")
@click.pass_context
def copy(click_context: click.Context, source: str, name: str, description: str | None, selects: bool) -> None:
    """Make the context NAME from SOURCE.

    The options of eyot itself change what they say, as those of eyot context add do.
    """
    found = contexts.members(source)
    path = contexts.path_of(name)
    if path.exists():
        raise Failure(f"context {name} is there: eyot context rm {name} deletes it")
    contexts.make_folder()
    write_private(path, msgspec.json.format(msgspec.json.encode(found), indent=2))
    click_context.invoke(add, name=name, description=description, selects=selects)


@context.command("edit")
@click.argument("name", shell_complete=_names)
@click.pass_obj
def edit(target: Target, name: str) -> None:
    """Change the context NAME in the editor that EDITOR names.

    A file that is no context is not taken.
    """
    before = contexts.path_of(name).read_text() if contexts.members(name) is not None else ""
    try:
        after = click.edit(before, extension=".json")
    except click.ClickException as error:
        raise Failure(f"{error.message}: EDITOR names another editor") from error
    if after is None or after == before:
        tell(target, {"saved": None}, f"context {name} is as it was")
        return
    try:
        found = msgspec.json.decode(after, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise Failure(f"context {name} is as it was: {error}") from error
    contexts.checked(name, found)
    write_private(contexts.path_of(name), msgspec.json.format(msgspec.json.encode(found), indent=2))
    tell(target, {"saved": name}, f"context {name} is saved")


@context.command("unselect")
@click.pass_obj
def unselect(target: Target) -> None:
    """Use no context from now on."""
    before = contexts.selected()
    if before is not None:
        write_private(contexts.previous_path(), before.encode())
        remove(contexts.selected_path())
    tell(target, {"unselected": before}, f"context {before} is unselected" if before else "no context is selected")


@context.command("previous")
@click.pass_context
def previous(click_context: click.Context) -> None:
    """Use the context that was selected before."""
    try:
        name = contexts.previous_path().read_text().strip()
    except (OSError, UnicodeDecodeError):
        name = ""
    if not name:
        raise Failure("no context was selected before: eyot context select NAME")
    click_context.invoke(select, name=name)


@context.command("validate")
@click.argument("name", required=False, shell_complete=_names)
@click.option("--connect", is_flag=True, help="connect with each, too")
@click.pass_obj
def validate(target: Target, name: str | None, connect: bool) -> None:
    """Check the context NAME, or every one.

    Exit status 1 if eyot cannot use one of them.
    """
    told: dict[str, str] = {}
    for each in [name] if name else contexts.known():
        try:
            contexts.usable(each)
            if connect:
                replace(target, context=each).with_client(lambda client: client.flush())
            told[each] = ""
        except Failure as failure:
            told[each] = failure.lines[0]
    if target.as_json:
        print_json([{"name": each, "error": why or None} for each, why in told.items()])
    else:
        print_table("Contexts", ("Name", "State"), [(each, why or "good") for each, why in told.items()], "none")
    if any(told.values()):
        raise Failure("a context cannot be used: eyot context edit NAME changes it")


@context.command("rm")
@click.argument("name", shell_complete=_names)
@force
@click.pass_obj
def delete(target: Target, name: str, force: bool) -> None:
    """Delete the context NAME."""
    path = contexts.path_of(name)
    if not path.exists():
        raise Failure(f"no context {name}: eyot context ls lists those that there are")
    chosen = contexts.selected() == name
    if chosen and len(contexts.known()) > 1:
        raise Failure(f"context {name} is selected: eyot context select another one first")
    confirm(f"Delete the context {name}?", forced=force)
    remove(path)
    if chosen:
        remove(contexts.selected_path())
    tell(target, {"deleted": name}, f"context {name} is deleted")
