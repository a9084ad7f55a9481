"""Backups that the page's users download: a ticket for each, and the zip file that the browser receives.

A download is a link, which sends no token. The order that begins a backup therefore returns a ticket: a secret for one use, by the
same session, within `TICKET_S`. The zip file holds the folder that `eyot backup` writes. Its directory is the last thing sent, so a
download that was cut short is no zip file.
"""

from __future__ import annotations

import re
import secrets
import zipfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from typing import NamedTuple

import trio

from eyot_daemon.monitor.page.controls import Backup
from eyot_daemon.router.broker import Broker
from eyot_daemon.turn.timers import TimerHandle
from eyot_serving.http_messages import HttpResponse
from eyot_serving.sessions import Session

#: How long a backup waits for the browser to fetch it, seconds.
TICKET_S = 30.0
#: The layout of `eyot backup` and of the `nats` tool's `stream backup`.
DATA, META = "stream.tar.s2", "backup.json"
_SECRET_BYTES = 32
#: Characters of a name that stay in the file's name, and how many.
_OTHER = re.compile(r"[^A-Za-z0-9._-]+")
_NAME_CHARS_MAX = 64


class _Waiting(NamedTuple):
    backup: Backup
    session: Session
    name: str
    timer: TimerHandle


class BackupDownloads:
    """The backups that wait for their browsers. JetStream's own bounds on backups bound them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting: dict[str, _Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, backup: Backup, session: Session, stream: str) -> str:
        """Keep a backup for its session; return the ticket."""
        ticket = secrets.token_urlsafe(_SECRET_BYTES)
        timer = self._broker.timers.call_later(TICKET_S, lambda: self._expire(ticket))
        self._waiting[ticket] = _Waiting(backup, session, self._name(stream), timer)
        return ticket

    def session_of(self, ticket: str) -> Session | None:
        """Return whose backup a ticket is for."""
        waiting = self._waiting.get(ticket)
        return None if waiting is None else waiting.session

    def response(self, ticket: str, headers: tuple[tuple[str, str], ...]) -> HttpResponse:
        """Use a ticket: the backup goes out as a zip file. Raises KeyError."""
        waiting = self._waiting.pop(ticket)
        waiting.timer.cancel()
        disposition = ("Content-Disposition", f'attachment; filename="{waiting.name}.zip"')
        return HttpResponse(
            b"",
            "application/zip",
            200,
            (*headers, disposition),
            stream=lambda: _zipped(waiting.backup, waiting.name, self._broker.clock.now_ns, self._broker.flush),
        )

    def _name(self, stream: str) -> str:
        at = datetime.fromtimestamp(self._broker.clock.now_ns() // 10**9, UTC)
        names = [_OTHER.sub("-", each)[:_NAME_CHARS_MAX].strip("-.") for each in (self._broker.server_name, stream)]
        return f"eyot-backup-{'-'.join(name for name in names if name)}-{at:%Y%m%dT%H%M%S}"

    def _expire(self, ticket: str) -> None:
        self._waiting.pop(ticket).backup.stop("the browser did not fetch it")


def _zipped(
    backup: Backup, name: str, now_ns: Callable[[], int], flush: Callable[[], None]
) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
    @asynccontextmanager
    async def parts() -> AsyncIterator[AsyncIterator[bytes]]:
        try:
            yield _parts(backup, name, now_ns, flush)
        finally:
            backup.stop("the browser has gone")
            flush()

    return parts()


async def _parts(
    backup: Backup, name: str, now_ns: Callable[[], int], flush: Callable[[], None]
) -> AsyncIterator[bytes]:
    """Yield the zip file. Raises trio.BrokenResourceError when the backup fails, so that the browser's download does, too."""
    sink = _Sink()
    at = datetime.fromtimestamp(now_ns() // 10**9, UTC).timetuple()[:6]
    with zipfile.ZipFile(sink, "w") as archive:
        with archive.open(zipfile.ZipInfo(f"{name}/{DATA}", at), "w", force_zip64=True) as file:
            while data := await _next(backup, flush):
                file.write(data)
                yield sink.drained()
        archive.writestr(zipfile.ZipInfo(f"{name}/{META}", at), backup.meta)
    yield sink.drained()


async def _next(backup: Backup, flush: Callable[[], None]) -> bytes:
    came = trio.Event()
    found: list[tuple[bytes, str]] = []

    def receive(data: bytes, failure: str) -> None:
        found.append((data, failure))
        came.set()

    backup.next(receive)
    flush()
    await came.wait()
    data, failure = found[0]
    if failure:
        raise trio.BrokenResourceError(failure)
    return data


class _Sink:
    """What the zip file is written to: it cannot seek, so the writer puts sizes behind what it has written."""

    def __init__(self) -> None:
        self._data = bytearray()

    def write(self, data: bytes) -> int:
        self._data += data
        return len(data)

    def flush(self) -> None:
        """Do nothing: `drained` has all."""

    def close(self) -> None:
        """Do nothing."""

    def drained(self) -> bytes:
        data = bytes(self._data)
        self._data.clear()
        return data
