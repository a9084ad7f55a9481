"""Options of `eyot consumer add`, `copy` and `edit`, and the configuration that they make.

Names and meanings are those of the `nats` tool.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from eyot_cli.jetstream.stream_options import config_in, name_value
from eyot_cli.values.ages import age_ns
from eyot_cli.values.moments import parse_moment
from eyot_cli.values.numbers import INTEGER, at_least
from eyot_cli.values.paths import FilePath
from eyot_cli.values.sizes import size_bytes
from eyot_wire.digits import parse_uint

F = TypeVar("F", bound=Callable[..., Any])
#: Options of all three commands; members of the configuration by parameter.
_ALL = (
    click.option("--filter", "filters", multiple=True, metavar="SUBJECT", help="only these subjects"),
    click.option("--wait", "ack_wait", callback=age_ns, metavar="TIME", help="how long an ack may take"),
    click.option("--max-deliver", type=INTEGER, metavar="N", help="deliveries of one message at most"),
    click.option(
        "--max-pending",
        "--max-outstanding",
        "max_ack_pending",
        type=INTEGER,
        metavar="N",
        help="messages without an ack at most",
    ),
    click.option("--backoff", type=click.Choice(["none", "linear"]), help="redeliver later and later"),
    click.option("--backoff-steps", type=at_least(1), metavar="N", default=10, help="steps of --backoff linear"),
    click.option("--backoff-min", callback=age_ns, metavar="TIME", default="1m", help="wait of its first step"),
    click.option(
        "--backoff-max", callback=age_ns, metavar="TIME", default="20m", help="wait that its last stays below"
    ),
    click.option("--target", "deliver_subject", metavar="SUBJECT", help="push to this subject instead of being pulled"),
    click.option("--headers-only/--no-headers-only", default=None, help="no payloads"),
    click.option(
        "--inactive-threshold", callback=age_ns, metavar="TIME", help="delete it when nobody has used it for so long"
    ),
    click.option("--description", metavar="TEXT", help="what it is for"),
    click.option(
        "--max-pull-batch", "max_batch", type=INTEGER, metavar="N", help="messages of one pull request at most"
    ),
    click.option("--max-pull-expire", "max_expires", callback=age_ns, metavar="TIME", help="its waiting time at most"),
    click.option("--max-pull-bytes", "max_bytes", callback=size_bytes, metavar="SIZE", help="its bytes at most"),
    click.option(
        "--sample", "sample_freq", type=click.IntRange(0, 100), metavar="PERCENT", help="acks that are reported"
    ),
    click.option("--replicas", "num_replicas", type=INTEGER, metavar="N", help="copies in a cluster"),
    click.option("--metadata", multiple=True, metavar="NAME=VALUE", help="metadata, which keeps the other names"),
    click.option(
        "--config",
        "file",
        type=FilePath(exists=True, dir_okay=False),
        metavar="FILE",
        help="JSON of a configuration, or of `eyot consumer info --json`",
    ),
)
#: Options of `add` and `copy` alone: what cannot change.
_NEW = (
    click.option("--deliver", metavar="FROM", help="all, new, last, subject, a sequence or a time ago: 1h"),
    click.option("--ack", type=click.Choice(["explicit", "all", "none", "flow_control"]), help="which acks are needed"),
    click.option("--deliver-group", metavar="NAME", help="queue group of --target"),
    click.option("--ephemeral", is_flag=True, help="no durable: it goes after --inactive-threshold"),
    click.option("--replay", "replay_policy", type=click.Choice(["instant", "original"]), help="how fast"),
    click.option(
        "--heartbeat", "idle_heartbeat", metavar="TIME", help="tell --target after so long a silence; -1: never"
    ),
    click.option("--flow-control", is_flag=True, default=None, help="--target tells how far it is; needs --heartbeat"),
    click.option("--bps", "rate_limit_bps", type=at_least(1), metavar="N", help="push so many bits a second"),
    click.option("--max-waiting", type=INTEGER, metavar="N", help="pull requests that wait at most"),
    click.option("--memory", "mem_storage", is_flag=True, default=None, help="state in memory alone"),
    click.option("--pause", metavar="UNTIL", help="deliver nothing until then: 1h, or 2026-12-01T06:00:00Z"),
    click.option(
        "--pinned-groups", multiple=True, metavar="GROUP", help="one client of each group gets all, while it pulls"
    ),
    click.option(
        "--pinned-ttl", "priority_timeout", callback=age_ns, metavar="TIME", help="until another one may get it"
    ),
    click.option("--overflow-groups", multiple=True, metavar="GROUP", help="a group gets what is too much for others"),
    click.option("--prioritized-groups", multiple=True, metavar="GROUP", help="a group's clients pull with a priority"),
    click.option("--pull", is_flag=True, help="to be pulled: so it is without --target"),
    click.option("--defaults", is_flag=True, expose_value=False, help="as in the nats tool; eyot never asks"),
)
#: Options that name groups, and the policies that they mean.
_GROUPS = {
    "pinned_groups": "pinned_client",
    "overflow_groups": "overflow",
    "prioritized_groups": "prioritized",
}
_POLICIES = {"all": "all", "new": "new", "next": "new", "last": "last", "subject": "last_per_subject"}


def options_of_consumer(*, new: bool) -> Callable[[F], F]:
    """Return a decorator that adds the options."""

    def decorate(command: F) -> F:
        for option in reversed(_ALL + (_NEW if new else ())):
            command = option(command)
        return command

    return decorate


def changed_consumer(before: dict[str, Any], given: dict[str, Any], *, replace: bool = False) -> dict[str, Any]:
    """Return the configuration `before` with what was given on the command line. Raises Failure and UsageError.

    `replace`: the file of --config takes the place of `before`.
    """
    config = dict(before)
    file = given.pop("file", None)
    if file is not None:
        config = ({} if replace else config) | config_in(file, "a consumer's configuration")
    _set_filters(config, given.pop("filters", ()))
    _set_backoff(config, given)
    _set_groups(config, given)
    if (percent := given.pop("sample_freq", None)) is not None:
        config["sample_freq"] = str(percent) if percent else ""
    if metadata := given.pop("metadata", ()):
        config["metadata"] = dict(config.get("metadata") or {}) | dict(map(name_value, metadata))
    if (deliver := given.pop("deliver", None)) is not None:
        for member in ("opt_start_seq", "opt_start_time"):
            config.pop(member, None)
        config |= delivery(deliver)
    if (until := given.pop("pause", None)) is not None:
        config["pause_until"] = parse_moment(until)
    if (heartbeat := given.pop("idle_heartbeat", None)) is not None:
        context = click.get_current_context()
        config["idle_heartbeat"] = 0 if heartbeat == "-1" else age_ns(context, context.command.params[0], heartbeat)
    if given.pop("pull", False):
        for member in ("deliver_subject", "deliver_group", "idle_heartbeat", "flow_control"):
            config.pop(member, None)
    if (ack := given.pop("ack", None)) is not None:
        config["ack_policy"] = ack
    return config | {member: value for member, value in given.items() if value is not None}


def delivery(text: str) -> dict[str, Any]:
    """Return the members that say where a consumer begins. Raises BadParameter."""
    if seq := parse_uint(text):
        return {"deliver_policy": "by_start_sequence", "opt_start_seq": seq}
    if text in (*_POLICIES, "last_per_subject"):
        return {"deliver_policy": _POLICIES.get(text, text)}
    try:
        return {"deliver_policy": "by_start_time", "opt_start_time": parse_moment(text, ahead=-1)}
    except click.BadParameter:
        raise click.BadParameter(
            f"{text!r} is none of all, new, last, subject, no sequence and no time", param_hint="'--deliver'"
        ) from None


def _set_filters(config: dict[str, Any], filters: tuple[str, ...]) -> None:
    if filters:
        for member in ("filter_subject", "filter_subjects"):
            config.pop(member, None)
    if len(filters) == 1:
        config["filter_subject"] = filters[0]
    elif filters:
        config["filter_subjects"] = list(filters)


def _set_backoff(config: dict[str, Any], given: dict[str, Any]) -> None:
    """Set redelivery times as jsm.go computes them: from the shortest on, in equal steps, the longest not reached."""
    kind = given.pop("backoff", None)
    steps, *ends = given.pop("backoff_steps", 1), given.pop("backoff_min", 0), given.pop("backoff_max", 0)
    if kind == "none":
        config.pop("backoff", None)
    if kind != "linear":
        return
    shortest, longest = sorted(ends)
    step = (longest - shortest) // steps
    if shortest <= 0 or (step == 0 and longest != shortest):
        raise click.UsageError("--backoff-min and --backoff-max are above 0 and far enough apart for --backoff-steps")
    config["backoff"] = [shortest + round(number * step, -6) for number in range(steps)]
    if given.get("max_deliver") is None and config.get("max_deliver", -1) < steps:
        config["max_deliver"] = steps + 1


def _set_groups(config: dict[str, Any], given: dict[str, Any]) -> None:
    named = {name: given.pop(name, ()) for name in _GROUPS}
    chosen = [name for name, groups in named.items() if groups]
    if len(chosen) > 1:
        raise click.UsageError("--pinned-groups, --overflow-groups and --prioritized-groups exclude each other")
    if chosen:
        config |= {"priority_policy": _GROUPS[chosen[0]], "priority_groups": list(named[chosen[0]])}
