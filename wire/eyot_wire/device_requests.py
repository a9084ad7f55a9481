"""Requests to a device for its own reports and to connect its links, over NATS: `$EYOT.DEVICE.<name>.<report>` in the account of `eyot { device { } }`.

The answer is JSON in parts: each has the header `Eyot-Part: <number>/<all>`, from 1 on. The payload of a request may be empty.

A support bundle may be larger than a slow link takes at once: a request for it gets one part, which the payload names
(`PartRequest`), and the header `Eyot-Bundle` names the bundle. The bundle's other parts are asked for one after the other.
A part of another bundle means that the first one is no longer kept: who asks begins again.
"""

from __future__ import annotations

import hashlib
from typing import Final

from msgspec import Struct

PREFIX: Final = "$EYOT.DEVICE"
PART: Final = "Eyot-Part"
#: Header fields of a support bundle's part: the archive's name, and `sha-256=<hex>` of the whole archive.
BUNDLE_NAME: Final = "Eyot-Bundle"
DIGEST: Final = "Eyot-Digest"
#: Header field of an answer that refuses the request: why.
REFUSED: Final = "Eyot-Refused"
#: Bytes of one part.
PART_BYTES: Final = 64 * 1024
#: Parts of one answer at most.
PARTS_MAX: Final = 4096
#: Connections in the answer to `top` at most.
TOP_CONNECTIONS_MAX: Final = 1024
TOP: Final = "top"
SUPPORT_BUNDLE: Final = "support-bundle"
#: Not a report: the device connects a link now.
CONNECT: Final = "connect"
#: The reports that are pages of the control socket.
PAGES: Final = {"status": "/eyot/status", "sync": "/eyot/syncz"}
#: All reports, and those that a device gives unless its configuration names others.
ANSWERS: Final = (*PAGES, TOP, SUPPORT_BUNDLE, CONNECT)
DEFAULT_ANSWERS: Final = tuple(PAGES)


class TopRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The payload of a request for `top`: the parameters of `/connz`. `limit`: connections, at most `TOP_CONNECTIONS_MAX`."""

    sort: str = "cid"
    subjects: bool = False
    limit: int = TOP_CONNECTIONS_MAX


class PartRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The payload of a request for a part of a support bundle.

    `of`: the bundle that the other parts are of; "": any. `part`: from 1 on.
    """

    of: str = ""
    part: int = 1


class ConnectRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The payload of a request to connect a link that is down. `link`: its name; "": all that are down."""

    link: str = ""


class ConnectAnswer(Struct, frozen=True, kw_only=True):
    """What came of it. `links`: those that are dialled now; `error`: why none is, "" otherwise."""

    links: list[str] = []
    error: str = ""


def subject_of(name: str, report: str) -> str:
    """Return the subject of the request."""
    return f"{PREFIX}.{name}.{report}"


def is_token(name: str) -> bool:
    """Return whether `name` can be one token of a subject."""
    return bool(name) and not any(each in ".*>" or each.isspace() or not each.isprintable() for each in name)


def parts_of(body: bytes) -> list[tuple[bytes, bytes]]:
    """Return header block and payload of each part; one for an empty body."""
    return [(header_block({PART: f"{number}/{count}"}), piece) for number, count, piece in pieces_of(body)]


def pieces_of(body: bytes) -> list[tuple[int, int, bytes]]:
    """Return number, count and bytes of each part; one for an empty body."""
    pieces = [body[at : at + PART_BYTES] for at in range(0, len(body), PART_BYTES)] or [b""]
    return [(number, len(pieces), piece) for number, piece in enumerate(pieces, 1)]


def header_block(fields: dict[str, str]) -> bytes:
    """Return the header block of a message with these fields."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"NATS/1.0\r\n{lines}\r\n".encode()


def place_of(text: str) -> tuple[int, int]:
    """Return number and count of a part from its header field. Raises ValueError."""
    number, _, count = text.partition("/")
    place = int(number), int(count)
    if not 1 <= place[0] <= place[1] <= PARTS_MAX:
        raise ValueError(f"no part of an answer: {text!r}")
    return place


def digest_of(body: bytes) -> str:
    """Return the value of the header field `Eyot-Digest`."""
    return f"sha-256={hashlib.sha256(body).hexdigest()}"
