"""`eyot sync`: what downstreams have confirmed of this server's streams; `eyot sync wait` for scripts."""

from __future__ import annotations

import time

import click
import msgspec

from eyot_cli.connection.target import Target
from eyot_cli.connection.watch import watch_option, watched
from eyot_cli.device.trouble import trouble
from eyot_cli.jetstream.api import ask
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.show import console, count, print_json, print_table, size, span
from eyot_cli.values.seconds import seconds
from eyot_wire.jetstream.forget_downstream import WORDS, ForgetRequest
from eyot_wire.quantities import counted
from eyot_wire.status import LinkStatus, PeerTotals, SourcingStatus, SyncReport, SyncStatus

_POLL_S = 0.25
#: Exit status: every message that can still arrive has arrived, and some never will.
INCOMPLETE = 3
_LINKED = {True: ("up", "green"), False: ("down", "red")}


@click.group(invoke_without_command=True)
@watch_option
@click.pass_context
def sync(context: click.Context, watch_s: float | None) -> None:
    """Show what has reached the hub."""
    if context.invoked_subcommand is not None:
        if watch_s is not None:
            raise click.UsageError(f"--watch is for eyot sync alone, not for {context.invoked_subcommand}")
        return
    target: Target = context.obj
    if target.group:
        from eyot_cli.device import group_reports

        group_reports.sync(target)
    watched(target, watch_s, lambda: _report(target), print_json if target.as_json else _show)


