"""Long durations on the command line: `90s`, `12h`, `7d`."""

from __future__ import annotations

import re

import click

from eyot_cli.values.numbers import INT64_MAX
from eyot_cli.values.seconds import seconds

_DAYS = re.compile(r"([0-9]+(?:\.[0-9]+)?)([dwy])(.*)")
_LENGTH_S = {"d": 86_400, "w": 7 * 86_400, "y": 365 * 86_400}


def age_ns(context: click.Context, option: click.Parameter, text: str | None) -> int | None:
    """Parse a duration as `seconds` does, days, weeks and years first; nanoseconds, of 292 years at most. None stays None. Raises BadParameter."""
    if text is None:
        return None
    total_s, rest = 0.0, text
    while found := _DAYS.fullmatch(rest):
        total_s += float(found[1]) * _LENGTH_S[found[2]]
        rest = found[3]
    if rest or not total_s:
        total_s += seconds(context, option, rest)
    if total_s * 1e9 >= INT64_MAX:
        raise click.BadParameter(f"{text!r} is longer than 292 years")
    return round(total_s * 1e9)
