"""JWTs in text from elsewhere: bare, between lines of dashes, or in a credentials file."""

from __future__ import annotations

import re
from typing import Final

from eyot_cli.terminal.failure import Failure

_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")


def find_token(text: str) -> str:
    """Return the first JWT of a text. Raises Failure."""
    tokens = find_tokens(text)
    if not tokens:
        raise Failure("there is no JWT in it: three parts with dots between them")
    return tokens[0]


def find_tokens(text: str) -> list[str]:
    """Return all JWTs of a text, one a line at most."""
    return [line.strip() for line in text.splitlines() if _TOKEN.fullmatch(line.strip())]
