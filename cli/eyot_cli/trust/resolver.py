"""Requests to servers whose resolver stores accounts: `$SYS.REQ.CLAIMS.UPDATE`, `LIST`, `DELETE`, `CLAIMS.LOOKUP`.

A cluster's servers all answer, and how many there are is not known: answers are collected until none has come for a
second. Source: NATS documentation of the nats resolver.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg

from eyot_cli.terminal.failure import Failure
from eyot_wire.quoting import printable

UPDATE: Final = "$SYS.REQ.CLAIMS.UPDATE"
LIST: Final = "$SYS.REQ.CLAIMS.LIST"
DELETE: Final = "$SYS.REQ.CLAIMS.DELETE"
LOOKUP: Final = "$SYS.REQ.ACCOUNT.{}.CLAIMS.LOOKUP"
#: How long no further server must answer.
QUIET_S: Final = 1.0
#: Requests under way at a time.
_AT_A_TIME: Final = 64
_NO_RESPONDERS: Final = "503"


@dataclass(frozen=True)
class Answer:
    """A server's answer: its name, and the data, or why it refused."""

    server: str
    data: Any
    error: str


async def ask_servers(client: Client, subject: str, payload: bytes, timeout_s: float) -> list[Answer]:
    """Return the answers of all servers; the first one must come within `timeout_s`. Raises Failure."""
    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox)
    try:
        await client.publish(subject, payload, reply=inbox)
        answers: list[Answer] = []
        wait_s = timeout_s
        while True:
            try:
                message = await subscription.next_msg(wait_s)
            except TimeoutError:
                break
            if is_refused(message):
                raise Failure(
                    f"no server answers {subject}: its resolver stores no accounts, or the user is not of the system account",
                    "configure one with `eyot trust generate config --nats-resolver`",
                )
            answers.append(_answer(message))
            wait_s = min(timeout_s, QUIET_S)
        if not answers:
            raise Failure(f"no answer to {subject} within {timeout_s:g} s: wait longer with --timeout")
        return answers
    finally:
        await subscription.unsubscribe()


async def ask_many(
    client: Client, subject: str, payloads: Mapping[str, bytes], timeout_s: float
) -> dict[str, list[Answer]]:
    """Send a request for each payload, several at a time; return the answers by the payloads' names. Raises Failure."""
    gate = asyncio.Semaphore(_AT_A_TIME)

    async def one(payload: bytes) -> list[Answer]:
        async with gate:
            return await ask_servers(client, subject, payload, timeout_s)

    answers = await asyncio.gather(*(one(payload) for payload in payloads.values()))
    return dict(zip(payloads, answers, strict=True))


async def look_up(client: Client, account: str, timeout_s: float) -> str | None:
    """Return an account's token, None if no server has it. Raises nats.errors.Error."""
    message = await client.request(LOOKUP.format(account), b"", timeout=timeout_s)
    return message.data.decode(errors="replace").strip() or None


def is_refused(message: Msg) -> bool:
    """Return whether a message says that nobody listens on the request's subject."""
    return (message.headers or {}).get("Status") == _NO_RESPONDERS


def _answer(message: Msg) -> Answer:
    try:
        found = msgspec.json.decode(message.data)
        server = printable(str((found.get("server") or {}).get("name") or "?"))
        error = found.get("error")
        if error:
            return Answer(server, None, printable(str(error.get("description") or error)))
        return Answer(server, found.get("data"), "")
    except (msgspec.DecodeError, AttributeError):
        return Answer("?", None, f"not an answer: {printable(message.data[:80].decode(errors='replace'))}")
