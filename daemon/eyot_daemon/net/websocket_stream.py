"""A WebSocket as a byte stream: the NATS protocol in wsproto's frames, over any `trio.abc.Stream`.

Frame boundaries mean nothing to NATS: received data is passed on as it is, and each send becomes one message. As from
nats-server, browsers get fragments of 4096 bytes. PING is answered; CLOSE is answered and ends the stream.

A few compressed bytes may expand to very many. The decompressed size of a message is counted during inflation, and the
stream ends when it exceeds `message_bytes_max`.
"""

from __future__ import annotations

import zlib

import h11
import trio
from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.extensions import Extension, PerMessageDeflate
from wsproto.frame_protocol import CloseReason, FrameDecoder, FrameProtocol, Opcode, RsvBits
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from eyot_daemon.net.websocket_close import close_status
from eyot_daemon.net.websocket_upgrade import UpgradeError, handshake_headers
from eyot_serving.broken_streams import cut_cycles

READ_BYTES = 64 * 1024
#: The read size with compression, which may expand data a thousandfold.
COMPRESSED_READ_BYTES = 8 * 1024
#: The largest decompressed message before the peer is authenticated, bytes: an INFO or a CONNECT.
FIRST_MESSAGE_MAX = 32 * 1024
#: Payload handed on in one piece, unless one frame has more.
HANDED_ON = 64 * 1024
BROWSER_FRAME_BYTES = 4096
#: How long a closing server tries to send its CLOSE frame.
CLOSING_S = 0.1


class BoundedDeflate(PerMessageDeflate):
    """permessage-deflate that refuses a message as soon as it expands to more than `bytes_max` bytes.

    wsproto inflates a read as a whole: 64 KiB may expand to 64 MiB. It has no bound of its own, so this class uses its
    state of the current message. A control frame between the fragments of a message leaves that state alone: wsproto
    (1.3) takes it for the message's end, and the rest for uncompressed.
    """

    def __init__(self, bytes_max: int) -> None:
        super().__init__(client_no_context_takeover=True, server_no_context_takeover=True)
        self.bytes_max = bytes_max
        self._inflated = 0

    def frame_inbound_header(
        self, proto: FrameDecoder | FrameProtocol, opcode: Opcode, rsv: RsvBits, payload_length: int
    ) -> CloseReason | RsvBits:
        before = self._inbound_compressed
        verdict = super().frame_inbound_header(proto, opcode, rsv, payload_length)
        if opcode.iscontrol():
            self._inbound_compressed = before
        return verdict

    def frame_inbound_payload_data(self, proto: FrameDecoder | FrameProtocol, data: bytes) -> bytes | CloseReason:
        if not self._inbound_compressed or not self._inbound_is_compressible:
            return data
        assert self._decompressor is not None
        most = self.bytes_max
        try:
            inflated = self._decompressor.decompress(bytes(data), max(1, most - self._inflated + 1))
        except zlib.error:
            return CloseReason.INVALID_FRAME_PAYLOAD_DATA
        self._inflated += len(inflated)
        return CloseReason.MESSAGE_TOO_BIG if self._inflated > most else inflated

    def frame_inbound_complete(self, proto: FrameDecoder | FrameProtocol, fin: bool) -> bytes | CloseReason | None:
        if not self._inbound_is_compressible:
            return None  # a control frame
        if fin:
            self._inflated = 0
        return super().frame_inbound_complete(proto, fin)


