"""What a listener asks of a TLS connection beyond the handshake: pinned certificates, and a limit on how many there are."""

from __future__ import annotations

import ssl
import time
from typing import Any

import trio

from eyot_daemon.cert_names import public_key_digest
from eyot_daemon.options_tls import TlsOptions


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


def check_pinned(tls: TlsOptions, stream: trio.SSLStream[Any]) -> None:
    """Raise ssl.SSLError if the peer's certificate is not among `pinned_certs`."""
    if not tls.pinned_certs:
        return
    certificate = stream.getpeercert(binary_form=True)
    if not certificate or public_key_digest(certificate) not in tls.pinned_certs:
        raise ssl.SSLError("certificate not pinned")
