"""What a session needs before it reads by `format("jetstream")`."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest
from pyspark.sql import SparkSession

from eyot_hub.errors import HubError
from eyot_hub.jobs.session import register_source


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
