"""A TCP link as links are: between two processes, in user space, with a rate, a delay, jitter, cuts, half-open states and black holes.

A `Shaper` forwards connections to a port on the loopback interface. Each direction is a queue of bytes with the time at which they come out
at the other end: what a rate of `bytes_per_s`, `delay_s` one way and up to `jitter_s` more make of it, in order. What is queued is bounded
by `buffer_bytes`, as in a modem; when it is full the sender's socket fills, too. Bytes that are swallowed are gone for good: a connection
that was half-open once stays so, as behind a NAT that forgot it; only a new one works.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

from support.links.accepting import Accepting, Streams
from support.servers.server_process import free_port

Direction = Literal["up", "down", "both"]
_READ_BYTES = 16 * 1024


@dataclass
class Way:
    """One direction: `up` is from who connects. Counts the bytes that came out."""

    bytes_per_s: float = 0.0
    delay_s: float = 0.0
    jitter_s: float = 0.0
    buffer_bytes: int = 64 * 1024
    passed: int = 0
    rng: random.Random = field(default_factory=lambda: random.Random(1))


class Shaper:
    """The link to `target_port`. Connect to `port`."""

    def __init__(self, target_port: int, **shape: float) -> None:
        self.port = free_port()
        self.up = Way()
        self.down = Way()
        self.connections = 0
        self._target_port = target_port
        self._loop = asyncio.new_event_loop()
        self._accepting: Accepting | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._flows: list[_Flow] = []
        self._thread = threading.Thread(target=self._run, name="shaper", daemon=True)
        self._thread.start()
        self.shape(**shape)
        self.restore()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- what can be done to it ------------------------------------------------------------------------------------

    def shape(self, direction: Direction = "both", **shape: float) -> None:
        """Set `bytes_per_s` (0: no limit), `delay_s`, `jitter_s`, `buffer_bytes` from now on."""
        for way in self._ways(direction):
            for key, value in shape.items():
                assert hasattr(way, key), key
                setattr(way, key, value)

    def restore(self) -> None:
        """Take connections (again)."""
        self._call(self._listen())

    def cut(self) -> None:
        """Take the link down: connections are reset, new ones refused, what was under way is lost."""
        self._call(self._drop())

    def swallow(self, direction: Direction = "both") -> None:
        """Present connections lose every byte in this direction from now on, and nobody is told: half-open, or a black
        hole one way. New connections work.
        """
        self._call(self._swallow(direction))

    def close(self) -> None:
        if not self._loop.is_closed():
            self.cut()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)
            self._loop.close()

    # -- inside ----------------------------------------------------------------------------------------------------

    def _ways(self, direction: Direction) -> list[Way]:
        return {"up": [self.up], "down": [self.down], "both": [self.up, self.down]}[direction]

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _listen(self) -> None:
        if self._accepting is None:
            self._accepting = Accepting(self.port, lambda: self._target_port, self._take, limit=_READ_BYTES)

    async def _drop(self) -> None:
        if self._accepting is not None:
            await self._accepting.stop()
            self._accepting = None
        flows, self._flows = self._flows, []
        for flow in flows:
            flow.writer.transport.abort()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _swallow(self, direction: Direction) -> None:
        ways = self._ways(direction)
        for flow in self._flows:
            if flow.way in ways:
                flow.hole = True

    def _take(self, near_streams: Streams, far_streams: Streams) -> None:
        (near_reader, near), (far_reader, far) = near_streams, far_streams
        self.connections += 1
        there, back = _Flow(near_reader, far, self.up), _Flow(far_reader, near, self.down)
        there.other, back.other = back, there
        for flow in (there, back):
            self._flows.append(flow)
            for work in (flow.read(), flow.write()):
                task = asyncio.ensure_future(work)
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)


class _Flow:
    """One direction of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way) -> None:
        self.reader = reader
        self.writer = writer
        self.way = way
        self.hole = False
        self.other: _Flow | None = None
        self._queue: deque[tuple[float, bytes]] = deque()
        self._queued = 0
        self._busy_until = 0.0
        self._last_due = 0.0
        self._ended = False
        self._changed = asyncio.Event()

    async def read(self) -> None:
        """Take bytes in as long as there is room for them."""
        loop = asyncio.get_running_loop()
        try:
            while data := await self.reader.read(_READ_BYTES):
                while self._queued >= self.way.buffer_bytes and not self.hole:
                    await self._wait()
                if self.hole:
                    continue
                now, way = loop.time(), self.way
                self._busy_until = max(now, self._busy_until) + (
                    len(data) / way.bytes_per_s if way.bytes_per_s else 0.0
                )
                due = self._busy_until + way.delay_s + way.rng.uniform(0, way.jitter_s)
                self._last_due = max(due, self._last_due)  # TCP keeps the order
                self._queue.append((self._last_due, data))
                self._queued += len(data)
                self._changed.set()
        except OSError:
            pass
        self._ended = True
        self._changed.set()

    async def write(self) -> None:
        """Let bytes out when it is time."""
        loop = asyncio.get_running_loop()
        try:
            while self._queue or not self._ended:
                if not self._queue:
                    await self._wait()
                    continue
                due, data = self._queue[0]
                if due > loop.time():
                    await asyncio.sleep(due - loop.time())
                self._queue.popleft()
                self._queued -= len(data)
                self._changed.set()
                if self.hole:
                    continue
                self.writer.write(data)
                await self.writer.drain()
                self.way.passed += len(data)
        except OSError:
            pass
        if self.hole or (self.other is not None and self.other.hole):
            return  # nobody hears of the end either
        self.writer.transport.abort()

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()
