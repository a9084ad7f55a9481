"""Telling systemd how the service is doing: sd_notify's datagrams, without a library.

Nothing is sent when the daemon was not started by systemd with `Type=notify` (no NOTIFY_SOCKET).
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping

import trio


class Notifier:
    """Sends states to NOTIFY_SOCKET. Sending never blocks and never fails the daemon."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._address = env.get("NOTIFY_SOCKET", "")
        self.watchdog_s = _watchdog_s(env)

    def ready(self) -> None:
        self._send("READY=1")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def reloading(self) -> None:
        """Must be followed by `ready()`; carries the monotonic time, which `Type=notify-reload` asks for."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def status(self, text: str) -> None:
        """One line for `systemctl status`."""
        self._send(f"STATUS={text}")

    async def run_watchdog(self, healthy: Callable[[], bool]) -> None:
        """Ping the watchdog twice an interval for as long as `healthy()` says so; returns at once without one."""
        if not self.watchdog_s:
            return
        while True:
            if healthy():
                self._send("WATCHDOG=1")
            await trio.sleep(self.watchdog_s / 2)

    def _send(self, state: str) -> None:
        if not self._address:
            return
        # A leading @ stands for an abstract socket.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.setblocking(False)
            try:
                sock.sendto(state.encode(), address)
            except OSError:
                # systemd is gone or its queue is full: there is nobody to tell.
                pass


def _watchdog_s(env: Mapping[str, str]) -> float:
    """WATCHDOG_USEC in seconds, 0 if there is none or it is another process's."""
    usec, pid = env.get("WATCHDOG_USEC", ""), env.get("WATCHDOG_PID", "")
    if not usec.isdecimal() or (pid and pid != str(os.getpid())):
        return 0.0
    return int(usec) / 1e6
