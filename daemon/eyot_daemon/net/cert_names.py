"""Names in a client's certificate, in the order in which `verify_and_map` looks for a user."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509

#: The order in which Go writes a subject, last first, with its abbreviations.
_GO_ORDER = (
    ("2.5.4.6", "C"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "STREET"),
    ("2.5.4.17", "POSTALCODE"),
    ("2.5.4.3", "CN"),
    ("2.5.4.5", "SERIALNUMBER"),
)
_DOMAIN_COMPONENT = "0.9.2342.19200300.100.1.25"
#: The names of types in distinguished names. The last two are more than nats-server knows.
_TYPES = dict(_GO_ORDER) | {
    _DOMAIN_COMPONENT: "DC",
    "0.9.2342.19200300.100.1.1": "UID",
    "1.2.840.113549.1.9.1": "E",
}
_ALIASES = {"EMAILADDRESS": "E"}

#: One part of a distinguished name: how many attributes it has, and which.
_Part = tuple[int, frozenset[tuple[str, str]]]


def find_user(certificate: bytes, users: Collection[str]) -> str | None:
    """Return which of `users` a certificate (DER) names: by its e-mail addresses, DNS names, URIs, then its subject; None: no one.

    A user's name may be the subject as a distinguished name. One with the same parts in the same order comes before one with another
    order. Then the subject is the text that Go makes of it, with and without its domain components.
    """
    from cryptography import x509

    cert = x509.load_der_x509_certificate(certificate)
    for name in _alternative_names(cert):
        if name in users:
            return name
    parts = _parts(cert.subject)
    if parts:
        named = [(user, found) for user in users if "=" in user and (found := _parsed(user)) is not None]
        for user, found in named:
            if found == parts:
                return user
        wanted = Counter(parts)
        for user, found in named:
            if Counter(found) == wanted:
                return user
    text = _go_text(cert.subject)
    domains = ",".join(f"DC={_escape(_text(part.value))}" for part in _of_type(cert.subject, _DOMAIN_COMPONENT))
    for name in (f"{text},{domains}" if domains else "", text):
        if name and name in users:
            return name
    return None


def public_key_digest(certificate: bytes) -> str:
    """Return the SHA-256 of the certificate's SubjectPublicKeyInfo in hexadecimal, as in `pinned_certs`."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = x509.load_der_x509_certificate(certificate).public_key()
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def _alternative_names(cert: x509.Certificate) -> Iterable[str]:
    from cryptography import x509

    try:
        names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return
    for kind in (x509.RFC822Name, x509.DNSName, x509.UniformResourceIdentifier):
        yield from names.get_values_for_type(kind)


def _parts(name: x509.Name) -> tuple[_Part, ...]:
    """Return the parts of a certificate's subject, the last one first, as a distinguished name is written."""
    return tuple(
        _part([(_TYPES.get(one.oid.dotted_string, one.oid.dotted_string), _text(one.value)) for one in rdn])
        for rdn in reversed(name.rdns)
    )


def _part(attributes: list[tuple[str, str]]) -> _Part:
    return len(attributes), frozenset(attributes)


@lru_cache(maxsize=16_384)
def _parsed(text: str) -> tuple[_Part, ...] | None:
    """Return the parts of a distinguished name (RFC 4514), read as nats-server reads it; None if the text is none."""
    parts: list[_Part] = []
    attributes: list[tuple[str, str]] = []
    kind, value = "", bytearray()
    data, at, spaces = text.encode(), 0, 0  # `spaces`: how many unescaped ones `value` ends in
    while at < len(data):
        char = data[at : at + 1]
        at += 1
        if char == b"=":
            kind, spaces = _taken(value, spaces).upper(), 0
            if data[at : at + 1] == b"#":
                return None  # BER
        elif char in (b",", b"+"):
            if not kind:
                return None
            attributes.append((_ALIASES.get(kind, kind), _taken(value, spaces)))
            kind, spaces = "", 0
            if char == b",":
                parts.append(_part(attributes))
                attributes = []
        elif char == b" ":
            if value:
                value += char
                spaces += 1
        else:
            if char == b"\\":
                char, at = _unescaped(data, at)
                if not char:
                    return None
            value += char
            spaces = 0
    if value:
        if not kind:
            return None
        attributes.append((_ALIASES.get(kind, kind), _taken(value, spaces)))
        parts.append(_part(attributes))
    return tuple(parts)


def _taken(value: bytearray, spaces: int) -> str:
    """Return what was read, without unescaped spaces at its end, and empty the buffer."""
    taken = bytes(value[: len(value) - spaces]).decode("utf-8", "replace")
    value.clear()
    return taken


def _unescaped(data: bytes, at: int) -> tuple[bytes, int]:
    """Return the byte that follows a backslash, itself or in hexadecimal, and where it ends; b"": a mistake."""
    char = data[at : at + 1]
    if char and char in b' "#+,;<=>\\':
        return char, at + 1
    digits = data[at : at + 2]
    if len(digits) < 2 or any(digit not in b"0123456789abcdefABCDEF" for digit in digits):
        return b"", at
    return bytes([int(digits, 16)]), at + 2


def _of_type(name: x509.Name, dotted: str) -> list[x509.NameAttribute[str | bytes]]:
    return [one for one in name if one.oid.dotted_string == dotted]


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def _go_text(name: x509.Name) -> str:
    """Return the subject as Go's `pkix.RDNSequence` prints it."""
    groups = []
    for dotted, short in _GO_ORDER:
        values = [f"{short}={_escape(_text(one.value))}" for one in _of_type(name, dotted)]
        if values:
            groups.append("+".join(values))
    return ",".join(reversed(groups))


def _escape(value: str) -> str:
    escaped = "".join(f"\\{char}" if char in ',+"\\<>;' else char for char in value)
    if value[:1] in (" ", "#"):
        escaped = "\\" + escaped
    if len(value) > 1 and value.endswith(" "):
        escaped = escaped[:-1] + "\\ "
    return escaped
