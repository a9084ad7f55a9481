"""`eyot stream add|edit|copy|rm|purge|rmm|seal`: changes of streams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from nats.aio.client import Client

from eyot_cli.connection.answers import show_changes, tell
from eyot_cli.connection.target import Target
from eyot_cli.jetstream.api import ask
from eyot_cli.jetstream.config_files import edited, instead_options, interactive_option, went_elsewhere
from eyot_cli.jetstream.stream_options import changed_config, options_of_stream, unreserved
from eyot_cli.terminal.confirm import confirm, force
from eyot_cli.values.names import stream_name
from eyot_cli.values.numbers import at_least
from eyot_wire.quantities import counted

STREAM_DEFAULTS: dict[str, Any] = {
    "retention": "limits",
    "storage": "file",
    "discard": "old",
    "max_msgs": -1,
    "max_bytes": -1,
    "max_msgs_per_subject": -1,
    "max_consumers": -1,
    "max_msg_size": -1,
    "num_replicas": 1,
    "allow_direct": True,
}


@click.command("add")
@click.argument("name", callback=stream_name)
@options_of_stream(new=True)
@instead_options
@click.pass_obj
def add(target: Target, /, name: str, validate: bool, output: Path | None, **given: Any) -> None:
    """Make the stream NAME."""
    config = changed_config(STREAM_DEFAULTS, given) | {"name": name}
    if not any(config.get(each) for each in ("subjects", "mirror", "sources")):
        config["subjects"] = [name]
    if went_elsewhere(target, config, "stream", validate=validate, output=output):
        return
    found = target.with_client(lambda client: ask(target, client, f"STREAM.CREATE.{name}", config))
    tell(target, found, f"stream {name} is made")


@click.command("edit")
@click.argument("name", callback=stream_name)
@options_of_stream(new=False)
@click.option("--dry-run", is_flag=True, help="show what would change, with exit status 1 if anything")
@interactive_option
@force
@click.pass_obj
def edit(target: Target, /, name: str, force: bool, dry_run: bool, interactive: bool, **given: Any) -> None:
    """Change what is given of the stream NAME.

    With --config the file is the whole configuration, and the other options change it.
    """

    async def change(client: Client) -> dict[str, Any] | None:
        before = (await ask(target, client, f"STREAM.INFO.{name}", {}))["config"]
        after = changed_config(before, dict(given), replace=True) | {"name": name}
        if interactive:
            after = edited(after, "stream") | {"name": name}
        if not show_changes(target, before, after, dry_run=dry_run):
            return None
        confirm(f"change the stream {name}?", forced=force)
        return await ask(target, client, f"STREAM.UPDATE.{name}", after)

    found = target.with_client(change)
    tell(target, found or {}, f"stream {name} is {'changed' if found else 'so already'}")


@click.command("rm")
@click.argument("name", callback=stream_name)
@force
@click.pass_obj
def remove(target: Target, name: str, force: bool) -> None:
    """Delete the stream NAME with all it holds."""

    async def delete(client: Client) -> dict[str, Any]:
        held = (await ask(target, client, f"STREAM.INFO.{name}", {}))["state"]["messages"]
        confirm(f"delete the stream {name} with {counted(held, 'message')}?", forced=force)
        return await ask(target, client, f"STREAM.DELETE.{name}", {})

    tell(target, target.with_client(delete), f"stream {name} is deleted")


@click.command("purge")
@click.argument("name", callback=stream_name)
@click.option("--subject", metavar="SUBJECT", help="only messages of this subject")
@click.option("--keep", type=at_least(0), metavar="N", help="keep the newest N")
@click.option("--seq", type=at_least(1), metavar="N", help="only messages before this sequence")
@force
@click.pass_obj
def purge(target: Target, name: str, subject: str | None, keep: int | None, seq: int | None, force: bool) -> None:
    """Delete messages of the stream NAME."""
    if keep is not None and seq is not None:
        raise click.UsageError("--keep and --seq exclude each other")
    body = {"filter": subject, "keep": keep, "seq": seq}
    confirm(f"delete messages of the stream {name}?", forced=force)
    asked = {each: value for each, value in body.items() if value is not None}
    found = target.with_client(lambda client: ask(target, client, f"STREAM.PURGE.{name}", asked))
    tell(target, found, f"{counted(found.get('purged'), 'message')} deleted")


@click.command("rmm")
@click.argument("name", callback=stream_name)
@click.argument("seq", type=at_least(1))
@click.option("--erase/--no-erase", default=True, help="overwrite the payload, too")
@force
@click.pass_obj
def remove_message(target: Target, name: str, seq: int, erase: bool, force: bool) -> None:
    """Delete the message SEQ of the stream NAME."""
    confirm(f"delete message {seq} of the stream {name}?", forced=force)
    body = {"seq": seq, "no_erase": not erase}
    found = target.with_client(lambda client: ask(target, client, f"STREAM.MSG.DELETE.{name}", body))
    tell(target, found, f"message {seq} is deleted")


@click.command("copy")
@click.argument("source", callback=stream_name)
@click.argument("name", callback=stream_name)
@options_of_stream(new=True)
@click.pass_obj
def copy(target: Target, /, source: str, name: str, **given: Any) -> None:
    """Make the stream NAME with the configuration of SOURCE.

    Options change what is given. Messages and consumers are not copied. Without --subjects it has those of SOURCE, which
    two streams cannot store at the same time.
    """

    async def make(client: Client) -> dict[str, Any]:
        before = (await ask(target, client, f"STREAM.INFO.{source}", {}))["config"]
        config = changed_config(unreserved(before), dict(given)) | {"name": name, "sealed": False}
        return await ask(target, client, f"STREAM.CREATE.{name}", config)

    tell(target, target.with_client(make), f"stream {name} is made")


@click.command("seal")
@click.argument("name", callback=stream_name)
@force
@click.pass_obj
def seal(target: Target, name: str, force: bool) -> None:
    """Let nobody change the stream NAME any more.

    This cannot be taken back. Readers go on.
    """
    confirm(f"seal the stream {name} for ever?", forced=force)

    async def close(client: Client) -> dict[str, Any]:
        config = (await ask(target, client, f"STREAM.INFO.{name}", {}))["config"]
        return await ask(target, client, f"STREAM.UPDATE.{name}", config | {"sealed": True})

    tell(target, target.with_client(close), f"stream {name} is sealed")


STREAM_CHANGES = (add, edit, copy, remove, purge, remove_message, seal)
