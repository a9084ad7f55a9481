"""`eyot pub` and `eyot sub`: enough for a first look; the `nats` tool does the rest."""

from __future__ import annotations

import asyncio
import sys

import click
from nats.aio.client import Client
from nats.aio.msg import Msg

from eyot_cli.show import console, print_json
from eyot_cli.target import Target


@click.command("pub")
@click.argument("subject")
@click.argument("payload", required=False)
@click.option("--header", "-H", multiple=True, metavar="NAME:VALUE", help="a header; may be given several times")
@click.option("--ack", is_flag=True, help="publish to a stream and wait until it is on flash there")
@click.pass_obj
def publish(target: Target, subject: str, payload: str | None, header: tuple[str, ...], ack: bool) -> None:
    """Publish PAYLOAD (or standard input) to SUBJECT."""
    body = sys.stdin.buffer.read() if payload is None else payload.encode()
    pairs = (each.partition(":") for each in header)
    headers = {name.strip(): value.strip() for name, _, value in pairs} or None

    async def send(client: Client) -> None:
        if ack:
            answer = await target.jetstream(client).publish(subject, body, headers=headers)
            if target.as_json:
                print_json({"stream": answer.stream, "seq": answer.seq, "duplicate": bool(answer.duplicate)})
            else:
                console.print(
                    f"stored in {answer.stream} as {answer.seq}" + (" (duplicate)" if answer.duplicate else "")
                )
            return
        await client.publish(subject, body, headers=headers)
        await client.flush()

    target.with_client(send)


@click.command("sub")
@click.argument("subject")
@click.option("--count", "-n", type=click.IntRange(min=1), help="end after so many messages")
@click.option("--queue", "-q", default="", help="queue group")
@click.pass_obj
def subscribe(target: Target, subject: str, count: int | None, queue: str) -> None:
    """Print what is published to SUBJECT."""

    async def listen(client: Client) -> None:
        done = asyncio.Event()
        seen = 0

        async def show(message: Msg) -> None:
            nonlocal seen
            if count is not None and seen >= count:
                return
            seen += 1
            text = message.data.decode("utf-8", "replace")
            if target.as_json:
                print_json({"subject": message.subject, "headers": dict(message.headers or {}), "payload": text})
            else:
                console.print(
                    f"[bold]{message.subject}[/bold] {dict(message.headers) if message.headers else ''}", markup=True
                )
                console.print(text, markup=False)
            if seen == count:
                done.set()

        await client.subscribe(subject, queue=queue, cb=show)
        await client.flush()
        await done.wait()

    target.with_client(listen)
