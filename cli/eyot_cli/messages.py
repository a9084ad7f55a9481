"""`eyot pub`, `eyot request` and `eyot sub`: basic messaging; the `nats` tool does more."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress

import click
import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js.errors import NoStreamResponseError

from eyot_cli.api import why_refused
from eyot_cli.command_client import CommandClient
from eyot_cli.failure import Failure
from eyot_cli.names import subject_to_publish, subject_to_subscribe
from eyot_cli.refusals import no_responders, no_stream, refusal
from eyot_cli.seconds import seconds
from eyot_cli.show import console, print_json, print_payload, print_raw, raw_option
from eyot_cli.stored import payload_member
from eyot_cli.target import Target

#: Interval at which `sub` checks its connection, seconds.
LOOK_S = 0.5


@click.command("pub")
@click.argument("subject", callback=subject_to_publish)
@click.argument("payload", required=False)
@click.option("--header", "-H", multiple=True, metavar="NAME:VALUE", help="a header; may be given several times")
@click.option(
    "--ack", "--jetstream", "-J", is_flag=True, help="publish to a stream and wait until it is on flash there"
)
@click.option("--reply", default="", metavar="SUBJECT", help="where answers are to go")
@click.option("--count", type=click.IntRange(min=1), default=1, metavar="NUMBER", help="publish it so many times")
@click.option("--sleep", "pause_s", callback=seconds, default="0", metavar="TIME", help="pause between them")
@click.pass_obj
def publish(
    target: Target,
    subject: str,
    payload: str | None,
    header: tuple[str, ...],
    ack: bool,
    reply: str,
    count: int,
    pause_s: float,
) -> None:
    """Publish PAYLOAD (or standard input) to SUBJECT."""
    if ack and reply:
        raise click.UsageError("--ack and --reply exclude each other: the PubAck goes to the reply subject")
    body = sys.stdin.buffer.read() if payload is None else payload.encode()
    headers = parse_headers(header)

    async def send(client: CommandClient) -> None:
        for number in range(count):
            if number:
                await asyncio.sleep(pause_s)
            await send_one(client)

    async def send_one(client: CommandClient) -> None:
        if ack:
            try:
                answer = await target.jetstream(client).publish(subject, body, headers=headers)
            except NoStreamResponseError:
                await why_refused(target, client, "INFO")
                raise no_stream(subject) from None
            if target.as_json:
                print_json({"stream": answer.stream, "seq": answer.seq, "duplicate": bool(answer.duplicate)})
            else:
                console.print(
                    f"stored in {answer.stream} as {answer.seq}" + (" (duplicate)" if answer.duplicate else "")
                )
            return
        await client.publish(subject, body, reply=reply, headers=headers)
        await client.confirm(subject)

    target.with_client(send)


@click.command("request")
@click.argument("subject", callback=subject_to_publish)
@click.argument("payload", required=False)
@click.option("--header", "-H", multiple=True, metavar="NAME:VALUE", help="a header; may be given several times")
@click.option(
    "--count",
    "-n",
    type=click.IntRange(min=1),
    default=1,
    metavar="NUMBER",
    help="send it so many times, one after the other",
)
@click.option(
    "--replies",
    type=click.IntRange(min=0),
    default=1,
    metavar="NUMBER",
    help="answers to wait for; 0: all that come in time",
)
@raw_option
@click.pass_obj
def request(
    target: Target,
    subject: str,
    payload: str | None,
    header: tuple[str, ...],
    count: int,
    replies: int,
    raw: bool,
) -> None:
    """Send a request to SUBJECT and print the answer.

    Without PAYLOAD standard input is sent. Exit status 1 if an answer is an error of JetStream's API, or if fewer answers
    than --replies come in time.
    """
    body = sys.stdin.buffer.read() if payload is None else payload.encode()
    headers, timeout_s = parse_headers(header), target.timeout_s
    show = print_raw if raw else _print_answer

    async def ask(client: CommandClient) -> None:
        for _ in range(count):
            if replies == 1:
                show((await _one_answer(client, subject, body, headers, timeout_s)).data)
            else:
                await _print_answers(client, subject, body, headers, replies, timeout_s, show)

    target.with_client(ask)


async def _one_answer(
    client: Client, subject: str, body: bytes, headers: dict[str, str] | None, timeout_s: float
) -> Msg:
    try:
        return await client.request(subject, body, timeout=timeout_s, headers=headers)
    except NoRespondersError:
        raise no_responders(subject) from None
    except NatsTimeoutError:
        raise Failure(f"no answer on {subject} in {timeout_s:g} s: --timeout waits longer") from None


async def _print_answers(
    client: CommandClient,
    subject: str,
    body: bytes,
    headers: dict[str, str] | None,
    replies: int,
    timeout_s: float,
    show: Callable[[bytes], None],
) -> None:
    """Send a request and print so many answers, or with 0 all that come in time. Raises Failure if fewer come."""
    inbox = client.new_inbox()
    answers = await client.subscribe(inbox)
    await client.publish(subject, body, reply=inbox, headers=headers)
    await client.confirm(subject)
    got, deadline = 0, asyncio.get_running_loop().time() + timeout_s
    with suppress(NatsTimeoutError):
        while replies == 0 or got < replies:
            left_s = deadline - asyncio.get_running_loop().time()
            answer = await answers.next_msg(timeout=max(left_s, 0.001))
            if not answer.data and (answer.headers or {}).get("Status") == "503":
                raise no_responders(subject)
            got += 1
            show(answer.data)
    await answers.unsubscribe()
    if got < max(replies, 1):
        raise Failure(f"{got} of {replies or 'any'} answers on {subject} in {timeout_s:g} s: --timeout waits longer")


def _print_answer(data: bytes) -> None:
    """Print one answer. Raises Failure for an error of JetStream's API."""
    try:
        known = msgspec.json.decode(data)
    except msgspec.MsgspecError:
        known = None
    if not isinstance(known, dict):
        print_payload(data.decode("utf-8", "replace"))
        return
    print_json(known)
    error = known.get("error")
    if isinstance(error, dict):
        raise refusal(error.get("description"), error.get("err_code"))


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


