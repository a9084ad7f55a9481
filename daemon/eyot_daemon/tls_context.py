"""`ssl.SSLContext`s from `tls { }` blocks."""

from __future__ import annotations

import ssl

from eyot_daemon.options_tls import TlsOptions

_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
# Go's names, which configurations use, to OpenSSL's; those of TLS 1.3 (always on) have none.
_CIPHERS = {
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
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

_CURVES = {"CURVEP256": "prime256v1", "CURVEP384": "secp384r1", "CURVEP521": "secp521r1", "X25519": "X25519"}


class TlsError(Exception):
    """A certificate, key or setting that cannot be used; the text names the file."""


def server_context(tls: TlsOptions) -> ssl.SSLContext:
    """The context of a listener. Raises TlsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _apply(context, tls)
    if tls.verify or tls.verify_and_map:
        context.verify_mode = ssl.CERT_REQUIRED
        if not tls.ca_file:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    return context


def monitoring_context(tls: TlsOptions) -> ssl.SSLContext:
    """The context of the HTTPS pages: the server's certificate, and nobody is asked for one. Raises TlsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _apply(context, tls)
    return context


def renew(context: ssl.SSLContext, tls: TlsOptions) -> None:
    """Let a context that cannot be replaced use what is in the files now. Raises TlsError."""
    _apply(context, tls)


def client_context(tls: TlsOptions | None) -> ssl.SSLContext:
    """The context for dialling out; without a block the system's authorities are trusted. Raises TlsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if tls is None:
        tls = TlsOptions()
    _apply(context, tls)
    if not tls.ca_file:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if tls.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _apply(context: ssl.SSLContext, tls: TlsOptions) -> None:
    context.minimum_version = _VERSIONS[tls.min_version]
    if tls.cert_file:
        try:
            context.load_cert_chain(tls.cert_file, tls.key_file)
        except (OSError, ssl.SSLError) as error:
            raise TlsError(
                f"error parsing X509 certificate/key pair: {tls.cert_file}, {tls.key_file}: {error}"
            ) from None
    if tls.ca_file:
        try:
            context.load_verify_locations(tls.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise TlsError(f"failed to parse root ca certificate {tls.ca_file}: {error}") from None
    if tls.curve_preferences:
        context.set_ecdh_curve(_CURVES[tls.curve_preferences[0].upper()])
    ciphers = [cipher_name(name) for name in tls.cipher_suites]
    if any(ciphers):
        try:
            context.set_ciphers(":".join(filter(None, ciphers)))
        except ssl.SSLError as error:
            raise TlsError(f"cipher suites are not supported by OpenSSL here: {error}") from None


def cipher_name(name: str) -> str:
    """OpenSSL's name of a cipher suite, "" for those of TLS 1.3. Raises TlsError."""
    try:
        return _CIPHERS[name.upper()]
    except KeyError:
        raise TlsError(f'unrecognized cipher "{name}"') from None
