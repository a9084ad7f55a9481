"""`eyot server check stream|consumer|kv|jetstream`: what JetStream tells, against thresholds.

Thresholds of streams and consumers may stand in their metadata, too: `io.nats.monitor.lag-critical: 200`. Options win.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click

from eyot_cli.buckets.kv_entries import PUT, operation_of
from eyot_cli.connection.refusals import Refusal, in_bucket
from eyot_cli.connection.target import Target
from eyot_cli.jetstream.api import ask
from eyot_cli.jetstream.stored import get_stored
from eyot_cli.server.result import Result, form_options, run_check
from eyot_cli.terminal.failure import Failure
from eyot_cli.values.ages import age_ns
from eyot_cli.values.names import bucket_name, key_to_read, stream_name
from eyot_cli.values.numbers import INTEGER
from eyot_wire.jetstream import error_codes as codes

F = TypeVar("F", bound=Callable[..., Any])
_META = "io.nats.monitor."
_TIMES = ("seen-critical", "last-delivery-critical", "last-ack-critical")


def _number(name: str, help: str) -> Callable[[F], F]:
    return click.option(name, type=INTEGER, metavar="N", help=help)


def _time(name: str, help: str) -> Callable[[F], F]:
    return click.option(name, callback=age_ns, metavar="TIME", help=help)


def _thresholds(given: dict[str, Any], metadata: dict[str, str] | None) -> dict[str, Any]:
    """Return the thresholds: from metadata, where no option gives one. Raises Failure."""
    found = dict(given)
    for member, text in (metadata or {}).items():
        name = member.removeprefix(_META)
        option = name.replace("-", "_")
        if not member.startswith(_META) or found.get(option, 0) is not None:
            continue
        context = click.get_current_context()
        try:
            found[option] = age_ns(context, context.command.params[0], text) if name in _TIMES else int(text)
        except (ValueError, click.BadParameter):
            raise Failure(f"metadata {member}: {text!r} is no threshold") from None
    return found


@click.command("stream")
@click.option("--stream", required=True, callback=stream_name, metavar="STREAM", help="the stream to check")
@_number("--lag-critical", "critical when a mirror or source is so far behind, messages")
@_time("--seen-critical", "critical when a mirror or source was not heard of for so long")
@_number("--min-sources", "critical with fewer sources")
@_number("--max-sources", "critical with more sources")
@_number("--msgs-warn", "warn with so many messages, or fewer")
@_number("--msgs-critical", "critical with so many messages, or fewer")
@_number("--subjects-warn", "warn with so many subjects; with fewer, if it is above the other one")
@_number("--subjects-critical", "critical with so many subjects")
@form_options
def stream(stream: str, **given: Any) -> None:
    """Check a stream, its mirror or its sources."""

    def check(target: Target, result: Result) -> None:
        info = target.with_client(lambda client: ask(target, client, f"STREAM.INFO.{stream}", {}))
        limits = _thresholds(given, info["config"].get("metadata"))
        state = info["state"]
        _stream_amounts(result, state, limits)
        sources = info.get("sources") or []
        result.measure("sources", len(sources), limits["min_sources"] or 0, limits["max_sources"] or 0)
        few = limits["min_sources"] is not None and len(sources) < limits["min_sources"]
        many = bool(limits["max_sources"]) and len(sources) > limits["max_sources"]
        result.note(f"{len(sources)} sources", crit=few or many)
        _origins(result, info, sources, limits)

    run_check("stream", stream, given, check)


def _stream_amounts(result: Result, state: dict[str, Any], limits: dict[str, Any]) -> None:
    warn, crit, held = limits["msgs_warn"], limits["msgs_critical"], state["messages"]
    if warn or crit:
        result.measure("messages", held, warn or 0, crit or 0, help="Messages stored in the stream")
        result.note(f"{held} messages", crit=bool(crit) and held <= crit, warn=bool(warn) and held <= warn)
    warn, crit, subjects = limits["subjects_warn"], limits["subjects_critical"], state.get("num_subjects", 0)
    if warn or crit:
        result.measure("subjects", subjects, warn or 0, crit or 0, help="Number of subjects stored in the stream")
        result.limit(subjects, f"{subjects} subjects", warn=warn, crit=crit)


def _origins(result: Result, info: dict[str, Any], sources: list[dict[str, Any]], limits: dict[str, Any]) -> None:
    """Check the mirror or the sources."""
    lag, seen_ns = limits["lag_critical"], limits["seen_critical"]
    if not lag and not seen_ns:
        return
    mirror = info.get("mirror")
    if not sources and mirror is None:
        result.note("not mirrored", crit=True)
        return
    origins = sources or [mirror or {}]
    lagged = [each for each in origins if lag and each["lag"] >= lag]
    # -1: never heard of
    silent = [each for each in origins if seen_ns and (each["active"] < 0 or each["active"] >= seen_ns)]
    if not sources:
        active = origins[0]["active"] / 1e9
        result.measure("lag", origins[0]["lag"], crit=lag or 0, help="Number of operations behind the origin")
        result.measure("active", active, crit=(seen_ns or 0) / 1e9, unit="s", help="Time since the origin was heard of")
        for found, text in ((lagged, f"Mirror Lag {origins[0]['lag']}"), (silent, f"Mirror Seen {active:.3f}s")):
            if found:
                result.note(text, crit=True)
        result.ok_if_good(f"Mirror {origins[0]['name']}")
        return
    result.measure("sources_lagged", len(lagged), help="Sources that are behind more than the threshold")
    result.measure("sources_inactive", len(silent), help="Sources that are inactive")
    count = len(sources)
    result.note(f"{len(lagged)} sources are lagged" if lagged else f"{count} sources current", crit=bool(lagged))
    result.note(f"{len(silent)} sources are inactive" if silent else f"{count} sources active", crit=bool(silent))


@click.command("consumer")
@click.option("--stream", required=True, callback=stream_name, metavar="STREAM", help="the stream that it reads")
@click.option("--consumer", required=True, callback=stream_name, metavar="NAME", help="the consumer to check")
@_number("--outstanding-ack-critical", "critical with so many messages without an ack")
@_number("--waiting-critical", "critical with so many waiting pulls")
@_number("--unprocessed-critical", "critical with so many messages not delivered yet")
@_number("--redelivery-critical", "critical with so many messages delivered again")
@_time("--last-delivery-critical", "critical without a delivery for so long")
@_time("--last-ack-critical", "critical without an ack for so long")
@click.option("--pinned", is_flag=True, help="every group must have a pinned client")
@form_options
def consumer(stream: str, consumer: str, **given: Any) -> None:
    """Check how far behind a consumer is."""

    def check(target: Target, result: Result) -> None:
        info = target.with_client(lambda client: ask(target, client, f"CONSUMER.INFO.{stream}.{consumer}", {}))
        limits = _thresholds(given, info["config"].get("metadata"))
        amounts = (
            ("ack_pending", "num_ack_pending", "outstanding_ack_critical", "Ack Pending"),
            ("pull_waiting", "num_waiting", "waiting_critical", "Waiting Pulls"),
            ("pending", "num_pending", "unprocessed_critical", "Unprocessed Messages"),
            ("redelivered", "num_redelivered", "redelivery_critical", "Redelivered"),
        )
        for name, member, limit, text in amounts:
            value, crit = info.get(member, 0), limits[limit] or 0
            result.measure(name, value, crit=max(crit, 0))
            if crit > 0:
                result.note(f"{text}: {value}", crit=value >= crit)
        times = (
            ("last_delivery", "delivered", "last_delivery_critical", "Last delivery", "No deliveries"),
            ("last_ack", "ack_floor", "last_ack_critical", "Last ack", "No acks"),
        )
        for name, member, limit, text, never in times:
            _last(result, name, info[member].get("last_active"), limits[limit], text, never)
        _check_pinned(result, info, needed=given["pinned"])

    run_check("consumer", f"{stream}_{consumer}", given, check)


def _last(result: Result, name: str, at: str | None, crit_ns: int | None, text: str, never: str) -> None:
    crit_s = (crit_ns or 0) / 1e9
    if at is None:
        if crit_s:
            result.note(never, crit=True)
        return
    age_s = time.time() - datetime.fromisoformat(at).timestamp()
    result.measure(name, age_s, crit=crit_s, unit="s")
    if crit_s:
        result.note(f"{text} {age_s:.3f}s ago", crit=age_s >= crit_s)


def _check_pinned(result: Result, info: dict[str, Any], *, needed: bool) -> None:
    config = info["config"]
    groups, is_pinned = config.get("priority_groups") or [], config.get("priority_policy") == "pinned_client"
    pinned = sum(bool(each.get("pinned_client_id")) for each in info.get("priority_groups") or [])
    if is_pinned:
        result.measure("pinned_groups", pinned)
        result.measure("groups", len(groups))
    if needed and not is_pinned:
        result.note("Not pinned client priority mode", crit=True)
    elif needed:
        result.note(f"{pinned} / {len(groups)} pinned clients", crit=pinned != len(groups))


@click.command("kv")
@click.option("--bucket", required=True, callback=bucket_name, metavar="BUCKET", help="the bucket to check")
@click.option(
    "--key", callback=lambda c, o, v: v and key_to_read(c, o, v), metavar="KEY", help="a key that must have a value"
)
@_number("--values-warn", "warn with so many values; with fewer, if it is above the other one")
@_number("--values-critical", "critical with so many values")
@form_options
def kv(bucket: str, key: str | None, **given: Any) -> None:
    """Check a key-value bucket."""

    def check(target: Target, result: Result) -> None:
        with in_bucket("kv", bucket):
            info = target.with_client(lambda client: ask(target, client, f"STREAM.INFO.KV_{bucket}", {}))
        result.note(f"bucket {bucket}")
        warn, crit = (
            None if value is None or value < 0 else value for value in (given["values_warn"], given["values_critical"])
        )
        held = info["state"]["messages"]
        result.measure("values", held, warn or 0, crit or 0, help="How many values are stored in the bucket")
        if key is not None:
            _check_key(target, result, bucket, key)
        result.limit(held, f"{held} values", warn=warn, crit=crit)
        result.measure("bytes", info["state"]["bytes"], unit="B", help="Bytes stored in the bucket")
        result.measure("replicas", info["config"]["num_replicas"])

    run_check("kv", bucket, given, check)


def _check_key(target: Target, result: Result, bucket: str, key: str) -> None:
    which = {"last_by_subj": f"$KV.{bucket}.{key}"}
    try:
        last = target.with_client(lambda client: get_stored(target, client, f"KV_{bucket}", which))
    except Refusal as error:
        if error.err_code != codes.JSNoMessageFoundErr:
            raise
        result.note(f"key {key} not found", crit=True)
        return
    is_value = operation_of(last) == PUT
    result.note(f"key {key} found" if is_value else f"key {key} is deleted", crit=not is_value)


def _percent(name: str, what: str, default: int) -> Callable[[F], F]:
    return click.option(name, type=INTEGER, default=default, metavar="PERCENT", help=f"{what}, of the limit; -1: never")


@click.command("jetstream")
@_percent("--mem-warn", "warn with so much in memory", 75)
@_percent("--mem-critical", "critical with so much in memory", 90)
@_percent("--store-warn", "warn with so much on flash", 75)
@_percent("--store-critical", "critical with so much on flash", 90)
@_percent("--streams-warn", "warn with so many streams", -1)
@_percent("--streams-critical", "critical with so many streams", -1)
@_percent("--consumers-warn", "warn with so many consumers", -1)
@_percent("--consumers-critical", "critical with so many consumers", -1)
@form_options
def jetstream(**given: Any) -> None:
    """Check what the account uses of JetStream."""

    def check(target: Target, result: Result) -> None:
        info = target.with_client(lambda client: ask(target, client, "INFO", {}))
        limits = info.get("limits") or {}
        for name, member, limit, unit, option in (
            ("memory", "memory", "max_memory", "B", "mem"),
            ("storage", "storage", "max_storage", "B", "store"),
            ("streams", "streams", "max_streams", "", "streams"),
            ("consumers", "consumers", "max_consumers", "", "consumers"),
        ):
            most, used = limits.get(limit) or 0, info.get(member) or 0
            percent = int(used * 100 / most) if most > 0 else 0
            warn, crit = given[f"{option}_warn"], given[f"{option}_critical"]
            result.measure(name, used, unit=unit, help=f"JetStream {name} resource usage")
            result.measure(f"{name}_pct", percent, max(warn, 0), max(crit, 0), "%")
            if min(warn, crit) >= 0 and warn >= crit:
                result.note(f"{name}: invalid thresholds: the warning comes first", crit=True)
            elif percent > 100:
                result.note(f"{name}: exceed server limits", crit=True)
            elif (crit >= 0 and percent > crit) or (warn >= 0 and percent > warn):
                result.note(f"{percent}% {name}", crit=crit >= 0 and percent > crit, warn=True)
        result.ok_if_good("JetStream")

    run_check("jetstream", "JetStream", given, check)
