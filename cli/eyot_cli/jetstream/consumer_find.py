"""`eyot consumer find`: consumers of a stream that fit, as in the `nats` tool."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import click

from eyot_cli.connection.target import Target
from eyot_cli.jetstream.consumer_info import consumer_of, every_consumer
from eyot_cli.jetstream.stream_info import needed_level
from eyot_cli.terminal.show import count, names_option, print_json, print_names, print_table
from eyot_cli.values.ages import age_ns
from eyot_cli.values.moments import age_of
from eyot_cli.values.names import stream_name
from eyot_cli.values.numbers import INTEGER
from eyot_wire.go.time import ZERO_TIME
from eyot_wire.jetstream.consumer import ConsumerInfo

_Rule = Callable[[ConsumerInfo], bool]


@click.command("find")
@click.argument("stream", callback=stream_name)
@click.option("--pull", is_flag=True, help="that are pulled from")
@click.option("--push", is_flag=True, help="that push")
@click.option("--bound", is_flag=True, help="that somebody listens to or pulls from now")
@click.option("--waiting", type=INTEGER, metavar="N", help="with fewer waiting pulls")
@click.option("--ack-pending", type=INTEGER, metavar="N", help="with fewer messages that wait for an acknowledgement")
@click.option("--pending", type=INTEGER, metavar="N", help="with fewer unprocessed messages")
@click.option("--idle", callback=age_ns, metavar="TIME", help="that delivered nothing for so long")
@click.option("--created", callback=age_ns, metavar="TIME", help="made so long ago, or longer")
@click.option("--replicas", type=INTEGER, metavar="N", help="with so many copies, or fewer")
@click.option("--pinned", is_flag=True, help="each priority group of which has its pinned client")
@click.option("--api-level", type=INTEGER, metavar="N", help="that need this API level, or a higher one")
@click.option("--invert", is_flag=True, help="that fit none of what is given")
@names_option
@click.pass_obj
def consumer_find(target: Target, /, stream: str, invert: bool, names: bool, **given: Any) -> None:
    """List the consumers of STREAM that fit all that is given."""
    if given["pull"] and given["push"]:
        raise click.UsageError("--pull and --push exclude each other")
    rules = _rules(given)
    found = target.with_client(lambda client: every_consumer(target, client, stream))
    fitting = [each for each in found if all(rule(consumer_of(each)) != invert for rule in rules)]
    if names:
        print_names([each["name"] for each in fitting], as_json=target.as_json)
        return
    if target.as_json:
        print_json(fitting)
        return
    rows = [
        (each.name, "push" if _pushes(each) else "pull", count(each.num_pending), count(each.num_ack_pending))
        for each in map(consumer_of, fitting)
    ]
    print_table(f"Consumers of {stream} that fit", ("Consumer", "Kind", ">Unprocessed", ">Ack pending"), rows, "none")


def _rules(given: dict[str, Any]) -> list[_Rule]:
    rules: list[_Rule] = []
    if given["pull"]:
        rules.append(lambda info: not _pushes(info))
    if given["push"]:
        rules.append(_pushes)
    if given["bound"]:
        rules.append(lambda info: info.push_bound or info.num_waiting > 0)
    if (waiting := given["waiting"]) is not None:
        rules.append(lambda info: info.num_waiting < waiting)
    if (unacknowledged := given["ack_pending"]) is not None:
        rules.append(lambda info: info.num_ack_pending < unacknowledged)
    if (pending := given["pending"]) is not None:
        rules.append(lambda info: info.num_pending < pending)
    if (idle := given["idle"]) is not None:
        rules.append(lambda info: age_of(info.delivered.last_active or ZERO_TIME) > timedelta(microseconds=idle / 1e3))
    if (created := given["created"]) is not None:
        rules.append(lambda info: age_of(info.created) >= timedelta(microseconds=created / 1e3))
    if (replicas := given["replicas"]) is not None:
        rules.append(lambda info: info.config is not None and info.config.num_replicas <= replicas)
    if given["pinned"]:
        rules.append(_is_pinned)
    if (level := given["api_level"]) is not None:
        rules.append(lambda info: info.config is not None and needed_level(info.config.metadata) >= level)
    return rules


def _pushes(info: ConsumerInfo) -> bool:
    return info.config is not None and bool(info.config.deliver_subject)


def _is_pinned(info: ConsumerInfo) -> bool:
    return (
        info.config is not None
        and info.config.priority_policy == "pinned_client"
        and all(each.pinned_client_id for each in info.priority_groups)
    )
