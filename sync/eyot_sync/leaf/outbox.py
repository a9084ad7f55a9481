"""The output of a link, in lanes.

Control (INFO, CONNECT, PING, PONG, -ERR) leaves first, then interest (`LS+`, `LS-`), then urgent messages (answers to
flow control, JetStream's API), then all other messages: core NATS in one lane, deliveries of streams in lanes by
priority (`stream_lanes.py`). While both wait, core messages and streams share each slice equally. So an answer to PING
never waits behind more bulk than the slice in flight, and interest in a reply subject always reaches the peer before
the request that needs it. Messages of one lane keep their order.

Lanes are bounded in bytes. Core NATS delivers at most once: a full lane drops and counts the newest message, and the
link stays up. To disconnect a slow link, as brokers do with slow clients, would make it slower still. Streams detect
the gap by their sequence numbers and request again. `dropped_msgs` counts dropped messages, `lost_msgs` those that
still waited when the link ended.
"""

from __future__ import annotations

from collections import deque

from eyot_sync.leaf.interest import LeafInterest
from eyot_sync.policy.stream_lanes import QUANTUM, StreamLanes

# Interest lines per slice: a peer with a hundred thousand subscriptions must not keep a PONG waiting either.
_INTEREST_KEYS_PER_SLICE = 2048
_CHUNK_BYTES_FIRST = 4096
#: Urgent messages are small and few; in a flood the newest are dropped.
URGENT_BYTES_MAX = 4 << 20
#: A peer that requests answers (PING, refused interest) and does not read them gets at most this much of them.
CONTROL_BYTES_MAX = 256 * 1024


