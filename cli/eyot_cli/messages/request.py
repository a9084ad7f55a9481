"""`eyot request`: send requests and print what is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from typing import NamedTuple

import click
import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError

from eyot_cli.connection.command_client import CommandClient
from eyot_cli.connection.refusals import no_responders, refusal
from eyot_cli.connection.target import Target
from eyot_cli.messages.common import parse_headers
from eyot_cli.messages.payloads import Filling, payload_options, payloads, subject_template
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.show import print_json, print_payload, print_raw, raw_option
from eyot_cli.terminal.translating import Translation, translate_option
from eyot_cli.values.numbers import at_least
from eyot_cli.values.seconds import seconds


class Wanted(NamedTuple):
    """Which answers are waited for, and how long."""

    #: so many; 0: all that come in time
    number: int
    timeout_s: float
    #: after the first: so long for each further one
    pause_s: float | None
    #: an answer without payload is the last
    until_empty: bool


@click.command("request")
@click.argument("subject", callback=subject_template)
@click.argument("payload", required=False)
@click.option("--header", "-H", multiple=True, metavar="NAME:VALUE", help="a header; may be given several times")
@click.option(
    "--count",
    "-n",
    type=at_least(1),
    default=1,
    metavar="NUMBER",
    help="send it so many times, one after the other",
)
@click.option(
    "--replies",
    type=at_least(0),
    default=1,
    metavar="NUMBER",
    help="answers to wait for; 0: all that come in time",
)
@click.option(
    "--reply-timeout",
    metavar="TIME",
    show_default="--timeout",
    help="how long to wait for each answer after the first",
)
@click.option("--wait-for-empty", is_flag=True, help="wait for answers until an empty one comes")
@click.option("--wait/--no-wait", "-w", default=True, hidden=True, expose_value=False, help="without effect")
@payload_options
@raw_option
@translate_option
@click.pass_obj
def request(
    target: Target,
    subject: str,
    payload: str | None,
    header: tuple[str, ...],
    count: int,
    replies: int,
    reply_timeout: str | None,
    wait_for_empty: bool,
    send_on: str,
    templates: bool,
    raw: bool,
    translate: Translation | None,
) -> None:
    """Send a request to SUBJECT and print the answer.

    Without PAYLOAD standard input is sent. SUBJECT, PAYLOAD and headers are templates, as those of eyot pub. Exit status 1
    if an answer is an error of JetStream's API, or if fewer answers than --replies come in time.
    """
    filling = Filling(subject, parse_headers(header), templates=templates)
    context = click.get_current_context()
    pause_s = None if reply_timeout is None else seconds(context, context.command.params[0], reply_timeout)
    wanted = Wanted(0 if wait_for_empty else replies, target.timeout_s, pause_s, wait_for_empty)

    async def show(answer: Msg) -> None:
        data = answer.data if translate is None else await translate.of(answer.data, subject=answer.subject)
        (print_raw if raw else _print_answer)(data)

    async def ask(client: CommandClient) -> None:
        async with aclosing(payloads(target, client, payload, send_on)) as parts:
            async for part in parts:
                for number in range(1, count + 1):
                    filled, body, headers = filling.message(part, number)
                    if wanted.number == 1:
                        await show(await _one_answer(client, filled, body, headers, wanted.timeout_s))
                    else:
                        await _print_answers(client, filled, body, headers, wanted, show)

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
    wanted: Wanted,
    show: Callable[[Msg], Awaitable[None]],
) -> None:
    """Send a request and print the answers that are wanted. Raises Failure if fewer come."""
    inbox = client.new_inbox()
    answers = await client.subscribe(inbox)
    await client.publish(subject, body, reply=inbox, headers=headers)
    await client.confirm(subject)
    got, is_done, deadline = 0, False, asyncio.get_running_loop().time() + wanted.timeout_s
    with suppress(NatsTimeoutError):
        while not is_done:
            left_s = deadline - asyncio.get_running_loop().time()
            if got and wanted.pause_s is not None:
                left_s = min(left_s, wanted.pause_s)
            answer = await answers.next_msg(timeout=max(left_s, 0.001))
            if not answer.data and (answer.headers or {}).get("Status") == "503":
                raise no_responders(subject)
            if wanted.until_empty and not answer.data:
                is_done = True
                continue
            got += 1
            await show(answer)
            is_done = got == wanted.number
    await answers.unsubscribe()
    if wanted.until_empty and not is_done:
        raise Failure(f"{got} answers on {subject} in {wanted.timeout_s:g} s and no empty one: --timeout waits longer")
    if got < max(wanted.number, 1) and not is_done:
        told = f"{got} of {wanted.number or 'any'} answers on {subject}"
        raise Failure(f"{told} in {wanted.timeout_s:g} s: --timeout waits longer")


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
