"""The messages that leave over a link, as frames in their lanes (`leaf/outbox.py`).

The sender leaves out what the peer cannot accept: headers if it does not support them, and messages larger than its
`max_payload`, for which it would close the link, again after every reconnect. The latter are counted
(`refused_too_large`).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable

from eyot_sync.leaf.lanes import delivered_stream, is_urgent
from eyot_sync.leaf.outbox import LeafOutbox
from eyot_sync.leaf.replies import AllowedReplies
from eyot_sync.policy.policy import PRIORITY_DEFAULT
from eyot_wire.first_deliveries import FirstDeliveries
from eyot_wire.frames import encode_leaf_msg
from eyot_wire.jetstream.ack import PREFIX as ACK_PREFIX


class LeafSender:
    """The sender of one link; `now`: the session's time, monotonic seconds.

    `headers`, `max_payload` (bytes, 0: unknown) and `replies` are the peer's; nothing leaves unless `is_open`.
    """

    __slots__ = ("_outbox", "delivering", "headers", "is_open", "max_payload", "now", "refused_too_large", "replies")

    def __init__(self, outbox: LeafOutbox) -> None:
        self._outbox = outbox
        self.is_open = False
        self.headers = True
        self.max_payload = 0
        self.replies: AllowedReplies | None = None
        self.refused_too_large = 0
        self.now = 0.0
        # Called for every delivery with the stream and its bytes on the wire; returns the stream's priority.
        self.delivering: Callable[[bytes, int], int] = lambda stream, size: PRIORITY_DEFAULT

    def send(self, subject: bytes, reply: bytes, header: bytes, payload: bytes, queues: tuple[bytes, ...] = ()) -> bool:
        """Queue a message that the link's rules allow. False: dropped, and counted by reason."""
        if not self.is_open:
            return False
        if header and not self.headers:
            header = b""
        if 0 < self.max_payload < len(header) + len(payload):
            self.refused_too_large += 1
            return False
        if self.replies is not None and reply:
            self.replies.sent(reply, self.now)
        frame = encode_leaf_msg(subject, reply, header, payload, queues)
        outbox = self._outbox
        stream = delivered_stream(reply)
        if stream and reply.startswith(ACK_PREFIX):
            return outbox.put_delivery(stream, subject, frame, self.delivering(stream, len(frame)))
        known = outbox.streams.stream_of(subject)
        if known is not None and outbox.streams.waits_on(subject):
            return outbox.put_delivery(known[0], subject, frame, known[1])
        # A heartbeat or flow-control request without waiting messages keeps its consumer alive while the stream has to
        # wait.
        if known is not None or stream or is_urgent(subject):
            return outbox.put_urgent(frame)
        return outbox.put_message(frame)

    def send_deliveries(self, stream: bytes, subject: bytes, messages: Iterable[tuple[bytes, bytes, bytes]]) -> int:
        """Queue allowed deliveries of one stream on one subject (reply, header and payload of each); return how many were queued."""
        if self.replies is not None or not self.headers:
            return sum(self.send(subject, *message) for message in messages)
        if not self.is_open:
            return 0
        size_max = self.max_payload or math.inf
        frames = []
        for reply, header, payload in messages:
            size = len(header) + len(payload)
            if size > size_max:
                self.refused_too_large += 1
            elif header:
                frames.append(b"HMSG %b %b %d %d\r\n%b%b\r\n" % (subject, reply, len(header), size, header, payload))
            else:
                frames.append(b"LMSG %b %b %d\r\n%b\r\n" % (subject, reply, size, payload))
        priority = self.delivering(stream, sum(map(len, frames)))
        return self._outbox.put_deliveries(stream, subject, frames, priority)

    def send_stored(self, stream: bytes, subject: bytes, messages: FirstDeliveries) -> tuple[int, int] | None:
        """Queue stored messages as a consumer's first deliveries (`StoredRun.write_lmsgs`).

        Returns how many were queued, and their bytes of header and payload; None if they must be sent one by one.
        """
        if self.replies is not None or not self.headers:
            return None
        if not self.is_open:
            return 0, 0
        outbox = self._outbox
        chunks = messages.write_lmsgs(subject, self.max_payload or sys.maxsize, outbox.delivery_chunk_bytes)
        self.refused_too_large += len(messages) - sum(count for _, count, _ in chunks)
        priority = self.delivering(stream, sum(len(chunk) for chunk, _, _ in chunks))
        return outbox.put_chunks(stream, subject, chunks, priority)

    def send_run(self, subject: bytes, reply: bytes, size_bytes: int, tails: list[bytes], *, with_header: bool) -> int:
        """Queue allowed messages that differ in header and payload only.

        `tails`: their frames after `LMSG <subject> ` or `HMSG <subject> `. Returns how many were queued; -1 if they
        must be sent one by one.
        """
        if not self.is_open or (with_header and not self.headers) or (reply and self.replies is not None):
            return -1
        if 0 < self.max_payload < size_bytes:
            self.refused_too_large += len(tails)
            return 0
        return self._outbox.put_run(b"%b %b " % (b"HMSG" if with_header else b"LMSG", subject), tails)
