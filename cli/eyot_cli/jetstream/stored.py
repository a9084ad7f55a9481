"""Stored messages, read one by one or in order."""

from __future__ import annotations

import base64
import time
from collections.abc import AsyncGenerator
from datetime import datetime
from typing import Any, NamedTuple

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import ConsumerConfig, DeliverPolicy

from eyot_cli.connection.target import Target
from eyot_cli.jetstream.api import ask
from eyot_cli.terminal.show import console, print_json, print_payload
from eyot_wire.headers import parse

#: How long a listing that follows waits before it checks its connection, seconds.
LOOK_S = 0.5


class Silence:
    """A time without messages after which a listing ends; None: never.

    Cancelling the wait instead would not do: asyncio's `wait_for` may lose the cancellation.
    """

    def __init__(self, limit_s: float | None) -> None:
        self._limit_s = limit_s
        self._since = time.monotonic()

    @property
    def look_s(self) -> float:
        """How long to wait before the next look."""
        return LOOK_S if self._limit_s is None else min(LOOK_S, max(self._limit_s, 0.001))

    @property
    def is_over(self) -> bool:
        """Whether it lasted as long as the limit."""
        return self._limit_s is not None and time.monotonic() - self._since >= self._limit_s

    def break_off(self) -> None:
        """Note that a message came."""
        self._since = time.monotonic()


class Stored(NamedTuple):
    """A message of a stream. `time` as the server writes it."""

    seq: int
    subject: str
    time: str
    headers: dict[str, str]
    data: bytes

    def as_json(self) -> dict[str, Any]:
        """Return members for JSON; a payload that is no UTF-8 text is in `payload_base64`."""
        found: dict[str, Any] = {"seq": self.seq, "subject": self.subject, "time": self.time, "headers": self.headers}
        return found | payload_member("payload", self.data)


def payload_member(name: str, data: bytes) -> dict[str, str]:
    """Return a payload as a member for JSON."""
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


async def get_stored(target: Target, client: Client, stream: str, which: dict[str, Any]) -> Stored:
    """Return the message of `{"seq": N}` or `{"last_by_subj": S}`. Raises Failure in the server's words."""
    message = (await ask(target, client, f"STREAM.MSG.GET.{stream}", which))["message"]
    head = base64.b64decode(message.get("hdrs") or "")
    headers = {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, value in parse(head)}
    return Stored(
        message["seq"], message["subject"], message["time"], headers, base64.b64decode(message.get("data") or "")
    )


def print_stored(target: Target, stream: str, message: Stored) -> None:
    """Print one message."""
    if target.as_json:
        print_json(message.as_json())
        return
    console.print((f"{stream} {message.seq}", "bold"), f" {message.subject} at {message.time}")
    for name, value in message.headers.items():
        console.print(f"  {name}: {value}")
    print_payload(message.data.decode("utf-8", "replace"))


def stored_of(message: Msg) -> Stored:
    """Return a message as it was delivered. A delivery has no time as the server writes it."""
    meta = message.metadata
    time = meta.timestamp.isoformat().replace("+00:00", "Z")
    return Stored(meta.sequence.stream, message.subject, time, dict(message.headers or {}), message.data)


async def in_order(
    target: Target,
    client: Client,
    stream: str,
    subject: str,
    *,
    policy: DeliverPolicy = DeliverPolicy.ALL,
    start_seq: int | None = None,
    start_time: datetime | None = None,
    headers_only: bool = False,
    follow: bool = False,
    most: int | None = None,
    silence: Silence | None = None,
) -> AsyncGenerator[Msg, None]:
    """Yield at most `most` messages in the order of the stream; without `follow` up to what is there at the beginning.

    `silence`: end after that, too. To be read to its end, or closed.
    """
    silence = silence or Silence(None)
    if start_seq is not None:
        policy = DeliverPolicy.BY_START_SEQUENCE
    if start_time is not None:
        policy = DeliverPolicy.BY_START_TIME
    config = ConsumerConfig(
        deliver_policy=policy, opt_start_seq=start_seq, opt_start_time=start_time, headers_only=headers_only or None
    )
    read = await target.jetstream(client).subscribe(subject, stream=stream, config=config, ordered_consumer=True)
    seen = 0
    try:
        info = await read.consumer_info()
        # What is delivered is not pending any more, and may come after the answer.
        under_way = info.delivered is not None and info.delivered.consumer_seq > 0
        if not (info.num_pending or under_way or follow):
            return
        while True:
            try:
                message = await read.next_msg(timeout=silence.look_s if follow else target.timeout_s)
            except TimeoutError:
                if silence.is_over:
                    return
                if not follow or client.is_closed:
                    raise
                continue
            yield message
            silence.break_off()
            seen += 1
            if seen == most or (not follow and not message.metadata.num_pending):
                return
    finally:
        await read.unsubscribe()
