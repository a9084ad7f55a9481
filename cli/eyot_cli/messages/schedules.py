"""Options of `eyot pub` for message schedules (ADR-51), with the names of the `nats` tool."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import click

from eyot_cli.values.ages import age_ns

F = TypeVar("F", bound=Callable[..., Any])
_SCHEDULE, _TARGET, _SOURCE, _TTL = "Nats-Schedule", "Nats-Schedule-Target", "Nats-Schedule-Source", "Nats-Schedule-TTL"
#: Options that say when; one of them.
_WHEN = ("schedule_at", "schedule_after", "schedule_every", "schedule_cron")


def schedule_options(command: F) -> F:
    """Add the options."""
    for option in (
        click.option("--schedule-ttl", metavar="TIME", help="how long the stream keeps what the schedule makes"),
        click.option("--schedule-source", metavar="SUBJECT", help="send the last message of this subject, not PAYLOAD"),
        click.option("--schedule-dest", metavar="SUBJECT", help="where the schedule publishes"),
        click.option("--schedule-cron", metavar="CRON", help="when, as in cron, with seconds first"),
        click.option("--schedule-every", metavar="TIME", help="again and again after so long"),
        click.option("--schedule-after", metavar="TIME", help="once, so long from now"),
        click.option("--schedule-at", metavar="TIME", help="once, at a moment: 2026-12-01T06:00:00Z"),
    ):
        command = option(command)
    return command


def schedule_headers(given: dict[str, Any]) -> dict[str, str]:
    """Return the headers of a schedule, none without one. Raises UsageError and BadParameter."""
    if not any(given.values()):
        return {}
    when = [each for each in _WHEN if given[each]]
    if len(when) != 1:
        raise click.UsageError(
            "a schedule has one of --schedule-at, --schedule-after, --schedule-every and --schedule-cron"
        )
    if not given["schedule_dest"]:
        raise click.UsageError("a schedule needs --schedule-dest: where it publishes")
    headers = {_SCHEDULE: _pattern(when[0], given[when[0]]), _TARGET: given["schedule_dest"]}
    if given["schedule_source"]:
        headers[_SOURCE] = given["schedule_source"]
    if given["schedule_ttl"]:
        headers[_TTL] = given["schedule_ttl"]
    return headers


def _pattern(kind: str, text: str) -> str:
    if kind == "schedule_cron":
        return text
    if kind == "schedule_at":
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            at = None
        if at is None or at.tzinfo is None:
            raise click.BadParameter(f"{text!r} is no moment like 2026-12-01T06:00:00Z", param_hint="'--schedule-at'")
    else:
        context = click.get_current_context()
        length_ns = age_ns(context, context.command.params[0], text)
        if not length_ns:
            raise click.BadParameter("a time above 0 is needed", param_hint=f"'--{kind.replace('_', '-')}'")
        if kind == "schedule_every":
            return f"@every {text}"
        at = datetime.now(UTC) + timedelta(seconds=length_ns / 1e9)
    try:
        return f"@at {at.astimezone(UTC).isoformat(timespec='seconds').replace('+00:00', 'Z')}"
    except OverflowError:  # the first and last day of the calendar, in a time zone
        raise click.BadParameter(f"{text!r} is beyond the calendar", param_hint="'--schedule-at'") from None
