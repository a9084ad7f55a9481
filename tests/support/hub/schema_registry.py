"""A schema registry for tests: the part of Confluent's HTTP API that readers use, on a port of 127.0.0.1."""

from __future__ import annotations

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any


class SchemaRegistry:
    """Serves what `schemas` (by id) and `versions` (by subject and version) hold; counts requests."""

    def __init__(self, user: str = "", password: str = "") -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.versions: dict[tuple[str, int], dict[str, Any]] = {}
        self.asked: list[str] = []
        self.answer: tuple[int, bytes] | None = None  # instead of what is true
        token = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._login = f"Basic {token}" if user else None
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = registry._found(self.path, self.headers.get("Authorization"))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> SchemaRegistry:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _found(self, path: str, login: str | None) -> tuple[int, bytes]:
        self.asked.append(path)
        if self._login is not None and login != self._login:
            return 401, b'{"error_code": 401}'
        if self.answer is not None:
            return self.answer
        parts = path.partition("?")[0].strip("/").split("/")
        found = None
        if parts[:2] == ["schemas", "ids"]:
            found = self.schemas.get(int(parts[2]))
        elif parts[0] == "subjects":
            found = self.versions.get((parts[1], int(parts[3])))
        return (404, b'{"error_code": 40403}') if found is None else (200, json.dumps(found).encode())
