"""An operator with accounts and users for tests: keys from fixed seeds, tokens signed as `nsc` signs them."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

from eyot_wire.trust import nkey

NO_LIMITS = {"subs": -1, "data": -1, "payload": -1}
ACCOUNT_LIMITS = NO_LIMITS | {"imports": -1, "exports": -1, "wildcards": True, "conn": -1, "leaf": -1}


class Key:
    """A key pair of a role (O, A, U)."""

    def __init__(self, role: str, number: int) -> None:
        self.seed = nkey.encode_seed(role, bytes([number] * 32))
        self.signer = nkey.Signer(self.seed)
        self.public = self.signer.public_key

    def sign(self, subject: str, nats: dict[str, Any], **claims: Any) -> str:
        """A version 2 token about `subject`."""
        body = {"iat": int(time.time()), "iss": self.public, "jti": "x", "sub": subject} | claims
        body["nats"] = {"version": 2} | nats
        head = f"{_b64(json.dumps({'typ': 'JWT', 'alg': 'ed25519-nkey'}).encode())}.{_b64(json.dumps(body).encode())}"
        return f"{head}.{_b64(self.signer.sign(head.encode()))}"

    def account(self, account: Key, *, limits: dict[str, Any] | None = None, exp: int = 0, **nats: Any) -> str:
        """An account's token, signed by this (an operator's) key."""
        body = {"type": "account", "limits": ACCOUNT_LIMITS | (limits or {})} | nats
        return self.sign(account.public, body, name=f"account-{account.public[1:5]}", exp=exp)

    def user(self, user: Key, *, claims: dict[str, Any] | None = None, scoped: bool = False, **nats: Any) -> str:
        """A user's token, signed by this (an account's) key; `scoped`: without limits of its own."""
        body: dict[str, Any] = {"type": "user"} | ({} if scoped else NO_LIMITS) | nats
        return self.sign(user.public, body, **({"name": "somebody"} | (claims or {})))


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def creds(token: str, key: Key) -> str:
    """A credentials file."""
    return (
        f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{key.seed}\n------END USER NKEY SEED------\n"
    )


OPERATOR, SYSTEM, ALPHA, BETA, SIGNING = Key("O", 1), Key("A", 2), Key("A", 3), Key("A", 4), Key("A", 5)
USER, OTHER, ADMIN = Key("U", 6), Key("U", 7), Key("U", 8)


def operator_token(**nats: Any) -> str:
    """The operator about itself."""
    body = {"type": "operator", "system_account": SYSTEM.public} | nats
    return OPERATOR.sign(OPERATOR.public, body, name="operator")


def operator_conf(*accounts: str, resolver: str = "MEMORY", operator: str = "") -> str:
    """The configuration of operator mode with these accounts preloaded, and the system account."""
    tokens = [OPERATOR.account(SYSTEM), *accounts]
    preload = "\n".join(f"  {_subject(token)}: {token}" for token in tokens)
    return f"operator: {operator or operator_token()}\nresolver: {resolver}\nresolver_preload {{\n{preload}\n}}\n"


def _subject(token: str) -> str:
    middle = token.split(".")[1]
    return str(json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))["sub"])
