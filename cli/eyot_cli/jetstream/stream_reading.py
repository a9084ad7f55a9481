"""`eyot stream get|view|subjects|gaps`: what streams hold."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import click
from nats.aio.client import Client

from eyot_cli.connection.target import Target
from eyot_cli.jetstream.api import ask
from eyot_cli.jetstream.stored import Stored, get_stored, in_order, print_stored, stored_of
from eyot_cli.jetstream.subject_counts import count_by_subject
from eyot_cli.terminal.show import count, names_option, print_json, print_names, print_raw, print_table, raw_option
from eyot_cli.terminal.translating import Translation, translate_option
from eyot_cli.values.ages import age_ns
from eyot_cli.values.moments import ago
from eyot_cli.values.names import stream_name
from eyot_cli.values.numbers import at_least


@click.command("get")
@click.argument("name", callback=stream_name)
@click.argument("seq", type=at_least(1), required=False)
@click.option("--last-for", "-S", metavar="SUBJECT", help="the last message of this subject")
@translate_option
@click.pass_obj
def get(target: Target, name: str, seq: int | None, last_for: str | None, translate: Translation | None) -> None:
    """Print one message of the stream NAME.

    It is named by its sequence, or as the last of a subject.
    """
    if (seq is None) == (last_for is None):
        raise click.UsageError("one of SEQ and --last-for is needed")
    which: dict[str, Any] = {"seq": seq} if last_for is None else {"last_by_subj": last_for}

    async def read(client: Client) -> Stored:
        return await _translated(translate, name, await get_stored(target, client, name, which))

    print_stored(target, name, target.with_client(read))


async def _translated(translate: Translation | None, stream: str, message: Stored) -> Stored:
    if translate is None:
        return message
    return message._replace(data=await translate.of(message.data, subject=message.subject, stream=stream))


@click.command("view")
@click.argument("name", callback=stream_name)
@click.argument("size", type=at_least(1), required=False)
@click.option("--subject", default=">", metavar="SUBJECT", help="only messages of this subject")
@click.option("--from", "--id", "start_seq", type=at_least(1), metavar="SEQ", help="the first sequence")
@click.option("--since", callback=age_ns, metavar="TIME", help="what was stored since a time ago: 1h")
@click.option("--count", "-n", "most", type=at_least(1), default=20, help="end after so many")
@raw_option
@translate_option
@click.pass_obj
def view(
    target: Target,
    name: str,
    size: int | None,
    subject: str,
    start_seq: int | None,
    since: int | None,
    most: int,
    raw: bool,
    translate: Translation | None,
) -> None:
    """Print messages of the stream NAME in order.

    So many as SIZE or --count says.
    """
    if start_seq is not None and since is not None:
        raise click.UsageError("--id and --since exclude each other")
    begin = None if since is None else ago(since)

    async def show(client: Client) -> None:
        read = in_order(target, client, name, subject, start_seq=start_seq, start_time=begin, most=size or most)
        async with aclosing(read) as messages:
            async for message in messages:
                found = await _translated(translate, name, stored_of(message))
                if raw:
                    print_raw(found.data)
                else:
                    print_stored(target, name, found)

    target.with_client(show)


@click.command("subjects")
@click.argument("name", callback=stream_name)
@click.argument("subject", default=">")
@click.option(
    "--sort", type=click.Choice(["name", "subjects", "messages", "count"]), default="name", help="in this order"
)
@click.option("--reverse", "-R", is_flag=True, help="the other way round")
@names_option
@click.pass_obj
def subjects(target: Target, name: str, subject: str, sort: str, reverse: bool, names: bool) -> None:
    """List the subjects of NAME, and how many messages each has."""
    found = target.with_client(lambda client: count_by_subject(target, client, name, subject))
    by_name = sort in ("name", "subjects")
    order = sorted(found, key=lambda each: each if by_name else (found[each], each), reverse=reverse)
    if names:
        print_names(order, as_json=target.as_json)
    elif target.as_json:
        print_json({each: found[each] for each in order})
    else:
        print_table("", ("Subject", ">Messages"), [(each, count(found[each])) for each in order], "no message")


@click.command("gaps")
@click.argument("name", callback=stream_name)
@click.option("--force", "-f", is_flag=True, expose_value=False, help="as in the nats tool; eyot does not ask")
@click.pass_obj
def gaps(target: Target, name: str) -> None:
    """Show which sequences between first and last NAME lacks.

    Reads all headers of the stream, unless nothing is deleted in it.
    """

    async def find(client: Client) -> list[tuple[int, int]]:
        state = (await ask(target, client, f"STREAM.INFO.{name}", {}))["state"]
        found: list[tuple[int, int]] = []
        if not state.get("num_deleted"):
            return found
        expected = state["first_seq"]
        async with aclosing(in_order(target, client, name, ">", headers_only=True)) as messages:
            async for message in messages:
                seq = message.metadata.sequence.stream
                if seq > expected:
                    found.append((expected, seq - 1))
                expected = seq + 1
        if expected <= state["last_seq"]:
            found.append((expected, state["last_seq"]))
        return found

    found = target.with_client(find)
    if target.as_json:
        print_json(found)
        return
    rows = [(count(first), count(last), count(last - first + 1)) for first, last in found]
    print_table(f"Gaps of {name}", (">First", ">Last", ">Messages"), rows, "none")


STREAM_READING = (get, view, subjects, gaps)