async def until_done(target: Target, client: Client, done: asyncio.Event) -> None:
    """Return when `done` is set. Raises Failure if the connection ends first."""
    while not done.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(done.wait(), LOOK_S)
        if client.is_closed and not done.is_set():
            raise Failure(f"the connection to {target.shown_server} is gone")


async def next_of(target: Target, client: Client, arrived: asyncio.Queue[Msg]) -> Msg:
    """Return the next message of a queue that subscriptions fill. Raises Failure if the connection ends first."""
    while True:
        with suppress(TimeoutError):
            return await asyncio.wait_for(arrived.get(), LOOK_S)
        if client.is_closed and arrived.empty():
            raise Failure(f"the connection to {target.shown_server} is gone")


@click.command("sub")
@click.argument("subject", callback=subject_to_subscribe)
@click.option("--count", "-n", type=click.IntRange(min=1), help="end after so many messages")
@click.option("--queue", "-q", default="", help="queue group")
@raw_option
@click.pass_obj
def subscribe(target: Target, subject: str, count: int | None, queue: str, raw: bool) -> None:
    """Print messages published to SUBJECT."""

    async def listen(client: CommandClient) -> None:
        done = asyncio.Event()
        seen = 0

        async def show(message: Msg) -> None:
            nonlocal seen
            if count is not None and seen >= count:
                return
            seen += 1
            if raw:
                print_raw(message.data)
            else:
                print_message(target, message)
            if seen == count:
                done.set()

        await client.subscribe(subject, queue=queue, cb=show)
        await client.confirm(subject)
        await until_done(target, client, done)

    target.with_client(listen)