class LeafOutbox:
    """The lanes of one link; `interest` is shared with the session that fills it.

    Core messages and streams are each bounded by `message_bytes_max`.
    """

    __slots__ = (
        "_chunk_bytes",
        "_control",
        "_control_bytes",
        "_counts",
        "_interest_chunks",
        "_message_bytes",
        "_messages",
        "_urgent",
        "_urgent_bytes",
        "awaits_interest",
        "dropped_bytes",
        "dropped_control",
        "dropped_msgs",
        "interest",
        "lost_msgs",
        "message_bytes_max",
        "streams",
    )

    def __init__(self, interest: LeafInterest, message_bytes_max: int) -> None:
        self.interest = interest
        self.message_bytes_max = message_bytes_max
        self.dropped_msgs = 0
        self.dropped_bytes = 0
        self.lost_msgs = 0
        self.dropped_control = 0
        self._control_bytes = 0
        self.streams = StreamLanes(message_bytes_max)
        self._urgent: list[bytes] = []
        self._urgent_bytes = 0
        self._control: deque[bytes] = deque()
        # Interest lines made elsewhere, for many links at once (leaf/broadcast.py).
        self._interest_chunks: deque[bytes] = deque()
        #: more of what was there before the link is still to come: messages wait for it
        self.awaits_interest = False
        # Chunks of one or more whole frames, and how many each holds.
        self._messages: deque[bytes] = deque()
        self._counts: deque[int] = deque()
        # The size of a chunk: at most the latest slice, so that a slice can end between any two.
        self._chunk_bytes = _CHUNK_BYTES_FIRST
        self._message_bytes = 0

    def __bool__(self) -> bool:
        """Return whether there is anything to write."""
        return bool(self._control or self._has_interest) or self.has_messages

    @property
    def has_messages(self) -> bool:
        return bool(self._messages or self._urgent or self.streams)

    @property
    def _has_interest(self) -> bool:
        return bool(self._interest_chunks) or self.interest.has_changes

    @property
    def has_control(self) -> bool:
        return bool(self._control)

    @property
    def waiting_bytes(self) -> int:
        """Encoded bytes of the messages that wait."""
        return self._urgent_bytes + self._message_bytes + self.streams.bytes

    @property
    def waiting_bytes_max(self) -> int:
        """The most of them, but for a first message larger than its lane."""
        return URGENT_BYTES_MAX + self.message_bytes_max + self.streams.bytes_max

    def put_control(self, frame: bytes) -> None:
        """Queue an answer or a request of the protocol; beyond `CONTROL_BYTES_MAX` it is dropped and counted."""
        if self._control_bytes + len(frame) > CONTROL_BYTES_MAX and self._control:
            self.dropped_control += 1
            return
        self._control.append(frame)
        self._control_bytes += len(frame)

    def put_interest(self, lines: bytes) -> None:
        """Queue whole `LS+` and `LS-` lines."""
        self._interest_chunks.append(lines)

    def put_message(self, frame: bytes) -> bool:
        """Queue an encoded message. False: the lane is full, the message was dropped and counted.

        A single message larger than the whole lane still passes when the lane is empty, as nothing would ever carry it otherwise.
        """
        size = len(frame)
        if self._message_bytes + size > self.message_bytes_max and self._messages:
            return self._dropped(size)
        self._messages.append(frame)
        self._counts.append(1)
        self._message_bytes += size
        return True

    def put_urgent(self, frame: bytes) -> bool:
        """Queue a message that goes before all others. False: dropped and counted."""
        size = len(frame)
        if self._urgent_bytes + size > URGENT_BYTES_MAX and self._urgent:
            return self._dropped(size)
        self._urgent.append(frame)
        self._urgent_bytes += size
        return True

    def put_delivery(self, stream: bytes, subject: bytes, frame: bytes, priority: int) -> bool:
        """Queue a delivery of a stream on `subject`, or an accompanying message. False: dropped and counted."""
        return self.streams.put(stream, priority, subject, frame) or self._dropped(len(frame))

    @property
    def delivery_chunk_bytes(self) -> int:
        """Return the size of a chunk of deliveries, so that slices can end and lanes alternate between any two."""
        return min(self._chunk_bytes, QUANTUM)

    def put_chunks(
        self, stream: bytes, subject: bytes, chunks: list[tuple[bytes, int, int]], priority: int
    ) -> tuple[int, int]:
        """Queue deliveries as chunks: their bytes, the number of frames, their bytes of header and payload.

        Returns how many frames fitted, and their bytes of header and payload; the rest is dropped and counted.
        """
        fitting = self.streams.put_all(stream, priority, subject, chunks)
        for chunk, count, _ in chunks[fitting:]:
            self.dropped_msgs += count
            self.dropped_bytes += len(chunk)
        return sum([count for _, count, _ in chunks[:fitting]]), sum([size for _, _, size in chunks[:fitting]])

    def put_deliveries(self, stream: bytes, subject: bytes, frames: list[bytes], priority: int) -> int:
        """Queue deliveries in order. Returns how many fitted; the rest is dropped and counted."""
        put = self.streams.put
        for number, frame in enumerate(frames):
            if not put(stream, priority, subject, frame):
                self.dropped_msgs += len(frames) - number
                self.dropped_bytes += sum(map(len, frames[number:]))
                return number
        return len(frames)

    def _dropped(self, size: int) -> bool:
        self.dropped_msgs += 1
        self.dropped_bytes += size
        return False

    def put_run(self, prefix: bytes, tails: list[bytes]) -> int:
        """Queue frames of `prefix` and one of `tails` each, all of one size; return how many fitted.

        The rest is dropped and counted.
        """
        size = len(prefix) + len(tails[0])
        count = len(tails)
        room = self.message_bytes_max - self._message_bytes
        fitting = min(count, max(room // size, 0 if self._messages else 1))
        if fitting < count:
            self.dropped_msgs += count - fitting
            self.dropped_bytes += (count - fitting) * size
        step = max(1, self._chunk_bytes // size)
        for start in range(0, fitting, step):
            some = tails[start : min(start + step, fitting)]
            self._messages.append(prefix + prefix.join(some))
            self._counts.append(len(some))
        self._message_bytes += fitting * size
        return fitting

    def take(self, bytes_max: int, *, handshake_done: bool, bulk_max: int | None = None) -> list[bytes]:
        """Return the next slice in parts: whole frames, messages of at most `bytes_max` bytes (one message if it is larger).

        `bulk_max`: the most bytes of messages other than urgent ones, 0: none.
        """
        self._chunk_bytes = bytes_max
        parts = list(self._control)
        self._control.clear()
        self._control_bytes = 0
        if handshake_done:
            if self._interest_chunks:
                self._take_interest(parts, bytes_max)
            if self.interest.has_changes:
                parts += self.interest.drain(_INTEREST_KEYS_PER_SLICE)
            if not self._has_interest and not self.awaits_interest:
                room = self._take_urgent(parts, bytes_max)
                self._take_bulk(parts, room if bulk_max is None else min(room, bulk_max))
        return parts

    def drop_messages(self) -> None:
        """Drop messages of an ending link.

        Control stays, to carry a last -ERR, unless the peer has not read it for long.
        """
        if self._control_bytes > CONTROL_BYTES_MAX // 2:
            self._control.clear()
            self._control_bytes = 0
        self.lost_msgs += sum(self._counts) + len(self._urgent) + self.streams.clear()
        self._urgent.clear()
        self._urgent_bytes = 0
        self._forget_messages()

    def _forget_messages(self) -> None:
        self._messages.clear()
        self._counts.clear()
        self._message_bytes = 0

    def _take_interest(self, parts: list[bytes], bytes_max: int) -> None:
        """Chunks up to the slice's size; one that is larger is cut between two lines."""
        chunks = self._interest_chunks
        room = bytes_max
        while chunks and room > 0:
            chunk = chunks.popleft()
            if len(chunk) > room:
                cut = chunk.rfind(b"\n", 0, room) + 1 or chunk.find(b"\n") + 1
                if cut < len(chunk):
                    chunks.appendleft(chunk[cut:])
                    chunk = chunk[:cut]
            room -= len(chunk)
            parts.append(chunk)

    def _take_urgent(self, parts: list[bytes], room: int) -> int:
        """Append urgent messages; return the room left, 0 or less: none."""
        urgent = self._urgent
        if not urgent:
            return room
        if self._urgent_bytes <= room:
            parts += urgent
            room -= self._urgent_bytes
            urgent.clear()
            self._urgent_bytes = 0
            return room
        count = 0
        while count < len(urgent) and (room > 0):
            room -= len(urgent[count])
            self._urgent_bytes -= len(urgent[count])
            count += 1
        parts += urgent[:count]
        del urgent[:count]
        return 0

    def _take_bulk(self, parts: list[bytes], room: int) -> None:
        """Append core messages and streams: half each while both wait; either may use the other's rest."""
        if room <= 0:
            return
        if not self.streams:
            if self._messages:
                self._take_messages(parts, room)
            return
        if self._messages:
            room -= self._take_messages(parts, max(room // 2, room - self.streams.bytes))
        if room > 0:
            self.streams.take(parts, room)

    def _take_messages(self, parts: list[bytes], bytes_max: int) -> int:
        """Append core messages; return their bytes."""
        messages = self._messages
        before = self._message_bytes
        if before <= bytes_max:
            parts += messages
            self._forget_messages()
            return before
        room = bytes_max
        while messages and (room == bytes_max or len(messages[0]) <= room):
            chunk = messages.popleft()
            self._counts.popleft()
            room -= len(chunk)
            self._message_bytes -= len(chunk)
            parts.append(chunk)
        return bytes_max - room
