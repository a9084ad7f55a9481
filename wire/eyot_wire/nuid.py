"""Random base-62 identifiers, with the alphabet and lengths of NATS's NUIDs and short ids."""

import secrets
from random import Random
from typing import Final

DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
NUID_LENGTH: Final = 22

_SYSTEM: Final = secrets.SystemRandom()


def nuid(rng: Random = _SYSTEM) -> str:
    """Return 22 random base-62 characters."""
    return short_id(rng, NUID_LENGTH)


def short_id(rng: Random = _SYSTEM, length: int = 8) -> str:
    """Return `length` random base-62 characters, as in `_INBOX` and `$JSC.R.` subjects."""
    return "".join(rng.choices(DIGITS, k=length))
