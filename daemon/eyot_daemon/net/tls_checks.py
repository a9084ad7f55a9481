"""Checks of a TLS connection beyond the handshake: pinned certificates, and a limit on concurrent handshakes."""

from __future__ import annotations

import ssl
import time
from typing import Any

import trio

from eyot_daemon.config.tls import TlsOptions
from eyot_daemon.net.cert_names import public_key_digest


class RateLimit:
    """Counts connections by the second."""

    def __init__(self) -> None:
        self._second = 0
        self._count = 0

    def allow(self, most: int) -> bool:
        """One more connection now; False: there were `most` in this second already (0: no limit)."""
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._count = second, 0
        self._count += 1
        return not most or self._count <= most


def check_certificate(tls: TlsOptions, stream: trio.SSLStream[Any]) -> None:
    """Check the peer's certificate against `pinned_certs` and its expiry. Raises ssl.SSLError.

    OpenSSL does not check the expiry again when a session is resumed.
    """
    if stream.session_reused and (tls.verify or tls.verify_and_map):
        certificate = stream.getpeercert()
        if not certificate or ssl.cert_time_to_seconds(str(certificate["notAfter"])) < time.time():
            raise ssl.SSLError("certificate has expired")
    if not tls.pinned_certs:
        return
    shown = stream.getpeercert(binary_form=True)
    if not shown or public_key_digest(shown) not in tls.pinned_certs:
        raise ssl.SSLError("certificate not pinned")
