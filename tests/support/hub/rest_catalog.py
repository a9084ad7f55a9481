"""A REST catalog of Iceberg on loopback, as far as writers of tables need one: the protocol over an SQL catalog of pyiceberg.

It is no product: it has no logins, and answers one request after the other.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import unquote

from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.rest import CreateTableRequest, TableResponse
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import CommitTableRequest, CommitTableResponse

_STATUSES = {
    NoSuchTableError: 404,
    CommitFailedException: 409,
    TableAlreadyExistsError: 409,
    NamespaceAlreadyExistsError: 409,
}


class RestCatalog:
    """A running catalog; `uri` is its address. `lose_answers`: so many commits are made, and answered with an error.

    `refusal`: status and body of every answer. `refuse_commits`: each is told that another came in between.
    `answering`: while it is not set, no request is answered.
    `sovereign`: as some released catalogs do, it takes no places of tables from others, and lets nobody expire snapshots.
    """

    def __init__(self, database: str, properties: dict[str, str], *, sovereign: bool = False) -> None:
        self.catalog = load_catalog("served", type="sql", uri=f"sqlite:///{database}", **properties)
        self.requests = 0
        self.lose_answers = 0
        self.refusal: tuple[int, str] | None = None
        self.refuse_commits = False
        self.answering = threading.Event()
        self.answering.set()
        self.sovereign = sovereign
        served = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:
                pass

            def _answer(self) -> None:
                served.requests += 1
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                served.answering.wait()
                status, text = served.refusal or served.answer(self.command, self.path.partition("?")[0], body)
                made = text.encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(made)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(made)

            do_GET = do_POST = do_HEAD = do_DELETE = _answer

        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.uri = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.answering.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, str]:
        parts = [unquote(part) for part in path.strip("/").split("/")][1:]  # without v1
        try:
            with self._lock:
                return self._routed(method, parts, body)
        except tuple(_STATUSES) as error:
            status = next(status for kind, status in _STATUSES.items() if isinstance(error, kind))
            return _refusal(status, type(error).__name__, str(error))

    def _routed(self, method: str, parts: list[str], body: bytes) -> tuple[int, str]:
        match method, parts:
            case "GET", ["config"]:
                return 200, json.dumps({"defaults": {}, "overrides": {}})
            case "POST", ["namespaces"]:
                namespace = tuple(json.loads(body)["namespace"])
                self.catalog.create_namespace(namespace)
                return 200, json.dumps({"namespace": namespace, "properties": {}})
            case "POST", ["namespaces", namespace, "tables"]:
                asked = CreateTableRequest.model_validate({"location": None, **json.loads(body)})
                if self.sovereign and asked.location is not None:
                    return _refusal(422, "ValidationError", "the catalog assigns places")
                given: Any = {"partition_spec": asked.partition_spec} if asked.partition_spec is not None else {}
                self.catalog.create_table(
                    (namespace, asked.name), asked.table_schema, asked.location, properties=asked.properties, **given
                )
                return 200, self._table(namespace, asked.name)
            case "POST", ["namespaces", namespace, "tables", name]:
                return self._commit(namespace, name, body)
            case "DELETE", ["namespaces", namespace, "tables", name]:
                self.catalog.drop_table((namespace, name))
                return 204, ""
            case (("GET" | "HEAD"), ["namespaces", namespace, "tables", name]):
                return 200, self._table(namespace, name)
        return _refusal(404, "NotFound", "no such path")

    def _commit(self, namespace: str, name: str, body: bytes) -> tuple[int, str]:
        asked = CommitTableRequest.model_validate_json(body)
        if self.refuse_commits:
            raise CommitFailedException("not today")
        if self.sovereign and any(update.action == "remove-snapshots" for update in asked.updates):
            return _refusal(403, "PermissionDenied", "snapshots are the catalog's")
        table = self.catalog.load_table((namespace, name))
        done: CommitTableResponse = self.catalog.commit_table(table, asked.requirements, asked.updates)
        if self.lose_answers:
            self.lose_answers -= 1
            return _refusal(500, "InternalServerError", "lost")
        return 200, done.model_dump_json(by_alias=True)

    def _table(self, namespace: str, name: str) -> str:
        table = self.catalog.load_table((namespace, name))
        response = TableResponse(**{"metadata-location": table.metadata_location, "metadata": table.metadata})
        dump: Callable[..., str] = response.model_dump_json
        return dump(by_alias=True)


def _refusal(status: int, kind: str, message: str) -> tuple[int, str]:
    return status, json.dumps({"error": {"message": message, "type": kind, "code": status}})
