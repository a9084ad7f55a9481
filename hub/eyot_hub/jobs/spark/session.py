"""The jobs' Spark session. Settings of `spark-submit` win; on a single machine, defaults are filled in."""

from __future__ import annotations

import logging
import os
import shutil
import socketserver
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JNetworkError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from eyot_hub.errors import HubError
from eyot_hub.source import JetStreamDataSource
from eyot_wire.program import ended_by_interrupt

log = logging.getLogger(__name__)

_CORES: Final = os.cpu_count() or 1
_LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.json")
# Four attempts per task: plain local[N] gives up at the first failure.
_LOCAL_MASTER: Final = f"local[{_CORES},4]"
_LOCAL_DEFAULTS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}",
    "spark.sql.shuffle.partitions": str(2 * _CORES),
    # A small machine may need long to start a Python worker.
    "spark.python.authenticate.socketTimeout": "60s",
}
_DEFAULTS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Arrow's allocator would give memory back after 10 ms, and fetch it again for the next batch: a third of a task's CPU.
    "spark.executorEnv.MIMALLOC_PURGE_DELAY": "1000",
    "spark.python.daemon.module": "eyot_hub.worker_daemon",
}


def session(app_name: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Return the active session or a new one. Raises HubError where no JVM can be started.

    Only a job that reads by `format("jetstream")` calls `register_source`, which starts Spark SQL: seconds on a cluster.
    """
    # Workers run this interpreter with its packages, even where Spark would find another one first.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    chosen = dict(settings or {})
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        chosen.setdefault("spark.master", _LOCAL_MASTER)
        if chosen["spark.master"].startswith("local"):
            chosen = {**_LOCAL_DEFAULTS, **chosen}
            # Otherwise the JVM resolves this machine's own name, and fails where that resolves to nothing.
            os.environ.setdefault("SPARK_LOCAL_IP", chosen["spark.driver.host"])
    given = _submitted() if submitted else set()
    builder = SparkSession.builder.appName(app_name)
    for name, value in {**_DEFAULTS, **chosen}.items():
        if name not in given:
            builder = builder.config(name, value)
    try:
        # PySpark that is interrupted removes the folder where a JVM tells its port. A JVM that starts does not end without it.
        with ended_by_interrupt():
            spark = builder.getOrCreate()
    except (Py4JNetworkError, ConnectionError):
        raise HubError("Spark's JVM ended while it started") from None
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise HubError(
            "Spark's JVM did not start, and the lines above tell why. Spark needs Java 17 or later, by JAVA_HOME or PATH"
        ) from None
    # PySpark's server of accumulators would print a traceback when the JVM ends. The jobs use none.
    server: socketserver.BaseServer = spark.sparkContext._accumulatorServer
    server.handle_error = lambda *_: log.debug("accumulators", exc_info=True)  # type: ignore[method-assign]
    return spark


def _submitted() -> set[str]:
    """Return the names of the settings that `spark-submit` has: a builder would replace them."""
    SparkContext._ensure_initialized()
    return {name for name, _ in SparkConf().getAll()}


def register_source(spark: SparkSession) -> None:
    """Register `format("jetstream")`.

    Raises HubError when the workers' Python is not on this machine, since Spark plans such a source with it in the driver.
    """
    python = os.environ.get("PYSPARK_PYTHON", sys.executable)
    if shutil.which(python) is None:
        raise HubError(
            f"spark.pyspark.python: there is no {python} here, and Spark plans streaming queries with it in the driver. "
            "Submit from a folder where this path leads to the driver's environment"
        )
    spark.dataSource.register(JetStreamDataSource)
