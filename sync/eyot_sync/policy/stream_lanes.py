"""Deliveries of streams that wait for a link: a lane for each deliver subject, ordered by priority.

Lanes of a higher priority are emptied before lower ones; lanes of one priority share by bytes (deficit round robin),
for any sizes of messages. Within a lane the order is kept: a consumer's other messages (heartbeats,
flow-control requests, the status that ends a pull) refer to what precedes them.

The code that fills a waiting lane keeps it short (`waiting`, `outranked`). Deliveries without a receiver are dropped.
"""

from __future__ import annotations

from collections import deque

#: A lane's share of one round, bytes.
QUANTUM = 4096
#: The number of remembered deliver subjects. A heartbeat on any other counts as a core message.
SUBJECTS_MAX = 16_384


class StreamLane:
    """The data waiting on one deliver subject: chunks of one or more whole frames, and the number of frames in each."""

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
        """Return stream and priority of the deliveries on `subject`."""
        return self._subjects.get(subject)

    def waits_on(self, subject: bytes) -> bool:
        """Return whether anything waits on `subject`."""
        return subject in self._lanes

    def waiting(self, stream: bytes) -> int:
        """Bytes that wait of one stream."""
        return self._by_stream.get(stream, 0)

    def outranked(self, priority: int) -> bool:
        """Return whether anything of a higher priority waits."""
        return any(each > priority for each in self._waiting)

    def put(self, stream: bytes, priority: int, subject: bytes, chunk: bytes, count: int = 1) -> bool:
        """Queue a chunk of `count` whole frames for `subject`; False: full.

        A new priority applies once the lane is empty. The first chunk of all is always accepted.
        """
        size = len(chunk)
        if self.bytes + size > self.bytes_max and self.bytes:
            return False
        lane = self._lane(stream, priority, subject)
        lane.chunks.append(chunk)
        lane.counts.append(count)
        self._came(lane, size)
        return True

    def put_all(self, stream: bytes, priority: int, subject: bytes, chunks: list[tuple[bytes, int, int]]) -> int:
        """Do as `put` for each chunk (its bytes, the number of frames, and what the caller counts); return how many fitted."""
        size = sum([len(chunk) for chunk, _, _ in chunks])
        if self.bytes + size > self.bytes_max or not chunks:
            put = self.put
            return next(
                (at for at, each in enumerate(chunks) if not put(stream, priority, subject, *each[:2])), len(chunks)
            )
        lane = self._lane(stream, priority, subject)
        lane.chunks.extend([chunk for chunk, _, _ in chunks])
        lane.counts.extend([count for _, count, _ in chunks])
        self._came(lane, size)
        return len(chunks)

    def _lane(self, stream: bytes, priority: int, subject: bytes) -> StreamLane:
        if subject != self._last:
            self._remember(subject, stream, priority)
        lane = self._lanes.get(subject)
        if lane is None:
            lane = self._lanes[subject] = StreamLane(subject, stream, priority)
            self._waiting.setdefault(priority, deque()).append(lane)
        return lane

    def take(self, parts: list[bytes], room: int) -> int:
        """Move chunks of at most `room` bytes into `parts`, but one in any case; returns their bytes."""
        if self.bytes <= room:
            return self._take_all(parts)
        taken = 0
        for priority in sorted(self._waiting, reverse=True):
            waiting = self._waiting[priority]
            while waiting:
                lane = waiting[0]
                chunks, alone = lane.chunks, len(waiting) == 1
                if not alone and lane.credit < len(chunks[0]):
                    lane.credit += QUANTUM
                credit = self.bytes if alone else lane.credit  # nobody waits for the end of this lane's share
                begun = taken
                while chunks and (size := len(chunks[0])) <= credit and (taken + size <= room or not taken):
                    parts.append(chunks.popleft())
                    lane.counts.popleft()
                    credit -= size
                    taken += size
                self._left(lane, taken - begun)
                if not alone:
                    lane.credit = credit
                if not chunks:
                    del self._lanes[waiting.popleft().subject]
                elif len(chunks[0]) <= credit:
                    return taken
                else:
                    waiting.rotate(-1)
            del self._waiting[priority]
        return taken

    def drop(self, subject: bytes) -> int:
        """Drop what waits on `subject`, which has no receiver any more; return the number of frames."""
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

    def _came(self, lane: StreamLane, size: int) -> None:
        lane.bytes += size
        self.bytes += size
        self._by_stream[lane.stream] = self._by_stream.get(lane.stream, 0) + size

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
