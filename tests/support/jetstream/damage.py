"""Damage to messages of a stopped or running server, on flash."""

import os

from support.jetstream.fixture import Fixture


def damage(fixture: Fixture, *payloads: bytes) -> None:
    """Change bytes of the records with these payloads on flash; they are no longer in the journal alone."""
    file = fixture.path / "data.mdb"
    data = file.read_bytes()
    with file.open("r+b") as out:
        for payload in payloads:
            at = data.index(payload)
            while at >= 0:  # older copies of its page, too
                os.pwrite(out.fileno(), b"\xff", at)
                at = data.find(payload, at + 1)
