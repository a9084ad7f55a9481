"""The records of a simulated fleet's publishers: messages published, acknowledged, and removed on purpose.

Publishers number their messages for each stream and each of its epochs: the payload `<node>/<stream>/<epoch>/<n> ...` identifies
a message wherever it is found.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from eyot_wire.jetstream.stream import StreamConfig
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

    `acked`: sequences by number. `deleted`: sequences that somebody deleted. `lost`: numbers that a restored backup took back, or that were handed on to a copy
    that was. `purges`: everything below a sequence, of one topic or of all (None).
    """

    #: Messages leave when what copies them has them; with `interest`, also those that nobody would copy.
    workqueue: bool = False
    interest: bool = False
    published: int = 0
    acked: dict[int, int] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)
    purges: list[tuple[int, int | None]] = field(default_factory=list)
    deleted: set[int] = field(default_factory=set)
    #: The configurations with limits that the stream was seen to have.
    configs: list[StreamConfig] = field(default_factory=list)
    #: What limits took away at the origin, as they may; and when each was published, seconds.
    gone: set[int] = field(default_factory=set)
    published_at: dict[int, float] = field(default_factory=dict)

    @property
    def expected(self) -> set[int]:
        """What must be somewhere."""
        if not self.purges and not self.deleted:
            return self.acked.keys() - self.lost - self.gone
        left = self.acked.keys() - self.lost - self.gone
        return {n for n in left if not self.purged(n, self.acked[n])}

    def purged(self, n: int, seq: int) -> bool:
        """Return whether somebody took away message `n` on purpose, which was stored under this sequence."""
        return seq in self.deleted or any(seq < below and topic in (None, n % TOPICS) for below, topic in self.purges)
