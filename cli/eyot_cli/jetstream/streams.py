"""`eyot stream`: the streams of an account, and the details of one."""

from __future__ import annotations

from typing import Any

import click

from eyot_cli.connection.target import Target
from eyot_cli.connection.watch import watch_option, watched
from eyot_cli.jetstream.api import ask
from eyot_cli.jetstream.reports import stream_report
from eyot_cli.jetstream.stream_changes import STREAM_CHANGES
from eyot_cli.jetstream.stream_find import stream_find
from eyot_cli.jetstream.stream_info import every_stream, info_of
from eyot_cli.jetstream.stream_reading import STREAM_READING
from eyot_cli.terminal.lazy import AliasGroup
from eyot_cli.terminal.show import (
    all_option,
    console,
    count,
    names_option,
    no_select_option,
    print_json,
    print_names,
    print_table,
    size,
    span,
)
from eyot_cli.values.names import stream_name
from eyot_wire.jetstream.stream import StreamInfo, StreamSourceInfo


@click.group(cls=AliasGroup)
def stream() -> None:
    """List, make, change, read and delete streams."""


@stream.command("ls")
@click.option("--subject", metavar="SUBJECT", help="only streams that store messages of it")
@all_option
@names_option
@watch_option
@click.pass_obj
def listing(target: Target, subject: str | None, names: bool, watch_s: float | None) -> None:
    """List all streams."""
    watched(
        target,
        watch_s,
        lambda: target.with_client(lambda client: every_stream(target, client, subject=subject)),
        lambda found: _list(target, found, names),
    )


def _list(target: Target, found: list[dict[str, Any]], names: bool) -> None:
    if names:
        print_names([each["config"]["name"] for each in found], as_json=target.as_json)
        return
    if target.as_json:
        print_json(found)
        return
    infos = [info_of(each) for each in found]
    columns = ("Stream", "Subjects", "Storage", ">Consumers", ">Messages", ">Bytes", ">First", ">Last")
    rows = [
        (each.config.name, ", ".join(each.config.subjects), each.config.storage, count(each.state.consumer_count),
         count(each.state.messages), size(each.state.bytes), count(each.state.first_seq), count(each.state.last_seq))
        for each in infos
    ]  # fmt: skip
    print_table("Streams", columns, rows, "none in this account")
    _print_sourcing([(each.config.name, kind, origin) for each in infos for kind, origin in _origins(each)])


@stream.command("info")
@click.argument("name", callback=stream_name)
@click.option("--state", "only_state", is_flag=True, help="what it holds alone")
@no_select_option
@click.pass_obj
def details(target: Target, name: str, only_state: bool) -> None:
    """Show configuration and state of one stream."""
    if only_state:
        _show_state(target, name)
        return
    found = target.with_client(lambda client: ask(target, client, f"STREAM.INFO.{name}", {}))
    if target.as_json:
        print_json(found)
        return
    info = info_of(found)
    config = info.config
    console.print(
        (config.name, "bold"), f" created {info.created}" + (f", domain {info.domain}" if info.domain else "")
    )
    pairs = [
        ("Subjects", ", ".join(config.subjects)), ("Retention", f"{config.retention}, discard {config.discard}"),
        ("Storage", config.storage), ("Maximum messages", _limit(config.max_msgs)),
        ("Maximum bytes", "unlimited" if config.max_bytes < 0 else size(config.max_bytes)),
        ("Maximum age", span(config.max_age / 1e9) if config.max_age else "unlimited"),
        ("Duplicate window", span(config.duplicate_window / 1e9 or None, "none")),
    ]  # fmt: skip
    print_table("", ("", ""), [*pairs, *_state_of(info)], "")
    _print_sourcing([(config.name, kind, origin) for kind, origin in _origins(info)])


@stream.command("state")
@click.argument("name", callback=stream_name)
@no_select_option
@click.pass_obj
def state(target: Target, name: str) -> None:
    """Show what one stream holds."""
    _show_state(target, name)


def _show_state(target: Target, name: str) -> None:
    found = target.with_client(lambda client: ask(target, client, f"STREAM.INFO.{name}", {}))
    if target.as_json:
        print_json(found["state"])
    else:
        print_table(f"State of {name}", ("", ""), _state_of(info_of(found)), "")


def _state_of(info: StreamInfo) -> list[tuple[str, str]]:
    held = info.state
    return [
        ("Messages", count(held.messages)), ("Bytes", size(held.bytes)), ("First", f"{count(held.first_seq)} at {held.first_ts}"),
        ("Last", f"{count(held.last_seq)} at {held.last_ts}"), ("Subjects held", count(held.num_subjects)),
        ("Deleted", count(held.num_deleted)), ("Consumers", count(held.consumer_count)),
    ]  # fmt: skip


def _origins(info: StreamInfo) -> list[tuple[str, StreamSourceInfo]]:
    found = [("Mirror", info.mirror)] if info.mirror is not None else []
    return found + [("Source", each) for each in info.sources]


def _print_sourcing(copies: list[tuple[str, str, StreamSourceInfo]]) -> None:
    if not copies:
        return
    columns = ("Stream", "Kind", "API Prefix", "Source Stream", ">Active", ">Lag", "Error")
    rows = [
        (name, kind, each.external.api if each.external else "", each.name,
         span(None if each.active < 0 else each.active / 1e9), count(each.lag), each.error.description if each.error else "")
        for name, kind, each in copies
    ]  # fmt: skip
    print_table("Replication", columns, rows, "none")


def _limit(value: int) -> str:
    return "unlimited" if value < 0 else count(value)


for command in (stream_find, stream_report, *STREAM_CHANGES, *STREAM_READING):
    stream.add_command(command)
