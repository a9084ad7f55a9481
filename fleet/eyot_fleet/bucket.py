"""A KV bucket of JetStream (NATS ADR-8): a stream whose subjects are keys, and whose sequences are revisions."""

from __future__ import annotations

import re
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

import trio
from msgspec import Struct

from eyot_fleet.errors import ApiFailure, Conflict, FleetError
from eyot_fleet.jetstream import STREAM_EXISTS, JetStream
from eyot_wire import headers

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from eyot_fleet.jetstream import Delivered

_OPERATION: Final = "KV-Operation"
_KEY: Final = re.compile(r"[-/_=.a-zA-Z0-9]+")
#: Of one value.
VALUE_BYTES_MAX: Final = 256 * 1024


class BucketConfig(Struct, frozen=True, kw_only=True):
    """A bucket as it is created; one that exists stays as its operator made it."""

    name: str
    description: str = ""
    history: int = 1
    replicas: int = 1
    max_bytes: int = -1

    @property
    def stream(self) -> str:
        return f"KV_{self.name}"

    def stream_config(self) -> dict[str, Any]:
        """Return the stream's configuration, as NATS's own clients make it."""
        return {
            "name": self.stream,
            "description": self.description,
            "subjects": [f"$KV.{self.name}.>"],
            "max_msgs_per_subject": self.history,
            "max_bytes": self.max_bytes,
            "max_msg_size": VALUE_BYTES_MAX,
            "storage": "file",
            "num_replicas": self.replicas,
            "discard": "new",
            "allow_rollup_hdrs": True,
            "deny_delete": True,
            "allow_direct": True,
            "duplicate_window": 120 * 10**9,
        }


class Entry(Struct, frozen=True):
    """One revision of a key. `value` is None where the key was removed. `at`: seconds since 1970, 0: not known."""

    key: str
    value: bytes | None
    revision: int
    at: float = 0.0


class Bucket:
    """A bucket at one connection. Methods raise what `JetStream` raises."""

    def __init__(self, jetstream: JetStream, config: BucketConfig) -> None:
        self.config = config
        #: when the bucket was made, as the hub said at the last `open`; another time: another bucket of this name
        self.created = ""
        self._js = jetstream

    async def open(self) -> None:
        """Create the bucket unless it exists."""
        found = await self._js.stream_info(self.config.stream)
        if found is None:
            try:
                found = await self._js.api(f"STREAM.CREATE.{self.config.stream}", self.config.stream_config())
            except ApiFailure as failure:
                if failure.code != STREAM_EXISTS:
                    raise FleetError(f"bucket {self.config.name} cannot be created: {failure}") from None
                found = await self._js.stream_info(self.config.stream)  # another service was first
        self.created = "" if found is None else str(found.get("created") or "")

    async def get(self, key: str) -> Entry | None:
        """Return the present revision; None: there never was one, or it is forgotten."""
        found = await self._js.last_message(self.config.stream, self._subject(key))
        if found is None:
            return None
        return Entry(key, None if _is_removed(found.header) else found.payload, found.sequence)

    async def put(self, key: str, value: bytes, revision: int | None = None) -> int:
        """Write a value; return its revision.

        `revision`: the one that it replaces, 0: none. Raises Conflict if another one is there.
        """
        return await self._js.publish(self._subject(key), value, expected=revision)

    async def create(self, key: str, value: bytes) -> int:
        """Write a key that is not there; one that was removed may be made again. Raises Conflict."""
        try:
            return await self.put(key, value, 0)
        except Conflict:
            found = await self.get(key)
            if found is None or found.value is not None:
                raise
            return await self.put(key, value, found.revision)

    async def remove(self, key: str, revision: int | None = None) -> int:
        """Remove a key; its history stays. Raises Conflict."""
        return await self._js.publish(self._subject(key), b"", expected=revision, fields=((_OPERATION, "DEL"),))

    async def history(self, key: str) -> list[Entry]:
        """Return the revisions of a key that the bucket still has, the oldest first."""
        return await self._until_caught_up({"deliver_policy": "all", "filter_subject": self._subject(key)})

    async def all(self, keys: str = ">") -> list[Entry]:
        """Return the present revision of all keys, removed ones too."""
        return await self._until_caught_up(
            {"deliver_policy": "last_per_subject", "filter_subject": f"$KV.{self.config.name}.{keys}"}
        )

    async def watch(self, keys: str = ">") -> AsyncGenerator[list[Entry], None]:
        """Yield the present revision of all keys, [] once that is all, then every change. Without end."""
        config = {"deliver_policy": "last_per_subject", "filter_subject": f"$KV.{self.config.name}.{keys}"}
        told = False
        async with aclosing(self._js.pull(self.config.stream, config)) as batches:
            async for batch in batches:
                if batch or not told:
                    told = told or not batch
                    yield [self._entry(each) for each in batch]

    async def _until_caught_up(self, config: dict[str, Any]) -> list[Entry]:
        found: list[Entry] = []
        async with aclosing(self._js.pull(self.config.stream, config)) as batches:
            async for batch in batches:
                if not batch:
                    break
                found += map(self._entry, batch)
                await trio.lowlevel.checkpoint()
        return found

    def _subject(self, key: str) -> str:
        if not _KEY.fullmatch(key) or key.startswith(".") or key.endswith(".") or ".." in key:
            raise FleetError(f"{key!r} cannot be a key")
        return f"$KV.{self.config.name}.{key}"

    def _entry(self, message: Delivered) -> Entry:
        key = message.subject.removeprefix(f"$KV.{self.config.name}.")
        value = None if _is_removed(message.header) else message.payload
        return Entry(key, value, message.sequence, message.stored_at)


def _is_removed(header: bytes) -> bool:
    return headers.get(header, _OPERATION.encode()) in (b"DEL", b"PURGE") or headers.get(
        header, b"Nats-Marker-Reason"
    ) in (b"MaxAge", b"Remove", b"Purge")
