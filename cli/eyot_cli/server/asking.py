"""Requests that every server answers to users of the system account."""

from __future__ import annotations

from contextlib import suppress
from time import perf_counter
from typing import Any

import msgspec
from nats.aio.client import Client
from nats.errors import TimeoutError as NatsTimeoutError

from eyot_cli.connection.target import Target
from eyot_cli.terminal.failure import Failure

#: Who asks: a user of the system account all of a server, any user its own account there.
SERVER = "$SYS.REQ.SERVER.PING"
ACCOUNT = "$SYS.REQ.ACCOUNT.PING"
_NOT_SYSTEM = "nobody answers: name a user of the system account (--user, --creds or --context)"
_NOT_TOLD = (
    "nobody answers: this login may not publish to $SYS.REQ.ACCOUNT.PING.>, or the server does not tell users of it"
)


async def answers(
    target: Target, client: Client, page: str, body: Any, wanted: int = 0, *, prefix: str = SERVER
) -> list[dict[str, Any]]:
    """Return the answers of all servers, or so many, with how long each took as `rtt`. Raises Failure without any."""
    inbox, found, began = await client.subscribe(client.new_inbox()), list[dict[str, Any]](), perf_counter()
    await client.publish(f"{prefix}.{page}" if page else prefix, msgspec.json.encode(body), reply=inbox.subject)
    # After the first answer others come soon, or not at all.
    with suppress(NatsTimeoutError):
        while not wanted or len(found) < wanted:
            answer = await inbox.next_msg(timeout=min(target.timeout_s, 0.5) if found else target.timeout_s)
            if (answer.headers or {}).get("Status") == "503":
                break
            found.append(msgspec.json.decode(answer.data, type=dict[str, Any]) | {"rtt": perf_counter() - began})
    if not found:
        raise Failure(_NOT_SYSTEM if prefix == SERVER else _NOT_TOLD)
    return found
