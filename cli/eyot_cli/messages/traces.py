"""`eyot trace`: the way of one message through servers, as each of them reports it (ADR-41).

Each server publishes one report. A report names its egress over a link by a hop number; the report of the server there has the
same number in the header `Nats-Trace-Hop` of the request.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import click
import msgspec

from eyot_cli.connection.target import Target
from eyot_cli.messages.common import parse_headers
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.show import print_json, print_line
from eyot_cli.values.names import subject_to_publish
from eyot_cli.values.seconds import seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nats.aio.client import Client

#: The first version of nats-server that traces.
_FIRST_VERSION: Final = (2, 11)
#: Kinds of connections, as nats-server numbers them.
_KINDS: Final = {0: "client", 1: "route", 2: "gateway", 3: "system", 4: "leaf link", 5: "JetStream", 6: "account"}


class Event(msgspec.Struct):
    """A step: `in`, `sm` (mapped), `si` (service import), `se` (stream import), `js` (stream) or `eg` (egress)."""

    type: str = ""
    #: when, as its server writes it
    ts: str = ""
    kind: int = 0
    cid: int = 0
    name: str = ""
    acc: str = ""
    subj: str = ""
    sub: str = ""
    queue: str = ""
    to: str = ""
    source: str = msgspec.field(default="", name="from")
    stream: str = ""
    subject: str = ""
    nointerest: bool = False
    hop: str = ""
    error: str = ""


class Server(msgspec.Struct):
    name: str = ""
    ver: str = ""


class Request(msgspec.Struct):
    header: dict[str, list[str]] = {}


class Report(msgspec.Struct):
    """What one server reports."""

    server: Server = msgspec.field(default_factory=Server)
    request: Request = msgspec.field(default_factory=Request)
    events: list[Event] = []

    @property
    def hop(self) -> str:
        """The hop over which the message came to this server; "" for the publisher's own."""
        return next(
            (values[0] for name, values in self.request.header.items() if name == "Nats-Trace-Hop" and values), ""
        )


@click.command("trace")
@click.argument("subject", callback=subject_to_publish)
@click.argument("payload", default="")
@click.option("--timestamp", "-T", is_flag=True, help="show the time of each step")
@click.option("--deliver", is_flag=True, help="deliver the message, too")
@click.option("--header", "-H", multiple=True, metavar="NAME:VALUE", help="a header; may be given several times")
@click.option(
    "--timeout",
    "timeout_s",
    callback=seconds,
    default="5s",
    metavar="TIME",
    help="how long to wait for reports at most",
)
@click.pass_obj
def trace(
    target: Target,
    subject: str,
    payload: str,
    timestamp: bool,
    deliver: bool,
    header: tuple[str, ...],
    timeout_s: float,
) -> None:
    """Show which way a message takes.

    The message itself is delivered to nobody, and stored nowhere, without --deliver. Servers before nats-server 2.11 do not
    report.
    """
    headers = parse_headers(header) or {}

    async def run(client: Client) -> list[bytes]:
        version = client.connected_server_version
        if (version.major, version.minor) < _FIRST_VERSION:
            raise Failure(
                f"{target.shown_server} is version {version.major}.{version.minor}: tracing needs nats-server 2.11 or later"
            )
        inbox = client.new_inbox()
        reports = await client.subscribe(inbox)
        asked = {"Nats-Trace-Dest": inbox} | ({} if deliver else {"Nats-Trace-Only": "true"})
        await client.publish(subject, payload.encode(), headers=headers | asked)
        found: list[bytes] = []
        deadline = asyncio.get_running_loop().time() + timeout_s
        with suppress(TimeoutError):  # that of nats-py, too
            while not found or missing([decoded(each) for each in found]):
                left_s = max(deadline - asyncio.get_running_loop().time(), 0.001)
                found.append((await reports.next_msg(timeout=left_s)).data)
        return found

    found = target.with_client(run)
    if not found:
        raise Failure(
            f"no report in {timeout_s:g} s: the login may need the permissions to publish to {subject} and to subscribe to _INBOX.>"
        )
    reports = [decoded(each) for each in found]
    if target.as_json:
        print_json([msgspec.Raw(each) for each in found])
        return
    for each in lines(reports, timed=timestamp):
        print_line(each)


def decoded(body: bytes) -> Report:
    """Decode a report. Raises Failure."""
    try:
        return msgspec.json.decode(body, type=Report)
    except msgspec.MsgspecError as error:
        raise Failure(f"malformed report, perhaps of a client that answers in place of the server: {error}") from error


def missing(reports: list[Report]) -> set[str]:
    """Return the hops whose reports have not come; "" is that of the publisher's own server."""
    named = {event.hop for each in reports for event in each.events if event.type == "eg" and event.hop}
    return ({""} | named) - {each.hop for each in reports}


def lines(reports: list[Report], *, timed: bool = False) -> list[str]:
    """Lay the reports out, each below the egress that leads to it; `timed` with the time of each step."""
    by_hop = {each.hop: each for each in reports}
    return list(_lines(by_hop, "", "", set(), timed=timed))


def _lines(by_hop: dict[str, Report], hop: str, indent: str, seen: set[str], *, timed: bool) -> Iterator[str]:
    report = by_hop.get(hop)
    if report is None or hop in seen:
        yield f"{indent}no report came from there in time"
        return
    seen.add(hop)
    yield f"{indent}{report.server.name} {report.server.ver}"
    for event in report.events:
        yield f"{indent}  {f'{event.ts} ' if timed else ''}{_text(event)}"
        if event.type == "eg" and event.hop:
            yield from _lines(by_hop, event.hop, indent + "    ", seen, timed=timed)
    if all(event.type == "in" and not event.error for event in report.events):
        yield f"{indent}  nobody here subscribes to it"


def _text(event: Event) -> str:
    peer = f"{_KINDS.get(event.kind, 'connection')} {event.name or '-'} (cid {event.cid})"
    account = f", account {event.acc}" if event.acc else ""
    match event.type:
        case "in":
            said = f"from {peer}{account}, subject {event.subj}"
        case "sm":
            said = f"mapped to {event.to}"
        case "si":
            said = f"service of account {event.acc}: {event.source} becomes {event.to}"
        case "se":
            said = f"stream import of account {event.acc}, as {event.to}"
        case "js":
            said = f"into stream {event.stream}, subject {event.subject}" + (
                ", which nobody wants" if event.nointerest else ""
            )
        case "eg":
            said = f"to {peer}{account}" + (f", subscription {event.sub}" if event.sub else "")
            said += f", queue {event.queue}" if event.queue else ""
        case _:
            said = event.type
    return said + (f": {event.error}" if event.error else "")
