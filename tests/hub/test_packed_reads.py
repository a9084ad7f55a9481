"""Reading packed from eyotd: the same rows as over the standard protocol, through cuts, restarts, purges and gaps."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from eyot_hub.columns import StreamLabels
from eyot_hub.connection import ConnectOptions
from eyot_hub.errors import DataLoss, Refused
from eyot_hub.jetstream import JetStream
from eyot_hub.jobs.bronze.bronze import Ingest
from eyot_hub.range_reader import RangeReader, ReadOptions, StreamRange
from support.hub.jobs_config import jobs_config
from support.hub.streams import Streams, numbered
from support.links.link import Link
from support.servers.eyotd import Eyotd
from support.servers.nats_server import NatsServer

COUNT = 3000
CONFIG = """
server_name: hub
jetstream { store_dir: "%WORKDIR%/store", domain: hub }
leafnodes { listen: 127.0.0.1:%LEAF_PORT% }
accounts {
  A { jetstream: enabled, users [
    { user: spark, password: spark }
    { user: narrow, password: narrow, permissions { publish: ["$JS.API.STREAM.INFO.*", "$JS.API.CONSUMER.>"] } }
  ] }
}
no_auth_user: spark
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Eyotd]:
    with Eyotd(CONFIG, tmp_path_factory.mktemp("eyotd-packed")) as running:
        yield running


@pytest.fixture
def streams(hub: Eyotd) -> Iterator[Streams]:
    client = Streams(hub.client_port)
    yield client
    for name in client.api("STREAM.NAMES").get("streams") or []:
        client.delete(name)


@pytest.fixture
def stream(streams: Streams) -> Streams:
    streams.create("S", ["s.>"])
    streams.publish((f"s.{number % 3}", b"%d" % number + b" " * 400, {"N": str(number)}) for number in range(COUNT))
    return streams


def reader(streams: Streams, port: int, *, packed: bool = True, last: int = COUNT, **options: object) -> RangeReader:
    connect = ConnectOptions((f"127.0.0.1:{port}",), timeout_s=2.0, retry_s=20.0)
    read = ReadOptions(connect, "$JS.API", fetch_bytes=65536, packed=packed)
    read = replace(read, **options)  # type: ignore[arg-type]
    with JetStream(read.connect, read.api_prefix) as jetstream:
        info = jetstream.stream("S")
    return RangeReader(read, StreamRange("S", info.created, 1, last), StreamLabels("S", None, None, info.origins()))


def table(reading: RangeReader) -> pa.Table:
    return pa.Table.from_batches(reading.batches()).combine_chunks()