@sync.command()
@click.option(
    "--timeout",
    "timeout_s",
    callback=seconds,
    default="60s",
    metavar="TIME",
    help="how long to wait at most: 60, 90s, 10m",
)
@click.option(
    "--stream", "streams", multiple=True, metavar="NAME", help="only this stream (may be given several times)"
)
@click.pass_obj
def wait(target: Target, timeout_s: float, streams: tuple[str, ...]) -> None:
    """Wait until everything is confirmed.

    Exit status 1 on timeout, and when no mirror or source elsewhere replicates from here; 3 when everything that is
    left is confirmed, but some messages never arrived.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        report = _report(target)
        out = [each for each in report.out if not streams or each.stream in streams]
        missing = sorted(set(streams) - {each.stream for each in out})
        behind = [each for each in out if not each.is_synced]
        if out and not missing and not behind:
            _is_synced(target, report, out)
            return
        if time.monotonic() >= deadline:
            raise Failure(*_why(report, out, missing, behind, timeout_s))
        time.sleep(_POLL_S)


@sync.command()
@click.argument("stream")
@click.argument("server")
@click.option("--copy", "target_stream", default="", metavar="NAME", help="only the downstream stream with this name")
@click.option("--lost", is_flag=True, help="keep it, and clear its counts of lost and unmatched messages")
@click.pass_obj
def forget(target: Target, stream: str, server: str, target_stream: str, lost: bool) -> None:
    """Forget a mirror or source that will not return.

    It copies STREAM to SERVER, a name or domain. Until then it shows as behind, and work-queue and interest streams keep their messages for it. One that returns
    anyway resumes at its position, with the messages that still exist.
    """
    asked = ForgetRequest(server=server, target=target_stream, lost=lost)
    answer = target.with_client(lambda client: ask(target, client, f"{WORDS}.{stream}", asked))
    if target.as_json:
        print_json(answer)
    forgotten, reading = answer.get("forgotten", 0), answer.get("reading", 0)
    if reading:
        raise Failure(
            f"{server} replicates {stream} at present: remove the mirror or source there, or the bridge here, first"
        )
    if not forgotten:
        raise Failure(f"no mirror or source of {stream} at {server} is known: see eyot sync")
    if not target.as_json:
        what = f"what never arrived from {stream}" if lost else f"{forgotten} of {stream}"
        console.print(f"Forgotten: {what} at {server}")


def _is_synced(target: Target, report: SyncReport, out: list[SyncStatus]) -> None:
    """Report success, and the messages that never arrive."""
    if target.as_json:
        print_json(report)
    else:
        console.print(f"{_synced(out)}: {', '.join(sorted({each.stream for each in out}))}")
        _losses(out)
    if any(each.never_arrived for each in out):
        raise click.exceptions.Exit(INCOMPLETE)


def _synced(out: list[SyncStatus]) -> str:
    never_arrived = sum(each.never_arrived for each in out)
    return f"synced, {count(never_arrived)} never arrived" if never_arrived else "Everything is confirmed"


def _losses(out: list[SyncStatus]) -> None:
    """Print the messages that never arrived, and those that no filter matches."""
    for each in out:
        for lost in each.lost:
            who = f"{each.kind} {each.target} at {each.peer}".replace("  ", " ")
            console.print(
                f"{each.stream}: dropped unconfirmed by {who}: {lost.messages}, sequences {', '.join(lost.sequences)}, reason {lost.reason} "
                f"(to clear: eyot sync forget {each.stream} {each.peer} --lost)",
            )
    for stream, messages in sorted({(each.stream, each.unmatched) for each in out if each.unmatched}):
        console.print(f"{stream}: {counted(messages, 'message')} match no filter of any mirror or source")


def _why(
    report: SyncReport, out: list[SyncStatus], missing: list[str], behind: list[SyncStatus], timeout_s: float
) -> list[str]:
    if not out or missing:
        what = ", ".join(missing) or "any stream"
        text = f"no mirror or source elsewhere replicates {what} yet: one must name it as its origin"
        return [text, *(_down(link) for link in report.links_down)]
    worst = max(behind, key=lambda each: each.backlog)
    if worst.uncertain:
        text = (
            f"after {timeout_s:g} s the position of {worst.peer} in {worst.stream} is unknown: it has not resumed yet"
        )
        return [f"{text}; {worst.error} ({worst.remedy})" if worst.error else text]
    text = f"after {timeout_s:g} s {worst.peer} still lacks {counted(worst.backlog, 'message')} of {worst.stream}"
    if worst.waiting:
        text += f"; waiting: {worst.waiting}"
    elif worst.error:
        text += f": {worst.error}"
        if worst.remedy:
            text += f" ({worst.remedy})"
    return [text]


def _report(target: Target) -> SyncReport:
    try:
        return msgspec.json.decode(target.get("/eyot/syncz"), type=SyncReport)
    except msgspec.MsgspecError as error:
        raise Failure(f"{target.control} does not answer as an Eyot daemon: {error}") from error


def _show(report: SyncReport) -> None:
    columns = (
        "Account",
        "Stream",
        "Downstream",
        "Link",
        ">Confirmed",
        ">Backlog",
        ">Bytes",
        ">Oldest",
        ">Rate/s",
        ">ETA",
        "Error",
    )
    rows = []
    for each in report.out:
        link = _LINKED[each.linked]
        error = trouble(each.waiting, each.error, each.remedy)
        rows.append(
            (each.account, each.stream, f"{each.kind} {each.target} at {each.peer}".replace("  ", " "), link,
             "unknown" if each.uncertain else count(each.confirmed_seq), count(each.backlog),
             size(each.backlog_bytes), span(each.oldest_s, ""), f"{each.rate:.1f}", _eta(each), error)
        )  # fmt: skip
    print_table("Replicated from here", columns, rows, "no mirror or source elsewhere so far")
    if len(report.peers) < len(report.out):
        _totals(report.peers)
    if report.copies:
        _inbound(report.copies)
    for remote in report.links_down:
        console.print(_down(remote))
    if report.out:
        _losses(report.out)
        console.print(_synced(report.out) if report.synced else ("Not everything is confirmed", "yellow"))


def _totals(peers: list[PeerTotals]) -> None:
    columns = ("Account", "Server", "Link", ">Streams", ">Backlog", ">Bytes", ">Oldest", ">Rate/s", ">ETA", "Error")
    rows = [
        (each.account, each.peer, _LINKED[each.linked], count(each.streams), count(each.backlog), size(each.backlog_bytes),
         span(each.oldest_s, ""), f"{each.rate:.1f}", _eta(each), trouble(each.waiting, each.error, each.remedy))
        for each in peers
    ]  # fmt: skip
    print_table("Totals by server", columns, rows, "")


def _inbound(copies: list[SourcingStatus]) -> None:
    columns = (
        "Account",
        "Stream",
        "Origin",
        "State",
        ">On flash",
        ">Backlog",
        ">Rate/s",
        ">ETA",
        ">Heard",
        "Error",
    )
    rows = [
        (each.account, each.stream, f"{each.kind} of {each.origin} at {each.api_prefix}", each.phase,
         count(each.committed_seq), count(each.backlog), f"{each.rate:.1f}", _eta(each), span(each.heard_s_ago),
         trouble(each.waiting, each.error, each.remedy))
        for each in copies
    ]  # fmt: skip
    print_table("Mirrors and sources here", columns, rows, "")


def _eta(each: SyncStatus | PeerTotals | SourcingStatus) -> str:
    """Format the time to completion; a question mark if unknown, nothing without a backlog."""
    return span(each.eta_s, "?" if each.backlog else "")


def _down(link: LinkStatus) -> str:
    """Format a remote that is not linked."""
    since = f" for {span(link.age_s)}" if link.age_s is not None else ""
    why = trouble(link.waiting, link.last_error, link.remedy)
    return f"Link {link.name} is {'disabled' if link.state == 'disabled' else 'down'}{since}{f': {why}' if why else ''}"
