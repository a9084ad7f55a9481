"""`eyot stream find`: streams that fit, as in the `nats` tool."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import click

from eyot_cli.connection.target import Target
from eyot_cli.jetstream.stream_info import every_stream, info_of, needed_level
from eyot_cli.terminal.show import count, names_option, print_json, print_names, print_table
from eyot_cli.values.ages import age_ns
from eyot_cli.values.moments import age_of
from eyot_cli.values.numbers import INTEGER
from eyot_wire.jetstream.stream import StreamInfo
from eyot_wire.subject import is_subset

_Rule = Callable[[StreamInfo], bool]


@click.command("find")
@click.option("--empty", is_flag=True, help="that hold no message")
@click.option("--idle", callback=age_ns, metavar="TIME", help="that got no message for so long")
@click.option("--created", callback=age_ns, metavar="TIME", help="made so long ago, or longer")
@click.option("--consumers", type=INTEGER, metavar="N", help="with so many consumers, or fewer")
@click.option("--subject", metavar="SUBJECT", help="with a subject that this one includes")
@click.option("--replicas", type=INTEGER, metavar="N", help="with so many copies, or fewer")
@click.option("--sourced", is_flag=True, help="with sources")
@click.option("--mirrored", is_flag=True, help="that are mirrors")
@click.option("--api-level", type=INTEGER, metavar="N", help="that need this API level, or a higher one")
@click.option("--invert", is_flag=True, help="that fit none of what is given")
@names_option
@click.pass_obj
def stream_find(target: Target, /, invert: bool, names: bool, **given: Any) -> None:
    """List the streams that fit all that is given."""
    rules = _rules(given)
    found = target.with_client(lambda client: every_stream(target, client))
    fitting = [each for each in found if all(rule(info_of(each)) != invert for rule in rules)]
    if names:
        print_names([each["config"]["name"] for each in fitting], as_json=target.as_json)
        return
    if target.as_json:
        print_json(fitting)
        return
    infos = map(info_of, fitting)
    rows = [(each.config.name, ", ".join(each.config.subjects), count(each.state.messages)) for each in infos]
    print_table("Streams that fit", ("Stream", "Subjects", ">Messages"), rows, "none")


def _rules(given: dict[str, Any]) -> list[_Rule]:
    rules: list[_Rule] = []
    if given["empty"]:
        rules.append(lambda info: info.state.messages == 0)
    if (idle := given["idle"]) is not None:
        rules.append(lambda info: age_of(info.state.last_ts) > timedelta(microseconds=idle / 1e3))
    if (created := given["created"]) is not None:
        rules.append(lambda info: age_of(info.created) >= timedelta(microseconds=created / 1e3))
    if (consumers := given["consumers"]) is not None:
        rules.append(lambda info: info.state.consumer_count <= consumers)
    if (subject := given["subject"]) is not None:
        rules.append(lambda info: any(is_subset(each.encode(), subject.encode()) for each in info.config.subjects))
    if (replicas := given["replicas"]) is not None:
        rules.append(lambda info: info.config.num_replicas <= replicas)
    if given["sourced"]:
        rules.append(lambda info: bool(info.config.sources))
    if given["mirrored"]:
        rules.append(lambda info: info.config.mirror is not None)
    if (level := given["api_level"]) is not None:
        rules.append(lambda info: needed_level(info.config.metadata) >= level)
    return rules
