"""The commands `eyot bench pub|sub|js`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

from eyot_cli.bench.load import CountingParser, publish, publish_acknowledged, received, subscribe
from eyot_cli.bench.results import Result, print_results
from eyot_cli.connection.target import Target
from eyot_cli.jetstream.api import ask
from eyot_cli.jetstream.stream_changes import STREAM_DEFAULTS
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.show import print_line
from eyot_cli.values.names import subject_to_publish, subject_to_subscribe
from eyot_cli.values.numbers import at_least
from eyot_cli.values.sizes import size_bytes
from eyot_wire.quantities import counted

if TYPE_CHECKING:
    from nats.aio.client import Client

    from eyot_cli.connection.command_client import CommandClient

Command = Callable[..., None]


@click.group("bench")
def bench() -> None:
    """Measure rates of messages.

    The last line tells when the tool itself was the limit, and not the server.
    """


def _amount(function: Command) -> Command:
    """Add the options that all benchmarks have."""
    clients = click.option(
        "--clients", "-c", type=click.IntRange(1, 1000), default=1, metavar="NUMBER", help="connections"
    )
    msgs = click.option("--msgs", "-n", type=at_least(1), default=100_000, metavar="NUMBER", help="messages in all")
    return msgs(clients(function))


_size = click.option("--size", callback=size_bytes, default="128", metavar="SIZE", help="bytes of each payload")


@bench.command("pub")
@click.argument("subject", callback=subject_to_publish)
@_amount
@_size
@click.pass_obj
def pub(target: Target, subject: str, msgs: int, clients: int, size: int) -> None:
    """Publish to SUBJECT without acknowledgements.

    The clients share the messages. The time ends when the server has read the last one.
    """

    async def run(connected: list[CommandClient]) -> None:
        _check_size(connected[0], size)
        await _measure(
            target, f"Published to {subject}",
            [publish(client, subject, size, part) for client, part in zip(connected, _shares(msgs, clients), strict=True)],
        )  # fmt: skip

    target.with_clients(min(clients, msgs), run)


@bench.command("sub")
@click.argument("subject", callback=subject_to_subscribe)
@_amount
@click.pass_obj
def sub(target: Target, subject: str, msgs: int, clients: int) -> None:
    """Receive messages published to SUBJECT.

    Each client waits for so many messages. The time runs from the first to the last: start eyot bench pub, with as many
    messages, when this has subscribed.
    """

    async def run(connected: list[CommandClient]) -> None:
        counting: list[CountingParser] = [await subscribe(client, subject) for client in connected]
        print_line(f"Subscribed to {subject}: waiting for {counted(msgs, 'message')}", error=True)
        await _measure(target, f"Received on {subject}", [received(each, msgs) for each in counting])

    target.with_clients(clients, run)


@bench.command("js")
@click.argument("subject", callback=subject_to_publish)
@_amount
@_size
@click.option(
    "--batch",
    type=at_least(1),
    default=500,
    metavar="NUMBER",
    help="messages on the way at most; 1: one by one",
)
@click.option("--stream", default="benchstream", metavar="NAME", help="stream of --create and --purge")
@click.option("--create", is_flag=True, help="make the stream, with SUBJECT, if there is none")
@click.option("--storage", type=click.Choice(["file", "memory"]), default="file", help="where --create stores")
@click.option("--purge", is_flag=True, help="empty the stream first")
@click.pass_obj
def js(
    target: Target,
    subject: str,
    msgs: int,
    clients: int,
    size: int,
    batch: int,
    stream: str,
    create: bool,
    storage: str,
    purge: bool,
) -> None:
    """Publish into a stream, with acknowledgements.

    Each client has at most --batch messages on the way. The time ends with the last acknowledgement. The messages stay in the
    stream.
    """

    async def run(connected: list[CommandClient]) -> None:
        first = connected[0]
        _check_size(first, size)
        if create:
            config: dict[str, Any] = STREAM_DEFAULTS | {"name": stream, "subjects": [subject], "storage": storage}
            await ask(target, first, f"STREAM.CREATE.{stream}", config)
        if purge:
            await ask(target, first, f"STREAM.PURGE.{stream}", {})
        await _measure(
            target, f"Published into the stream of {subject}",
            [publish_acknowledged(client, subject, size, part, batch)
             for client, part in zip(connected, _shares(msgs, clients), strict=True)],
        )  # fmt: skip

    target.with_clients(min(clients, msgs), run)


def _shares(messages: int, clients: int) -> list[int]:
    """Divide messages among clients, the first ones one more where they do not divide."""
    clients = min(clients, messages)
    share, more = divmod(messages, clients)
    return [share + (number < more) for number in range(clients)]


def _check_size(client: Client, size: int) -> None:
    if size < 0:
        raise Failure("--size is a number of bytes, 0 or more")
    if size > client.max_payload:
        raise Failure(f"payloads of {size} bytes: the server takes at most {client.max_payload} (its max_payload)")


async def _measure(target: Target, what: str, clients: list[Awaitable[Result]]) -> None:
    used_s = time.process_time()
    results = await asyncio.gather(*clients)
    print_results(target, what, results, time.process_time() - used_s)
