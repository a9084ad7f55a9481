"""Whether the kernel's clock follows a time server, by adjtimex(2) and systemd-timesyncd."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

#: systemd-timesyncd makes it when the clock has been set (systemd-timesyncd.service(8)); it does not outlive a boot.
_TIMESYNC = Path("/run/systemd/timesync/synchronized")
#: adjtimex returns this when the clock is not synchronized (TIME_ERROR).
_TIME_ERROR = 5
#: The largest difference to the kernel's time, seconds: beyond it (a test, a container's shim) the kernel's state says
#: nothing.
_SAME_S = 2


class _Timex(ctypes.Structure):
    """The beginning of `struct timex`."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("constant", ctypes.c_long),
        ("precision", ctypes.c_long),
        ("tolerance", ctypes.c_long),
        ("seconds", ctypes.c_long),
        ("rest", ctypes.c_char * 512),
    )


def is_synchronized(now_ns: int) -> bool:
    """Return whether `now_ns` is the kernel's time, and the kernel or systemd-timesyncd reports it as synchronized."""
    state, seconds = _kernel_clock()
    if seconds is None or abs(seconds - now_ns // 1_000_000_000) > _SAME_S:
        return False
    return state != _TIME_ERROR or _TIMESYNC.exists()


def _kernel_clock() -> tuple[int, int | None]:
    """Return (adjtimex's result, the kernel's seconds since the epoch); None where the call is forbidden."""
    adjtimex = _adjtimex()
    if adjtimex is None:
        return _TIME_ERROR, None
    timex = _Timex()
    state = int(adjtimex(ctypes.byref(timex)))
    return (state, int(timex.seconds)) if state >= 0 else (_TIME_ERROR, None)


@cache
def _adjtimex() -> ctypes._NamedFuncPointer | None:
    try:
        return ctypes.CDLL(None).adjtimex
    except (OSError, AttributeError):
        return None
