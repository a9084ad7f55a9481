"""Stored messages by direct gets: without a consumer, so that a work queue's messages stay where they are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime
from typing import Any

import msgspec
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js.api import DeliverPolicy

from eyot_cli.connection.command_client import CommandClient, PermissionViolation
from eyot_cli.connection.target import Target
from eyot_cli.jetstream.api import ask
from eyot_cli.jetstream.stored import Silence
from eyot_cli.jetstream.stream_info import info_of
from eyot_cli.terminal.failure import Failure
from eyot_cli.values.moments import as_text
from eyot_wire.digits import is_digits
from eyot_wire.go.time import rfc3339_to_ns

#: Messages of one request, and their bytes.
_BATCH = 256
_BATCH_BYTES = 1 << 20
#: Subjects of `multi_last`, which a server answers at once.
_LAST = 1024
_NO_MESSAGE = "404"
_END = "204"


async def is_direct(target: Target, client: CommandClient, stream: str, *, wanted: bool) -> bool:
    """Return whether a stream is read by direct gets: because that is wanted, or a consumer would take its messages.

    Raises Failure if the stream does not allow what is wanted.
    """
    try:
        config = info_of(await ask(target, client, f"STREAM.INFO.{stream}", {})).config
    except PermissionViolation:
        if wanted:
            raise
        return False  # a user may read without asking what a stream is
    if wanted and not config.allow_direct:
        raise Failure(f"{stream} allows no direct gets: eyot stream edit {stream} --allow-direct")
    return wanted or (config.retention != "limits" and config.allow_direct)


async def directly(
    target: Target,
    client: CommandClient,
    stream: str,
    subject: str,
    *,
    policy: DeliverPolicy = DeliverPolicy.ALL,
    start_seq: int | None = None,
    start_time: datetime | None = None,
    follow: bool = False,
    silence: Silence,
) -> AsyncGenerator[Msg, None]:
    """Yield messages in the order of the stream; without `follow` up to what is there. A message's `metadata` is a delivery's."""
    state = info_of(await ask(target, client, f"STREAM.INFO.{stream}", {})).state
    first: dict[str, Any] = {"seq": start_seq or 1, "next_by_subj": subject}
    if start_time is not None:
        first = {"start_time": as_text(start_time), "next_by_subj": subject}
    elif policy == DeliverPolicy.NEW:
        first["seq"] = state.last_seq + 1
    elif policy == DeliverPolicy.LAST_PER_SUBJECT:
        first = {"multi_last": [subject], "up_to_seq": state.last_seq}
    elif policy == DeliverPolicy.LAST:
        first = {"last_by_subj": subject}
    seen = max(state.last_seq if "multi_last" in first else 0, first.get("seq", 1) - 1)
    request = first
    while True:
        pending = 0
        async with aclosing(_batch(target, client, stream, request)) as messages:
            async for message in messages:
                seen = max(seen, message.metadata.sequence.stream)
                pending = message.metadata.num_pending
                yield message
                silence.break_off()
        if "multi_last" in request and pending:
            raise Failure(f"the last messages of {subject} are more than one answer holds: name fewer subjects")
        is_end = not pending and "last_by_subj" not in request
        if is_end and (not follow or silence.is_over):
            return
        if is_end:
            await asyncio.sleep(silence.look_s)
        request = {"seq": seen + 1, "next_by_subj": subject}


async def _batch(
    target: Target, client: CommandClient, stream: str, request: dict[str, Any]
) -> AsyncGenerator[Msg, None]:
    """Yield the messages of one answer. Raises Failure with what the server refuses."""
    inbox = await client.subscribe(client.new_inbox())
    is_one = "last_by_subj" in request
    body = request | (
        {} if is_one else {"batch": _LAST} if "multi_last" in request else {"batch": _BATCH, "max_bytes": _BATCH_BYTES}
    )
    subject = f"{target.api_prefix}.DIRECT.GET.{stream}"
    try:
        await client.publish(subject, msgspec.json.encode(body), reply=inbox.subject)
        while message := await _next(target, client, inbox, subject):
            yield message
            if is_one:
                return
    finally:
        await inbox.unsubscribe()


async def _next(target: Target, client: CommandClient, inbox: Subscription, subject: str) -> Msg | None:
    try:
        message = await inbox.next_msg(timeout=target.timeout_s)
    except NatsTimeoutError:
        await client.confirm(subject)  # tells of a publish that the user may not make
        raise
    headers = message.headers or {}
    status = headers.get("Status", "")
    if status in (_NO_MESSAGE, _END):
        return None
    if status:
        raise Failure(f"{subject}: {status} {headers.get('Description', '')}".rstrip())
    return _delivered(message)


def _delivered(answer: Msg) -> Msg:
    """Return the stored message as a consumer delivers it: nats-py reads a position from the reply subject."""
    headers = dict(answer.headers or {})
    stream, seq, when, pending = (
        headers.pop(f"Nats-{name}", "") for name in ("Stream", "Sequence", "Time-Stamp", "Num-Pending")
    )
    subject = headers.pop("Nats-Subject", "")
    for name in ("Nats-Last-Sequence", "Nats-UpTo-Sequence"):
        headers.pop(name, None)
    if not (is_digits(seq) and subject):
        raise Failure("malformed answer of the server: no Nats-Sequence or Nats-Subject")
    reply = f"$JS.ACK.{stream}.direct.1.{seq}.{seq}.{rfc3339_to_ns(when)}.{pending or 0}"
    return Msg(answer._client, subject=subject, reply=reply, data=answer.data, headers=headers or None)
