"""`eyot events`: advisories and metrics as the servers publish them, in the manner of `nats events`.

Server advisories are published in the system account only. JetStream advisories are published in the account of the stream.
"""

from __future__ import annotations

import asyncio
import re
import sys
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from eyot_cli.connection.target import Target
from eyot_cli.jetstream.stored import in_order, payload_member
from eyot_cli.messages.common import next_of
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.show import console, print_json, print_line, span
from eyot_cli.values.ages import age_ns
from eyot_cli.values.moments import ago
from eyot_cli.values.names import stream_name
from eyot_cli.values.numbers import at_least
from eyot_wire.quoting import printable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from eyot_cli.connection.command_client import CommandClient

SERVER_ADVISORIES: Final = (
    "$SYS.ACCOUNT.*.CONNECT",
    "$SYS.ACCOUNT.*.DISCONNECT",
    "$SYS.ACCOUNT.*.LEAFNODE.CONNECT",
    "$SYS.SERVER.*.CLIENT.AUTH.ERR",
    "$SYS.SERVER.*.LAMEDUCK",
    "$SYS.SERVER.*.SHUTDOWN",
)
#: Answered in the system account only.
SYSTEM_PING: Final = "$SYS.REQ.SERVER.PING"
NOT_SYSTEM: Final = (
    "this login is not in the system account: server advisories are for its users (--user, --creds or --context); "
    "--js-advisory and --js-metric show JetStream's events of this account"
)

#: Titles of events without a type, by the end of their subject.
_BY_SUBJECT: Final = {"LAMEDUCK": "server enters lame duck mode", "SHUTDOWN": "server shuts down"}
#: Titles by the last part of the type; the type's own words are the title of all others.
_TITLES: Final = {
    "api_audit": "JetStream API request",
    "client_connect": "client connected",
    "client_disconnect": "client disconnected",
    "consumer_ack": "consumer acknowledgement",
    "max_deliver": "maximum of deliveries reached",
    "nak": "message negatively acknowledged",
    "terminated": "message terminated",
}
#: Members of the envelope, which the first line shows.
_ENVELOPE: Final = ("type", "id", "timestamp")
#: What one line shows of an event, in this order, by the name of the flat member.
_SHORT: Final = (
    "client.acc", "client.user", "client.name", "client.id", "client.host", "account", "stream", "consumer", "action", "subject",
    "stream_seq", "deliveries", "ack_time", "status", "total", "reason", "server.name",
)  # fmt: skip
#: Members with nanoseconds.
_NANOSECONDS: Final = frozenset({"ack_time", "rtt", "service", "system", "total"})
#: Levels of objects that are laid out, members in each: more than any event has.
_DEPTH: Final = 6


@click.command("events")
@click.option("--all", "-a", "everything", is_flag=True, help="server advisories, JetStream advisories and metrics")
@click.option("--js-advisory", is_flag=True, help="JetStream advisories of the account")
@click.option("--js-metric", is_flag=True, help="JetStream metrics of the account: sampled acknowledgements")
@click.option(
    "--srv-advisory/--no-srv-advisory", default=True, help="server advisories, for users of the system account"
)
@click.option(
    "--subjects", multiple=True, metavar="SUBJECT", help="events on this subject too; may be given several times"
)
@click.option("--filter", "pattern", metavar="REGEX", help="only events whose JSON this matches, upper or lower case")
@click.option("--stream", callback=stream_name, metavar="STREAM", help="events that this stream holds, and no others")
@click.option("--since", callback=age_ns, metavar="TIME", help="with --stream: from so long ago on, not from the first")
@click.option("--short", is_flag=True, help="one line for each event")
@click.option("--cloudevent", is_flag=True, help="one CloudEvents 1.0 document for each event")
@click.option("--count", "-n", type=at_least(1), help="end after so many events")
@click.pass_obj
def events(
    target: Target,
    everything: bool,
    js_advisory: bool,
    js_metric: bool,
    srv_advisory: bool,
    subjects: tuple[str, ...],
    pattern: str | None,
    stream: str | None,
    since: int | None,
    short: bool,
    cloudevent: bool,
    count: int | None,
) -> None:
    """Show advisories and metrics as they happen.

    Server advisories are for users of the system account, JetStream advisories and metrics for users of the stream's
    account. --json prints one document for each event: the event itself. With --stream the events are read that a stream
    with the subjects of advisories holds, and then those that it stores.
    """
    wanted = _regex(pattern)
    if since is not None and stream is None:
        raise click.UsageError("--since says where in a stream to begin: --stream names it")
    if stream is not None and (everything or js_advisory or js_metric or subjects):
        raise click.UsageError(
            "--stream reads what the stream holds: leave out --all, --js-advisory, --js-metric and --subjects"
        )
    server = srv_advisory or everything
    own = [
        *((f"{target.event_prefix}.ADVISORY.>",) if js_advisory or everything else ()),
        *((f"{target.event_prefix}.METRIC.>",) if js_metric or everything else ()),
        *subjects,
    ]
    if not server and not own and stream is None:
        raise click.UsageError(
            "no events are chosen: leave out --no-srv-advisory, or add --js-advisory, --js-metric or --subjects"
        )

    async def live(client: CommandClient) -> AsyncGenerator[Msg, None]:
        chosen = [*(SERVER_ADVISORIES if server and await _is_system(target, client, own) else ()), *own]
        arrived = await _subscribe(client, chosen)
        if not target.as_json:
            print_line(f"Listening to {', '.join(chosen)}", error=True)
        while True:
            yield await next_of(target, client, arrived)

    async def listen(client: CommandClient) -> None:
        if stream is None:
            found = live(client)
        else:
            start = None if since is None else ago(since)
            found = in_order(target, client, stream, ">", start_time=start, follow=True)
        left = count
        async with aclosing(found) as messages:
            async for message in messages:
                if wanted.search(message.data.decode("utf-8", "replace")):
                    _print_event(target, message, short=short, cloudevent=cloudevent)
                    left = None if left is None else left - 1
                if left == 0:
                    return

    target.with_client(listen)


