"""`eyot consumer`: the consumers of a stream."""

from __future__ import annotations

from typing import Any

import click
import msgspec
from nats.errors import TimeoutError as NatsTimeoutError

from eyot_cli.ages import age_ns
from eyot_cli.answers import tell
from eyot_cli.api import ask, why_refused
from eyot_cli.command_client import CommandClient
from eyot_cli.confirm import confirm, force
from eyot_cli.consumer_info import consumer_of, every_consumer
from eyot_cli.failure import Failure
from eyot_cli.lazy import AliasGroup
from eyot_cli.moments import parse_moment
from eyot_cli.names import stream_name
from eyot_cli.reports import consumer_report
from eyot_cli.seconds import seconds
from eyot_cli.show import (
    console,
    count,
    names_option,
    print_json,
    print_names,
    print_raw,
    print_table,
    raw_option,
    span,
)
from eyot_cli.stored import print_stored, stored_of
from eyot_cli.target import Target
from eyot_wire.jetstream import error_codes as codes

#: An answer of the server to a pull request that holds no message.
_STATUS = "Status"


@click.group(cls=AliasGroup)
def consumer() -> None:
    """List, make, read and delete consumers."""


@consumer.command("ls")
@click.argument("stream", callback=stream_name)
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


@consumer.command("info")
@click.argument("stream", callback=stream_name)
@click.argument("name", callback=stream_name)
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
        ("Last delivered", f"stream {count(info.delivered.stream_seq)}, consumer {count(info.delivered.consumer_seq)}"),
        ("Acked up to", f"stream {count(info.ack_floor.stream_seq)}, consumer {count(info.ack_floor.consumer_seq)}"),
        ("Ack pending", f"{count(info.num_ack_pending)} of {count(config.max_ack_pending)}"),
        ("Redelivered", count(info.num_redelivered)), ("Unprocessed", count(info.num_pending)),
        ("Waiting requests", f"{count(info.num_waiting)} of {count(config.max_waiting)}"),
        ("Paused", f"for {span(info.pause_remaining / 1e9)}" if info.paused else "no"),
    ]  # fmt: skip
    print_table("", ("", ""), pairs, "")


@consumer.command("add")
@click.argument("stream", callback=stream_name)
@click.argument("name", callback=stream_name)
@click.option("--filter", "filters", multiple=True, metavar="SUBJECT", help="only these subjects")
@click.option("--deliver", default="all", metavar="FROM", help="all, new, last, subject, a sequence or a time ago: 1h")
@click.option("--ack", type=click.Choice(["explicit", "all", "none"]), default="explicit", help="which acks are needed")
@click.option("--wait", "ack_wait", callback=age_ns, metavar="TIME", help="how long an ack may take")
@click.option("--max-deliver", type=int, metavar="N", help="deliveries of one message at most")
@click.option("--max-pending", "max_ack_pending", type=int, metavar="N", help="messages without an ack at most")
@click.option("--target", "deliver_subject", metavar="SUBJECT", help="push to this subject instead of being pulled")
@click.option("--deliver-group", metavar="NAME", help="queue group of --target")
@click.option("--headers-only", is_flag=True, default=None, help="no payloads")
@click.option(
    "--inactive-threshold", callback=age_ns, metavar="TIME", help="delete it when nobody has used it for so long"
)
@click.option("--ephemeral", is_flag=True, help="no durable: it goes after --inactive-threshold")
@click.option("--description", metavar="TEXT", help="what it is for")
@click.option(
    "--replay", "replay_policy", type=click.Choice(["instant", "original"]), default="instant", help="how fast"
)
@click.option(
    "--heartbeat", "idle_heartbeat", callback=age_ns, metavar="TIME", help="tell --target after so long a silence"
)
@click.option("--flow-control", is_flag=True, default=None, help="--target tells how far it is; needs --heartbeat")
@click.option("--max-waiting", type=int, metavar="N", help="pull requests that wait at most")
@click.option("--sample", "sample_freq", type=click.IntRange(0, 100), metavar="PERCENT", help="acks that are reported")
@click.option("--memory", "mem_storage", is_flag=True, default=None, help="state in memory alone")
@click.option("--replicas", "num_replicas", type=int, metavar="N", help="copies in a cluster")
@click.option("--pull", is_flag=True, expose_value=False, help="to be pulled: so it is without --target")
@click.option("--defaults", is_flag=True, expose_value=False, help="as in the nats tool; eyot never asks")
@click.pass_obj
def add(
    target: Target,
    /,
    stream: str,
    name: str,
    filters: tuple[str, ...],
    deliver: str,
    ack: str,
    ephemeral: bool,
    **given: Any,
) -> None:
    """Make the consumer NAME of STREAM, or change it."""
    config: dict[str, Any] = {"name": name, "ack_policy": ack} | _delivery(deliver)
    if not ephemeral:
        config["durable_name"] = name
    if len(filters) == 1:
        config["filter_subject"] = filters[0]
    elif filters:
        config["filter_subjects"] = list(filters)
    if (percent := given.pop("sample_freq", None)) is not None:
        config["sample_freq"] = f"{percent}%"
    config |= {member: value for member, value in given.items() if value is not None}
    body = {"stream_name": stream, "config": config}
    found = target.with_client(lambda client: ask(target, client, f"CONSUMER.CREATE.{stream}.{name}", body))
    tell(target, found, f"consumer {name} of {stream} is there")


