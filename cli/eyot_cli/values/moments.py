"""Moments as the JetStream API takes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click

from eyot_cli.values.ages import age_ns


def ago(length_ns: int) -> datetime:
    """Return the moment so long ago; a negative length is ahead."""
    return datetime.fromtimestamp(datetime.now(UTC).timestamp() - length_ns / 1e9, UTC)


def as_text(when: datetime) -> str:
    """Return a moment as the API takes it."""
    return when.astimezone(UTC).isoformat().replace("+00:00", "Z")


def parse_moment(text: str, *, ahead: int = 1) -> str:
    """Return a moment; `1h` is an hour from now, or with `ahead` -1 an hour ago. Raises BadParameter."""
    try:
        when = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        context = click.get_current_context()
        return as_text(ago(-ahead * (age_ns(context, context.command.params[0], text) or 0)))
    if when.tzinfo is None:
        raise click.BadParameter(f"{text!r} has no time zone: end it with Z for UTC")
    try:
        return as_text(when)
    except OverflowError:  # the first and last day of the calendar, in a time zone
        raise click.BadParameter(f"{text!r} is beyond the calendar") from None


def age_of(text: str) -> timedelta:
    """Return how long ago a time of the API was; what never happened has the year 1."""
    return datetime.now(UTC) - datetime.fromisoformat(text)
