"""Publishes to JetStream with acknowledgements and many messages in flight.

Unacknowledged messages are kept. When the connection breaks, they are published again over a new one with the same
`Nats-Msg-Id`, so that the stream stores each message once (within its duplicate window).
"""

from __future__ import annotations

import time
from typing import Final

import msgspec

from eyot_hub.connection import Connection, ConnectOptions
from eyot_hub.errors import ApiFailure, ConnectionFailed, HubError, NoAnswer, NoResponders
from eyot_wire import frames, headers
from eyot_wire.jetstream.errors import ApiError
from eyot_wire.nuid import nuid

MSG_ID: Final = "Nats-Msg-Id"
EXPECTED_STREAM: Final = "Nats-Expected-Stream"
ACK_SID: Final = b"a"
SEND_BYTES: Final = 256 * 1024  # gathered before a send
IN_FLIGHT_BYTES: Final = 16 * 1024 * 1024
RETRY_PAUSE_S: Final = 0.5
#: How long no stream may take a message: one that restarts, elects a leader or comes back over a leaf link does so meanwhile.
NO_STREAM_S_MAX: Final = 5.0


class _PubAck(msgspec.Struct):
    stream: str = ""
    seq: int = 0
    duplicate: bool = False
    error: ApiError | None = None


class Publisher:
    """One publisher; `close` after `flush`. Counts stored messages and duplicates."""

    def __init__(self, options: ConnectOptions, in_flight_max: int) -> None:
        self._options = options
        self._in_flight_max = in_flight_max
        self._connection: Connection | None = None
        self._inbox = b""
        self._count = 0
        self._waiting: dict[int, tuple[bytes, bytes, bytes]] = {}  # subject, header, payload by number
        self._waiting_bytes = 0
        self._refused: dict[int, float] = {}  # since when no stream takes a waiting message, by number
        self._out: list[bytes] = []
        self._out_bytes = 0
        self.stored = 0
        self.duplicates = 0

    def publish(self, subject: bytes, header: bytes, payload: bytes) -> None:
        """Publish a message. Raises ApiFailure when the stream refused an earlier one, NoResponders when none takes one for long."""
        number = self._count
        self._count += 1
        self._waiting[number] = (subject, header, payload)
        self._waiting_bytes += len(payload)
        if self._connection is not None:
            self._put(number)
        if self._out_bytes >= SEND_BYTES or len(self._waiting) >= self._in_flight_max:
            self._settle(self._in_flight_max // 2)
        elif self._waiting_bytes > IN_FLIGHT_BYTES:
            self._settle(0)

    def flush(self) -> None:
        """Wait until everything is acknowledged."""
        self._settle(0)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _put(self, number: int) -> None:
        subject, header, payload = self._waiting[number]
        limit = self._connection.info.max_payload if self._connection else 0
        if limit and len(header) + len(payload) > limit:
            # The server would end the connection, and again after every retry.
            size = len(header) + len(payload)
            raise HubError(f"a message of {size} bytes on {subject.decode()}: the server's max_payload is {limit}")
        frame = frames.encode_pub(subject, b"%b.%d" % (self._inbox, number), header, payload)
        self._out.append(frame)
        self._out_bytes += len(frame)

    def _settle(self, waiting_max: int) -> None:
        """Send gathered messages, and wait until at most `waiting_max` are unacknowledged."""
        give_up = time.monotonic() + self._options.retry_s
        while True:
            try:
                connection = self._connected()
                out, self._out, self._out_bytes = b"".join(self._out), [], 0
                if out:
                    connection.send(out)
                while len(self._waiting) > waiting_max:
                    for message in connection.messages(self._options.timeout_s):
                        self._acknowledged(message)
                        give_up = time.monotonic() + self._options.retry_s
                return
            except NoResponders:
                self.close()
                if time.monotonic() + RETRY_PAUSE_S > min(self._refused.values()) + self._no_stream_s:
                    raise
                time.sleep(RETRY_PAUSE_S)
            except (ConnectionFailed, NoAnswer) as error:
                self.close()
                if time.monotonic() + RETRY_PAUSE_S > give_up:
                    raise HubError(f"publishing failed, {len(self._waiting)} not acknowledged: {error}") from error
                time.sleep(RETRY_PAUSE_S)

    @property
    def _no_stream_s(self) -> float:
        return min(NO_STREAM_S_MAX, self._options.timeout_s, self._options.retry_s)

    def _connected(self) -> Connection:
        if self._connection is None:
            connection = Connection.open(self._options)
            self._inbox = b"_INBOX.%b" % nuid().encode()
            connection.send(frames.encode_sub(self._inbox + b".*", ACK_SID))
            self._connection = connection
            self._out, self._out_bytes = [], 0
            for number in self._waiting:
                self._put(number)
        return self._connection

    def _acknowledged(self, message: frames.Msg) -> None:
        if message.sid != ACK_SID:
            return
        number = int(message.subject.rpartition(b".")[2])
        if number not in self._waiting:
            return
        subject = self._waiting[number][0].decode("utf-8", "replace")
        if headers.status(message.header) is not None:
            self._refused.setdefault(number, time.monotonic())
            raise NoResponders(f"no stream stores messages on {subject}")
        try:
            ack = msgspec.json.decode(message.payload, type=_PubAck)
        except msgspec.DecodeError:
            raise HubError(f"the answer on {subject} is not a PubAck") from None
        if ack.error is not None:
            raise ApiFailure(f"publishing on {subject}", ack.error)
        self._waiting_bytes -= len(self._waiting.pop(number)[2])
        self._refused.pop(number, None)
        if ack.duplicate:
            self.duplicates += 1
        else:
            self.stored += 1
