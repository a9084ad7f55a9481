"""Entries of key-value buckets (ADR-8): values and markers, as messages of the bucket's stream."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from nats.aio.client import Client
from nats.js.api import DeliverPolicy
from nats.js.errors import NoStreamResponseError

from eyot_cli.connection.answers import tell
from eyot_cli.connection.refusals import no_bucket
from eyot_cli.connection.target import Target
from eyot_cli.jetstream.api import why_refused
from eyot_cli.jetstream.stored import Stored, in_order, payload_member, stored_of
from eyot_cli.terminal.show import console, print_json, print_payload
from eyot_wire.jetstream import error_codes as codes

#: The operation of a marker; absent: the message is a value.
OPERATION = "KV-Operation"
#: A marker that limits left in place of what they removed (ADR-43), and its reasons.
_MARKER = "Nats-Marker-Reason"
EXPECTED = "Nats-Expected-Last-Subject-Sequence"
PUT, DELETE, PURGE = "PUT", "DEL", "PURGE"


def operation_of(message: Stored) -> str:
    """Return PUT, DEL or PURGE."""
    if _MARKER in message.headers:
        return DELETE if message.headers[_MARKER] == "Remove" else PURGE
    return message.headers.get(OPERATION, PUT)


_SHOWN_MAX = 80


async def entries(
    target: Target, client: Client, bucket: str, key: str, *, policy: DeliverPolicy, **how: Any
) -> AsyncGenerator[Stored, None]:
    """Yield the entries of a key, which may have wildcards, as `in_order` does."""
    found = in_order(target, client, f"KV_{bucket}", f"$KV.{bucket}.{key}", policy=policy, **how)
    async with aclosing(found) as messages:
        async for message in messages:
            yield stored_of(message)


async def write(target: Target, client: Client, bucket: str, key: str, data: bytes, headers: dict[str, str]) -> int:
    """Store a value or a marker; return its revision. A domain is reached as ADR-8 says: by the prefix of its API."""
    prefix = f"{target.api_prefix}." if target.is_elsewhere else ""
    jetstream = target.jetstream(client)
    try:
        return (await jetstream.publish(f"{prefix}$KV.{bucket}.{key}", data, headers=headers or None)).seq
    except NoStreamResponseError:
        await why_refused(target, client, f"STREAM.INFO.KV_{bucket}", told=codes.JSStreamNotFoundErr)
        raise no_bucket("kv", bucket) from None


def no_key(bucket: str, key: str) -> str:
    return f"{bucket} has no key {key}: eyot kv ls {bucket} lists the keys"


def value_of(text: str | None) -> bytes:
    return sys.stdin.buffer.read() if text is None else text.encode()


def key_of(bucket: str, entry: Stored) -> str:
    return entry.subject.removeprefix(f"$KV.{bucket}.")


def entry_json(bucket: str, entry: Stored) -> dict[str, Any]:
    found = {"bucket": bucket, "key": key_of(bucket, entry), "revision": entry.seq, "created": entry.time}
    return found | {"operation": operation_of(entry)} | payload_member("value", entry.data)


def print_entry(target: Target, bucket: str, entry: Stored) -> None:
    if target.as_json:
        print_json(entry_json(bucket, entry))
        return
    console.print((f"{bucket} > {key_of(bucket, entry)}", "bold"), f" revision {entry.seq}, created {entry.time}")
    print_payload(entry.data.decode("utf-8", "replace"))


def shortened(data: bytes) -> str:
    text = data.decode("utf-8", "replace")
    return text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 3] + "..."


def tell_revision(target: Target, revision: int) -> None:
    tell(target, {"revision": revision}, f"revision {revision}")
