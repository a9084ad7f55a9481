"""Spark Connect: a client without a JVM reads and writes streams through a server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from eyot_hub import columns
from support.hub.spark_connect import SparkConnect
from support.hub.streams import Streams, numbered

TESTS = Path(__file__).parents[1]
CLIENT = TESTS / "support" / "hub" / "connect_client.py"


def test_a_client_without_a_jvm(streams: Streams, tmp_path: Path) -> None:
    streams.create("S", ["s.*"])
    streams.publish(numbered("s.in", 50))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    environment["PYTHONPATH"] = str(TESTS)
    with SparkConnect(tmp_path) as connect:
        arguments = [connect.url, streams.url, str(tmp_path / "checkpoint")]
        done = subprocess.run(
            [sys.executable, str(CLIENT), *arguments],
            capture_output=True, text=True, env=environment, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "connect": True,
        "columns": columns.ARROW_SCHEMA.names,
        "batch": list(range(50)),
        "view": 50,
        "function": 50,
        "behind": 40,  # what the query itself had written when its last batch was planned
    }
    assert streams.state("S")["messages"] == 100