def _delivery(text: str) -> dict[str, Any]:
    if text.isdigit() and int(text) > 0:
        return {"deliver_policy": "by_start_sequence", "opt_start_seq": int(text)}
    policies = {"all": "all", "new": "new", "last": "last", "subject": "last_per_subject"}
    if text in (*policies, "last_per_subject"):
        return {"deliver_policy": policies.get(text, text)}
    try:
        return {"deliver_policy": "by_start_time", "opt_start_time": parse_moment(text, ahead=-1)}
    except click.BadParameter:
        raise click.BadParameter(
            f"{text!r} is none of {', '.join(policies)}, no sequence and no time", param_hint="'--deliver'"
        ) from None


@consumer.command("rm")
@click.argument("stream", callback=stream_name)
@click.argument("name", callback=stream_name)
@force
@click.pass_obj
def remove(target: Target, stream: str, name: str, force: bool) -> None:
    """Delete the consumer NAME of STREAM."""
    confirm(f"delete the consumer {name} of {stream}?", forced=force)
    found = target.with_client(lambda client: ask(target, client, f"CONSUMER.DELETE.{stream}.{name}", {}))
    tell(target, found, f"consumer {name} of {stream} is deleted")


@consumer.command("pause")
@click.argument("stream", callback=stream_name)
@click.argument("name", callback=stream_name)
@click.argument("until")
@click.pass_obj
def pause(target: Target, stream: str, name: str, until: str) -> None:
    """Deliver nothing for a time, or UNTIL a moment.

    UNTIL is a time (1h) or a moment (2026-12-01T06:00:00Z).
    """
    body = {"pause_until": parse_moment(until)}
    found = target.with_client(lambda client: ask(target, client, f"CONSUMER.PAUSE.{stream}.{name}", body))
    tell(target, found, f"consumer {name} of {stream} is paused until {found.get('pause_until')}")


@consumer.command("resume")
@click.argument("stream", callback=stream_name)
@click.argument("name", callback=stream_name)
@click.pass_obj
def resume(target: Target, stream: str, name: str) -> None:
    """Deliver again."""
    found = target.with_client(lambda client: ask(target, client, f"CONSUMER.PAUSE.{stream}.{name}", {}))
    tell(target, found, f"consumer {name} of {stream} delivers")


@consumer.command("next")
@click.argument("stream", callback=stream_name)
@click.argument("name", callback=stream_name)
@click.option("--count", "-n", "most", type=click.IntRange(min=1), default=1, help="end after so many messages")
@click.option("--ack/--no-ack", default=True, help="acknowledge what was printed, and wait until that is on flash")
@click.option("--wait", "wait_s", callback=seconds, default="5s", metavar="TIME", help="how long to wait for each")
@raw_option
@click.pass_obj
def take(target: Target, stream: str, name: str, most: int, ack: bool, wait_s: float, raw: bool) -> None:
    """Pull messages of the consumer NAME of STREAM and print them."""

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
            if ack and message.reply:
                await client.request(message.reply, b"+ACK", timeout=target.timeout_s)

    target.with_client(pull)


consumer.add_command(consumer_report)
