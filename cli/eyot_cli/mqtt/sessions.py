"""`eyot mqtt sessions`: the MQTT sessions of an account, what waits for them, and their deletion."""

from __future__ import annotations

from typing import Any, TypeVar

import click
import msgspec
from nats.aio.client import Client

from eyot_cli.connection.target import Target
from eyot_cli.jetstream.api import ask
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.show import console, count, print_json, print_table, size, span
from eyot_wire.jetstream.mqtt_sessions import (
    SESSION_DELETE,
    SESSION_INFO,
    SESSION_LIST,
    MqttSession,
    SessionDeletedPart,
    SessionListPart,
    SessionListRequest,
    SessionPart,
    SessionRequest,
)
from eyot_wire.quantities import counted

T = TypeVar("T")
PROTOCOLS = {3: "3.1", 4: "3.1.1", 5: "5.0"}


@click.group(invoke_without_command=True)
@click.option("--of", "user", default="", metavar="NAME", help="only the sessions of this user")
@click.pass_context
def sessions(context: click.Context, user: str) -> None:
    """List the MQTT sessions of the account."""
    if context.invoked_subcommand is not None:
        return
    target: Target = context.obj

    async def every(client: Client) -> list[MqttSession]:
        found: list[MqttSession] = []
        while True:
            asked = SessionListRequest(offset=len(found), user=user)
            page = await asked_part(target, client, SESSION_LIST, asked, SessionListPart)
            found += page.sessions
            if not page.sessions or len(found) >= page.total:
                return found

    found = target.with_client(every)
    if target.as_json:
        print_json(found)
        return
    columns = (
        "Client",
        "User",
        "MQTT",
        "State",
        ">Filters",
        ">Queued",
        ">Bytes",
        ">In flight",
        ">Ends in",
        "Dropped",
    )
    rows = [
        (*_owner(each), PROTOCOLS.get(each.level, "?"), _state(each), count(each.subscriptions),
         count(each.queued_msgs), size(each.queued_bytes), count(each.inflight), span(each.expires_in_s, ""), _dropped(each))
        for each in found
    ]  # fmt: skip
    print_table("MQTT sessions", columns, rows, "none in this account")


def _owner(session: MqttSession) -> tuple[str, str]:
    """Return client and user; a bridge keeps identifiers under an id that no client can have."""
    kind, nul, name = session.client_id.partition("\0")
    return (f"({kind} {name})", "") if nul else (session.client_id, session.user)


@sessions.command("info")
@click.argument("client_id")
@click.pass_obj
def details(target: Target, client_id: str) -> None:
    """Show one session and its subscriptions."""
    found = target.with_client(
        lambda client: asked_part(target, client, SESSION_INFO, SessionRequest(client_id=client_id), SessionPart)
    )
    session = found.session
    if session is None:
        raise _unknown(client_id)
    if target.as_json:
        print_json(found)
        return
    lasts = "for ever" if session.expiry_s is None else span(session.expiry_s) if session.expiry_s else "no"
    pairs = [
        ("User", session.user), ("MQTT", PROTOCOLS.get(session.level, "?")), ("State", _state(session)[0]),
        ("Address", session.address), ("Outlives its connection", lasts), ("Ends in", span(session.expires_in_s, "")),
        ("Queued", f"{counted(session.queued_msgs, 'message')}, {size(session.queued_bytes)}"),
        ("Sent, not answered", count(session.inflight)), ("Not released by the client", count(session.unreleased)),
        ("Refused, queue full", count(session.refused)), ("Dropped", _dropped(session)), ("Will", session.will),
    ]  # fmt: skip
    console.print((session.client_id, "bold"))
    print_table("", ("", ""), [pair for pair in pairs if pair[1]], "")
    rows = [
        (each.filter, str(each.qos), "no local" if each.no_local else "", str(each.identifier or ""))
        for each in found.filters
    ]
    print_table("Subscriptions", ("Filter", ">QoS", "Options", ">Identifier"), rows, "none")


@sessions.command("delete")
@click.argument("client_id")
@click.pass_obj
def delete(target: Target, client_id: str) -> None:
    """Delete a session with all that waits for it.

    Its connection is closed, and its will published.
    """
    found = target.with_client(
        lambda client: asked_part(
            target, client, SESSION_DELETE, SessionRequest(client_id=client_id), SessionDeletedPart
        )
    )
    if not found.deleted:
        raise _unknown(client_id)
    if target.as_json:
        print_json(found)
    else:
        console.print(f"Deleted: session {client_id}" + (", its connection is closed" if found.was_connected else ""))


async def asked_part(target: Target, client: Client, what: str, body: Any, kind: type[T]) -> T:
    """Send a request of `$JS.API.EYOT_MQTT` and return the answer. Raises Failure."""
    try:
        answer = await ask(target, client, what, body)
    except TimeoutError:
        raise Failure(
            f"no answer to $JS.API.{what}: does this server run eyotd with `mqtt {{ }}` configured?"
        ) from None
    answer.pop("type", None)
    try:
        return msgspec.convert(answer, kind)
    except msgspec.ValidationError as error:
        raise Failure(f"malformed answer of the server: {error}") from error


def _unknown(client_id: str) -> Failure:
    return Failure(f"no session of client id {client_id} in this account: `eyot mqtt sessions` lists them")


def _state(session: MqttSession) -> tuple[str, str]:
    return ("connected", "green") if session.connected else ("away", "yellow")


def _dropped(session: MqttSession) -> str:
    return ", ".join(f"{reason} {count(number)}" for reason, number in sorted(session.dropped.items()))
