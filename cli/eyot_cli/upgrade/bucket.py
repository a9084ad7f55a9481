"""Objects of a bucket (ADR-20), also of one that is a mirror: nats-py finds the chunks by their subject, and a mirror has none."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

import msgspec
from nats.js.api import DeliverPolicy
from nats.js.errors import NotFoundError

from eyot_cli.connection.refusals import no_bucket
from eyot_cli.jetstream.stored import in_order
from eyot_cli.upgrade.signing import RefusedManifest

if TYPE_CHECKING:
    from nats.aio.client import Client

    from eyot_cli.connection.target import Target

#: The id of an object's chunks is part of a subject.
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class ObjectRecord(msgspec.Struct, frozen=True):
    """What a bucket says of an object. Nothing of it is signed."""

    name: str
    nuid: str = ""
    #: bytes
    size: int = 0
    #: `SHA-256=` and base64
    digest: str = ""
    deleted: bool = False


async def list_objects(target: Target, client: Client, bucket: str) -> dict[str, ObjectRecord]:
    """Return the objects of a bucket by their names; what is no record of an object is passed over."""
    async with aclosing(read_records(target, client, bucket)) as records:
        return {record.name: record async for record in records if record is not None and not record.deleted}


async def read_records(target: Target, client: Client, bucket: str) -> AsyncGenerator[ObjectRecord | None, None]:
    """Yield the records of a bucket, also of deleted objects; None for what is no record. Raises Failure without the bucket."""
    subject = f"$O.{bucket}.M.>"
    read = in_order(target, client, f"OBJ_{bucket}", subject, policy=DeliverPolicy.LAST_PER_SUBJECT)
    try:
        async with aclosing(read) as messages:
            async for message in messages:
                try:
                    record = msgspec.json.decode(message.data, type=ObjectRecord)
                except (msgspec.MsgspecError, RecursionError):
                    yield None
                else:
                    yield record
    except NotFoundError:
        raise no_bucket("object", bucket) from None


async def read_object(
    target: Target, client: Client, bucket: str, record: ObjectRecord, most: int, sink: Callable[[bytes], object]
) -> None:
    """Pass an object's chunks to `sink`, at most `most` bytes. Raises RefusedManifest."""
    if _ID.fullmatch(record.nuid) is None:
        raise RefusedManifest(f"the object {record.name} has no valid id: publish it again")
    if record.size > most:
        raise RefusedManifest(f"the object {record.name} has {record.size} bytes, expected are {most} at most")
    arrived = 0
    async with aclosing(in_order(target, client, f"OBJ_{bucket}", f"$O.{bucket}.C.{record.nuid}")) as chunks:
        async for message in chunks:
            arrived += len(message.data)
            if arrived <= most:
                sink(message.data)
    if arrived > most:
        raise RefusedManifest(f"the object {record.name} has {arrived} bytes, expected are {most} at most")
    if arrived < record.size:
        raise RefusedManifest(
            f"{arrived} of {record.size} bytes of {record.name} are here: wait for the mirror, or publish it again"
        )
