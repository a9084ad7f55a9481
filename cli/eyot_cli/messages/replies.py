"""`eyot reply`: a responder for tests and small services."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click
from nats.errors import Error as NatsError

from eyot_cli.connection.refusals import said
from eyot_cli.connection.target import Target
from eyot_cli.messages.common import Done, ending_by_errors, parse_headers, print_message, until_done
from eyot_cli.messages.templates import Values, check_template, fill, random_time
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.show import print_line
from eyot_cli.values.names import subject_to_subscribe
from eyot_cli.values.numbers import at_least
from eyot_cli.values.seconds import seconds

if TYPE_CHECKING:
    from nats.aio.msg import Msg

    from eyot_cli.connection.command_client import CommandClient

#: Stands for a space within a template's function while a command is split into words.
_GAP = "\x1f"
#: Header with the number of an echoed request, as in the `nats` tool.
COUNTER = "NATS-Reply-Counter"
#: Headers by which a service refuses (ADR-32).
ERROR, ERROR_CODE = "Nats-Service-Error", "Nats-Service-Error-Code"


@dataclass(frozen=True)
class Answer:
    """How requests are answered: with a text, a command's output, or, without both, an echo."""

    body: str | None
    command: list[str] | None
    headers: dict[str, str]
    timeout_s: float

    async def to(self, request: Msg, count: int) -> tuple[bytes, dict[str, str]]:
        """Return payload and headers of the answer to one request."""
        text = request.data.decode("utf-8", "replace")
        values = Values(request.subject, text, count, datetime.now(UTC).astimezone())
        headers = {name: fill(value, values) for name, value in self.headers.items()}
        if self.command is not None:
            # Filled word by word: what a request holds never becomes another word of the command.
            output, failed = await self._run([fill(word, values) for word in self.command], request)
            return output, headers | failed
        if self.body is not None:
            return fill(self.body, values).encode(), headers
        return request.data, dict(request.headers or {}) | headers | {COUNTER: str(count)}

    async def _run(self, words: list[str], request: Msg) -> tuple[bytes, dict[str, str]]:
        """Run a command; return its output, and headers that say why it failed, if it did."""
        told = {b"NATS_REQUEST_SUBJECT": request.subject.encode()}
        if b"\0" not in request.data:
            told[b"NATS_REQUEST_BODY"] = request.data
        try:
            process = await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=dict(os.environb) | told,
            )
        except (OSError, ValueError) as error:  # ValueError: a request's NUL in a word
            return b"", _failed(f"{words[0]}: {getattr(error, 'strerror', None) or error}")
        try:
            output, _ = await asyncio.wait_for(process.communicate(), self.timeout_s)
        except TimeoutError:
            return b"", _failed(f"{words[0]}: not done in {self.timeout_s:g} s")
        finally:
            with suppress(ProcessLookupError):
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        return output, _failed(f"{words[0]}: exit status {process.returncode}") if process.returncode else {}


def _failed(why: str) -> dict[str, str]:
    print_line(f"eyot: {why}", error=True)
    return {ERROR_CODE: "500", ERROR: why}


async def _send(client: CommandClient, request: Msg, answer: tuple[bytes, dict[str, str]]) -> None:
    if not request.reply:
        print_line(f"eyot: {request.subject}: published without a reply subject, so nobody waits", error=True)
        return
    try:
        await client.publish(request.reply, answer[0], headers=answer[1] or None)
        await client.confirm(request.reply)
    except NatsError as error:  # an answer above max_payload, say; the next request may be answered
        print_line(f"eyot: {request.subject}: not answered: {said(error)}", error=True)


@click.command("reply")
@click.argument("subject", callback=subject_to_subscribe)
@click.argument("payload", required=False)
@click.option("--command", metavar="COMMAND", help="answer with the output of this command")
@click.option("--echo", is_flag=True, help="answer with the request, the default without PAYLOAD and --command")
@click.option("--header", "-H", multiple=True, metavar="NAME:VALUE", help="a header; may be given several times")
@click.option(
    "--queue", "-q", default="NATS-RPLY-22", metavar="NAME", help="queue group, by default that of the nats tool"
)
@click.option("--count", "-n", type=at_least(1), help="end after so many requests")
@click.option(
    "--sleep", "sleep_s", callback=seconds, default="0", metavar="MAX", help="wait at random before each answer"
)
@click.option(
    "--timeout", "timeout_s", callback=seconds, default="30s", metavar="TIME", help="how long the command may run"
)
@click.pass_obj
def reply(
    target: Target,
    subject: str,
    payload: str | None,
    command: str | None,
    echo: bool,
    header: tuple[str, ...],
    queue: str,
    count: int | None,
    sleep_s: float,
    timeout_s: float,
) -> None:
    """Answer requests on SUBJECT with PAYLOAD.

    PAYLOAD, headers and command are templates: {{Request}}, {{Count}}, {{TimeStamp}}, {{Time}}, {{Unix}}, {{UnixNano}},
    {{ID}}, {{UUID}}, {{Random 5 10}}; in the command {{1}} is the second token of the subject. The command also gets
    NATS_REQUEST_SUBJECT and NATS_REQUEST_BODY. If it fails, the answer says so in Nats-Service-Error.
    """
    if sum((payload is not None, command is not None, echo)) > 1:
        raise click.UsageError("PAYLOAD, --command and --echo exclude each other")
    headers = parse_headers(header) or {}
    for value in headers.values():
        check_template(value)
    answer = Answer(None if payload is None else check_template(payload), _words(command), headers, timeout_s)

    async def serve(client: CommandClient) -> None:
        done: Done = asyncio.get_running_loop().create_future()
        seen = 0

        async def respond(request: Msg) -> None:
            nonlocal seen
            number, seen = seen, seen + 1
            if count is not None and number >= count:
                return
            print_message(target, request)
            await asyncio.sleep(random_time(sleep_s))
            await _send(client, request, await answer.to(request, number))
            if seen == count:
                done.set_result(None)

        subscription = await client.subscribe(subject, queue=queue, cb=ending_by_errors(done, respond))
        if count is not None:
            await subscription.unsubscribe(limit=count)  # later requests go to others of the queue group
            # The server counts. nats-py would drop a request that arrives while the one before is answered.
            subscription._max_msgs = 0
        await client.confirm(subject)
        await until_done(target, client, done)

    target.with_client(serve)


def _words(command: str | None) -> list[str] | None:
    """Split a command as a shell does. Raises BadParameter, and Failure for none."""
    if command is None:
        return None
    try:
        # A function with arguments is one word: its spaces do not count.
        closed = re.sub(r"\{\{.*?\}\}", lambda found: _GAP.join(found[0].split()), check_template(command, tokens=True))
        words = [word.replace(_GAP, " ") for word in shlex.split(closed)]
    except ValueError as error:
        raise click.BadParameter(f"{command!r}: {error}", param_hint="'--command'") from error
    if not words:
        raise Failure("--command is empty: name a program")
    return words
