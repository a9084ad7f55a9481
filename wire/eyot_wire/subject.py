"""Subjects and subject patterns.

A subject is a list of tokens joined by dots. In a pattern a token `*` matches exactly one token, and a last token `>`
one or more. Both are wildcards only as whole tokens: `a*` is an ordinary token. Tokens are never empty and contain no
space, tab, form feed, CR or LF. All functions take and return bytes and never raise.
"""

import re
from typing import Final

STAR: Final = b"*"
REST: Final = b">"

_WELL_FORMED: Final = re.compile(rb"[^ \t\r\n\f.]+(?:\.[^ \t\r\n\f.]+)*").fullmatch


def tokens(subject: bytes) -> list[bytes]:
    """Return the tokens of a subject or pattern, in order."""
    return subject.split(b".")


def is_well_formed(subject: bytes) -> bool:
    """Return whether a message can have the subject: tokens not empty, no white space.

    A wildcard is an ordinary token here. As nats-server does, the broker takes a message for `a.>` from a client that
    is not pedantic, and a stream stores the message.
    """
    return _WELL_FORMED(subject) is not None


def is_valid(pattern: bytes) -> bool:
    """Return whether `pattern` may be subscribed to: tokens not empty, no white space, `>` only as the last token."""
    if not is_well_formed(pattern):
        return False
    return 62 not in pattern or REST not in pattern.split(b".")[:-1]


def is_literal(subject: bytes) -> bool:
    """Return whether no token of `subject` is a wildcard, which says nothing about validity."""
    if (
        42 not in subject and 62 not in subject
    ):  # `*` and `>`; a search for a byte is ten times faster than one for bytes
        return True
    parts = subject.split(b".")
    return STAR not in parts and REST not in parts


def literal_start(pattern: bytes) -> bytes:
    """Return the literal prefix of a wildcard pattern: its tokens before the first wildcard."""
    start: list[bytes] = []
    for token in pattern.split(b"."):
        if token in (STAR, REST):
            break
        start.append(token + b".")
    return b"".join(start)


def is_valid_literal(subject: bytes) -> bool:
    """Return whether `subject` is valid and free of wildcards, as a name or a pedantic client's subject must be."""
    return is_well_formed(subject) and is_literal(subject)


def matches(pattern: bytes, literal: bytes) -> bool:
    """Return whether a message published to `literal` reaches a subscription of `pattern`."""
    if pattern == literal:
        return True
    if 42 not in pattern and 62 not in pattern:
        return False
    return token_match(pattern.split(b"."), literal.split(b"."))


def token_match(pattern: list[bytes], literal: list[bytes]) -> bool:
    """Return `matches` for tokens that are already split."""
    count = len(literal)
    for index, token in enumerate(pattern):
        if token == REST and index == len(pattern) - 1:
            return count > index
        if index >= count or (token != STAR and token != literal[index]):
            return False
    return count == len(pattern)


def is_subset(inner: bytes, outer: bytes) -> bool:
    """Return whether every subject that `inner` matches is also matched by `outer`."""
    if inner == outer or outer == REST:
        return True
    inner_tokens, outer_tokens = inner.split(b"."), outer.split(b".")
    count = len(inner_tokens)
    for index, token in enumerate(outer_tokens):
        if index >= count:
            return False
        if token == REST:
            return True
        mine = inner_tokens[index]
        if mine == REST or (token != STAR and token != mine):
            return False
    return count == len(outer_tokens)


def overlaps(a: bytes, b: bytes) -> bool:
    """Return whether some subject is matched by both patterns."""
    if a == b:
        return True
    a_tokens, b_tokens = a.split(b"."), b.split(b".")
    for mine, theirs in zip(a_tokens, b_tokens, strict=False):
        if mine == REST or theirs == REST:
            return True
        if mine != theirs and mine != STAR and theirs != STAR:
            return False
    return len(a_tokens) == len(b_tokens)
