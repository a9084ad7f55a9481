"""A stream that counts the bytes on the wire: below TLS or WebSocket, it counts records, frames and handshakes, too."""

from __future__ import annotations

from collections.abc import Callable

import trio


class CountedStream(trio.abc.Stream):
    """Wraps `stream`; every send and read calls `crossed` with its number of bytes."""

    def __init__(self, stream: trio.abc.Stream, crossed: Callable[[int], None]) -> None:
        self.stream = stream
        self._crossed = crossed

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self._crossed(len(data))
        await self.stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self.stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        data = await self.stream.receive_some(max_bytes)
        if data:
            self._crossed(len(data))
        return data

    async def aclose(self) -> None:
        await self.stream.aclose()
