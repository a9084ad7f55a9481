"""How our tools verify a server: as Go's clients do, whatever the release of Python makes its own default.

Python 3.13 refuses certificates without an authority key identifier and takes an intermediate certificate as an anchor; earlier
releases do neither. Go's TLS asks for no identifier and trusts every certificate of the file it is given, so tools that are
configured alike reach a server alike.
"""

from __future__ import annotations

import ssl
from os import PathLike


def verifying_context(ca_file: str | PathLike[str] | None = None) -> ssl.SSLContext:
    """A client's context that trusts `ca_file`'s authorities, the system's without one. Raises OSError."""
    context = ssl.create_default_context(cafile=ca_file)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
