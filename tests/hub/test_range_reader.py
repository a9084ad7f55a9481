"""Reading one range while the server, the stream and the connection do what they do. No Spark here."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from eyot_hub.columns import StreamLabels
from eyot_hub.connection import ConnectOptions
from eyot_hub.errors import DataLoss, HubError
from eyot_hub.jetstream import JetStream
from eyot_hub.origins import Origins
from eyot_hub.range_reader import RangeReader, ReadOptions, StreamRange
from support.hub.streams import Streams
from support.links.link import Link
from support.servers.nats_server import NatsServer

COUNT = 3000


class Reading:
    """A range of the stream S, read through `port`."""

    def __init__(
        self,
        streams: Streams,
        port: int,
        *,
        fail_on_data_loss: bool = True,
        retry_s: float = 20.0,
        timeout_s: float = 2.0,
    ) -> None:
        connect = ConnectOptions((f"127.0.0.1:{port}",), timeout_s=timeout_s, retry_s=retry_s)
        options = ReadOptions(connect, "$JS.API", fetch_bytes=65536, fail_on_data_loss=fail_on_data_loss)
        span = StreamRange("S", streams.api("STREAM.INFO.S")["created"], 1, COUNT)
        self.reader = RangeReader(options, span, StreamLabels("S", None, None, Origins()))
        self.batches: Iterator[pa.RecordBatch] = self.reader.batches()
        self.sequences: list[int] = []

    def some(self, least: int) -> None:
        """Read on until `least` messages have come."""
        while len(self.sequences) < least:
            self.sequences += next(self.batches).column("sequence").to_pylist()

    def rest(self) -> list[int]:
        for batch in self.batches:
            self.sequences += batch.column("sequence").to_pylist()
        return self.sequences


@pytest.fixture
def stream(streams: Streams) -> Streams:
    streams.create("S", ["s"])
    streams.publish(("s", b"x" * 400) for _ in range(COUNT))
    return streams


def test_a_reader_that_stops_early_leaves_no_consumer(stream: Streams, server: NatsServer) -> None:
    reading = Reading(stream, server.client_port)
    reading.some(1)
    assert stream.consumers("S") == 1
    reading.batches.close()  # type: ignore[attr-defined]
    assert stream.consumers("S") == 0


def test_a_reader_that_pauses(stream: Streams, server: NatsServer, caplog: pytest.LogCaptureFixture) -> None:
    """Longer than a pull request lasts: it goes on with the same consumer."""
    reading = Reading(stream, server.client_port, timeout_s=0.4)
    for least in (1, 800, 1600):
        reading.some(least)
        time.sleep(0.5)
    assert reading.rest() == list(range(1, COUNT + 1))
    assert caplog.records == []


def test_the_consumer_is_removed_meanwhile(stream: Streams, server: NatsServer) -> None:
    reading = Reading(stream, server.client_port)
    reading.some(10)
    (name,) = stream.api("CONSUMER.NAMES.S")["consumers"]
    stream.api(f"CONSUMER.DELETE.S.{name}")
    assert reading.rest() == list(range(1, COUNT + 1))
    assert stream.consumers("S") == 0


def test_the_connection_is_cut_again_and_again(stream: Streams, server: NatsServer) -> None:
    with Link(server.client_port) as link:
        reading = Reading(stream, link.port)
        for cut in range(1, 6):
            reading.some(cut * 400)
            link.cut()
            link.restore()
        assert reading.rest() == list(range(1, COUNT + 1))


def test_no_server_for_too_long(stream: Streams, server: NatsServer) -> None:
    with Link(server.client_port) as link:
        reading = Reading(stream, link.port, retry_s=1.0)
        reading.some(10)
        link.cut()
        with pytest.raises(HubError, match=r"reading S 1\.\.3000 stopped at"):
            reading.rest()


def test_limits_pass_the_reader(stream: Streams, server: NatsServer) -> None:
    reading = Reading(stream, server.client_port)
    reading.some(10)
    stream.purge("S", below=2901)
    with pytest.raises(DataLoss, match=r"expired while they were read|are gone"):
        reading.rest()


def test_limits_pass_the_reader_and_that_is_accepted(stream: Streams, server: NatsServer) -> None:
    reading = Reading(stream, server.client_port, fail_on_data_loss=False)
    reading.some(10)
    stream.purge("S", below=2901)
    sequences = reading.rest()
    assert sequences == sorted(set(sequences))
    assert sequences[-100:] == list(range(2901, COUNT + 1))


def test_everything_that_is_left_is_purged(stream: Streams, server: NatsServer) -> None:
    """Nothing more can come: the reader ends, and says that messages are gone."""
    reading = Reading(stream, server.client_port)
    reading.some(10)
    stream.purge("S", below=COUNT + 1)
    with pytest.raises(DataLoss):
        reading.rest()


def test_the_stream_is_deleted_or_made_again(stream: Streams, server: NatsServer) -> None:
    for again in (False, True):
        reading = Reading(stream, server.client_port)
        reading.some(10)
        stream.delete("S")
        if again:
            stream.create("S", ["s"])
        with pytest.raises(DataLoss, match="was created again" if again else "was deleted"):
            reading.rest()
        if not again:
            stream.create("S", ["s"])
            stream.publish(("s", b"x" * 400) for _ in range(COUNT))


def test_deleted_messages_within_the_range_end_at_once(stream: Streams, server: NatsServer) -> None:
    for sequence in range(COUNT - 20, COUNT + 1):
        stream.remove("S", sequence)
    # With such a time-out, waiting for one instead of knowing the end would be noticed.
    reading = Reading(stream, server.client_port, timeout_s=3600.0)
    assert reading.rest() == list(range(1, COUNT - 20))


def test_streams_and_times(stream: Streams, server: NatsServer) -> None:
    with JetStream(ConnectOptions((f"127.0.0.1:{server.client_port}",))) as jetstream:
        assert jetstream.stream_names() == ["S"]
        assert jetstream.stream_or_none("T") is None
        stream.remove("S", 5)
        assert jetstream.deleted("S") == [5]
        assert jetstream.sequence_at("S", "2000-01-01T00:00:00Z") == 1
        assert jetstream.sequence_at("S", "2100-01-01T00:00:00Z") == COUNT + 1


def test_many_streams_are_paged(streams: Streams, server: NatsServer, tmp_path: Path) -> None:
    names = [f"N{number:04}" for number in range(1100)]
    for name in names:
        streams.create(name, [name], storage="memory")
    with JetStream(ConnectOptions((f"127.0.0.1:{server.client_port}",))) as jetstream:
        assert jetstream.stream_names() == names
