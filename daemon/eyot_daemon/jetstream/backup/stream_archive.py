"""The content of a backup: a stream's messages and consumers as jobs that encode an archive slice by slice.

The archive contains what the stream held at the start: messages up to its last sequence then, consumers in their state
then. Messages deleted meanwhile may be missing.
"""

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING

from eyot_daemon.jetstream.backup.consumer_archive import ArchivedConsumer, archived
from eyot_daemon.jetstream.consumer.consumer import Consumer
from eyot_daemon.jetstream.sourcing.resume_point import archived_positions
from eyot_daemon.jetstream.stream.info import stream_state
from eyot_store.errors import StoreError
from eyot_wire.archive.values import ArchivedMessage
from eyot_wire.archive.writer import FlatWriter, TarWriter, Writer
from eyot_wire.jetstream.model import encode, ns_to_rfc3339

if TYPE_CHECKING:
    from eyot_daemon.jetstream.stream.stream import Stream

#: Bytes read and encoded at a time: a few milliseconds of the loop, and of the thread.
SLICE_MESSAGES = 512
SLICE_BYTES = 256 << 10

Job = Callable[[], bytes]
"""Encodes a part of the archive; runs in another thread than the loop's, one after the other."""


class StreamArchive:
    """A stream as it is now. `state` is what the archive will hold."""

    def __init__(self, stream: "Stream", *, with_consumers: bool) -> None:
        self.state = stream_state(stream)
        self._stream = stream
        self._consumers = self._archived_consumers() if with_consumers else []
        self._last_seq = self.state.last_seq = stream.log.committed_seq
        self._positions = archived_positions(stream.log)

    def jobs(self) -> Generator[Job, None, None]:
        """Yield the jobs that make the archive. Each slice is read when its job is requested; raises StoreError."""
        stream = self._stream
        kind = FlatWriter if stream.config.storage == "memory" else TarWriter
        writer: Writer = kind(stream.name, stream.broker.clock.now_ns())
        config, created = encode(stream.config), ns_to_rfc3339(stream.created_ns)
        self.state.consumer_count = len(self._consumers)
        state = encode(self.state)
        last_ts_ns = stream.log.state.last_ts_ns
        yield lambda: writer.begin(config, created, state, self._positions)
        if writer.consumers_first:
            yield from self._consumer_jobs(writer)
        for messages in self._slices():
            yield _messages_job(writer, messages)
        yield lambda: writer.messages_end(self._last_seq, last_ts_ns)
        if not writer.consumers_first:
            yield from self._consumer_jobs(writer)
        yield writer.end

    def _archived_consumers(self) -> list[ArchivedConsumer]:
        """Return the consumers that belong into a backup, in their present state; for a memory stream also those in memory."""
        found = [each for each in self._stream.consumers.values() if isinstance(each, Consumer)]
        keeps_all = self._stream.config.storage == "memory"
        return [archived(each) for each in found if not each.config.direct and (keeps_all or each.durable)]

    def _consumer_jobs(self, writer: Writer) -> Iterator[Job]:
        for each in self._consumers:
            yield _consumer_job(writer, each)

    def _slices(self) -> Iterator[list[ArchivedMessage]]:
        seq = 1
        while seq <= self._last_seq:
            if not self._stream.live:
                raise StoreError("closed", "stream closed")
            read = self._stream.log.read(seq, max_messages=SLICE_MESSAGES, max_bytes=SLICE_BYTES, up_to=self._last_seq)
            if not read.messages and read.next_seq <= seq:
                break
            seq = read.next_seq
            yield [ArchivedMessage(m.seq, m.ts_ns, m.subject, m.header, m.payload) for m in read.messages]


def _messages_job(writer: Writer, messages: list[ArchivedMessage]) -> Job:
    return lambda: writer.messages(messages)


def _consumer_job(writer: Writer, each: ArchivedConsumer) -> Job:
    return lambda: writer.consumer(each.name, each.config, each.created, each.progress)
