"""The reason of a failed TLS handshake in Go's words, where Go has some, as nats-server logs after `TLS handshake error:`."""

from __future__ import annotations

import ssl

import trio

_NOT_TLS = "tls: first record does not look like a TLS handshake"
#: By OpenSSL's reason (`ssl.SSLError.reason`).
_WORDS = {
    "HTTP_REQUEST": _NOT_TLS,
    "HTTPS_PROXY_REQUEST": _NOT_TLS,
    "WRONG_VERSION_NUMBER": _NOT_TLS,
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "tls: client didn't provide a certificate",
    "UNSUPPORTED_PROTOCOL": "tls: client offered only unsupported versions",
    "VERSION_TOO_LOW": "tls: client offered only unsupported versions",
    "NO_SHARED_CIPHER": "tls: no cipher suite supported by both client and server",
    "UNEXPECTED_EOF_WHILE_READING": "EOF",
}
_UNKNOWN_AUTHORITY = "x509: certificate signed by unknown authority"
_EXPIRED = "x509: certificate has expired or is not yet valid"
#: By OpenSSL's certificate error number (`X509_V_ERR_*`).
_CERTIFICATE_WORDS = {2: _UNKNOWN_AUTHORITY, 19: _UNKNOWN_AUTHORITY, 20: _UNKNOWN_AUTHORITY, 21: _UNKNOWN_AUTHORITY}
_CERTIFICATE_WORDS |= {9: _EXPIRED, 10: _EXPIRED}
#: Alerts of the peer whose names differ between Go and OpenSSL.
_ALERTS = {"UNKNOWN_CA": "unknown certificate authority"}


def handshake_words(error: BaseException) -> str:
    """Return the reason; never empty."""
    cause = error.__cause__ or error
    if isinstance(cause, trio.TooSlowError):
        return "i/o timeout"
    if isinstance(cause, ssl.SSLCertVerificationError):
        known = _CERTIFICATE_WORDS.get(getattr(cause, "verify_code", 0))
        message = getattr(cause, "verify_message", "") or str(cause.args[-1])
        return f"tls: failed to verify certificate: {known or 'x509: ' + message}"
    if isinstance(cause, ssl.SSLError):
        return _openssl_words(cause)
    if isinstance(cause, trio.BrokenResourceError):
        return str(cause) or "EOF"
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror.lower()
    return str(cause) or type(cause).__name__


def _openssl_words(error: ssl.SSLError) -> str:
    reason = getattr(error, "reason", None) or ""  # errors of our own have none
    if isinstance(error, ssl.SSLEOFError):
        return "EOF"
    _, alert, told = reason.partition("_ALERT_")
    if alert:
        return f"remote error: tls: {_ALERTS.get(told, told.replace('_', ' ').lower())}"
    if not reason:
        return str(error.args[-1]) if error.args else type(error).__name__
    return _WORDS.get(reason) or f"tls: {reason.replace('_', ' ').lower()}"
