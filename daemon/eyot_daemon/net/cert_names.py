"""Names in a client's certificate, in the order in which `verify_and_map` looks for a user."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
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


def find_user(certificate: bytes, users: Iterable[str], known: Callable[[str], bool]) -> str | None:
    """Return the user of a certificate (DER): by its e-mail addresses, DNS names, URIs, then its subject; None: no user.

    The subject is compared part by part in any order, then as the text that Go makes of it, with and without its domain
    components.
    """
    from cryptography import x509

    cert = x509.load_der_x509_certificate(certificate)
    for name in _alternative_names(cert):
        if known(name):
            return name
    parts = _parts(cert.subject)
    for user in users:
        if "=" in user and _parsed(user) == parts:
            return user
    text = _go_text(cert.subject)
    domains = ",".join(f"DC={_escape(_text(part.value))}" for part in _of_type(cert.subject, _DOMAIN_COMPONENT))
    for name in (f"{text},{domains}" if domains else "", text):
        if name and known(name):
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


def _parts(name: x509.Name) -> list[frozenset[tuple[str, str]]]:
    """Return the parts of a distinguished name in a canonical order."""
    parts = [frozenset((one.oid.dotted_string, _text(one.value)) for one in rdn) for rdn in name.rdns]
    return sorted(parts, key=sorted)


def _parsed(text: str) -> list[frozenset[tuple[str, str]]] | None:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    more = {"emailAddress": NameOID.EMAIL_ADDRESS, "E": NameOID.EMAIL_ADDRESS, "serialNumber": NameOID.SERIAL_NUMBER}
    try:
        return _parts(x509.Name.from_rfc4514_string(text, more))
    except ValueError:
        return None  # a user's name that is not a distinguished name


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
