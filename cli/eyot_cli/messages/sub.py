"""`eyot sub`: print messages as they are published, or those that a stream holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any

import click
from nats.aio.msg import Msg
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js.api import DeliverPolicy

from eyot_cli.connection.command_client import CommandClient
from eyot_cli.connection.refusals import Refusal, no_stream
from eyot_cli.connection.target import Target
from eyot_cli.jetstream.api import ask
from eyot_cli.jetstream.direct_reading import directly, is_direct
from eyot_cli.jetstream.stored import Silence, in_order
from eyot_cli.messages.sub_output import Output, output_options
from eyot_cli.messages.sub_reports import drawn, report_of, report_options
from eyot_cli.terminal.failure import Failure
from eyot_cli.values.ages import age_ns
from eyot_cli.values.moments import ago, as_text
from eyot_cli.values.names import stream_name, subject_to_subscribe
from eyot_cli.values.numbers import at_least
from eyot_cli.values.seconds import seconds
from eyot_wire.jetstream import error_codes as codes
from eyot_wire.quantities import counted
from eyot_wire.subject import overlaps

#: Messages that are received ahead of what is printed.
_AHEAD = 64
#: Options that say where in a stream to begin, and the policies that they mean.
_POLICIES = {
    "deliver_all": DeliverPolicy.ALL,
    "deliver_new": DeliverPolicy.NEW,
    "deliver_last": DeliverPolicy.LAST,
    "last_per_subject": DeliverPolicy.LAST_PER_SUBJECT,
}


def _subjects(context: click.Context, argument: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(subject_to_subscribe(context, argument, each) for each in given)


@click.command("sub")
@click.argument("subjects", nargs=-1, metavar="[SUBJECT...]", callback=_subjects)
@click.option("--count", "-n", type=at_least(1), help="end after so many messages")
@click.option("--wait", "wait", metavar="TIME", help="end after so long without a message")
@click.option("--queue", "-q", default="", help="queue group")
@click.option("--inbox", "-i", is_flag=True, help="subscribe to a new inbox, and print its name")
@click.option(
    "--ignore-subject", "-I", "ignored", multiple=True, callback=_subjects, metavar="SUBJECT", help="not these"
)
@click.option("--ack", is_flag=True, help="acknowledge what a consumer pushes")
@click.option("--stream", callback=stream_name, metavar="STREAM", help="messages of this stream, also later ones")
@click.option("--durable", callback=stream_name, metavar="NAME", help="by this consumer of it, and acknowledge")
@click.option("--direct", is_flag=True, help="by direct gets, without a consumer; a work queue is always read so")
@click.option("--all", "deliver_all", is_flag=True, help="the stream from its first message")
@click.option("--new", "deliver_new", is_flag=True, help="only messages that the stream stores from now on")
@click.option("--last", "deliver_last", is_flag=True, help="its last message, and later ones")
@click.option("--last-per-subject", is_flag=True, help="the last message of each subject, and later ones")
@click.option("--start-sequence", type=at_least(1), metavar="N", help="the stream from this sequence")
@click.option("--since", callback=age_ns, metavar="TIME", help="what it has stored since a time ago: 1h")
@click.option("--terminate-at-end", "-T", is_flag=True, help="end when all that the stream holds was printed")
@report_options
@output_options
@click.pass_obj
def subscribe(
    target: Target,
    /,
    subjects: tuple[str, ...],
    count: int | None,
    wait: str | None,
    queue: str,
    inbox: bool,
    ignored: tuple[str, ...],
    ack: bool,
    stream: str | None,
    durable: str | None,
    direct: bool,
    terminate_at_end: bool,
    graph: bool,
    report_subjects: bool,
    report_subscriptions: bool,
    report_top: int,
    **how: Any,
) -> None:
    """Print messages published to SUBJECT.

    With an option about a stream, messages that a stream holds are printed: that of --stream, or the one that stores SUBJECT.
    """
    starts = [each for each in (*_POLICIES, "start_sequence", "since") if how[each]]
    stored = stream is not None or durable is not None or direct or bool(starts)
    _check_usage(
        subjects, stored=stored, stream=stream, inbox=inbox, queue=queue, starts=starts, durable=durable, direct=direct
    )
    if terminate_at_end and not stored:
        raise click.UsageError("--terminate-at-end is about a stream: --stream, --all and others say where it begins")
    start = {name: how.pop(name) for name in (*_POLICIES, "start_sequence", "since")}
    context = click.get_current_context()
    wait_s = None if wait is None else seconds(context, context.command.params[0], wait)

    report = report_of(
        target, subjects, graph=graph, subjects=report_subjects, subscriptions=report_subscriptions, most=report_top
    )

    async def listen(client: CommandClient) -> None:
        output = Output(target, **how)
        asked, silence = subjects, Silence(wait_s)
        if inbox:
            asked = (client.new_inbox(),)
            output.say(f"subscribed to {asked[0]}")
        if stored:
            name = stream or await _stream_of(target, client, asked[0])
            subject = asked[0] if asked else ">"
            options = _start(start) | {"follow": not terminate_at_end, "silence": silence}
            if durable is not None:
                found = _of_consumer(target, client, name, durable, subject, start, count, silence)
            elif await is_direct(target, client, name, wanted=direct):
                found = directly(target, client, name, subject, **options)
            else:
                found = in_order(target, client, name, subject, headers_only=output.needs_no_payload, **options)
        else:
            found = _published(target, client, asked, queue, silence)
        number = 0
        async with aclosing(found) as messages, drawn(report):
            async for message in messages:
                if any(overlaps(each.encode(), message.subject.encode()) for each in ignored):
                    continue
                number += 1
                if report is not None:
                    report.add(message)
                else:
                    await output.show(message, number, stored=stored)
                if durable is not None or (ack and not stored and message.reply.startswith("$JS.ACK.")):
                    await _acknowledge(target, client, message, is_last=number == count)
                if number == count:
                    break
        await client.flush()

    target.with_client(listen)


def _check_usage(
    subjects: tuple[str, ...],
    *,
    stored: bool,
    stream: str | None,
    inbox: bool,
    queue: str,
    starts: list[str],
    durable: str | None,
    direct: bool,
) -> None:
    """Raise UsageError for options that do not go together."""
    if len(starts) > 1:
        raise click.UsageError("only one option may say where in the stream to begin")
    if stored and (len(subjects) > 1 or inbox or queue):
        raise click.UsageError("a stream is read with one SUBJECT at most, without --inbox and --queue")
    if inbox and subjects:
        raise click.UsageError("SUBJECT and --inbox exclude each other")
    if not subjects and not inbox and stream is None:
        raise click.UsageError("name a SUBJECT, --inbox or --stream")
    if direct and durable is not None:
        raise click.UsageError("--direct reads without a consumer, so without --durable")
    if durable is not None and stream is None and not subjects:
        raise click.UsageError("--durable needs the --stream that it is of")


def _start(start: dict[str, Any]) -> dict[str, Any]:
    """Return arguments of `in_order` for where to begin."""
    if start["start_sequence"]:
        return {"start_seq": start["start_sequence"]}
    if start["since"]:
        return {"start_time": ago(start["since"])}
    return {"policy": next((policy for name, policy in _POLICIES.items() if start[name]), DeliverPolicy.ALL)}


async def _acknowledge(target: Target, client: CommandClient, message: Msg, *, is_last: bool) -> None:
    """Acknowledge; after the last message wait until the server has that and all before."""
    if is_last:
        await client.request(message.reply, b"", timeout=target.timeout_s)
    else:
        await client.publish(message.reply, b"")


async def _published(
    target: Target, client: CommandClient, subjects: tuple[str, ...], queue: str, silence: Silence
) -> AsyncGenerator[Msg, None]:
    """Yield what is published to the subjects."""
    arrived = asyncio.Queue[Msg](_AHEAD)

    async def note(message: Msg) -> None:
        await arrived.put(message)

    for subject in subjects:
        await client.subscribe(subject, queue=queue, cb=note)
        await client.confirm(subject)
    while not silence.is_over:
        with suppress(TimeoutError):
            message = await asyncio.wait_for(arrived.get(), silence.look_s)
            silence.break_off()
            yield message
            continue
        if client.is_closed and arrived.empty():
            raise target.gone()


async def _stream_of(target: Target, client: CommandClient, subject: str) -> str:
    """Return the name of the stream that stores a subject. Raises Failure."""
    found = (await ask(target, client, "STREAM.NAMES", {"subject": subject})).get("streams") or []
    if not found:
        raise no_stream(subject)
    if len(found) > 1:
        raise Failure(
            f"{subject} is stored in {counted(len(found), 'stream')}: --stream names one of {', '.join(sorted(found))}"
        )
    return str(found[0])


async def _of_consumer(
    target: Target,
    client: CommandClient,
    stream: str,
    name: str,
    subject: str,
    start: dict[str, Any],
    most: int | None,
    silence: Silence,
) -> AsyncGenerator[Msg, None]:
    """Yield messages of a durable pull consumer, which is made if it is missing. Raises Failure."""
    try:
        config = (await ask(target, client, f"CONSUMER.INFO.{stream}.{name}", {}))["config"]
    except Refusal as error:
        if error.err_code != codes.JSConsumerNotFoundErr:
            raise
        config = {"durable_name": name, "ack_policy": "explicit"} | (
            {} if subject == ">" else {"filter_subject": subject}
        )
        config |= _consumer_start(start)
        await ask(target, client, f"CONSUMER.DURABLE.CREATE.{stream}.{name}", {"stream_name": stream, "config": config})
    if pushed := config.get("deliver_subject"):
        group = f" --queue {config['deliver_group']}" if config.get("deliver_group") else ""
        raise Failure(f"{name} pushes its messages: eyot sub {pushed}{group} --ack receives them")
    read = await target.jetstream(client).pull_subscribe_bind(name, stream)
    got = 0
    while (most is None or got < most) and not silence.is_over:
        try:
            messages = await read.fetch(min(_AHEAD, _AHEAD if most is None else most - got), timeout=silence.look_s)
        except NatsTimeoutError:
            if client.is_closed:
                raise target.gone() from None
            continue
        for message in messages:
            got += 1
            silence.break_off()
            yield message


def _consumer_start(start: dict[str, Any]) -> dict[str, Any]:
    found = _start(start)
    if "start_seq" in found:
        return {"deliver_policy": "by_start_sequence", "opt_start_seq": found["start_seq"]}
    if "start_time" in found:
        return {"deliver_policy": "by_start_time", "opt_start_time": as_text(found["start_time"])}
    return {"deliver_policy": found["policy"].value}
