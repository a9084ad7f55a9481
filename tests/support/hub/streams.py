"""Streams of a real server for the hub's tests: made, filled, purged and deleted through the JetStream API."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from eyot_hub.connection import Connection, ConnectOptions
from eyot_hub.publisher import Publisher
from eyot_wire import headers

Message = tuple[str, bytes] | tuple[str, bytes, dict[str, str]]


class Streams:
    """One client of a server, for the tests' side of things."""

    def __init__(self, port: int, user: str | None = None, password: str | None = None) -> None:
        self.url = f"nats://127.0.0.1:{port}"
        self._options = ConnectOptions((self.url,), user=user, password=password or user, timeout_s=10.0, retry_s=10.0)

    def api(self, what: str, body: Any = None) -> dict[str, Any]:
        """One request to the JetStream API; fails the test when the answer is an error."""
        connection = Connection.open(self._options)
        try:
            payload = b"" if body is None else json.dumps(body).encode()
            answer: dict[str, Any] = msgspec.json.decode(connection.request(f"$JS.API.{what}", payload).payload)
        finally:
            connection.close()
        assert "error" not in answer, answer
        return answer

    def create(self, name: str, subjects: list[str] | None = None, **config: Any) -> dict[str, Any]:
        body = {"name": name, **({"subjects": subjects} if subjects else {}), **config}
        return self.api(f"STREAM.CREATE.{name}", body)

    def delete(self, name: str) -> None:
        self.api(f"STREAM.DELETE.{name}")

    def purge(self, name: str, below: int) -> None:
        """Remove everything below a sequence."""
        self.api(f"STREAM.PURGE.{name}", {"seq": below})

    def remove(self, name: str, sequence: int) -> None:
        self.api(f"STREAM.MSG.DELETE.{name}", {"seq": sequence})

    def state(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.api(f"STREAM.INFO.{name}")["state"]
        return found

    def consumers(self, name: str) -> int:
        return int(self.state(name)["consumer_count"])

    def publish(self, messages: Iterable[Message]) -> int:
        """Publish with acknowledgements; returns how many were stored."""
        publisher = Publisher(self._options, 4096)
        try:
            for subject, payload, *more in messages:
                header = headers.build(fields=more[0].items()) if more else b""
                publisher.publish(subject.encode(), header, payload)
            publisher.flush()
        finally:
            publisher.close()
        return publisher.stored


def numbered(subject: str, count: int, start: int = 0) -> list[Message]:
    """`count` messages whose payload is a number."""
    return [(subject, b"%d" % number) for number in range(start, start + count)]
