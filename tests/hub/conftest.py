"""One Spark session for all of these tests, and one nats-server for each module of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.hub.streams import Streams
from support.servers.nats_server import NatsServer

ROOT = Path(__file__).parents[2]
CONFIG = """
server_name: hub
jetstream { store_dir: "%WORKDIR%/js" }
"""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    # As an installed wheel would be: on Python's path, so that format("jetstream") registers itself.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "hub"), str(ROOT / "wire")])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # this machine's own name may resolve to nothing
    session = (
        SparkSession.builder.master("local[2,4]")
        .appName("tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.python.authenticate.socketTimeout", "120s")  # how long a worker may take to start
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with NatsServer(CONFIG, tmp_path_factory.mktemp("hub")) as running:
        yield running


@pytest.fixture
def streams(server: NatsServer) -> Iterator[Streams]:
    """A client of the server; its streams are gone after the test."""
    client = Streams(server.client_port)
    yield client
    for name in client.api("STREAM.NAMES").get("streams") or []:
        client.delete(name)
