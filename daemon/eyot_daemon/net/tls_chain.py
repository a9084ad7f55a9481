"""Restricts the certificates that a TLS listener sends to those of its file.

OpenSSL completes a chain from the trusted certificates: with `ca_file`, it would also send the authority that verifies
clients. Go sends the file's content. OpenSSL's mode for that, `SSL_MODE_NO_AUTO_CHAIN`, is not available in Python's
`ssl`; this module sets it in OpenSSL itself, through the pointer at the start of an `SSLContext`.
"""

from __future__ import annotations

import _ssl
import ctypes
import ssl
import sys

_CTRL_MODE = 33
_NO_AUTO_CHAIN = 0x8
#: The versions of CPython whose `SSLContext` is known to start with the pointer.
_KNOWN = (3, 11) <= sys.version_info < (3, 15) and sys.implementation.name == "cpython"


def send_only_own(context: ssl.SSLContext) -> None:
    """Let `context` send only the loaded certificates. Where that is impossible, the context stays unchanged."""
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
