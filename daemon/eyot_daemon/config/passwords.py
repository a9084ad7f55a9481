"""Compares presented credentials with configured ones: plain secrets in constant time, bcrypt hashes by bcrypt.

A bcrypt check takes long by design (100 ms at cost 11). While `may_take_long` is False, a checker therefore raises
`TakesLong`. The caller runs `TakesLong.check` in a thread, passes the result to `learn`, and repeats the comparison.
Results are kept under a keyed digest with a key of this process, so that a reconnecting fleet pays once per password.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections import OrderedDict

OUTCOMES_MAX = 1024
_BCRYPT = re.compile(r"\$2[abxy]\$\d{2}\$.*", re.DOTALL)
_BCRYPT_BYTES_MAX = 72  # bcrypt itself ignores the rest


def is_bcrypt(configured: str) -> bool:
    """Return whether a configured secret is a bcrypt hash (nats-server's rule)."""
    return _BCRYPT.fullmatch(configured) is not None


class TakesLong(Exception):
    """A bcrypt check without a known result. `check` may run in any thread."""

    def __init__(self, identity: bytes, configured: str, presented: str) -> None:
        super().__init__("a bcrypt check is needed")
        self.identity = identity
        self._configured = configured
        self._presented = presented

    def check(self) -> bool:
        return _check_bcrypt(self._configured, self._presented)


class PasswordChecker:
    """Checks passwords and tokens; keeps at most OUTCOMES_MAX bcrypt outcomes, the least recently used go first."""

    def __init__(self) -> None:
        #: False: a check by bcrypt raises TakesLong
        self.may_take_long = True
        self._key = secrets.token_bytes(32)
        self._outcomes: OrderedDict[bytes, bool] = OrderedDict()

    def matches(self, configured: str, presented: str) -> bool:
        """Return whether `presented` equals `configured`, which is plain text or a bcrypt hash. May raise TakesLong."""
        if not is_bcrypt(configured):
            return hmac.compare_digest(configured.encode(), presented.encode("utf-8", "surrogatepass"))
        identity = self._identity(configured, presented)
        outcome = self._outcomes.get(identity)
        if outcome is None:
            if not self.may_take_long:
                raise TakesLong(identity, configured, presented)
            outcome = _check_bcrypt(configured, presented)
        self.learn(identity, outcome)
        return outcome

    def learn(self, identity: bytes, outcome: bool) -> None:
        """Remember the outcome of a check."""
        self._outcomes[identity] = outcome
        self._outcomes.move_to_end(identity)
        if len(self._outcomes) > OUTCOMES_MAX:
            self._outcomes.popitem(last=False)

    def _identity(self, configured: str, presented: str) -> bytes:
        text = f"{len(configured)}:{configured}{presented}".encode("utf-8", "surrogatepass")
        return hashlib.blake2b(text, key=self._key, digest_size=32).digest()


def _check_bcrypt(configured: str, presented: str) -> bool:
    import bcrypt

    password = presented.encode("utf-8", "surrogatepass")[:_BCRYPT_BYTES_MAX]
    if b"\0" in password:
        return False
    try:
        return bcrypt.checkpw(password, configured.encode())
    except ValueError:  # a malformed hash matches nothing
        return False
