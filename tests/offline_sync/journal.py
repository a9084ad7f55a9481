"""The records of a simulated fleet's publishers: messages published, acknowledged, and removed on purpose.

Publishers number their messages for each stream and each of its epochs: the payload `<node>/<stream>/<epoch>/<n> ...` identifies
a message wherever it is found.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from offline_sync.flows import TOPICS


@dataclass(frozen=True, slots=True)
class StreamEpoch:
    """One life of a published stream: from its creation to its deletion."""

    node: str
    stream: str
    number: int

    def __str__(self) -> str:
        return f"{self.node}/{self.stream} (life {self.number})"

    def payload(self, n: int, padding: int) -> bytes:
        return f"{self.node}/{self.stream}/{self.number}/{n} ".encode() + b"x" * padding


_epochs: dict[bytes, StreamEpoch] = {}


def identify(payload: bytes) -> tuple[StreamEpoch, int]:
    """Which message this is, by its payload."""
    head, _, number = payload.partition(b" ")[0].rpartition(b"/")
    epoch = _epochs.get(head)
    if epoch is None:
        node, stream, count = head.decode().split("/")
        epoch = _epochs[head] = StreamEpoch(node, stream, int(count))
    return epoch, int(number)


@dataclass
class Journal:
    """One life.

    `acked`: sequences by number. `lost`: numbers that a restored backup took back, or that were handed on to a copy
    that was. `purges`: everything below a sequence, of one topic or of all (None).
    """

    workqueue: bool = False
    published: int = 0
    acked: dict[int, int] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)
    purges: list[tuple[int, int | None]] = field(default_factory=list)
    #: What limits took away at the origin, as they may; and when each was published, seconds.
    gone: set[int] = field(default_factory=set)
    published_at: dict[int, float] = field(default_factory=dict)

    @property
    def expected(self) -> set[int]:
        """What must be somewhere."""
        if not self.purges:
            return self.acked.keys() - self.lost - self.gone
        left = self.acked.keys() - self.lost - self.gone
        return {n for n in left if not self.purged(n, self.acked[n])}

    def purged(self, n: int, seq: int) -> bool:
        return any(seq < below and topic in (None, n % TOPICS) for below, topic in self.purges)
