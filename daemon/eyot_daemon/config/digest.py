"""The digest of a configuration, as nats-server shows it in `/varz`, in its log and after `-t`.

It is the SHA-256 of the parsed configuration as Go's encoder writes it in JSON: keys sorted, no blanks, a line feed at the
end, `<`, `>` and `&` escaped, whole numbers without a point.
"""

from __future__ import annotations

from hashlib import sha256

import msgspec

from eyot_wire.conf.values import Plain

_ESCAPES = {
    b"<": b"\\u003c",
    b">": b"\\u003e",
    b"&": b"\\u0026",
    "\u2028".encode(): b"\\u2028",
    "\u2029".encode(): b"\\u2029",
}


def config_digest(plain: Plain) -> str:
    """`sha256:` and 64 hexadecimal digits for `ConfMap.plain()`."""
    text = msgspec.json.encode(_spoken(plain), order="sorted")
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    return "sha256:" + sha256(text + b"\n").hexdigest()


def _spoken(plain: Plain) -> Plain:
    if isinstance(plain, dict):
        return {key: _spoken(value) for key, value in plain.items()}
    if isinstance(plain, list):
        return [_spoken(value) for value in plain]
    if isinstance(plain, float) and plain.is_integer() and abs(plain) < 1e21:
        return int(plain)
    return plain
