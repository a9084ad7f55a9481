"""Settings of the C library's heap for a broker.

What a turn sends to a destination is gathered in one buffer, which grows to some 100 KiB and is emptied, thousands of
times a second. glibc maps a block of that size on its own as soon as it exceeds 128 KiB, and keeps it mapped: emptying
gives the pages back, and the next turn takes them anew, a page fault for each 4 KiB and a system call for each step of
growth. That costs more than to copy, to receive and to send the bytes. Blocks below `MAPPED_FROM` therefore stay in the
heap, and its free end stays with the process up to `KEPT_BYTES`.
"""

import ctypes
import mmap
import sys
from contextlib import suppress
from typing import Final

#: Blocks of at least this size are mapped on their own, and returned to the system when they are freed.
MAPPED_FROM: Final = 8 * 1024 * 1024
#: The most free memory at the heap's end that is not returned to the system.
KEPT_BYTES: Final = 8 * 1024 * 1024

# malloc.h
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


def keep_buffers() -> bool:
    """Have the C library keep the memory of emptied buffers; False where it cannot be told (not glibc)."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    mallopt.argtypes, mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    done = mallopt(_M_MMAP_THRESHOLD, MAPPED_FROM) and mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
    return bool(done)


def give_back() -> None:
    """Return the heap's free pages to the system, once: what the start needed and nobody holds any more."""
    with suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)


def lazy_buffer(size: int) -> memoryview:
    """Return a writable buffer of zeros whose pages take no memory before they are written; it lives as long as the process."""
    return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
