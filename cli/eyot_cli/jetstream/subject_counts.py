"""How many messages each subject of a stream has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eyot_cli.jetstream.api import ask

if TYPE_CHECKING:
    from nats.aio.client import Client

    from eyot_cli.connection.target import Target


async def count_by_subject(target: Target, client: Client, stream: str, subject: str) -> dict[str, int]:
    """Return the number of messages by subject, of those that `subject` matches. Raises Failure in the server's words."""
    found: dict[str, int] = {}
    while True:
        page = await ask(target, client, f"STREAM.INFO.{stream}", {"subjects_filter": subject, "offset": len(found)})
        more = page["state"].get("subjects") or {}
        if not more:
            return found
        found |= more
        if len(found) >= (page.get("total") or 0):
            return found
