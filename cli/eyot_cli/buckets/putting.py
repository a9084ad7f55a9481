"""Puts an object into a bucket (ADR-20). A put that SIGINT ends leaves nothing there."""

from __future__ import annotations

from asyncio import CancelledError
from typing import TYPE_CHECKING, Any

from nats.js import JetStreamContext

if TYPE_CHECKING:
    from io import BufferedIOBase

    from nats.aio.client import Client
    from nats.js.api import ObjectInfo, ObjectMeta, PubAck

    from eyot_cli.connection.target import Target


class _Noting(JetStreamContext):
    """Notes the subject of the last message, which nats-py chooses for an object's chunks."""

    subject = ""

    async def publish(self, subject: str, *arguments: Any, **options: Any) -> PubAck:
        self.subject = subject
        return await super().publish(subject, *arguments, **options)


async def put_object(
    target: Target, client: Client, bucket: str, name: str, data: bytes | BufferedIOBase, meta: ObjectMeta | None = None
) -> ObjectInfo:
    """Store an object. Raises what nats-py raises; nats-py removes the chunks after an error, but not when it is cancelled."""
    context = _Noting(client, prefix=target.api_prefix, timeout=target.timeout_s)
    store = await context.object_store(bucket)
    try:
        return await store.put(name, data, meta)
    except CancelledError:
        if context.subject.startswith(f"$O.{bucket}.C."):
            await context.purge_stream(f"OBJ_{bucket}", subject=context.subject)
        raise
