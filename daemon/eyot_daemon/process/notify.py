"""Service status for systemd: sd_notify's datagrams, without a library.

Without NOTIFY_SOCKET (not started by systemd with `Type=notify`) nothing is sent.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping

from eyot_wire.digits import parse_uint


class Notifier:
    """Sends states to NOTIFY_SOCKET. Sending never blocks and never fails the daemon."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._address = env.get("NOTIFY_SOCKET", "")
        #: the last text of `status`
        self.shown = ""
        #: interval of systemd's watchdog, seconds; 0: no watchdog
        self.watchdog_s = _watchdog_s(env)

    def ready(self) -> None:
        self._send("READY=1")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def reloading(self) -> None:
        """Announce a reload; `ready()` must follow. Contains the monotonic time, as `Type=notify-reload` requires."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    @property
    def is_heard(self) -> bool:
        """Whether a service manager asked to be notified."""
        return bool(self._address)

    def status(self, text: str) -> None:
        """One line for `systemctl status`."""
        self.shown = text
        self._send(f"STATUS={text}")

    def extend_timeout(self, seconds: float, text: str) -> None:
        """Ask for `seconds` from now for a start or stop that goes on; it may ask again before they end."""
        self.shown = text
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}\nSTATUS={text}")

    def watchdog(self) -> None:
        """All is well; systemd restarts a service that does not say so for `watchdog_s`."""
        self._send("WATCHDOG=1")

    def _send(self, state: str) -> None:
        if not self._address:
            return
        # A leading @ denotes an abstract socket.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.setblocking(False)
            try:
                sock.sendto(state.encode(), address)
            except OSError:
                # systemd does not listen or its queue is full
                pass


def _watchdog_s(env: Mapping[str, str]) -> float:
    """Return WATCHDOG_USEC in seconds; 0 if it is missing or belongs to another process."""
    usec, pid = env.get("WATCHDOG_USEC", ""), env.get("WATCHDOG_PID", "")
    if pid and pid != str(os.getpid()):
        return 0.0
    return (parse_uint(usec) or 0) / 1e6
