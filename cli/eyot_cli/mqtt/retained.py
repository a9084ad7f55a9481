"""`eyot mqtt retained`: the retained messages of an account, and their deletion."""

from __future__ import annotations

import click
from nats.aio.client import Client

from eyot_cli.connection.target import Target
from eyot_cli.mqtt.sessions import asked_part
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.show import console, count, print_json, print_table, size, span
from eyot_cli.values.numbers import at_least
from eyot_wire.jetstream.mqtt_sessions import (
    RETAINED_DELETE,
    RETAINED_LIST,
    RetainedDeletedPart,
    RetainedListPart,
    RetainedMessage,
    RetainedRequest,
)


@click.group(invoke_without_command=True)
@click.option("--topic", "-t", "topic_filter", default="#", metavar="FILTER", help="only the topics of this filter")
@click.option("--limit", type=at_least(1), default=1000, metavar="NUMBER", help="at most so many")
@click.pass_context
def retained(context: click.Context, topic_filter: str, limit: int) -> None:
    """List the retained messages of the account, oldest first."""
    if context.invoked_subcommand is not None:
        return
    target: Target = context.obj
    found, part = target.with_client(lambda client: _listed(target, client, topic_filter, limit))
    if target.as_json:
        print_json({"msgs": part.msgs, "bytes": part.bytes, "retained": found})
        return
    rows = [
        (each.topic, str(each.qos), size(each.size), span(each.age_s), span(each.expires_in_s, ""), each.publisher)
        for each in found
    ]
    columns = ("Topic", ">QoS", ">Size", ">Age", ">Expires in", "From")
    print_table("Retained messages", columns, rows, "none")
    console.print(f"{count(part.msgs)} in the account, {size(part.bytes)}")
    if part.next_seq:
        console.print(f"There may be more than these {count(len(found))}: --limit, or a narrower -t")


async def _listed(
    target: Target, client: Client, topic_filter: str, limit: int
) -> tuple[list[RetainedMessage], RetainedListPart]:
    found: list[RetainedMessage] = []
    seq = 0
    while True:
        asked = RetainedRequest(filter=topic_filter, seq=seq)
        part = await asked_part(target, client, RETAINED_LIST, asked, RetainedListPart)
        found += part.retained
        seq = part.next_seq
        if not seq or len(found) >= limit:
            if len(found) > limit:
                part.next_seq = part.next_seq or 1
            return found[:limit], part


@retained.command("clear")
@click.argument("topic_filter", metavar="FILTER")
@click.option("--yes", is_flag=True, help="do not ask before more than one topic is cleared")
@click.pass_obj
def clear(target: Target, topic_filter: str, yes: bool) -> None:
    """Delete the retained messages of FILTER.

    Subscribers are not told. An empty retained message tells them: `eyot mqtt pub -r -n -t TOPIC`.
    """
    if ("#" in topic_filter or "+" in topic_filter) and not yes:
        click.confirm(f"Delete all retained messages of {topic_filter}?", abort=True, err=True)

    async def every(client: Client) -> int:
        deleted, seq = 0, 0
        while True:
            asked = RetainedRequest(filter=topic_filter, seq=seq)
            part = await asked_part(target, client, RETAINED_DELETE, asked, RetainedDeletedPart)
            deleted, seq = deleted + part.deleted, part.next_seq
            if not seq:
                return deleted

    deleted = target.with_client(every)
    if not deleted:
        raise Failure(f"no retained message of {topic_filter}: `eyot mqtt retained` lists them")
    if target.as_json:
        print_json({"deleted": deleted})
    else:
        console.print(f"Deleted: {count(deleted)} retained")
