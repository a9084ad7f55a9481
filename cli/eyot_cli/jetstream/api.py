"""Requests of the JetStream API."""

from __future__ import annotations

from typing import Any

import msgspec
from nats.aio.client import Client
from nats.errors import NoRespondersError

from eyot_cli.connection.command_client import PermissionViolation
from eyot_cli.connection.refusals import Refusal, no_jetstream, refusal
from eyot_cli.connection.target import Target
from eyot_cli.terminal.failure import Failure


async def ask(target: Target, client: Client, what: str, body: Any) -> dict[str, Any]:
    """Send a request and return the answer. Raises Failure with the server's words."""
    payload = msgspec.json.encode(body) if body else b""
    try:
        reply = await client.request(f"{target.api_prefix}.{what}", payload, timeout=target.timeout_s)
    except NoRespondersError:
        raise no_jetstream(target.api_prefix, target.domain) from None
    return answer_of(reply.data)


async def why_refused(target: Target, client: Client, what: str, *, told: int = 0) -> None:
    """Raise Failure with what the server says to this request, where a message was refused without a reason.

    `told`: the error that the caller tells itself.
    """
    try:
        await ask(target, client, what, {})
    except PermissionViolation:  # a user may publish without asking anything
        return
    except Refusal as error:
        if error.err_code != told:
            raise


def answer_of(data: bytes) -> dict[str, Any]:
    """Decode an answer. Raises Failure with the server's words."""
    try:
        answer = msgspec.json.decode(data, type=dict[str, Any])
        error = msgspec.convert(answer.get("error"), dict[str, Any] | None)
    except msgspec.MsgspecError as wrong:
        raise Failure(f"malformed answer, perhaps of a client that answers in place of the server: {wrong}") from wrong
    if error is not None:
        raise refusal(error.get("description"), error.get("err_code"))
    return answer
