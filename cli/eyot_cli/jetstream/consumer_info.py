"""What the JetStream API says of consumers, checked."""

from __future__ import annotations

from typing import Any

import msgspec
from nats.aio.client import Client

from eyot_cli.connection.target import Target
from eyot_cli.jetstream.api import ask
from eyot_cli.terminal.failure import Failure
from eyot_wire.jetstream.consumer import ConsumerInfo
from eyot_wire.jetstream.struct import InvalidJson, decode


def consumer_of(found: dict[str, Any]) -> ConsumerInfo:
    """Decode the answer of CONSUMER.INFO, or one entry of CONSUMER.LIST; it has a `config`. Raises Failure if it is malformed."""
    try:
        info = decode(msgspec.json.encode(found), ConsumerInfo, strict=False)
    except InvalidJson as error:
        raise Failure(f"malformed answer of the server: {error}") from error
    if info.config is None:
        raise Failure("malformed answer of the server: no configuration")
    return info


async def every_consumer(target: Target, client: Client, stream: str) -> list[dict[str, Any]]:
    """Return all pages of CONSUMER.LIST. Raises Failure."""
    found: list[dict[str, Any]] = []
    while True:
        page = await ask(target, client, f"CONSUMER.LIST.{stream}", {"offset": len(found)})
        more = page.get("consumers") or []
        found += more
        if not more or len(found) >= page.get("total", 0):
            return found
