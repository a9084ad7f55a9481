"""What the commands that send and receive messages share: headers, output, and the wait for what arrives."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias, TypeVar

import click
from nats.aio.client import Client
from nats.aio.msg import Msg

from eyot_cli.connection.target import Target
from eyot_cli.jetstream.stored import payload_member
from eyot_cli.terminal.show import console, print_json, print_payload

T = TypeVar("T")
#: Has a result when a command that answers requests is done.
Done: TypeAlias = "asyncio.Future[None]"
#: Interval at which a command that waits checks its connection, seconds.
LOOK_S = 0.5


def parse_headers(given: tuple[str, ...]) -> dict[str, str] | None:
    """Parse headers of the command line. Raises BadParameter."""
    found: dict[str, str] = {}
    for each in given:
        name, colon, value = each.partition(":")
        if not colon or not name.strip():
            raise click.BadParameter(f"{each!r} is not NAME:VALUE", param_hint="'--header'")
        found[name.strip()] = value.strip()
    return found or None


def print_message(target: Target, message: Msg) -> None:
    """Print subject, headers and payload of a message, as JSON where that was asked for."""
    if target.as_json:
        told = {"subject": message.subject, "headers": dict(message.headers or {})}
        print_json(told | payload_member("payload", message.data))
        return
    headers = f" {dict(message.headers)}" if message.headers else ""
    console.print((message.subject, "bold"), headers)
    print_payload(message.data.decode("utf-8", "replace"))


def ending_by_errors(done: Done, callback: Callable[[Msg], Awaitable[None]]) -> Callable[[Msg], Awaitable[None]]:
    """Return a callback whose first error `until_done` raises. nats-py drops errors of callbacks, and the command would go on."""

    async def run(message: Msg) -> None:
        if done.done():
            return
        try:
            await callback(message)
        except Exception as error:
            if not done.done():
                done.set_exception(error)

    return run


async def until_done(target: Target, client: Client, done: Done) -> None:
    """Return when `done` has a result, or raise its error. Raises Failure if the connection ends first."""
    while not done.done():
        await asyncio.wait({done}, timeout=LOOK_S)
        if client.is_closed and not done.done():
            raise target.gone()
    done.result()


async def next_of(target: Target, client: Client, arrived: asyncio.Queue[T]) -> T:
    """Return the next one of a queue that subscriptions, or a thread, fill. Raises Failure if the connection ends first."""
    while True:
        with suppress(TimeoutError):
            return await asyncio.wait_for(arrived.get(), LOOK_S)
        if client.is_closed and arrived.empty():
            raise target.gone()
