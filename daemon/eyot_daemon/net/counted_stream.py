"""A stream that counts the bytes on the wire: below TLS or WebSocket, it counts records, frames and handshakes, too."""

from __future__ import annotations

from collections.abc import Callable

import trio

from eyot_serving.broken_streams import cut_cycles


class CountedStream(trio.abc.Stream):
    """Wraps `stream`; every send and read calls `crossed` with its number of bytes.

    Outgoing links and bridges reach Trio's stream through a CountedStream only, so what `cut_cycles` is for is done here
    and in no layer above.
    """

    def __init__(self, stream: trio.abc.Stream, crossed: Callable[[int], None]) -> None:
        self.stream = stream
        self._crossed = crossed

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self._crossed(len(data))
        try:
            await self.stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            cut_cycles(error)
            raise

    async def wait_send_all_might_not_block(self) -> None:
        await self.stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        try:
            data = await self.stream.receive_some(max_bytes)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            cut_cycles(error)
            raise
        if data:
            self._crossed(len(data))
        return data

    async def aclose(self) -> None:
        await self.stream.aclose()
