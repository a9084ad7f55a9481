"""A Spark Connect server as a process of its own, as `start-connect-server.sh` starts it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

import pyspark

ROOT = Path(__file__).parents[3]
START_S = 300.0
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


class SparkConnect:
    """Listens on a free port of 127.0.0.1 from `with` on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = folder / "connect.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def __enter__(self) -> SparkConnect:
        home = Path(pyspark.__file__).parent
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "hub"), str(ROOT / "wire")]),
        }
        settings = {
            "spark.master": "local[2,4]",
            "spark.ui.enabled": "false",
            "spark.connect.grpc.binding.port": "0",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.warehouse.dir": str(self._folder / "warehouse"),
            "spark.python.authenticate.socketTimeout": "120s",
        }
        given = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        command = [str(home / "bin" / "spark-submit"), "--class", SERVER, *given, "spark-internal"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=self._folder
            )
        try:
            self.url = f"sc://127.0.0.1:{self._port(self._process)}"
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)

    def _port(self, process: subprocess.Popen[bytes]) -> int:
        """Wait until the server listens; return its port."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and process.poll() is None:
            started = re.search(r"Spark Connect server started at: [\d.]+:(\d+)", self.log())
            if started is not None:
                return int(started[1])
            time.sleep(0.1)
        raise AssertionError(self.log()[-4000:])

    def log(self) -> str:
        return self._log.read_text(errors="replace")
