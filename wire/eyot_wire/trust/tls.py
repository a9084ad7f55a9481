"""Server verification of Eyot's tools, as in Go's clients and independent of the Python release's defaults.

Python 3.13 refuses certificates without an authority key identifier and accepts an intermediate certificate as a trust
anchor; earlier releases do neither. Go's TLS requires no identifier and trusts every certificate of the given file.
Tools with the same configuration therefore reach the same servers.
"""

from __future__ import annotations

import ssl
from os import PathLike


def verifying_context(ca_file: str | PathLike[str] | None = None) -> ssl.SSLContext:
    """Return a client's context that trusts `ca_file`'s authorities, the system's without one. Raises OSError."""
    context = ssl.create_default_context(cafile=ca_file)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