async def _subscribe(client: CommandClient, subjects: list[str]) -> asyncio.Queue[Msg]:
    """Return a queue of what arrives on the subjects. Raises PermissionViolation if the login may not subscribe."""
    arrived: asyncio.Queue[Msg] = asyncio.Queue()

    async def note(message: Msg) -> None:
        arrived.put_nowait(message)

    for subject in subjects:
        await client.subscribe(subject, cb=note)
        await client.confirm(subject)
    return arrived


def _regex(pattern: str | None) -> re.Pattern[str]:
    try:
        return re.compile(pattern or "", re.IGNORECASE | re.DOTALL)
    except re.error as error:
        raise click.BadParameter(f"{pattern!r}: {error}", param_hint="'--filter'") from error


async def _is_system(target: Target, client: Client, other: list[str]) -> bool:
    """Return whether the login is in the system account; say so if not. Raises Failure if nothing else is wanted."""
    from nats.errors import Error as NatsError

    with suppress(NatsError, TimeoutError):
        await client.request(SYSTEM_PING, b"", timeout=target.timeout_s)
        return True
    if not other:
        raise Failure(NOT_SYSTEM)
    print_line(f"eyot: {NOT_SYSTEM}", error=True)
    return False


def _print_event(target: Target, message: Msg, *, short: bool, cloudevent: bool) -> None:
    """Print one event, at once also into a pipe."""
    try:
        event = msgspec.json.decode(message.data)
    except (msgspec.MsgspecError, RecursionError):
        event = None
    if not isinstance(event, dict):
        event = payload_member("payload", message.data)
    if cloudevent:
        print_json(_cloud_event(message.subject, event))
    elif target.as_json:
        print_json(event if "type" in event else {"subject": message.subject} | event)
    else:
        _print_text(message.subject, event, short=short)
    sys.stdout.flush()


def _cloud_event(subject: str, event: dict[str, Any]) -> dict[str, Any]:
    """Return an event in the envelope of CloudEvents 1.0, whose members are those of the `nats` tool."""
    kind = str(event.get("type", ""))
    # io.nats.SOURCE.SUBJECT.v1.NAME; events of a server without a type are named by where they were published
    parts = kind.split(".")
    source, about = (parts[2], parts[3]) if len(parts) > 3 else ("server", subject)
    told = {"type": kind or subject, "time": _time(event), "id": event.get("id"), "source": f"urn:nats:{source}",
            "specversion": "1.0", "subject": about}  # fmt: skip
    return {name: value for name, value in told.items() if value} | {"data": event}


def _print_text(subject: str, event: dict[str, Any], *, short: bool) -> None:
    kind = str(event.get("type", ""))
    flat = {name: _shown(name, value) for name, value in _flat("", event) if name not in _ENVELOPE}
    head = (f"[{_clock(event)}] ", (_title(kind, subject), "bold"))
    if short:
        told = [f"{name.removeprefix('client.')}: {flat[name]}" for name in _SHORT if name in flat]
        console.print(*head, "  ", ", ".join(told or [subject]))
        return
    console.print(*head, f"  {event.get('id') or subject}")
    width = max(map(len, flat), default=0)
    for name, value in flat.items():
        print_line(f"    {printable(name):>{width}}: {value}")
    print_line("")


def _title(kind: str, subject: str) -> str:
    last = kind.rpartition(".")[2]
    return _TITLES.get(last) or last.replace("_", " ") or _BY_SUBJECT.get(subject.rpartition(".")[2], "event")


def _clock(event: dict[str, Any]) -> str:
    """Return the event's time to the second, as the server writes it; that of its server without one of its own."""
    return re.sub(r"\.\d+", "", _time(event)).replace("T", " ")


def _time(event: dict[str, Any]) -> str:
    server = event.get("server")
    return str(event.get("timestamp") or (server.get("time") if isinstance(server, dict) else None) or "")


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the members of nested objects by their dotted names, without empty ones; below `_DEPTH` an object is one value."""
    if isinstance(value, dict) and prefix.count(".") < _DEPTH:
        for name, inner in value.items():
            yield from _flat(f"{prefix}.{name}" if prefix else str(name), inner)
    elif value not in ("", None, [], {}):
        yield prefix, value


def _shown(name: str, value: Any) -> str:
    if name.rpartition(".")[2] in _NANOSECONDS and isinstance(value, int):
        return f"{value / 1e6:.3f} ms" if value < 10**10 else span(value / 1e9)
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
