"""`eyot pub`: publish messages, into streams too, one by one or as one batch."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import click
import msgspec
from nats.errors import NoRespondersError
from nats.js.errors import NoStreamResponseError
from nats.nuid import NUID

from eyot_cli.connection.command_client import CommandClient
from eyot_cli.connection.refusals import no_stream
from eyot_cli.connection.target import Target
from eyot_cli.jetstream.api import answer_of, why_refused
from eyot_cli.messages.common import parse_headers
from eyot_cli.messages.payloads import Filling, payload_options, payloads, subject_template
from eyot_cli.messages.schedules import schedule_headers, schedule_options
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.show import console, print_json
from eyot_cli.values.numbers import at_least
from eyot_cli.values.seconds import seconds
from eyot_wire.quantities import counted

#: Headers of an atomic batch (ADR-50).
_BATCH_ID, _BATCH_SEQUENCE, _BATCH_COMMIT = "Nats-Batch-Id", "Nats-Batch-Sequence", "Nats-Batch-Commit"
#: Messages of one batch at most, nats-server's limit.
_BATCH_MAX = 1000
_Message = tuple[str, bytes, dict[str, str] | None]


@click.command("pub")
@click.argument("subject", callback=subject_template)
@click.argument("payload", required=False)
@click.option("--header", "-H", multiple=True, metavar="NAME:VALUE", help="a header; may be given several times")
@click.option(
    "--ack", "--jetstream", "-J", is_flag=True, help="publish to a stream and wait until it is on flash there"
)
@click.option("--reply", default="", metavar="SUBJECT", help="where answers are to go")
@click.option("--count", type=at_least(1), default=1, metavar="NUMBER", help="publish it so many times")
@click.option("--sleep", "pause_s", callback=seconds, default="0", metavar="TIME", help="pause between them")
@payload_options
@click.option("--atomic", is_flag=True, help="as one batch: the stream stores all of it or nothing")
@schedule_options
@click.option("--quiet", "-q", is_flag=True, help="print nothing of what is stored")
@click.pass_obj
def publish(
    target: Target,
    /,
    subject: str,
    payload: str | None,
    header: tuple[str, ...],
    ack: bool,
    reply: str,
    count: int,
    pause_s: float,
    send_on: str,
    templates: bool,
    atomic: bool,
    quiet: bool,
    **schedule: Any,
) -> None:
    """Publish PAYLOAD (or standard input) to SUBJECT.

    SUBJECT, PAYLOAD and headers are templates: {{Count}}, {{Time}}, {{TimeStamp}}, {{Unix}}, {{UnixNano}}, {{ID}}, {{UUID}},
    {{Random 5 10}}.
    """
    scheduled = schedule_headers(schedule)
    ack = ack or atomic or bool(scheduled)
    if ack and reply:
        raise click.UsageError("--ack and --reply exclude each other: the PubAck goes to the reply subject")
    filling = Filling(subject, (parse_headers(header) or {}) | scheduled or None, templates=templates)

    async def send(client: CommandClient) -> None:
        batch: list[_Message] = []
        is_first = True
        async with aclosing(payloads(target, client, payload, send_on)) as parts:
            async for part in parts:
                for number in range(1, count + 1):
                    message = filling.message(part, number)
                    if atomic:
                        batch.append(message)
                        continue
                    if not is_first:
                        await asyncio.sleep(pause_s)
                    is_first = False
                    if ack:
                        await _store(target, client, message, quiet=quiet)
                    else:
                        await client.publish(message[0], message[1], reply=reply, headers=message[2])
                        await client.confirm(message[0])
        if atomic:
            await _store_batch(target, client, batch, quiet=quiet)

    target.with_client(send)


async def _store(target: Target, client: CommandClient, message: _Message, *, quiet: bool) -> None:
    subject, body, headers = message
    try:
        answer = await target.jetstream(client).publish(subject, body, headers=headers)
    except NoStreamResponseError:
        await why_refused(target, client, "INFO")
        raise no_stream(subject) from None
    if quiet:
        return
    if target.as_json:
        print_json({"stream": answer.stream, "seq": answer.seq, "duplicate": bool(answer.duplicate)})
    else:
        console.print(f"stored in {answer.stream} as {answer.seq}" + (" (duplicate)" if answer.duplicate else ""))


async def _store_batch(target: Target, client: CommandClient, batch: list[_Message], *, quiet: bool) -> None:
    """Publish an atomic batch (ADR-50): the first message tells whether the stream takes one, the last one commits."""
    if not 0 < len(batch) <= _BATCH_MAX:
        raise Failure(f"{counted(len(batch), 'message')}: an atomic batch has 1 to {_BATCH_MAX}")
    batch_id, found = NUID().next().decode(), {}
    for number, (subject, body, headers) in enumerate(batch, 1):
        marks = {_BATCH_ID: batch_id, _BATCH_SEQUENCE: str(number)}
        is_last = number == len(batch)
        if number > 1 and not is_last:
            await client.publish(subject, body, headers=(headers or {}) | marks)
            continue
        try:
            reply = await client.request(
                subject,
                body,
                timeout=target.timeout_s,
                headers=(headers or {}) | marks | ({_BATCH_COMMIT: "1"} if is_last else {}),
            )
        except NoRespondersError:
            await why_refused(target, client, "INFO")
            raise no_stream(subject) from None
        found = answer_of(reply.data or b"{}")
    if "batch" not in found:
        raise Failure(
            "the server stored messages one by one: it does not know atomic batches (nats-server 2.12 and later do)"
        )
    if quiet:
        return
    if target.as_json:
        print_json(msgspec.convert(found, dict[str, Any]))
    else:
        console.print(
            f"stored in {found['stream']}: {counted(found.get('count'), 'message')}, the last as {found['seq']}"
        )
