"""`eyot stream report` and `eyot consumer report`, as in the `nats` tool; `eyot report` has both."""

from __future__ import annotations

from typing import Any

import click

from eyot_cli.consumer_info import consumer_of, every_consumer
from eyot_cli.names import stream_name
from eyot_cli.show import console, count, print_json, print_table, size, span
from eyot_cli.stream_info import every_stream, info_of
from eyot_cli.target import Target
from eyot_cli.watch import watch_option, watched


@click.group()
def report() -> None:
    """Compare streams of an account, or consumers of a stream."""


@click.command("report")
@watch_option
@click.pass_obj
def stream_report(target: Target, watch_s: float | None) -> None:
    """Compare the streams of the account, the largest first."""
    watched(
        target,
        watch_s,
        lambda: target.with_client(lambda client: every_stream(target, client)),
        lambda found: _streams(target, found),
    )


def _streams(target: Target, found: list[dict[str, Any]]) -> None:
    infos = sorted(map(info_of, found), key=lambda each: (-each.state.bytes, each.config.name))
    if target.as_json:
        print_json(
            [{"stream": each.config.name, "storage": each.config.storage, "state": each.state} for each in infos]
        )
        return
    columns = ("Stream", "Storage", ">Consumers", ">Messages", ">Bytes", ">Deleted", ">Subjects", "Last message")
    rows = [
        (each.config.name, each.config.storage, count(each.state.consumer_count), count(each.state.messages),
         size(each.state.bytes), count(each.state.num_deleted), count(each.state.num_subjects),
         each.state.last_ts if each.state.messages else "none")
        for each in infos
    ]  # fmt: skip
    print_table("Streams by size", columns, rows, "none in this account")
    messages, held = sum(each.state.messages for each in infos), sum(each.state.bytes for each in infos)
    console.print(f"{count(len(infos))} streams, {count(messages)} messages, {size(held)}")


@click.command("report")
@click.argument("stream", callback=stream_name)
@watch_option
@click.pass_obj
def consumer_report(target: Target, stream: str, watch_s: float | None) -> None:
    """Compare the consumers of STREAM, the furthest behind first."""
    watched(
        target,
        watch_s,
        lambda: target.with_client(lambda client: every_consumer(target, client, stream)),
        lambda found: _consumers(target, stream, found),
    )


def _consumers(target: Target, stream: str, found: list[dict[str, Any]]) -> None:
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
             count(each.num_pending), count(each.num_ack_pending), count(each.num_redelivered),
             count(each.ack_floor.stream_seq))
        )  # fmt: skip
    print_table(f"Consumers of {stream} by backlog", columns, rows, "none")


report.add_command(stream_report, "streams")
report.add_command(consumer_report, "consumers")
