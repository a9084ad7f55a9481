"""Payloads of `eyot pub` and `eyot request`: an argument, standard input or its lines, with templates filled."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from eyot_cli.connection.target import Target
from eyot_cli.messages.common import next_of
from eyot_cli.messages.templates import Values, check_template, fill, fill_payload
from eyot_cli.terminal.failure import Failure
from eyot_cli.values.names import subject_to_publish
from eyot_wire.subject import is_valid_literal

F = TypeVar("F", bound=Callable[..., Any])
#: Lines that are read ahead of what is sent.
_AHEAD = 64
#: The functions of templates, for the help of commands.
FUNCTIONS = "{{Count}}, {{Time}}, {{TimeStamp}}, {{Unix}}, {{UnixNano}}, {{ID}}, {{UUID}}, {{Random 5 10}}"


def payload_options(command: F) -> F:
    """Add the options that say where payloads come from."""
    for option in (
        click.option(
            "--templates/--no-templates", default=True, help="fill {{Count}} and others in SUBJECT and PAYLOAD"
        ),
        click.option(
            "--force-stdin", is_flag=True, expose_value=False, help="read standard input without PAYLOAD, as ever"
        ),
        click.option(
            "--send-on", type=click.Choice(["eof", "newline"]), default="eof", help="newline: each line is a payload"
        ),
    ):
        command = option(command)
    return command


def subject_template(context: click.Context, argument: click.Parameter, text: str) -> str:
    """Check the subject of a message, which may be a template. Raises BadParameter."""
    return check_template(text) if "{{" in text else subject_to_publish(context, argument, text)


class Filling:
    """Subject, payload and headers of each message, from their templates."""

    def __init__(self, subject: str, headers: dict[str, str] | None, *, templates: bool) -> None:
        for value in (headers or {}).values():
            check_template(value)
        self._subject = subject
        self._headers = headers
        self._templates = templates

    def message(self, payload: bytes, number: int) -> tuple[str, bytes, dict[str, str] | None]:
        """Return subject, payload and headers of the message with this number, from 1. Raises Failure."""
        values = Values(self._subject, "", number, datetime.now(UTC).astimezone())
        headers = None if self._headers is None else {name: fill(text, values) for name, text in self._headers.items()}
        if not self._templates:
            return self._subject, payload, headers
        subject = fill(self._subject, values)
        if not is_valid_literal(subject.encode()):
            raise Failure(f"{subject!r} is no subject to publish to: {self._subject} makes it")
        return subject, fill_payload(payload, values), headers


async def payloads(target: Target, client: Any, given: str | None, send_on: str) -> AsyncGenerator[bytes, None]:
    """Yield the payload of the command line, or standard input, whole or line by line. Raises Failure if the connection ends."""
    if given is not None:
        yield given.encode()
        return
    loop, arrived = asyncio.get_running_loop(), asyncio.Queue[bytes | None](_AHEAD)

    def read() -> None:
        """Read in a thread: the connection answers the server's PING meanwhile."""
        parts = [sys.stdin.buffer.read()] if send_on == "eof" else sys.stdin.buffer
        for part in parts:
            asyncio.run_coroutine_threadsafe(arrived.put(part), loop).result()
        asyncio.run_coroutine_threadsafe(arrived.put(None), loop).result()

    threading.Thread(target=read, daemon=True).start()  # a daemon: Ctrl-C does not wait for the next line
    while (part := await next_of(target, client, arrived)) is not None:
        yield part if send_on == "eof" else part.rstrip(b"\r\n")
