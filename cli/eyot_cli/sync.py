"""`eyot sync`: what of this server's streams has reached those who copy them, and `eyot sync wait` for scripts."""

from __future__ import annotations

import time

import click
import msgspec

from eyot_cli.api import ask
from eyot_cli.failure import Failure
from eyot_cli.seconds import seconds
from eyot_cli.show import console, count, print_json, print_table, size, span
from eyot_cli.target import Target
from eyot_wire.jetstream.forget_reader import WORDS, ForgetRequest
from eyot_wire.status import CopyStatus, LinkStatus, PeerTotals, SyncReport, SyncStatus

_POLL_S = 0.25
#: Exit status: all that can still arrive has arrived, and something never will.
INCOMPLETE = 3
_LINKED = {True: ("up", "green"), False: ("down", "red")}


@click.group(invoke_without_command=True)
@click.pass_context
def sync(context: click.Context) -> None:
    """What has reached the hub, and what has not."""
    if context.invoked_subcommand is not None:
        return
    target: Target = context.obj
    report = _report(target)
    if target.as_json:
        print_json(report)
        return
    _show(report)


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
    """Wait until everything is confirmed; exit code 1 if that takes too long or nobody copies from here, 3 if everything that is left is
    confirmed and messages never arrived."""
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
@click.option("--copy", "target_stream", default="", metavar="NAME", help="only the copy with this name there")
@click.option("--lost", is_flag=True, help="keep it, and forget what never arrived there and what it passes over")
@click.pass_obj
def forget(target: Target, stream: str, server: str, target_stream: str, lost: bool) -> None:
    """Forget what copied STREAM to SERVER (its name or domain) and will not come back.

    A copy shows as behind, and messages of work-queue and interest streams are kept for it, until it is there again or forgotten. One that
    is forgotten and comes back all the same goes on where it was, with what is still there.
    """
    asked = ForgetRequest(server=server, target=target_stream, lost=lost)
    answer = target.with_client(lambda client: ask(target, client, f"{WORDS}.{stream}", asked))
    if target.as_json:
        print_json(answer)
    forgotten, reading = answer.get("forgotten", 0), answer.get("reading", 0)
    if reading:
        raise Failure(f"{server} reads {stream} at the moment: take it out of the configuration there")
    if not forgotten:
        raise Failure(f"nothing is known of a copy of {stream} at {server}: see eyot sync")
    if not target.as_json:
        what = "what never arrived of " if lost else ""
        console.print(f"Forgotten: {what}{forgotten} of {stream} at {server}")


def _is_synced(target: Target, report: SyncReport, out: list[SyncStatus]) -> None:
    """All that can still arrive has arrived: say so, and what never will."""
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
    """What never arrived, and what nobody asks for."""
    for each in out:
        for lost in each.lost:
            who = f"{each.kind} {each.target} at {each.peer}".replace("  ", " ")
            console.print(
                f"{each.stream}: dropped unconfirmed by {who}: {lost.messages}, sequences {', '.join(lost.sequences)}, reason {lost.reason} "
                f"(seen to: eyot sync forget {each.stream} {each.peer} --lost)",
            )
    for stream, messages in sorted({(each.stream, each.unmatched) for each in out if each.unmatched}):
        console.print(f"{stream}: {messages} messages match no filter of those who copy it")


def _why(
    report: SyncReport, out: list[SyncStatus], missing: list[str], behind: list[SyncStatus], timeout_s: float
) -> list[str]:
    if not out or missing:
        what = ", ".join(missing) or "any stream"
        text = f"nobody has copied from {what} yet: a mirror or source elsewhere must name it as its origin"
        return [text, *(_down(link) for link in report.links_down)]
    worst = max(behind, key=lambda each: each.backlog)
    if worst.uncertain:
        text = (
            f"after {timeout_s:g} s it is not known what {worst.peer} has of {worst.stream}: it has not asked again yet"
        )
        return [f"{text}; {worst.error} ({worst.remedy})" if worst.error else text]
    text = f"after {timeout_s:g} s {worst.peer} still lacks {worst.backlog} messages of {worst.stream}"
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
        "Copied by",
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
        error = _trouble(each.waiting, each.error, each.remedy)
        rows.append(
            (each.account, each.stream, f"{each.kind} {each.target} at {each.peer}".replace("  ", " "), link,
             "unknown" if each.uncertain else count(each.confirmed_seq), count(each.backlog),
             size(each.backlog_bytes), span(each.oldest_s, ""), f"{each.rate:.1f}", _eta(each), error)
        )  # fmt: skip
    print_table("Copied from here", columns, rows, "nobody has copied anything yet")
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
         span(each.oldest_s, ""), f"{each.rate:.1f}", _eta(each), _trouble(each.waiting, each.error, each.remedy))
        for each in peers
    ]  # fmt: skip
    print_table("Altogether", columns, rows, "")


def _inbound(copies: list[CopyStatus]) -> None:
    columns = (
        "Account",
        "Stream",
        "Copied from",
        "State",
        ">On flash",
        ">Lacking",
        ">Rate/s",
        ">ETA",
        ">Heard",
        "Error",
    )
    rows = [
        (each.account, each.stream, f"{each.kind} of {each.origin} at {each.api_prefix}", each.phase,
         count(each.committed_seq), count(each.backlog), f"{each.rate:.1f}", _eta(each), span(each.heard_s_ago),
         _trouble(each.waiting, each.error, each.remedy))
        for each in copies
    ]  # fmt: skip
    print_table("Copied to here", columns, rows, "")


def _eta(each: SyncStatus | PeerTotals | CopyStatus) -> str:
    """How long it will take; a question mark where that is not known, nothing where nothing is missing."""
    return span(each.eta_s, "?" if each.backlog else "")


def _down(link: LinkStatus) -> str:
    """A remote that is not linked."""
    since = f" for {span(link.age_s)}" if link.age_s is not None else ""
    why = _trouble(link.waiting, link.last_error, link.remedy)
    return f"Link {link.name} is {'disabled' if link.state == 'disabled' else 'down'}{since}{f': {why}' if why else ''}"


def _trouble(waiting: str | None, error: str | None, remedy: str | None) -> str:
    """Why something does not move, in one cell."""
    if waiting:
        return f"waiting: {waiting}"
    return f"{error}: {remedy}" if error and remedy else error or ""
