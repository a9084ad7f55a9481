"""`eyot stream add|edit|rm|purge|get|view|rmm|subjects`: changes of streams, and what they hold."""

from __future__ import annotations

from typing import Any

import click
from nats.aio.client import Client

from eyot_cli.answers import show_changes, tell
from eyot_cli.api import ask
from eyot_cli.confirm import confirm, force
from eyot_cli.names import stream_name
from eyot_cli.show import count, print_json, print_raw, print_table, raw_option
from eyot_cli.stored import get_stored, in_order, print_stored, stored_of
from eyot_cli.stream_options import changed_config, options_of_stream
from eyot_cli.target import Target

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
@click.pass_obj
def add(target: Target, /, name: str, **given: Any) -> None:
    """Make the stream NAME."""
    config = changed_config(STREAM_DEFAULTS, given) | {"name": name}
    if not any(config.get(each) for each in ("subjects", "mirror", "sources")):
        config["subjects"] = [name]
    found = target.with_client(lambda client: ask(target, client, f"STREAM.CREATE.{name}", config))
    tell(target, found, f"stream {name} is made")


@click.command("edit")
@click.argument("name", callback=stream_name)
@options_of_stream(new=False)
@click.option("--dry-run", is_flag=True, help="show what would change, with exit status 1 if anything")
@force
@click.pass_obj
def edit(target: Target, /, name: str, force: bool, dry_run: bool, **given: Any) -> None:
    """Change what is given of the stream NAME."""

    async def change(client: Client) -> dict[str, Any] | None:
        before = (await ask(target, client, f"STREAM.INFO.{name}", {}))["config"]
        after = changed_config(before, dict(given)) | {"name": name}
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
        confirm(f"delete the stream {name} with {count(held)} messages?", forced=force)
        return await ask(target, client, f"STREAM.DELETE.{name}", {})

    tell(target, target.with_client(delete), f"stream {name} is deleted")


@click.command("purge")
@click.argument("name", callback=stream_name)
@click.option("--subject", metavar="SUBJECT", help="only messages of this subject")
@click.option("--keep", type=click.IntRange(min=0), metavar="N", help="keep the newest N")
@click.option("--seq", type=click.IntRange(min=1), metavar="N", help="only messages before this sequence")
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
    tell(target, found, f"{count(found.get('purged'))} messages deleted")


@click.command("get")
@click.argument("name", callback=stream_name)
@click.argument("seq", type=click.IntRange(min=1), required=False)
@click.option("--last-for", "-S", metavar="SUBJECT", help="the last message of this subject")
@click.pass_obj
def get(target: Target, name: str, seq: int | None, last_for: str | None) -> None:
    """Print one message of the stream NAME.

    It is named by its sequence, or as the last of a subject.
    """
    if (seq is None) == (last_for is None):
        raise click.UsageError("one of SEQ and --last-for is needed")
    which: dict[str, Any] = {"seq": seq} if last_for is None else {"last_by_subj": last_for}
    print_stored(target, name, target.with_client(lambda client: get_stored(target, client, name, which)))


@click.command("view")
@click.argument("name", callback=stream_name)
@click.argument("size", type=click.IntRange(min=1), required=False)
@click.option("--subject", default=">", metavar="SUBJECT", help="only messages of this subject")
@click.option("--from", "--id", "start_seq", type=click.IntRange(min=1), metavar="SEQ", help="the first sequence")
@click.option("--count", "-n", "most", type=click.IntRange(min=1), default=20, help="end after so many")
@raw_option
@click.pass_obj
def view(
    target: Target, name: str, size: int | None, subject: str, start_seq: int | None, most: int, raw: bool
) -> None:
    """Print messages of the stream NAME in order.

    So many as SIZE or --count says.
    """

    async def show(client: Client) -> None:
        async for message in in_order(target, client, name, subject, start_seq=start_seq, most=size or most):
            if raw:
                print_raw(message.data)
            else:
                print_stored(target, name, stored_of(message))

    target.with_client(show)


@click.command("rmm")
@click.argument("name", callback=stream_name)
@click.argument("seq", type=click.IntRange(min=1))
@click.option("--erase/--no-erase", default=True, help="overwrite the payload, too")
@force
@click.pass_obj
def remove_message(target: Target, name: str, seq: int, erase: bool, force: bool) -> None:
    """Delete the message SEQ of the stream NAME."""
    confirm(f"delete message {seq} of the stream {name}?", forced=force)
    body = {"seq": seq, "no_erase": not erase}
    found = target.with_client(lambda client: ask(target, client, f"STREAM.MSG.DELETE.{name}", body))
    tell(target, found, f"message {seq} is deleted")


@click.command("subjects")
@click.argument("name", callback=stream_name)
@click.argument("subject", default=">")
@click.pass_obj
def subjects(target: Target, name: str, subject: str) -> None:
    """List the subjects of NAME, and how many messages each has."""

    async def every(client: Client) -> dict[str, int]:
        found: dict[str, int] = {}
        while True:
            body = {"subjects_filter": subject, "offset": len(found)}
            page = await ask(target, client, f"STREAM.INFO.{name}", body)
            more = page["state"].get("subjects") or {}
            if not more:
                return found
            found |= more
            if len(found) >= (page.get("total") or 0):
                return found

    found = target.with_client(every)
    if target.as_json:
        print_json(found)
        return
    print_table("", ("Subject", ">Messages"), [(each, count(found[each])) for each in sorted(found)], "no message")


STREAM_CHANGES = (add, edit, remove, purge, get, view, remove_message, subjects)
