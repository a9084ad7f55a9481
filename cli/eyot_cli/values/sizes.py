"""Sizes on the command line: `512`, `10M`, `1GiB`."""

from __future__ import annotations

import re

import click

from eyot_cli.values.numbers import INT64_MAX

_SIZE = re.compile(r"([0-9]{1,30})\s*(?:([kmgtpe])i?b?|b)?", re.IGNORECASE)
_UNITS = "kmgtpe"


def size_bytes(_context: click.Context, _option: click.Parameter, text: str | None) -> int | None:
    """Parse bytes; every suffix is a power of 1024, as in the `nats` tool. -1 is no limit, None stays None. Raises BadParameter."""
    if text is None:
        return None
    if text == "-1":
        return -1
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise click.BadParameter(f"{text!r} is not a size: 512, 64K, 10M or 1GiB")
    size = int(found[1]) << (10 * (_UNITS.index(found[2].lower()) + 1) if found[2] else 0)
    if size > INT64_MAX:
        raise click.BadParameter(f"{text!r} is beyond 64 bits")
    return size
