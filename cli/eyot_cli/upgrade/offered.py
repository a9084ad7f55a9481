"""The signed manifests of a bucket."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from eyot_cli.upgrade.bucket import ObjectRecord, list_objects, read_object
from eyot_cli.upgrade.manifest import SUFFIX
from eyot_cli.upgrade.signing import SIGNED_MAX, OpenedManifest, RefusedManifest

if TYPE_CHECKING:
    from nats.aio.client import Client

    from eyot_cli.connection.target import Target


class Offered(NamedTuple):
    """A signed manifest of a bucket, or why it is refused, and the record of its package if that is there."""

    #: name of the package's object
    name: str
    opened: OpenedManifest | None
    refused: str
    package: ObjectRecord | None
    #: the signed manifest as it stands in the bucket; empty if it is refused
    signed: bytes = b""


async def read_offered(
    target: Target, client: Client, bucket: str, open_one: Callable[[bytes], OpenedManifest]
) -> list[Offered]:
    """Return all signed manifests of a bucket in the order of their names; `open_one` decodes them, and verifies or not."""
    objects = await list_objects(target, client, bucket)
    found: list[Offered] = []
    for record in sorted(objects.values(), key=lambda each: each.name):
        if not record.name.endswith(SUFFIX):
            continue
        name = record.name.removesuffix(SUFFIX)
        try:
            data = bytearray()
            await read_object(target, client, bucket, record, SIGNED_MAX, data.extend)
            opened = open_one(bytes(data))
            if opened.manifest.object_name != name:
                raise RefusedManifest(f"it is the manifest of {opened.manifest.object_name}")
        except RefusedManifest as error:
            found.append(Offered(name, None, str(error), objects.get(name)))
        else:
            found.append(Offered(name, opened, "", objects.get(name), bytes(data)))
    return found
