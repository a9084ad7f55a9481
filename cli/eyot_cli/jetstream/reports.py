"""`eyot stream report` and `eyot consumer report`, as in the `nats` tool; `eyot report` has both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from eyot_cli.connection.target import Target
from eyot_cli.connection.watch import watch_option, watched
from eyot_cli.jetstream.consumer_info import consumer_of, every_consumer
from eyot_cli.jetstream.stream_info import every_stream, info_of
from eyot_cli.terminal.show import all_option, console, count, plain_option, print_json, print_table, size, span
from eyot_cli.values.names import stream_name
from eyot_wire.jetstream.stream import StreamInfo


@click.group()
def report() -> None:
    """Compare streams of an account, or consumers of a stream."""


#: Orders of streams; the first that an option names counts.
_ORDERS: dict[str, Callable[[StreamInfo], Any]] = {
    "consumers": lambda each: -each.state.consumer_count,
    "messages": lambda each: -each.state.messages,
    "name": lambda each: each.config.name,
    "storage": lambda each: each.config.storage,
}


@click.command("report")
@click.option("--subject", metavar="SUBJECT", help="only streams that store messages of it")
@click.option("--consumers", "-o", is_flag=True, help="those with the most consumers first")
@click.option("--messages", "-m", is_flag=True, help="those with the most messages first")
@click.option("--name", "-n", is_flag=True, help="by name")
@click.option("--storage", "-t", is_flag=True, help="by storage")
@all_option
@plain_option
@watch_option
@click.pass_obj
def stream_report(target: Target, /, subject: str | None, plain: bool, watch_s: float | None, **orders: bool) -> None:
    """Compare the streams of the account, the largest first."""
    order = next((key for name, key in _ORDERS.items() if orders[name]), lambda each: -each.state.bytes)
    watched(
        target,
        watch_s,
        lambda: target.with_client(lambda client: every_stream(target, client, subject=subject)),
        lambda found: _streams(target, found, order, plain=plain),
    )


def _streams(target: Target, found: list[dict[str, Any]], order: Callable[[StreamInfo], Any], *, plain: bool) -> None:
    number, length = (str, str) if plain else (count, size)
    infos = sorted(map(info_of, found), key=lambda each: (order(each), each.config.name))
    if target.as_json:
        print_json(
            [{"stream": each.config.name, "storage": each.config.storage, "state": each.state} for each in infos]
        )
        return
    columns = ("Stream", "Storage", ">Consumers", ">Messages", ">Bytes", ">Deleted", ">Subjects", "Last message")
    rows = [
        (each.config.name, each.config.storage, number(each.state.consumer_count), number(each.state.messages),
         length(each.state.bytes), number(each.state.num_deleted), number(each.state.num_subjects),
         each.state.last_ts if each.state.messages else "none")
        for each in infos
    ]  # fmt: skip
    print_table("Streams", columns, rows, "none in this account")
    messages, held = sum(each.state.messages for each in infos), sum(each.state.bytes for each in infos)
    console.print(f"streams: {number(len(infos))}, messages: {number(messages)}, bytes: {length(held)}")


@click.command("report")
@click.argument("stream", callback=stream_name)
@plain_option
@watch_option
@click.pass_obj
def consumer_report(target: Target, stream: str, plain: bool, watch_s: float | None) -> None:
    """Compare the consumers of STREAM, the furthest behind first."""
    watched(
        target,
        watch_s,
        lambda: target.with_client(lambda client: every_consumer(target, client, stream)),
        lambda found: _consumers(target, stream, found, plain=plain),
    )


def _consumers(target: Target, stream: str, found: list[dict[str, Any]], *, plain: bool) -> None:
    number = str if plain else count
    infos = sorted(map(consumer_of, found), key=lambda each: (-each.num_pending, each.name))
    if target.as_json:
        members = ("name", "num_pending", "num_ack_pending", "num_redelivered", "num_waiting", "ack_floor")
        print_json([{member: getattr(each, member) for member in members} for each in infos])
        return
    columns = ("Consumer", "Kind", "Acks", ">Ack wait", ">Unprocessed", ">Ack pending", ">Redelivered", ">Acked up to")
    rows = []
    for each in infos:
        config = each.config
        assert config is not None, "checked"
        rows.append(
            (each.name, "push" if config.deliver_subject else "pull", config.ack_policy, span(config.ack_wait / 1e9),
             number(each.num_pending), number(each.num_ack_pending), number(each.num_redelivered),
             number(each.ack_floor.stream_seq))
        )  # fmt: skip
    print_table(f"Consumers of {stream} by backlog", columns, rows, "none")


report.add_command(stream_report, "streams")
report.add_command(consumer_report, "consumers")
