"""Requests to a device for its own reports, over NATS: `$EYOT.DEVICE.<name>.<report>` in the account of `eyot { device { } }`.

The answer is the JSON of the control socket's page, in parts: each has the header `Eyot-Part: <number>/<all>`, from 1 on.
"""

from __future__ import annotations

from typing import Final

PREFIX: Final = "$EYOT.DEVICE"
PART: Final = "Eyot-Part"
#: Bytes of one part.
PART_BYTES: Final = 64 * 1024
#: The reports, and the pages of the control socket that they are.
PAGES: Final = {"status": "/eyot/status", "sync": "/eyot/syncz"}
ANSWERS: Final = tuple(PAGES)


def subject_of(name: str, report: str) -> str:
    """Return the subject of the request."""
    return f"{PREFIX}.{name}.{report}"


def is_token(name: str) -> bool:
    """Return whether `name` can be one token of a subject."""
    return bool(name) and not any(each in ".*>" or each.isspace() or not each.isprintable() for each in name)


def parts_of(body: bytes) -> list[tuple[bytes, bytes]]:
    """Return header block and payload of each part; one for an empty body."""
    pieces = [body[at : at + PART_BYTES] for at in range(0, len(body), PART_BYTES)] or [b""]
    return [
        (b"NATS/1.0\r\n%b: %d/%d\r\n\r\n" % (PART.encode(), number, len(pieces)), piece)
        for number, piece in enumerate(pieces, 1)
    ]


def place_of(text: str) -> tuple[int, int]:
    """Return number and count of a part from its header field. Raises ValueError."""
    number, _, count = text.partition("/")
    place = int(number), int(count)
    if not 1 <= place[0] <= place[1] <= 4096:
        raise ValueError(f"no part of an answer: {text!r}")
    return place
