"""Credentials files (`*.creds`): a user JWT and its seed, between lines of dashes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from eyot_wire.trust.nkey import NkeyError, Signer, encode_signature

# A line of dashes with a label, the content, and another line of dashes (three or more dashes each).
_SECTION: Final = re.compile(r"-{3,}[^\r\n]*-{3,}\r?\n\s*([^\s-][^\s]*)\s*\r?\n-{3,}[^\r\n]*-{3,}")


class Credentials(NamedTuple):
    """The content of a credentials file; `jwt` is "" in a file with only a seed. repr() leaves the seed out."""

    jwt: str
    seed: str

    def sign(self, nonce: str) -> str:
        """Return `sig` of a CONNECT: the signature over the nonce's text. Raises NkeyError."""
        return encode_signature(Signer(self.seed).sign(nonce.encode()))

    def public_key(self) -> str:
        return Signer(self.seed).public_key

    def __repr__(self) -> str:
        return "Credentials(...)"


def parse_creds(text: str, sealed: Callable[[], str] | None = None) -> Credentials:
    """Read a credentials file, or a bare seed. Raises NkeyError, whose text contains nothing of the file.

    `sealed`: where the seed of a file comes from that holds the token alone.
    """
    sections: list[str] = _SECTION.findall(text)
    if len(sections) >= 2:
        credentials = Credentials(sections[0], sections[1])
    elif text.strip().startswith("S") and len(text.split()) == 1:
        credentials = Credentials("", text.strip())
    elif len(sections) == 1 and sections[0].startswith("S"):
        credentials = Credentials("", sections[0])
    elif len(sections) == 1 and sealed is not None:
        credentials = Credentials(sections[0], sealed())
    else:
        raise NkeyError("no user JWT and seed found in the credentials")
    Signer(credentials.seed)
    return credentials


def token_of(text: str) -> str:
    """Return the token of a credentials file, whether or not it holds the seed, too; "" without one."""
    sections: list[str] = _SECTION.findall(text)
    return sections[0] if sections and not sections[0].startswith("S") else ""


def format_sealed_creds(token: str) -> str:
    """Return the text of a credentials file without the seed."""
    return f"""-----BEGIN NATS USER JWT-----
{token}
------END NATS USER JWT------

The key of this token is sealed: systemd gives it to the units that need it.
"""


def format_creds(token: str, seed: str) -> str:
    """Return the text of a credentials file, as nats-io/jwt writes it."""
    return f"""-----BEGIN NATS USER JWT-----
{token}
------END NATS USER JWT------

************************* IMPORTANT *************************
NKEY Seed printed below can be used to sign and prove identity.
NKEYs are sensitive and should be treated as secrets.

-----BEGIN USER NKEY SEED-----
{seed}
------END USER NKEY SEED------

*************************************************************
"""
