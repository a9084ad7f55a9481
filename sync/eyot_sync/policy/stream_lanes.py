"""Deliveries of streams that wait for a link: a lane for each deliver subject, the important first.

Lanes of a higher priority leave whole before lower ones begin; lanes of one priority share by bytes (deficit round robin), however large
the messages of one of them are. Within a lane nothing overtakes: what a consumer sends besides messages (heartbeats, flow-control
requests, the status that ends a pull) stands for what went before it.

A lane that has to wait is kept short by those who fill it (`waiting`, `outranked`); what its reader does not want any more is dropped.
"""

from __future__ import annotations

from collections import deque

#: A lane's share of one round, bytes.
QUANTUM = 4096
#: Subjects of deliveries that are remembered, the latest. A heartbeat on any other is taken for a core message; its reader may ask again.
SUBJECTS_MAX = 16_384


class StreamLane:
    """What waits on one deliver subject: chunks of one or more whole frames, and how many each holds."""

    __slots__ = ("bytes", "chunks", "counts", "credit", "priority", "stream", "subject")

    def __init__(self, subject: bytes, stream: bytes, priority: int) -> None:
        self.subject = subject
        self.stream = stream
        self.priority = priority
        self.chunks: deque[bytes] = deque()
        self.counts: deque[int] = deque()
        self.bytes = 0
        self.credit = 0


class StreamLanes:
    """All lanes of one link, bounded together by `bytes_max`; the newest message is refused when they are full."""

    __slots__ = ("_by_stream", "_lanes", "_last", "_subjects", "_waiting", "bytes", "bytes_max")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        # Lanes that hold something, by subject; by priority, the first of each is the next to be served; their bytes by stream.
        self._lanes: dict[bytes, StreamLane] = {}
        self._waiting: dict[int, deque[StreamLane]] = {}
        self._by_stream: dict[bytes, int] = {}
        # Stream and priority by the subject of deliveries, the latest last.
        self._subjects: dict[bytes, tuple[bytes, int]] = {}
        self._last = b""

    def __bool__(self) -> bool:
        return self.bytes > 0

    def stream_of(self, subject: bytes) -> tuple[bytes, int] | None:
        """Stream and priority of what was delivered on `subject`."""
        return self._subjects.get(subject)

    def waits_on(self, subject: bytes) -> bool:
        """Does anything wait on `subject`?"""
        return subject in self._lanes

    def waiting(self, stream: bytes) -> int:
        """Bytes that wait of one stream."""
        return self._by_stream.get(stream, 0)

    def outranked(self, priority: int) -> bool:
        """Does anything wait that is more important?"""
        return any(each > priority for each in self._waiting)

    def put(self, stream: bytes, priority: int, subject: bytes, chunk: bytes, count: int = 1) -> bool:
        """Queue a chunk of `count` whole frames for `subject`; a new priority holds once the lane has run empty. False: full. The first
        of all is always taken, however large."""
        size = len(chunk)
        if self.bytes + size > self.bytes_max and self.bytes:
            return False
        if subject != self._last:
            self._remember(subject, stream, priority)
        lane = self._lanes.get(subject)
        if lane is None:
            lane = self._lanes[subject] = StreamLane(subject, stream, priority)
            self._waiting.setdefault(priority, deque()).append(lane)
        lane.chunks.append(chunk)
        lane.counts.append(count)
        lane.bytes += size
        self.bytes += size
        self._by_stream[lane.stream] = self._by_stream.get(lane.stream, 0) + size
        return True

    def take(self, parts: list[bytes], room: int) -> int:
        """Move chunks of at most `room` bytes into `parts`, but one in any case; returns their bytes."""
        if self.bytes <= room:
            return self._take_all(parts)
        taken = 0
        for priority in sorted(self._waiting, reverse=True):
            waiting = self._waiting[priority]
            while waiting:
                lane = waiting[0]
                if lane.credit < len(lane.chunks[0]):
                    lane.credit += QUANTUM
                while lane.chunks and len(lane.chunks[0]) <= lane.credit:
                    size = len(lane.chunks[0])
                    if taken and taken + size > room:
                        return taken
                    parts.append(lane.chunks.popleft())
                    lane.counts.popleft()
                    lane.credit -= size
                    self._left(lane, size)
                    taken += size
                if lane.chunks:
                    waiting.rotate(-1)
                else:
                    del self._lanes[waiting.popleft().subject]
            del self._waiting[priority]
        return taken

    def drop(self, subject: bytes) -> int:
        """Nobody wants what waits on `subject`; returns how many frames that were."""
        lane = self._lanes.pop(subject, None)
        if lane is None:
            return 0
        waiting = self._waiting[lane.priority]
        waiting.remove(lane)
        if not waiting:
            del self._waiting[lane.priority]
        self._left(lane, lane.bytes)
        return sum(lane.counts)

    def clear(self) -> int:
        """Drop everything; returns how many frames that were."""
        count = sum(sum(lane.counts) for lane in self._lanes.values())
        self._empty()
        return count

    def _take_all(self, parts: list[bytes]) -> int:
        taken = self.bytes
        for priority in sorted(self._waiting, reverse=True):
            for lane in self._waiting[priority]:
                parts += lane.chunks
        self._empty()
        return taken

    def _left(self, lane: StreamLane, size: int) -> None:
        lane.bytes -= size
        self.bytes -= size
        left = self._by_stream[lane.stream] - size
        if left:
            self._by_stream[lane.stream] = left
        else:
            del self._by_stream[lane.stream]

    def _empty(self) -> None:
        self.bytes = 0
        self._lanes.clear()
        self._waiting.clear()
        self._by_stream.clear()

    def _remember(self, subject: bytes, stream: bytes, priority: int) -> None:
        subjects = self._subjects
        subjects.pop(subject, None)
        subjects[subject] = (stream, priority)
        self._last = subject
        if len(subjects) > SUBJECTS_MAX:
            del subjects[next(iter(subjects))]
