"""Per-message TTLs (ADR-43): the `Nats-TTL` header, and which message leaves when.

A message with a TTL leaves when its stored time plus the TTL has passed. `never` exempts it from the stream's max_age.
Times are wall time in ns since the epoch.
"""

import heapq
from collections.abc import Callable, Iterable

from eyot_wire.go.duration import parse_duration_ns
from eyot_wire.jetstream.model import NS_PER_S

#: `Nats-TTL: never`
NEVER = -1
_TTL_NS_MIN = NS_PER_S
_SLACK = 1024


def parse_ttl(value: bytes) -> int:
    """Parse a `Nats-TTL` header to ns: seconds, or a Go duration of at least one second (`0` is not one); NEVER.

    Raises ValueError.
    """
    if value.lower() == b"never":
        return NEVER
    if value.isdigit() and value != b"0":
        return int(value) * NS_PER_S
    ttl_ns = parse_duration_ns(value.decode("ascii"))
    if ttl_ns < _TTL_NS_MIN:
        raise ValueError("a TTL is at least one second")
    return ttl_ns


def has_ttl(value: bytes) -> bool:
    """Return whether a `Nats-TTL` header names a time; a malformed one does not."""
    try:
        return parse_ttl(value) != 0
    except ValueError:
        return False


class TtlTable:
    """Due times by sequence. Messages that are removed for other reasons stay listed until they are due or `compact` runs."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, entries: Iterable[tuple[int, int]]) -> None:
        """Add (sequence, due time) pairs."""
        for seq, due_ns in entries:
            heapq.heappush(self._heap, (due_ns, seq))

    @property
    def next_due_ns(self) -> int:
        """Time at which the first message falls due, ns since the epoch; 0: none does."""
        return self._heap[0][0] if self._heap else 0

    def pop_due(self, now_ns: int, limit: int) -> list[int]:
        """At most `limit` sequences that are due; they leave the table."""
        due: list[int] = []
        while self._heap and self._heap[0][0] <= now_ns and len(due) < limit:
            due.append(heapq.heappop(self._heap)[1])
        return due

    def shift(self, ns: int) -> None:
        """Move all due times of the table by `ns`."""
        self._heap = [(due_ns + ns, seq) for due_ns, seq in self._heap]

    def compact(self, messages: int, exists: Callable[[int], bool]) -> None:
        """Drop removed messages when the table lists far more than the stream's `messages`; checking each is then worth its cost."""
        if len(self._heap) > 2 * messages + _SLACK:
            self._heap = [entry for entry in self._heap if exists(entry[1])]
            heapq.heapify(self._heap)