def sequences(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [sequence for batch in batches for sequence in batch.column("sequence").to_pylist()]


def test_the_same_rows_as_over_the_standard_protocol(stream: Streams, hub: Eyotd) -> None:
    for sequence in (6, 7, 2000, COUNT):
        stream.remove("S", sequence)
    for subjects in ((), ("s.1",), ("s.0", "s.2"), ("none",)):
        packed = reader(stream, hub.client_port, subjects=subjects)
        standard = reader(stream, hub.client_port, packed=False, subjects=subjects)
        batches = [list(reading.batches()) for reading in (packed, standard)]
        assert (packed.packed, standard.packed) == (True, False)
        schema = (batches[0] or batches[1] or [pa.RecordBatch.from_pydict({})])[0].schema
        one, other = (pa.Table.from_batches(found, schema).combine_chunks() for found in batches)
        assert one.equals(other)
        assert bool(one.num_rows) == (subjects != ("none",))
    assert stream.consumers("S") == 0


def test_through_the_domain_and_the_link_of_a_leaf(stream: Streams, hub: Eyotd, tmp_path: Path) -> None:
    """The request goes where the API goes: through a real nats-server that is a leaf of the hub."""
    leaf = f'leafnodes {{ remotes: [ {{ url: "nats://spark:spark@127.0.0.1:{hub.leaf_port}" }} ] }}'
    with NatsServer(leaf, tmp_path / "leaf") as server:
        deadline = time.monotonic() + 20
        while True:
            try:
                reading = reader(stream, server.client_port, api_prefix="$JS.hub.API")
                break
            except Exception:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        assert sequences(reading.batches()) == list(range(1, COUNT + 1))
        assert reading.packed


def test_a_server_that_does_not_speak_it(server: NatsServer) -> None:
    """It is found out without waiting for an answer that does not come."""
    other = Streams(server.client_port)
    other.create("S", ["s.>"])
    other.publish(numbered("s.a", 50))
    patient = ConnectOptions((f"127.0.0.1:{server.client_port}",), timeout_s=120.0)
    reading = reader(other, server.client_port, last=50, connect=patient)
    begun = time.monotonic()
    assert sequences(reading.batches()) == list(range(1, 51))
    assert not reading.packed
    assert time.monotonic() - begun < 60.0, "the time-out"
    other.delete("S")


def test_who_may_not_ask_is_told_what_is_missing(stream: Streams, hub: Eyotd) -> None:
    connect = ConnectOptions((f"127.0.0.1:{hub.client_port}",), user="narrow", password="narrow", timeout_s=2.0)
    with pytest.raises(Refused, match=r'Permissions Violation for Publish to "\$JS\.API\.STREAM\.EYOT_RANGE\.S"'):
        list(reader(stream, hub.client_port, connect=connect).batches())
    assert sequences(reader(stream, hub.client_port, connect=connect, packed=False).batches())[-1] == COUNT


def test_the_connection_is_cut_and_the_server_restarted(stream: Streams, hub: Eyotd) -> None:
    with Link(hub.client_port) as link:
        reading = reader(stream, link.port)
        batches = reading.batches()
        found: list[int] = []
        for cut in range(1, 5):
            while len(found) < cut * 500:
                found += next(batches).column("sequence").to_pylist()
            if cut == 3:
                hub.kill()
                hub.start()
            else:
                link.cut()
                link.restore()
        found += sequences(batches)
    assert found == list(range(1, COUNT + 1))
    assert reading.packed


def test_limits_pass_the_reader(stream: Streams, hub: Eyotd) -> None:
    for fail in (True, False):
        batches = reader(stream, hub.client_port, fail_on_data_loss=fail).batches()
        found = next(batches).column("sequence").to_pylist()
        stream.purge("S", below=2901 if fail else 2951)
        if fail:
            with pytest.raises(DataLoss, match=r"messages \d+ to 2900 of stream S are gone"):
                sequences(batches)
            stream.delete("S")
            stream.create("S", ["s.>"])
            stream.publish(("s.0", b" " * 400) for _ in range(COUNT))
        else:
            found += sequences(batches)
            assert found == sorted(set(found))
            assert found[-50:] == list(range(2951, COUNT + 1))


def test_the_stream_is_deleted_or_made_again(stream: Streams, hub: Eyotd) -> None:
    for again in (False, True):
        batches = reader(stream, hub.client_port).batches()
        next(batches)
        stream.delete("S")
        if again:
            stream.create("S", ["s.>"])
            stream.publish(("s.0", b"x" * 400) for _ in range(10))
        # A request that came between the two found no stream.
        with pytest.raises(DataLoss, match="was created again|was deleted" if again else "was deleted"):
            list(batches)
        if not again:
            stream.create("S", ["s.>"])
            stream.publish(("s.0", b"x" * 400) for _ in range(COUNT))


def test_large_messages(streams: Streams, hub: Eyotd) -> None:
    streams.create("S", ["s.>"])
    sizes = [1024 * 1024, 0, 1000 * 1000, 70_000, 1]
    streams.publish(("s.a", b"x" * size) for size in sizes)
    rows = table(reader(streams, hub.client_port, last=len(sizes)))
    assert [len(payload) for payload in rows.column("payload").to_pylist()] == sizes


def test_ingest(spark: SparkSession, streams: Streams, tmp_path: Path) -> None:
    streams.create("READINGS", ["readings.>"])
    streams.publish(("readings.a", b"%d" % number) for number in range(5000))
    job = Ingest(spark, jobs_config(streams.url, tmp_path, partitions=3, packed_reads=True))
    assert job.round().rows == 5000
    rows = job.table.dataframe(spark).orderBy("sequence").select("sequence", "payload").collect()
    assert [(row["sequence"], bytes(row["payload"])) for row in rows] == [(n + 1, b"%d" % n) for n in range(5000)]
    assert streams.consumers("READINGS") == 0
