"""Credentials files (`*.creds`): a user JWT and its seed, between lines of dashes."""

from __future__ import annotations

import re
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


def parse_creds(text: str) -> Credentials:
    """Read a credentials file, or a bare seed. Raises NkeyError, whose text contains nothing of the file."""
    sections: list[str] = _SECTION.findall(text)
    if len(sections) >= 2:
        credentials = Credentials(sections[0], sections[1])
    elif text.strip().startswith("S") and len(text.split()) == 1:
        credentials = Credentials("", text.strip())
    elif len(sections) == 1 and sections[0].startswith("S"):
        credentials = Credentials("", sections[0])
    else:
        raise NkeyError("no user JWT and seed found in the credentials")
    Signer(credentials.seed)
    return credentials


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
