"""Names of buckets and keys on the command line."""

from __future__ import annotations

import re

import click

_BUCKET = re.compile(r"[A-Za-z0-9_-]+")
_KEY = re.compile(r"[-/_=A-Za-z0-9]+(\.[-/_=A-Za-z0-9]+)*")


def bucket_name(_context: click.Context, _argument: click.Parameter, text: str | None) -> str | None:
    """Check the name of a bucket (ADR-8, ADR-20); None stays None. Raises BadParameter."""
    if text is not None and _BUCKET.fullmatch(text) is None:
        raise click.BadParameter(f"{text!r} is no name of a bucket: letters, digits, - and _ may be in it")
    return text


def key_name(_context: click.Context, _argument: click.Parameter, text: str | None) -> str | None:
    """Check a key that is to be written (ADR-8); None stays None. Raises BadParameter."""
    if text is not None and _KEY.fullmatch(text) is None:
        raise click.BadParameter(f"{text!r} is no key: letters, digits, -, /, _ and = may be in it, and dots between")
    return text
