"""The `Nats-Request-Info` header of requests that cross a leaf link.

It names the requester's account, which means nothing on the other side: the link's account there replaces it.
"""

from __future__ import annotations

import msgspec

from eyot_wire.headers import get, set_field
from eyot_wire.untrusted import decode_json

REQUEST_INFO = b"Nats-Request-Info"


def with_remote_account(header: bytes, remote_account: str) -> bytes:
    """Return the header block with `acc` of its request info replaced; unchanged without one, or with a malformed one."""
    if REQUEST_INFO not in header:
        return header
    value = get(header, REQUEST_INFO)
    if value is None:
        return header
    try:
        info = decode_json(value, dict[str, object])
    except msgspec.DecodeError:
        return header
    info["acc"] = remote_account
    return set_field(header, REQUEST_INFO, msgspec.json.encode(info))
