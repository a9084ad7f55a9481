"""`tls { }` blocks (client listener, leaf listener, leaf remotes, monitoring) as typed values.

Building an `ssl.SSLContext` from them is `tls_context.py`'s work; nothing here touches a file.
"""

from __future__ import annotations

from msgspec import Struct

#: nats-server's names of curves to OpenSSL's.
CURVES = {"CURVEP256": "prime256v1", "CURVEP384": "secp384r1", "CURVEP521": "secp521r1", "X25519": "X25519"}
#: Go's names of cipher suites, which configurations use, to OpenSSL's; those of TLS 1.3 (always on) have none.
CIPHERS = {
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_AES_128_GCM_SHA256": "",
    "TLS_AES_256_GCM_SHA384": "",
    "TLS_CHACHA20_POLY1305_SHA256": "",
}
#: Those that Go counts as insecure; OpenSSL as Debian builds it lacks some, which are left out.
INSECURE_CIPHERS = {
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_RC4_128_SHA": "RC4-SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA": "DES-CBC3-SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA": "ECDHE-RSA-RC4-SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA": "ECDHE-RSA-DES-CBC3-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA": "ECDHE-ECDSA-RC4-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
}


class TlsOptions(Struct, frozen=True, kw_only=True):
    """One `tls { }` block. Paths as written (relative ones are relative to the working directory, as nats-server's)."""

    cert_file: str = ""
    key_file: str = ""
    more_certs: tuple[
        tuple[str, str], ...
    ] = ()  # further pairs of certificate and key, for other names or kinds of keys
    ca_file: str = ""
    verify: bool = False
    verify_and_map: bool = False
    check_known_urls: bool = False  # verify_cert_and_check_known_urls
    insecure: bool = False  # remotes only: do not verify the server's certificate
    cipher_suites: tuple[str, ...] = ()
    curve: str = ""  # the only one to be used; "" for OpenSSL's own choice
    timeout_s: float = 2.0
    connection_rate_limit: int = 0
    pinned_certs: frozenset[str] = frozenset()  # lower-case hex SHA-256 of the certificate's public key info
    handshake_first: bool = False
    handshake_first_fallback_s: float | None = None  # wait this long for a TLS hello, then send INFO in clear
    min_version: str = "1.2"
