"""The samples behind the local page: once a minute into the history, every few minutes onto flash."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import trio

from eyot_daemon.monitor.page.history import FILE_NAME, History, Sample, Write, read_file, write_file
from eyot_daemon.net.heap import give_back
from eyot_daemon.router.broker import Broker
from eyot_daemon.router.providers import Providers
from eyot_wire.status import SyncStatus

log = logging.getLogger("eyot")

SAMPLE_EVERY_S = 60.0
#: Samples between two writes of the file.
WRITE_EVERY = 5
_MINUTE_NS = 60 * 10**9


class Sampler:
    """Fills a history. `store_path`: the directory of JetStream's store, None while there is none."""

    def __init__(self, broker: Broker, history: History, store_path: Callable[[], Path | None]) -> None:
        self._broker = broker
        self._history = history
        self._store_path = store_path
        self._path: Path | None = None
        self._write_failed = False

    async def run(self) -> None:
        """Sample until cancelled; the last samples are written then."""
        try:
            count = 0
            while True:
                if self._path is None:
                    await self._open()
                self.sample()
                if self._path is not None and count % WRITE_EVERY == 0:
                    await self._write(self._path)
                count += 1
                await trio.sleep(SAMPLE_EVERY_S)
        finally:
            if self._path is not None:
                write = self._history.take_unwritten()  # a few kilobytes into the page cache, as the daemon ends
                self._note(self._path, write, _try(self._path, write))

    async def _open(self) -> None:
        """Take over the file. There is none without a store, and none beside an encrypted one: the history holds streams' names."""
        directory, options = self._store_path(), self._broker.options
        encrypted = options.jetstream is not None and options.jetstream.encryption is not None
        if directory is not None and not encrypted and not options.eyot.store.key_file:
            self._path = directory / FILE_NAME
            await self._load(self._path)

    async def _load(self, path: Path) -> None:
        try:
            image = await trio.to_thread.run_sync(read_file, path)
        except OSError as error:
            log.warning("The page's history %s cannot be read: %s", path, error.strerror)
            return
        if image and not self._history.load(image):
            log.warning("The page's history %s is damaged and begins again", path)
        for _ in self._history.prepare(self._broker.clock.now_ns() // _MINUTE_NS):
            await trio.lowlevel.checkpoint()
        del image
        give_back()

    async def _write(self, path: Path) -> None:
        write = self._history.take_unwritten()
        try:
            error = await trio.to_thread.run_sync(_try, path, write)
        except trio.Cancelled:
            self._history.not_written(write)
            raise
        self._note(path, write, error)

    def sample(self) -> None:
        """Take one sample of every stream; the page asks for one, too, so that its charts end now."""
        minute = self._broker.clock.now_ns() // _MINUTE_NS
        providers = self._broker.providers
        states = [link.state for link in providers.links() if link.role != "hub"]
        linked = not states or "up" in states  # a device without remotes lacks no link
        self._history.add(minute, samples(providers), linked=linked)

    def _note(self, path: Path, write: Write, error: OSError | None) -> None:
        """Log a failure once; what was not written waits for the next time."""
        if error is not None:
            self._history.not_written(write)
            if not self._write_failed:
                log.warning("The page's history %s cannot be written: %s", path, error.strerror or error)
        self._write_failed = error is not None


def _try(path: Path, write: Write) -> OSError | None:
    """Write the file; return the error. In any thread."""
    try:
        write_file(path, write)
    except OSError as error:
        return error
    return None


def samples(providers: Providers) -> Iterator[Sample]:
    """Yield every stream, those with a downstream first; of several downstreams, the one that is furthest behind counts."""
    furthest: dict[tuple[str, str], SyncStatus] = {}
    for each in providers.downstream():
        name = (each.account, each.stream)
        if name not in furthest or each.backlog > furthest[name].backlog:
            furthest[name] = each
    streams = sorted(
        providers.streams(), key=lambda each: ((each.account, each.name) not in furthest, each.account, each.name)
    )
    for stream in streams:
        behind = furthest.get((stream.account, stream.name))
        if behind is None:
            yield Sample(stream.account, stream.name, stream.messages)
        else:
            yield Sample(
                stream.account, stream.name, stream.messages, behind.backlog, behind.oldest_s, behind.uncertain
            )
