"""Object storage and the hub's server killed in the middle of rounds: rounds fail, the next ones go on, every row is there once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from msgspec import to_builtins

from eyot_hub.jobs.bronze.bronze import Ingest
from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.config.config_file import convert
from support.hub.jobs_config import jobs_config
from support.hub.local_spark import LocalSpark
from support.hub.object_storage import ObjectStorage
from support.hub.streams import Streams
from support.links.cut_proxy import CutProxy
from support.servers.nats_server import NatsServer
from support.servers.server_process import free_port

#: delta-rs gives up soon, so that an outage ends a round rather than delays it.
IMPATIENT = {"max_retries": "1", "retry_timeout": "1s", "timeout": "5s", "connect_timeout": "2s"}
ROUNDS_MAX = 40
#: Portions that clients send until the storage dies: in the first commits, in data files, in later commits.
CUTS = (1, 3, 5, 8, 12, 17, 23, 30)


@pytest.fixture(scope="module")
def storage() -> Iterator[ObjectStorage]:
    with ObjectStorage("lake") as running:
        yield running


def config(url: str, folder: Path, storage: dict[str, str]) -> Config:
    parsed = to_builtins(jobs_config(url, folder, ["*"], max_messages_per_commit=40, partitions=2))
    return convert({**parsed, "lake": {"path": f"s3://lake/{folder.name}", "storage_options": storage}}, "tests")


def ingest(settings: Config) -> int:
    """Rows of one round by a job of its own."""
    spark: Any = LocalSpark()
    job = Ingest(spark, settings)
    try:
        return job.round().rows
    finally:
        job.close()


def rows(settings: Config, storage: dict[str, str]) -> Counter[tuple[str, int]]:
    table = DeltaTable(settings.folder("bronze"), storage_options=storage).to_pyarrow_table()
    return Counter(zip(table.column("stream").to_pylist(), table.column("sequence").to_pylist(), strict=True))


def test_the_storage_dies_at_many_moments(streams: Streams, tmp_path: Path, storage: ObjectStorage) -> None:
    for name in ("A", "B"):
        streams.create(name, [name.lower()])
        streams.publish([(name.lower(), b"%d" % number) for number in range(100)])
    port = free_port()
    through = {**storage.options, **IMPATIENT, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
    settings = config(streams.url, tmp_path, through)
    failures = 0
    with CutProxy(port, storage.port) as proxy:
        for cut_at in CUTS:
            proxy.start(cut_at)
            try:
                while ingest(settings):
                    pass
            except Exception:  # whatever delta-rs raises for a storage that is gone
                failures += 1
            proxy.cut()
        proxy.start()
        for _ in range(ROUNDS_MAX):
            if not ingest(settings):
                break
    assert failures >= len(CUTS) // 2
    assert rows(settings, storage.options) == {(name, number): 1 for name in ("A", "B") for number in range(1, 101)}


def test_answers_are_lost(streams: Streams, tmp_path: Path, storage: ObjectStorage) -> None:
    """A commit whose answer was lost is sent again and meets itself: the files that it names must stay."""
    streams.create("S", ["s"])
    streams.publish([("s", b"%d" % number) for number in range(400)])
    port = free_port()
    through = {**storage.options, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "timeout": "5s", "max_retries": "10"}
    settings = config(streams.url, tmp_path, through)
    with CutProxy(port, storage.port) as proxy:
        for lost in range(2, 22, 2):
            proxy.start(lost, lose=True)
            try:
                while ingest(settings):
                    pass
            except Exception:
                pass  # also a failure must leave the files of what was committed
            proxy.cut()
            streams.publish([("s", b"more") for _ in range(50)])
        proxy.start()
        while ingest(settings):
            pass
    assert rows(settings, storage.options) == {("S", number): 1 for number in range(1, 901)}


def test_the_server_dies_while_rounds_read(
    server: NatsServer, streams: Streams, tmp_path: Path, storage: ObjectStorage
) -> None:
    streams.create("S", ["s"])
    streams.publish([("s", b"x" * 2000) for _ in range(2000)])
    port = free_port()
    parsed = to_builtins(config(f"nats://127.0.0.1:{port}", tmp_path, storage.options))
    parsed["nats"] |= {"retryFor": "1s", "timeout": "1s"}
    parsed["bronze"] |= {"max_messages_per_commit": 500}
    settings = convert(parsed, "tests")
    failures = 0
    with CutProxy(port, server.client_port) as proxy:
        for cut_at in (2, 6, 9, 14):
            proxy.start(cut_at)
            try:
                while ingest(settings):
                    pass
            except Exception:
                failures += 1
            proxy.cut()
        proxy.start()
        while ingest(settings):
            pass
    assert failures >= 2
    assert rows(settings, storage.options) == {("S", number): 1 for number in range(1, 2001)}
