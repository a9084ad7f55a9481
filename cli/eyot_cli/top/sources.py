"""Where `eyot top` reads: the control socket or monitoring port, a device over its link, or the system account."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlencode

import msgspec

from eyot_cli.connection.device import report
from eyot_cli.connection.target import TIMEOUT_S, Target
from eyot_cli.terminal.failure import Failure
from eyot_cli.top.figures import Connz, Varz
from eyot_wire.device_requests import TOP, TOP_CONNECTIONS_MAX, TopRequest

if TYPE_CHECKING:
    from nats.aio.client import Client

#: Returns both pages; takes the order of the connections and whether their subscriptions are listed.
Source = Callable[[str, bool], Awaitable[tuple[Varz, Connz]]]
T = TypeVar("T")


def over_http(target: Target, conns: int) -> Source:
    """Return a source that asks the control socket or the monitoring port."""

    async def read(sort: str, subjects: bool) -> tuple[Varz, Connz]:
        query = urlencode({"sort": sort, "auth": 1, "subs": int(subjects), "limit": conns})
        varz = await asyncio.to_thread(target.get, "/varz")
        connz = await asyncio.to_thread(target.get, f"/connz?{query}")
        return _decode(varz, Varz, target.control), _decode(connz, Connz, target.control)

    return read


class _Pages(msgspec.Struct):
    varz: Varz
    connz: Connz


def over_link(client: Client, device: str, conns: int) -> Source:
    """Return a source that asks a device over its leaf link."""

    async def read(sort: str, subjects: bool) -> tuple[Varz, Connz]:
        asked = TopRequest(sort=sort, subjects=subjects, limit=min(conns, TOP_CONNECTIONS_MAX))
        found = _decode(await report(client, device, TOP, msgspec.json.encode(asked)), _Pages, device)
        return found.varz, found.connz

    return read


class _Answer(msgspec.Struct):
    data: msgspec.Raw = msgspec.Raw(b"null")


def over_system_account(client: Client, server: str, conns: int) -> Source:
    """Return a source that asks the server with this name through the system account."""
    server_id = ""

    async def ask(subject: str, body: dict[str, object]) -> msgspec.Raw:
        from nats.errors import NoRespondersError
        from nats.errors import TimeoutError as NatsTimeoutError

        try:
            answer = await client.request(subject, msgspec.json.encode(body), timeout=TIMEOUT_S)
        except NoRespondersError:
            raise Failure(
                "this login is not in the system account: name one of its users (--user, --creds or --context)"
            ) from None
        except NatsTimeoutError:
            raise Failure(
                f"no server with the name {server} answers: leave the name out to ask the control socket"
            ) from None
        return _decode(answer.data, _Answer, server).data

    async def read(sort: str, subjects: bool) -> tuple[Varz, Connz]:
        nonlocal server_id
        which = server_id or "PING"
        body: dict[str, object] = {} if server_id else {"server_name": server, "exact_match": True}
        varz = _decode(await ask(f"$SYS.REQ.SERVER.{which}.VARZ", body), Varz, server)
        server_id = varz.server_id
        wanted: dict[str, object] = {"sort": sort, "auth": True, "limit": conns, "subscriptions": subjects}
        return varz, _decode(await ask(f"$SYS.REQ.SERVER.{server_id}.CONNZ", wanted), Connz, server)

    return read


def _decode(body: bytes | msgspec.Raw, kind: type[T], where: str) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise Failure(f"{where} does not answer as a NATS server: {error}") from error
