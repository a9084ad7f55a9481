"""Durations on the command line: `60`, `90s`, `10m`."""

from __future__ import annotations

import math

import click

from eyot_cli.values.numbers import INT64_MAX
from eyot_wire.go.duration import parse_duration_ns


def seconds(_context: click.Context, _option: click.Parameter, text: str) -> float:
    """Parse seconds as a number, or a duration with units as Go writes them; never negative, and 292 years at most. Raises BadParameter."""
    try:
        found = float(text)
    except ValueError:
        try:
            found = parse_duration_ns(text) / 1e9
        except ValueError:
            found = math.nan
    if not 0 <= found < math.inf:
        raise click.BadParameter(f"{text!r} is not a duration: 60, 90s, 10m or 1h30m")
    if found * 1e9 >= INT64_MAX:
        raise click.BadParameter(f"{text!r} is longer than 292 years")
    return found
