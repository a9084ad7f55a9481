"""A backup that its reader pulls, part after part: for who is no client of NATS.

The reader asks for the next part when it has passed on the last one, so a slow reader slows the reading. Memory holds a
slice of the log and a block.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from eyot_daemon.jetstream.backup.advisories import ArchiveAdvisories
from eyot_daemon.jetstream.backup.stream_archive import StreamArchive
from eyot_store.errors import StoreError
from eyot_wire.jetstream.model import SnapshotPart, encode

if TYPE_CHECKING:
    from eyot_daemon.jetstream.account import JetStreamAccount
    from eyot_daemon.jetstream.stream.stream import Stream

log = logging.getLogger("eyot.jetstream")

ReceivePart = Callable[[bytes, str], None]
"""Receives the next part, b"" at the end, and why the backup failed, "" if it did not."""


class Download:
    """One backup under way. `ended` is called once, with any result."""

    def __init__(self, jsa: "JetStreamAccount", stream: "Stream", ended: Callable[[], None]) -> None:
        archive = StreamArchive(stream, with_consumers=True)
        self._path = f"'{jsa.account.name} > {stream.name}'"
        self._config, self._state = stream.config, archive.state
        self._jobs = archive.jobs()
        self._beside = jsa.server.beside
        self._advisories = ArchiveAdvisories(jsa, stream.name, None)
        self._ended = ended
        self._waiting: ReceivePart | None = None
        self._failure = ""
        self._over = False
        log.info("Starting backup of stream %s", self._path)
        self._advisories.snapshot_created(archive.state)

    def __repr__(self) -> str:
        return f"<Download {self._path}>"

    @property
    def meta(self) -> bytes:
        """The stream's configuration and state, JSON: what a restore sends first."""
        return encode(SnapshotPart(config=self._config, state=self._state))

    def next(self, receive: ReceivePart) -> None:
        """Have `receive` called with the next part, once. The last one must have been taken."""
        if self._over:
            receive(b"", self._failure)
            return
        self._waiting = receive
        self._make_part()

    def stop(self, why: str = "server shutdown") -> None:
        """End before the end: with the daemon, with JetStream of the account, or because the reader has gone."""
        self._end(why)

    def _make_part(self) -> None:
        try:
            job = next(self._jobs, None)
        except StoreError as failure:
            self._end(failure.message)
            return
        if job is None:
            self._end("")
        else:
            self._beside.run(job, self._made)

    def _made(self, data: bytes, failure: StoreError | None) -> None:
        if self._over:
            return
        if failure is not None:
            self._end(failure.message)
        elif not data:
            self._make_part()
        else:
            receive, self._waiting = self._waiting, None
            assert receive is not None
            receive(data, "")

    def _end(self, failure: str) -> None:
        if self._over:
            return
        self._over, self._failure = True, failure
        self._jobs.close()
        self._advisories.snapshot_complete(failure)
        if failure:
            log.warning("Backup of stream %s failed: %s", self._path, failure)
        else:
            log.info("Backup of stream %s is complete", self._path)
        self._ended()
        receive, self._waiting = self._waiting, None
        if receive is not None:
            receive(b"", failure)


def begin_download(jsa: "JetStreamAccount", name: str, begun: Callable[[Download | None, str], None]) -> None:
    """Begin a backup once what is staged is on flash; `begun` receives it, or why there is none."""
    stream = jsa.streams.get(name)
    if stream is None:
        begun(None, "there is no such stream")
        return
    if stream in jsa.snapshots:
        begun(None, "a backup of this stream is under way: try again when it has ended")
        return
    if not jsa.has_transfer_room():
        begun(None, "too many backups and restores are under way: try again when one has ended")
        return
    jsa.snapshots[stream] = None

    def forget() -> None:
        jsa.snapshots.pop(stream, None)

    def begin(failure: StoreError | None) -> None:
        if not stream.live:
            forget()
            begun(None, "the stream was deleted")
            return
        download = Download(jsa, stream, ended=forget)
        jsa.snapshots[stream] = download
        begun(download, "")

    stream.after_commits(begin)