class WebSocketStream(trio.abc.Stream):
    """The server's end. `receive_request`, then `accept` or `reject`, then a stream of bytes."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.fragment_bytes = 0  # 0: every send is one frame
        self.is_compressed = False
        self.takes_text = True  # whether text frames are data like others
        self._deflate = BoundedDeflate(FIRST_MESSAGE_MAX)
        self._ws = WSConnection(ConnectionType.SERVER)
        self._ended = False
        self._within_frame = False
        self._sending = trio.Lock()
        self._closing = CloseConnection(code=CloseReason.NORMAL_CLOSURE)

    @property
    def message_bytes_max(self) -> int:
        """The largest decompressed message."""
        return self._deflate.bytes_max

    @message_bytes_max.setter
    def message_bytes_max(self, bytes_max: int) -> None:
        self._deflate.bytes_max = bytes_max

    # -- opening -----------------------------------------------------------------------------------------------------

    async def receive_request(self) -> Request:
        """Read the peer's request. Raises UpgradeError for a malformed one, which is answered.

        h11 parses the request, and `handshake_headers` checks it as nats-server does. wsproto, which reads some lists as one
        value and takes any key, gets the checked headers in the form it knows.
        """
        http = h11.Connection(h11.SERVER)
        try:
            while not isinstance(event := http.next_event(), h11.Request):
                data = await self.stream.receive_some(READ_BYTES)
                if not data:
                    raise UpgradeError("closed before the request")
                http.receive_data(bytes(data))
            headers = [(bytes(name), bytes(value)) for name, value in event.headers]
            self._ws.initiate_upgrade_connection(handshake_headers(event.method, headers), event.target)
            request = next(iter(self._ws.events()))
        except UpgradeError as error:
            if error.status:
                await self.reject(error.status, str(error))
            raise
        except (
            h11.RemoteProtocolError,
            RemoteProtocolError,
            UnicodeError,
        ) as error:  # the last: bytes beyond ASCII where wsproto expects none
            await self.reject(400, "Bad Request")
            raise UpgradeError(str(error)) from None
        if http.trailing_data[0]:  # the frames of a peer that does not wait for the answer: nats-server closes, too
            raise UpgradeError("client sent data before handshake is complete")
        assert isinstance(request, Request)
        return request

    async def accept(self, *, compress: bool, headers: tuple[tuple[str, str], ...] = (), subprotocol: str = "") -> None:
        """Open the WebSocket; `compress` if the peer offers it, without memory from message to message."""
        extensions: list[Extension] = []
        if compress:
            extensions.append(self._deflate)
        extra = [(name.encode(), value.encode()) for name, value in headers]
        if subprotocol:  # wsproto refuses one that the peer did not ask for
            extra.append((b"sec-websocket-protocol", subprotocol.encode()))
        await self._send(AcceptConnection(extensions=extensions, extra_headers=extra))
        self.is_compressed = any(extension.enabled() for extension in extensions)

    async def reject(self, status: int, reason: str) -> None:
        """Answer with an HTTP error, and the version that is spoken here."""
        body = reason.encode()
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", b"%d" % len(body)),
            (b"sec-websocket-version", b"13"),
        ]
        await self._send(RejectConnection(status_code=status, headers=headers, has_body=True))
        await self._send(RejectData(data=body, body_finished=True))

    async def _send(self, event: AcceptConnection | RejectConnection | RejectData | CloseConnection) -> None:
        try:
            data = self._ws.send(event)
        except LocalProtocolError:
            return  # it is over already
        async with self._sending:
            await self.stream.send_all(data)

    # -- the stream --------------------------------------------------------------------------------------------------

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Payload bytes of the next frames; b"" at the end. `max_bytes` bounds the read from the wire."""
        has_read = False
        while not self._ended:
            taken = bytearray()
            answer = b""
            try:
                for event in self._ws.events():
                    if isinstance(event, BytesMessage):
                        taken += event.data
                    elif isinstance(event, TextMessage):
                        if not self.takes_text:
                            self._ended = True
                            answer += self._ws.send(CloseConnection(code=CloseReason.UNSUPPORTED_DATA))
                            break
                        taken += event.data.encode()
                    elif isinstance(event, Ping):
                        answer += self._ws.send(event.response())
                    elif isinstance(event, CloseConnection):
                        self._ended = True
                        if self._ws.state is ConnectionState.REMOTE_CLOSING:
                            answer += self._ws.send(event.response())
                        elif self._ws.state is ConnectionState.OPEN:  # the peer violated the protocol
                            answer += self._ws.send(event)
                    if len(taken) >= HANDED_ON:
                        break
                if answer:
                    async with self._sending:
                        await self.stream.send_all(answer)
                if taken:
                    if not has_read:
                        await trio.lowlevel.checkpoint()  # a read may contain very many messages: let other tasks run
                    return bytes(taken)
                if self._ended:
                    break
                most = COMPRESSED_READ_BYTES if self.is_compressed else READ_BYTES
                data = await self.stream.receive_some(min(max_bytes or most, most))
                has_read = True
                self._ws.receive_data(bytes(data) if data else None)
            except (RemoteProtocolError, LocalProtocolError):
                break
        self._ended = True
        return b""

    def closing_for(self, reason: str) -> None:
        """Set what CLOSE says, from the reason why the session ends."""
        self._closing = CloseConnection(code=close_status(reason), reason=reason)

    def allow_messages(self, bytes_max: int) -> None:
        """Set the largest decompressed message, after the peer was authenticated."""
        self.message_bytes_max = bytes_max

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        data = bytes(data)
        frames = bytearray()
        step = self.fragment_bytes or max(1, len(data))
        try:
            for start in range(0, len(data), step):
                piece = data[start : start + step]
                frames += self._ws.send(BytesMessage(data=piece, message_finished=start + step >= len(data)))
        except LocalProtocolError as error:
            raise trio.BrokenResourceError from error
        async with self._sending:
            self._within_frame = True  # stays if this is cancelled: nothing may follow then
            await self.stream.send_all(bytes(frames))
            self._within_frame = False

    async def wait_send_all_might_not_block(self) -> None:
        await self.stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        """Send CLOSE if that is possible quickly, even when cancelled, and close."""
        try:
            with trio.move_on_after(CLOSING_S) as scope:
                scope.shield = True
                if self._ws.state is ConnectionState.OPEN and not self._within_frame:
                    await self._send(self._closing)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            cut_cycles(error)
        finally:
            _end_parser(self._ws)
            await self.stream.aclose()


def _end_parser(websocket: WSConnection) -> None:
    """End wsproto's generator of frames, which refers to its owner: both would wait for the garbage collector."""
    protocol = getattr(websocket.connection, "_proto", None)  # no public way to it (wsproto 1.3)
    parser = getattr(protocol, "_parse_more", None)
    if parser is not None:
        parser.close()
