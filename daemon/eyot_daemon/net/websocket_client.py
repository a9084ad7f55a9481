"""The client side of a WebSocket, for leaf remotes and bridges with `ws://` and `wss://` URLs.

A leaf link over WebSocket is the ordinary leaf protocol in binary messages without meaningful boundaries. The request's
path is the URL's path followed by `/leafnode`. The first INFO may arrive in the same segment as the server's answer.
"""

from __future__ import annotations

import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, RejectConnection, RejectData, Request
from wsproto.extensions import Extension
from wsproto.utilities import RemoteProtocolError

from eyot_daemon.net.websocket_stream import READ_BYTES, WebSocketStream
from eyot_daemon.net.websocket_upgrade import UpgradeError

LEAF_PATH = "/leafnode"
#: The largest decompressed message of a hub: nats-server puts pending data into one message, up to its `max_pending`.
SERVER_MESSAGE_MAX = 64 * 1024 * 1024


class WebSocketClientStream(WebSocketStream):
    """The client's end: `open`, then a stream of bytes."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        super().__init__(stream)
        self._ws = WSConnection(ConnectionType.CLIENT)
        self.message_bytes_max = SERVER_MESSAGE_MAX

    def allow_messages(self, bytes_max: int) -> None:
        """Nothing changes: a hub may put all that waits into one message."""

    async def open(
        self, host: str, path: str, *, compress: bool, suffix: str = LEAF_PATH, subprotocol: str = ""
    ) -> None:
        """Request a WebSocket at `path` and `suffix`. Raises UpgradeError when the server refuses."""
        extensions: list[Extension] = []
        if compress:
            extensions.append(self._deflate)
        target = path.rstrip("/") + suffix if suffix else path
        subprotocols = [subprotocol] if subprotocol else []
        request = Request(host=host, target=target, extensions=extensions, subprotocols=subprotocols)
        await self.stream.send_all(self._ws.send(request))
        try:
            while True:
                for event in self._ws.events():
                    if isinstance(event, AcceptConnection):
                        self.is_compressed = any(extension.enabled() for extension in extensions)
                        return
                    if isinstance(event, RejectConnection):
                        raise UpgradeError(f"WebSocket refused with HTTP status {event.status_code}")
                    assert isinstance(event, RejectData)
                data = await self.stream.receive_some(READ_BYTES)
                if not data:
                    raise UpgradeError("the server closed the connection during the WebSocket handshake")
                self._ws.receive_data(bytes(data))
        except (
            RemoteProtocolError,
            UnicodeError,
        ) as error:  # the second: bytes beyond ASCII where wsproto expects none
            raise UpgradeError(f"not a WebSocket: {error}") from None
