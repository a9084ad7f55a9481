"""`tls { }` blocks (client listener, leaf listener, leaf remotes, monitoring) as typed values.

Building an `ssl.SSLContext` from them is `tls_context.py`'s work; nothing here touches a file.
"""

from __future__ import annotations

from msgspec import Struct


class TlsOptions(Struct, frozen=True, kw_only=True):
    """One `tls { }` block. Paths as written (relative ones are relative to the working directory, as nats-server's)."""

    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    verify: bool = False
    verify_and_map: bool = False
    check_known_urls: bool = False  # verify_cert_and_check_known_urls
    insecure: bool = False  # remotes only: do not verify the server's certificate
    cipher_suites: tuple[str, ...] = ()
    curve_preferences: tuple[str, ...] = ()
    timeout_s: float = 2.0
    connection_rate_limit: int = 0
    pinned_certs: frozenset[str] = frozenset()  # lower-case hex SHA-256 of the certificate's public key info
    handshake_first: bool = False
    handshake_first_fallback_s: float | None = None  # wait this long for a TLS hello, then send INFO in clear
    min_version: str = "1.2"
