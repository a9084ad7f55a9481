"""Which certificates a TLS listener sends: those of its file, and no others.

OpenSSL completes a chain from what the context trusts: with `ca_file`, the authority that clients' certificates are checked
against went along. Go sends what is in the file. OpenSSL has a mode for that, `SSL_MODE_NO_AUTO_CHAIN`, which Python's `ssl` does not
offer; it is set in OpenSSL itself, by the pointer that an `SSLContext` begins with.
"""

from __future__ import annotations

import _ssl
import ctypes
import ssl
import sys

_CTRL_MODE = 33
_NO_AUTO_CHAIN = 0x8
#: The versions of CPython whose `SSLContext` is known to begin so.
_KNOWN = (3, 11) <= sys.version_info < (3, 15) and sys.implementation.name == "cpython"


def send_only_own(context: ssl.SSLContext) -> None:
    """Let `context` add nothing to the certificates that were loaded. Where that is not possible, it goes on adding."""
    if not _KNOWN:
        return
    try:
        library = ctypes.CDLL(getattr(_ssl, "__file__", None))
        control, options = library.SSL_CTX_ctrl, library.SSL_CTX_get_options
    except (OSError, AttributeError):
        return
    options.argtypes, options.restype = (ctypes.c_void_p,), ctypes.c_uint64
    control.argtypes, control.restype = (ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_void_p), ctypes.c_long
    pointer = ctypes.c_void_p.from_address(id(context) + object.__basicsize__)
    if pointer.value and options(pointer) & 0xFFFF_FFFF == context.options & 0xFFFF_FFFF:
        control(pointer, _CTRL_MODE, _NO_AUTO_CHAIN, None)
