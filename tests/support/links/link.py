"""A TCP link that can be cut: stands between a leaf and its hub, in user space, one thread.

While cut, new connections are refused at once (the listening socket is closed) and open ones are reset, as when a
modem goes down. `stall()` keeps connections open but moves no byte: a half-open link.
"""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType

from support.links.accepting import Accepting, Streams
from support.servers.server_process import free_port


class Link:
    """Forwards connections to `port` on to `target_port`, both on the loopback interface."""

    def __init__(self, target_port: int, *, up: bool = True) -> None:
        self.port = free_port()
        self.bytes_up = 0
        self.bytes_down = 0
        self.target_port = target_port
        self._loop = asyncio.new_event_loop()
        self._accepting: Accepting | None = None
        self._torn: float | None = None
        self._pumps: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._flowing: asyncio.Event
        self._thread = threading.Thread(target=self._run, name="link", daemon=True)
        ready = threading.Event()
        self._loop.call_soon(ready.set)
        self._thread.start()
        ready.wait(10)
        if up:
            self.restore()

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *exc: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def restore(self) -> None:
        """Brings the link up."""
        self._call(self._listen())

    def cut(self) -> None:
        """Takes the link down; nothing that was under way arrives."""
        self._call(self._drop())

    def stall(self) -> None:
        """Half-open: connections stay, no byte moves, until `flow()`."""
        self._call(self._set_flowing(False))

    def flow(self) -> None:
        self._call(self._set_flowing(True))

    def tear(self, part: float) -> None:
        """The next bytes of each connection pass in part (0 to 1), and then the link goes down: frames end in their middle."""
        self._call(self._set_torn(part))

    def close(self) -> None:
        if not self._loop.is_closed():
            self.cut()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)
            self._loop.close()

    def _call(self, coroutine: object) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)  # type: ignore[arg-type]

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._loop.run_forever()

    async def _set_flowing(self, flowing: bool) -> None:
        if flowing:
            self._flowing.set()
        else:
            self._flowing.clear()

    async def _set_torn(self, part: float) -> None:
        self._torn = part

    async def _listen(self) -> None:
        self._torn = None
        if self._accepting is None:
            self._accepting = Accepting(self.port, lambda: self.target_port, self._take)

    async def _drop(self) -> None:
        if self._accepting is not None:
            await self._accepting.stop()
            self._accepting = None
        for writer in list(self._writers):
            writer.transport.abort()
        pumps = list(self._pumps)
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)

    def _take(self, near_streams: Streams, far_streams: Streams) -> None:
        (near_reader, near), (far_reader, far) = near_streams, far_streams
        self._writers |= {near, far}
        for reader, writer, upward in ((near_reader, far, True), (far_reader, near, False)):
            pump = asyncio.ensure_future(self._pump(reader, writer, upward))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, upward: bool) -> None:
        try:
            while data := await reader.read(65536):
                await self._flowing.wait()
                if self._torn is not None:
                    writer.write(data[: int(len(data) * self._torn)])
                    await writer.drain()
                    self._loop.create_task(self._drop())
                    return
                writer.write(data)
                await writer.drain()
                if upward:
                    self.bytes_up += len(data)
                else:
                    self.bytes_down += len(data)
        except OSError:
            pass
        finally:
            self._writers.discard(writer)
            writer.transport.abort()
