"""Names of streams, consumers, buckets and keys on the command line, and subjects to publish to."""

from __future__ import annotations

import re

import click

from eyot_wire.subject import is_valid, is_valid_literal

_BUCKET = re.compile(r"[A-Za-z0-9_-]+")
#: nats-server's rule for streams and consumers; a name is a token of the API's subjects
_NAME = re.compile(r"[^\s.*>/\\]+")
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


def key_to_read(_context: click.Context, _argument: click.Parameter, text: str) -> str:
    """Check a key that is to be read, which others may have written: one subject. Raises BadParameter."""
    if not is_valid_literal(text.encode()):
        raise click.BadParameter(f"{text!r} is no key: it has no spaces and wildcards, and no empty token between dots")
    return text


def subject_to_publish(_context: click.Context, _argument: click.Parameter, text: str) -> str:
    """Check the subject of a message. Raises BadParameter."""
    if not is_valid_literal(text.encode()):
        raise click.BadParameter(f"{text!r} is no subject to publish to")
    return text


def subject_to_subscribe(_context: click.Context, _argument: click.Parameter, text: str) -> str:
    """Check the subject of a subscription. Raises BadParameter."""
    if not is_valid(text.encode()):
        raise click.BadParameter(f"{text!r} is no subject")
    return text


def stream_name(_context: click.Context, argument: click.Parameter, text: str | None) -> str | None:
    """Check the name of a stream or consumer; None stays None. Raises BadParameter."""
    if text is not None and _NAME.fullmatch(text) is None:
        raise click.BadParameter(f"{text!r} is no name: spaces, dots, *, >, / and \\ may not be in it")
    return text
