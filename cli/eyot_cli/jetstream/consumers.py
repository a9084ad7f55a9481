"""`eyot consumer`: the consumers of a stream."""

from __future__ import annotations

import click
import msgspec
from nats.errors import TimeoutError as NatsTimeoutError

from eyot_cli.connection.command_client import CommandClient
from eyot_cli.connection.target import Target
from eyot_cli.jetstream.api import ask, why_refused
from eyot_cli.jetstream.consumer_changes import CONSUMER_CHANGES
from eyot_cli.jetstream.consumer_find import consumer_find
from eyot_cli.jetstream.consumer_info import consumer_of, every_consumer
from eyot_cli.jetstream.reports import consumer_report
from eyot_cli.jetstream.stored import print_stored, stored_of
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.lazy import AliasGroup
from eyot_cli.terminal.show import (
    console,
    count,
    names_option,
    no_select_option,
    print_json,
    print_names,
    print_raw,
    print_table,
    raw_option,
    span,
)
from eyot_cli.values.names import stream_name
from eyot_cli.values.numbers import at_least
from eyot_cli.values.seconds import seconds
from eyot_wire.jetstream import error_codes as codes
from eyot_wire.jetstream.consumer import ConsumerInfo

#: An answer of the server to a pull request that holds no message.
_STATUS = "Status"


@click.group(cls=AliasGroup)
def consumer() -> None:
    """List, make, change, read and delete consumers."""


@consumer.command("ls")
@click.argument("stream", callback=stream_name)
@no_select_option
@names_option
@click.pass_obj
def listing(target: Target, stream: str, names: bool) -> None:
    """List the consumers of STREAM."""
    found = target.with_client(lambda client: every_consumer(target, client, stream))
    if names:
        print_names([each["name"] for each in found], as_json=target.as_json)
        return
    if target.as_json:
        print_json(found)
        return
    columns = ("Consumer", "Kind", "Filter", "Acks", ">Unprocessed", ">Ack Pending", ">Redelivered", ">Waiting")
    rows = []
    for each in map(consumer_of, found):
        config = each.config
        assert config is not None, "checked"
        filters = ", ".join(config.filter_subjects or [config.filter_subject])
        rows.append(
            (each.name, "push" if config.deliver_subject else "pull", filters, config.ack_policy, count(each.num_pending),
             count(each.num_ack_pending), count(each.num_redelivered), count(each.num_waiting))
        )  # fmt: skip
    print_table(f"Consumers of {stream}", columns, rows, "none")


@consumer.command("state")
@click.argument("stream", callback=stream_name)
@click.argument("name", callback=stream_name)
@no_select_option
@click.pass_obj
def state(target: Target, stream: str, name: str) -> None:
    """Show how far one consumer is."""
    found = target.with_client(lambda client: ask(target, client, f"CONSUMER.INFO.{stream}.{name}", {}))
    if target.as_json:
        print_json({member: value for member, value in found.items() if member not in ("type", "config")})
        return
    console.print((f"{stream} > {name}", "bold"))
    print_table("", ("", ""), _state_of(consumer_of(found)), "")


@consumer.command("info")
@click.argument("stream", callback=stream_name)
@click.argument("name", callback=stream_name)
@no_select_option
@click.pass_obj
def details(target: Target, stream: str, name: str) -> None:
    """Show configuration and state of one consumer."""
    found = target.with_client(lambda client: ask(target, client, f"CONSUMER.INFO.{stream}.{name}", {}))
    if target.as_json:
        print_json(found)
        return
    info = consumer_of(found)
    config = info.config
    assert config is not None, "checked"
    console.print((f"{stream} > {info.name}", "bold"), f" created {info.created}")
    start = {"by_start_sequence": str(config.opt_start_seq), "by_start_time": config.opt_start_time or ""}
    pairs = [
        ("Kind", f"push to {config.deliver_subject}" if config.deliver_subject else "pull"),
        ("Filter", ", ".join(config.filter_subjects or [config.filter_subject]) or "all subjects"),
        ("Delivers from", f"{config.deliver_policy} {start.get(config.deliver_policy, '')}".rstrip()),
        ("Acks", config.ack_policy), ("Ack wait", span(config.ack_wait / 1e9)),
        ("Maximum deliveries", "unlimited" if config.max_deliver < 1 else count(config.max_deliver)),
    ]  # fmt: skip
    print_table("", ("", ""), [*pairs, *_state_of(info)], "")


