"""What a session needs before it reads by `format("jetstream")`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import MagicMock, Mock

import pytest
from pyspark.sql import SparkSession

from eyot_hub.errors import HubError
from eyot_hub.jobs.spark import session as sessions
from eyot_hub.jobs.spark.session import register_source, session


def test_the_source_needs_the_workers_python_in_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYSPARK_PYTHON", "./environment/bin/python")
    spark = Mock(SparkSession)
    with pytest.raises(HubError, match=r"there is no \./environment/bin/python here"):
        register_source(spark)
    spark.dataSource.register.assert_not_called()
    python = tmp_path / "environment" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch(mode=0o755)
    register_source(spark)
    spark.dataSource.register.assert_called_once()


def test_settings_of_spark_submit_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setattr(sessions, "SparkContext", Mock())
    submitted = [("spark.master", "spark://hub:7077"), ("spark.sql.session.timeZone", "Europe/Berlin")]
    monkeypatch.setattr(sessions, "SparkConf", lambda: Mock(getAll=lambda: submitted))
    builder = MagicMock()
    builder.appName.return_value = builder.config.return_value = builder
    monkeypatch.setattr(sessions, "SparkSession", Mock(builder=builder))
    session("eyot-hub ingest", {"spark.master": "local[4,4]", "spark.cores.max": "2"})
    chosen = dict(call.args for call in builder.config.call_args_list)
    assert chosen["spark.cores.max"] == "2"
    assert not {name for name, _ in submitted} & set(chosen)


def test_an_interrupt_while_spark_starts_ends_the_process_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """KeyboardInterrupt would let PySpark remove what the JVM needs for its start, and the JVM would stay."""
    builder = MagicMock()
    builder.appName.return_value = builder.config.return_value = builder
    handlers = []
    builder.getOrCreate.side_effect = lambda: handlers.append(signal.getsignal(signal.SIGINT)) or Mock()
    monkeypatch.setattr(sessions, "SparkSession", Mock(builder=builder))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        session("eyot-hub fleet")
        assert handlers == [signal.SIG_DFL]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_without_java(tmp_path: Path) -> None:
    config = tmp_path / "hub.toml"
    config.write_text(
        f'[nats]\nservers = "nats://127.0.0.1"\n[lake]\npath = "{tmp_path}/lake"\n[bronze]\nstreams = ["S"]\n'
    )
    command = [sys.executable, "-m", "eyot_hub.main", "fleet", "-c", str(config)]
    environment = {**os.environ, "JAVA_HOME": str(tmp_path)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith("eyot-hub: Spark's JVM did not start")
    assert "Traceback" not in ended.stderr
