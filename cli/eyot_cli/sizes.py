"""Sizes on the command line: `512`, `10M`, `1GiB`."""

from __future__ import annotations

import re

import click

from eyot_wire.conf.scalars import suffix_factor

_SIZE = re.compile(r"(\d+)\s*([kmgtpe]i?b?|b)?", re.IGNORECASE)


def size_bytes(_context: click.Context, _option: click.Parameter, text: str | None) -> int | None:
    """Parse bytes, with the suffixes of the configuration; -1 is no limit, None stays None. Raises BadParameter."""
    if text is None:
        return None
    if text == "-1":
        return -1
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise click.BadParameter(f"{text!r} is not a size: 512, 64K, 10M or 1GiB")
    suffix = found[2] or ""
    return int(found[1]) * suffix_factor("" if suffix.lower() == "b" else suffix)