def _state_of(info: ConsumerInfo) -> list[tuple[str, str]]:
    config = info.config
    assert config is not None, "checked"
    return [
        ("Last delivered", f"stream {count(info.delivered.stream_seq)}, consumer {count(info.delivered.consumer_seq)}"),
        ("Acked up to", f"stream {count(info.ack_floor.stream_seq)}, consumer {count(info.ack_floor.consumer_seq)}"),
        ("Ack pending", f"{count(info.num_ack_pending)} of {count(config.max_ack_pending)}"),
        ("Redelivered", count(info.num_redelivered)), ("Unprocessed", count(info.num_pending)),
        ("Waiting requests", f"{count(info.num_waiting)} of {count(config.max_waiting)}"),
        ("Paused", f"for {span(info.pause_remaining / 1e9)}" if info.paused else "no"),
    ]  # fmt: skip


@consumer.command("next")
@click.argument("stream", callback=stream_name)
@click.argument("name", callback=stream_name)
@click.option("--count", "-n", "most", type=at_least(1), default=1, help="end after so many messages")
@click.option("--ack/--no-ack", default=True, help="acknowledge what was printed, and wait until that is on flash")
@click.option("--nak", is_flag=True, help="refuse them instead: they come again")
@click.option("--term", is_flag=True, help="refuse them instead: they never come again")
@click.option("--wait", "wait_s", callback=seconds, default="5s", metavar="TIME", help="how long to wait for each")
@raw_option
@click.pass_obj
def take(
    target: Target, stream: str, name: str, most: int, ack: bool, nak: bool, term: bool, wait_s: float, raw: bool
) -> None:
    """Pull messages of the consumer NAME of STREAM and print them."""
    if nak and term:
        raise click.UsageError("--nak and --term exclude each other")
    answer = b"-NAK" if nak else b"+TERM" if term else b"+ACK" if ack else b""

    async def pull(client: CommandClient) -> None:
        body = msgspec.json.encode({"batch": 1, "expires": round(wait_s * 1e9)})
        for _ in range(most):
            # Not `request`: that takes an answer without responders for an error, and its inbox for one answer.
            inbox = await client.subscribe(client.new_inbox(), max_msgs=1)
            subject = f"{target.api_prefix}.CONSUMER.MSG.NEXT.{stream}.{name}"
            await client.publish(subject, body, reply=inbox.subject)
            await client.confirm(subject)
            try:
                message = await inbox.next_msg(timeout=wait_s + target.timeout_s)
            except NatsTimeoutError:
                raise Failure(f"no answer of {stream} > {name}") from None
            status = (message.headers or {}).get(_STATUS)
            if status == "503":
                await why_refused(target, client, f"CONSUMER.INFO.{stream}.{name}", told=codes.JSConsumerNotFoundErr)
                raise Failure(f"{stream} has no consumer {name}: eyot consumer ls {stream} lists them")
            if status in ("404", "408"):
                raise Failure(f"no message within {span(wait_s)}")
            if status is not None:
                raise Failure(f"{(message.headers or {}).get('Description', 'refused')} ({status})")
            if raw:
                print_raw(message.data)
            else:
                print_stored(target, stream, stored_of(message))
            if answer and message.reply:
                await client.request(message.reply, answer, timeout=target.timeout_s)

    target.with_client(pull)


for command in (consumer_find, consumer_report, *CONSUMER_CHANGES):
    consumer.add_command(command)
