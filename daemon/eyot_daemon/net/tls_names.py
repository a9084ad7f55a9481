"""Selects the certificate of a listener with several: the first for the client's server name, else the first."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path


def dns_names(cert_file: str) -> frozenset[str]:
    """Return the host names (lower case, `*.example.com` among them) of the first certificate of a PEM file."""
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate(Path(cert_file).read_bytes())
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(name.lower() for name in names.get_values_for_type(x509.DNSName))


def matches(names: frozenset[str], wanted: str) -> bool:
    """Return whether a certificate with these names is valid for a host; a wildcard matches one label."""
    wanted = wanted.lower().rstrip(".")
    _, dot, rest = wanted.partition(".")
    return wanted in names or bool(dot and f"*.{rest}" in names)


def choose_by_name(
    context: ssl.SSLContext, own: frozenset[str], others: Sequence[tuple[frozenset[str], ssl.SSLContext]]
) -> None:
    """Let connections of `context` use the first of `others` whose certificate has their server name."""

    def choose(connection: ssl.SSLObject | ssl.SSLSocket, wanted: str | None, _: ssl.SSLContext) -> None:
        if wanted is None or matches(own, wanted):
            return
        for names, other in others:
            if matches(names, wanted):
                connection.context = other
                return

    context.sni_callback = choose
