"""What the JetStream API says of streams, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from nats.aio.client import Client

from eyot_cli.connection.target import Target
from eyot_cli.jetstream.api import ask
from eyot_cli.terminal.failure import Failure
from eyot_wire.digits import parse_uint
from eyot_wire.jetstream.stream import StreamInfo
from eyot_wire.jetstream.struct import InvalidJson, decode


def info_of(found: dict[str, Any]) -> StreamInfo:
    """Decode the answer of STREAM.INFO, or one entry of STREAM.LIST. Raises Failure if it is malformed."""
    try:
        return decode(msgspec.json.encode(found), StreamInfo, strict=False)
    except InvalidJson as error:
        raise Failure(f"malformed answer of the server: {error}") from error


def needed_level(metadata: Mapping[str, str] | None) -> int:
    """Return the level of the JetStream API that a stream or consumer needs, as the server notes it in the metadata."""
    text = (metadata or {}).get("_nats.req.level", "0")
    return parse_uint(text) or 0


async def every_stream(
    target: Target, client: Client, prefix: str = "", *, subject: str | None = None
) -> list[dict[str, Any]]:
    """Return all pages of STREAM.LIST, of streams whose name begins with `prefix`. Raises Failure.

    `subject`: only of streams that store messages of it.
    """
    found: list[dict[str, Any]] = []
    seen = 0
    filtered = {} if subject is None else {"subject": subject}
    while True:
        page = await ask(target, client, "STREAM.LIST", {"offset": seen} | filtered)
        streams = page.get("streams") or []
        seen += len(streams)
        found += [each for each in streams if info_of(each).config.name.startswith(prefix)]
        if not streams or seen >= page.get("total", 0):
            return found
