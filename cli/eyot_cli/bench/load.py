"""Clients of a benchmark. nats-py connects and logs in; messages do not become objects of nats-py one by one.

`_transport`, `_ps` and `_process_pong` are nats-py's own: the connection's stream, the parser that its reader feeds, and what
ends a flush. Frames are written to the first in whole blocks. The second is replaced by one that counts.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from eyot_cli.bench.counting import MessageCounter
from eyot_cli.bench.results import Result
from eyot_cli.jetstream.api import answer_of
from eyot_cli.terminal.failure import Failure
from eyot_wire.quantities import counted

if TYPE_CHECKING:
    from nats.aio.client import Client

#: Bytes written at once.
BLOCK: Final = 64 * 1024
#: Interval at which a waiting client checks its connection, seconds.
LOOK_S: Final = 0.5
#: The subscription of a counting client; nats-py numbers its own from 1.
SID: Final = 900_000_000
#: How long the server may take to read what was published, seconds.
FLUSH_S: Final = 600


class CountingParser:
    """Takes the place of nats-py's parser: counts messages, and wakes whoever waits for a number of messages."""

    def __init__(self, client: Client, *, acknowledgements: bool = False) -> None:
        self._client = client
        self._counter = MessageCounter(self._line, _check_acknowledgement if acknowledgements else None)
        self._pongs = 0
        self._wanted = 0
        self._woken = asyncio.Event()
        #: An error of the server.
        self.error: Failure | None = None
        #: When the first and the last message came, by the monotonic clock; 0 before.
        self.first_s = self.last_s = 0.0
        client._ps = self  # type: ignore[assignment]

    async def parse(self, data: bytes) -> None:
        """Take bytes from nats-py's reader."""
        before = self.messages
        try:
            self._counter.feed(data)
        except Failure as failure:
            self.error = failure
        except ValueError as error:
            self.error = Failure(f"malformed message of the server: {error}")
        while self._pongs:
            self._pongs -= 1
            await self._client._process_pong()
        if self.messages > before:
            self.last_s = time.monotonic()
            self.first_s = self.first_s or self.last_s
        if self.messages >= self._wanted or self.error is not None:
            self._woken.set()

    def reset(self) -> None:
        """Do nothing. nats-py calls it when the connection ends."""

    @property
    def messages(self) -> int:
        return self._counter.messages

    @property
    def payload_bytes(self) -> int:
        return self._counter.payload_bytes

    async def wait(self, messages: int) -> None:
        """Return when so many messages have come in all. Raises Failure for an error of the server, and at the connection's end."""
        self._wanted = messages
        while self.error is None and self.messages < messages:
            self._woken.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), LOOK_S)
            if self._client.is_closed and self.error is None and self.messages < messages:
                raise Failure(f"the connection is gone after {self.messages:,} of {counted(messages, 'message')}")
        if self.error is not None:
            raise self.error

    def _line(self, line: bytes) -> None:
        if line.startswith(b"PING"):
            assert self._client._transport is not None
            self._client._transport.write(b"PONG\r\n")
        elif line.startswith(b"PONG"):
            self._pongs += 1
        elif line.startswith(b"-ERR"):
            self.error = Failure(line[4:].decode("utf-8", "replace").strip(" '"))


def _check_acknowledgement(payload: bytes) -> None:
    """Check the answer to a message for a stream. Raises Failure in the server's words."""
    if payload.startswith(b"NATS/1.0 503"):
        raise Failure("no stream stores this subject: --create makes one")
    if b'"error"' in payload:
        answer_of(payload)


async def publish(client: Client, subject: str, size: int, messages: int) -> Result:
    """Publish messages of `size` bytes and wait until the server has read them all. Raises Failure."""
    counting = CountingParser(client)  # reads what the server says meanwhile: PING, -ERR
    frame = f"PUB {subject} {size}\r\n".encode() + b"x" * size + b"\r\n"
    each = max(1, BLOCK // len(frame))
    block = frame * each
    began_s, left = time.monotonic(), messages
    while left:
        now = min(left, each)
        await _write(client, counting, block if now == each else frame * now)
        left -= now
    await _flush(client, counting)
    return Result(messages, messages * size, time.monotonic() - began_s)


async def subscribe(client: Client, subject: str) -> CountingParser:
    """Subscribe; return what counts from now on. Raises Failure if the login may not."""
    counting = CountingParser(client)
    await _write(client, counting, f"SUB {subject} {SID}\r\n".encode())
    await _flush(client, counting)
    return counting


async def received(counting: CountingParser, messages: int) -> Result:
    """Wait for messages; the time runs from the first read with messages to the last. Raises Failure."""
    await counting.wait(messages)
    return Result(counting.messages, counting.payload_bytes, counting.last_s - counting.first_s)


async def publish_acknowledged(client: Client, subject: str, size: int, messages: int, batch: int) -> Result:
    """Publish into a stream with at most `batch` messages on the way, and wait for all acknowledgements.

    Raises Failure in the server's words for the first message that is not stored.
    """
    inbox = client.new_inbox()
    counting = CountingParser(client, acknowledgements=True)
    await _write(client, counting, f"SUB {inbox} {SID}\r\n".encode())
    frame = f"PUB {subject} {inbox} {size}\r\n".encode() + b"x" * size + b"\r\n"
    began_s, sent = time.monotonic(), 0
    while sent < messages:
        now = min(messages - sent, max(1, batch // 2))
        await counting.wait(sent + now - batch)
        await _write(client, counting, frame * now)
        sent += now
    await counting.wait(messages)
    return Result(messages, messages * size, time.monotonic() - began_s)


async def _write(client: Client, counting: CountingParser, data: bytes) -> None:
    """Write to the connection; wait while the server reads more slowly. Raises Failure when the server refused or is gone."""
    transport = client._transport
    if counting.error is not None:
        raise counting.error
    if client.is_closed or transport is None:
        raise Failure("the connection is gone")
    transport.write(data)
    await transport.drain()  # type: ignore[no-untyped-call]


async def _flush(client: Client, counting: CountingParser) -> None:
    """Wait until the server has read all that was written. Raises Failure when it refused something or is gone."""
    flushed = asyncio.ensure_future(client.flush(timeout=FLUSH_S))
    try:
        while not flushed.done():
            await asyncio.wait({flushed}, timeout=LOOK_S)
            if counting.error is not None:
                raise counting.error
            if client.is_closed and not flushed.done():
                raise Failure("the connection is gone")
        await flushed
    finally:
        flushed.cancel()
    if counting.error is not None:
        raise counting.error
