"""`eyot status`: links, streams, backlog, and the store's last commit."""

from __future__ import annotations

import click
import msgspec

from eyot_cli.connection.target import Target
from eyot_cli.connection.watch import watch_option, watched
from eyot_cli.device.trouble import trouble
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.show import console, count, print_json, print_table, size, span
from eyot_wire.quantities import counted
from eyot_wire.status import FlashStatus, LinkStatus, SourcingStatus, StatusReport, StoreStatus, StreamStatus


@click.command()
@watch_option
@click.pass_obj
def status(target: Target, watch_s: float | None) -> None:
    """Show links, streams, backlog and commits."""
    if target.group:
        from eyot_cli.device import group_reports

        group_reports.status(target)
    watched(target, watch_s, lambda: _report(target), lambda report: _show(target, report))


def _report(target: Target) -> StatusReport:
    body = target.get("/eyot/status")
    try:
        return msgspec.json.decode(body, type=StatusReport)
    except msgspec.MsgspecError as error:
        raise Failure(f"{target.control} does not answer as an Eyot daemon: {error}") from error


def _show(target: Target, report: StatusReport) -> None:
    if target.as_json:
        print_json(report)
        return
    domain = f", domain {report.domain}" if report.domain else ""
    console.print((report.server_name, "bold"), f"{domain}, Eyot {report.version}, up {span(report.uptime_s)}")
    _links(report.links)
    _streams(report.streams)
    _print_sourcing(report.copies)
    if report.store is not None:
        _store(report.store)
    if report.flash is not None:
        _flash(report.flash)


def _peer(link: LinkStatus) -> str:
    """Return the peer's name. A remote's name is its first configured address, which may not be the connected one."""
    elsewhere = link.state == "up" and link.role == "spoke" and link.url.rpartition("//")[2] not in link.name
    return f"{link.name} through {link.url}" if elsewhere else link.name or link.url


def _links(links: list[LinkStatus]) -> None:
    columns = ("Peer", "Account", "Role", "State", ">For", ">RTT", ">Msgs in/out", "Last error")
    rows = []
    for link in links:
        rtt = "" if link.rtt_ms is None else f"{link.rtt_ms:.1f} ms"
        error = trouble(link.waiting, link.last_error, link.remedy)
        if link.next_attempt_in_s is not None and not link.waiting:
            error += f" (next attempt in {span(link.next_attempt_in_s)})"
        colour = "green" if link.state == "up" else "red"
        rows.append(
            (_peer(link), link.account, link.role, (link.state, colour), span(link.age_s), rtt,
             f"{count(link.in_msgs)} / {count(link.out_msgs)}", error)
        )  # fmt: skip
    print_table("Links", columns, rows, "none")


def _streams(streams: list[StreamStatus]) -> None:
    columns = ("Account", "Stream", "Storage", ">Messages", ">Bytes", ">First", ">Last", ">On flash", ">Consumers")
    rows = [
        (each.account, each.name, each.storage, count(each.messages), size(each.bytes), count(each.first_seq),
         count(each.last_seq), count(each.committed_seq), count(each.consumers))
        for each in streams
    ]  # fmt: skip
    print_table("Streams", columns, rows, "none")


def _print_sourcing(copies: list[SourcingStatus]) -> None:
    columns = (
        "Account",
        "Stream",
        "Kind",
        "Origin",
        "API prefix",
        "State",
        ">Backlog",
        ">Committed",
        ">Heard",
        "Error",
    )
    rows = [
        (each.account, each.stream, each.kind, each.origin, each.api_prefix, each.phase, count(each.backlog),
         count(each.committed_seq), span(each.heard_s_ago), trouble(each.waiting, each.error, each.remedy))
        for each in copies
    ]  # fmt: skip
    print_table("Mirrors and sources", columns, rows, "none")


def _store(store: StoreStatus) -> None:
    flush = "" if store.flush_ms is None else f", flush {store.flush_ms:.2f} ms"
    console.print(
        ("Store", "bold"),
        f" {store.path}: last commit {store.last_commit or 'none since the start'}, {count(store.commits)} commits{flush}, "
        f"{size(store.backlog_bytes)} waiting",
        *((", ", (store.error, "red")) if store.error else ()),
    )
    for line in store.offline:
        console.print("  ", (f"damaged, and offline: {line}", "red"))
    for line in store.damaged:
        console.print("  ", (f"was damaged: {line}", "yellow"))


def _flash(flash: FlashStatus) -> None:
    told = [] if flash.written_bytes is None else [f"{size(flash.written_bytes)} written since the start"]
    if flash.written_per_day is not None:
        told.append(f"{size(flash.written_per_day)} per day")
    if flash.device_written_per_day is not None:
        told.append(f"{size(flash.device_written_per_day)} per day by all programs")
    if flash.budget_bytes is not None:
        paced = f", commits wait up to {flash.window_s:.2f} s" if flash.window_s else ""
        told.append(f"budget {size(flash.budget_bytes)} per day{paced}")
    if flash.used_percent is not None:
        told.append("life exceeded" if flash.used_percent > 100 else f"up to {flash.used_percent} % of its life used")
    if flash.reserve is not None:
        told.append(f"reserve: {flash.reserve}")
    if flash.lifetime_days is not None:
        basis = " (endurance assumed)" if flash.endurance_assumed else ""
        told.append(f"lasts about {counted(flash.lifetime_days, 'day')}{basis}")
    if told:
        console.print(("Flash", "bold"), f" {flash.device or 'of the store'}: {', '.join(told)}")
