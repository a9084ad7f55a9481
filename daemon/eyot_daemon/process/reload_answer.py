"""The result of a reload that was requested by a signal.

A signal has no answer. The sender of SIGHUP therefore reads the daemon's control socket before and after:
`/eyot/reloadz` counts the reloads and keeps the error of the last one.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path

import msgspec

from eyot_wire.status import ReloadReport

PATH = "/eyot/reloadz"
#: A reload reads files only; after this time the daemon hangs.
WAIT_S = 30.0
_PAUSE_S = 0.02


class SignalError(Exception):
    """`--signal` failed; the text gives the reason."""


class ReloadAnswer:
    """Waits for the result of a reload that is about to be requested. `before`: the count of earlier reloads."""

    def __init__(self, control: Path, before: ReloadReport) -> None:
        self._control = control
        self._before = before

    @classmethod
    def of(cls, control: Path, pid: int) -> ReloadAnswer | None:
        """Return None unless process `pid` answers at `control`: then the signal has no answer."""
        try:
            before = _ask(control)
        except (OSError, ValueError):
            return None
        return cls(control, before) if before.pid == pid else None

    def wait(self) -> None:
        """Wait until the daemon has reloaded. Raises SignalError with its error, or after `WAIT_S` without an answer."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            try:
                now = _ask(self._control)
            except (OSError, ValueError) as error:
                raise SignalError(f"the daemon went away while it reloaded: {error}") from None
            if now.count > self._before.count:
                if now.error:
                    raise SignalError(f"reload refused: {now.error}")
                return
            time.sleep(_PAUSE_S)
        raise SignalError(f"the daemon has not reloaded within {WAIT_S:.0f} s")


def _ask(control: Path) -> ReloadReport:
    """Return the present report. Raises OSError, ValueError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(5.0)
        sock.connect(str(control))
        sock.sendall(f"GET {PATH} HTTP/1.1\r\nHost: eyot\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while data := sock.recv(65536):
            answer += data
    head, _, body = answer.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise ValueError(head.partition(b"\r\n")[0].decode(errors="replace"))
    return msgspec.json.decode(body[body.index(b"{") : body.rindex(b"}") + 1], type=ReloadReport)
