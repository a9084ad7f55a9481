"""An S3-compatible server on loopback (moto's), as a process of its own: delta-rs lets no other thread of its process run while it waits."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Self

from support.servers.server_process import free_port

START_S_MAX = 120.0


class ObjectStorage:
    """A server with one empty bucket; `options` are what delta-rs needs to reach it. `log`: a file for its requests."""

    def __init__(self, bucket: str, log: Path | None = None) -> None:
        self._bucket = bucket
        self._log = log
        self.port = free_port()
        self._server: subprocess.Popen[bytes] | None = None
        self.options = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": "me",
            "AWS_SECRET_ACCESS_KEY": "geheim",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    def __enter__(self) -> Self:
        command = [str(Path(sys.executable).with_name("moto_server")), "-H", "127.0.0.1", "-p", str(self.port)]
        with Path(self._log or os.devnull).open("wb") as log:
            self._server = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            self._make_bucket(time.monotonic() + START_S_MAX)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.kill()
        self._server.wait()

    def requests(self) -> list[str]:
        """Return the requests so far, such as `GET /lake/table/file`. Needs a log, which has a request before its answer is sent."""
        assert self._log is not None
        return re.findall(r'"([A-Z]+ \S+) HTTP', self._log.read_text(errors="replace"))

    def _make_bucket(self, deadline: float) -> None:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/{self._bucket}", method="PUT")
        while True:
            try:
                urllib.request.urlopen(request, timeout=30).close()
                return
            except urllib.error.URLError:
                assert self._server is not None
                assert self._server.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.1)
