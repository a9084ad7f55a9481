"""Where a link of the tests takes connections: what is being connected when the link is cut is cut, too.

`asyncio.start_server` hands a connection over some turns of the loop after it was accepted, and dialling the far side
takes some more. A connection in between belongs to nobody who could reset it: it would live on through the cut.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Accepting:
    """One listening port; for each connection `far_port` is dialled, and `take(near, far)` is called with both."""

    def __init__(
        self, port: int, far_port: Callable[[], int], take: Callable[[Streams, Streams], None], limit: int = 65536
    ) -> None:
        self._far_port = far_port
        self._take = take
        self._limit = limit
        self._connecting: dict[socket.socket, asyncio.Task[None]] = {}
        self._loop = asyncio.get_running_loop()
        self._listener = socket.create_server(("127.0.0.1", port), backlog=128)
        self._listener.setblocking(False)
        self._loop.add_reader(self._listener, self._accept)

    async def stop(self) -> None:
        """New connections are refused; those not yet handed over are reset."""
        self._loop.remove_reader(self._listener)
        self._listener.close()
        connecting, self._connecting = self._connecting, {}
        for task in connecting.values():
            task.cancel()
        await asyncio.gather(*connecting.values(), return_exceptions=True)
        for near in connecting:
            near.close()

    def _accept(self) -> None:
        try:
            near, _ = self._listener.accept()
        except OSError:  # gone again
            return
        near.setblocking(False)
        self._connecting[near] = asyncio.ensure_future(self._connect(near))

    async def _connect(self, near: socket.socket) -> None:
        far: Streams | None = None
        try:
            far = await asyncio.open_connection("127.0.0.1", self._far_port(), limit=self._limit)
            near_streams = await asyncio.open_connection(sock=near, limit=self._limit)
        except BaseException as error:
            near.close()
            if far is not None:
                far[1].transport.abort()
            if not isinstance(error, OSError):
                raise
        else:
            self._take(near_streams, far)
        finally:
            self._connecting.pop(near, None)
