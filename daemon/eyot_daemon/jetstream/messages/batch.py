"""One transaction of a stream on its way to the disk, and what is to be said when it is through.

Everything that tells the outside about a change waits here: PubAcks, republished messages, answers of the API. When the
transaction is committed they leave; when it failed, publishers get error 10077 and API requests get theirs.
"""

from collections.abc import Callable
from typing import NamedTuple

from eyot_store.errors import StoreError


class Republished(NamedTuple):
    """A stored message to be published again: all that `Republisher.make` needs."""

    subject: bytes
    header: bytes
    payload: bytes
    seq: int
    ts_ns: int
    last_seq: int


Settled = Callable[[StoreError | None], None]


class Batch:
    """What hangs on one transaction of a stream.

    `acks`         (reply, PubAck) to send once it is on flash
    `msg_ids`      ids that were put into the duplicate window, with their sequences
    `removed`      sequences that limits removed
    `purged`       true when an unknown number of messages went (age, roll-up, purge)
    `singly`       what was purged went one by one, as far as nats-server is concerned, whose consumers then say of each that was
                   pending that it is terminated
    `stored`       messages appended, for which consumers are woken
    `size`         bytes of the transaction, where the messages were published
    `ttls`         (sequence, due time) of appended messages that have a TTL
    `schedules`    (due time, sequence) of schedules that were stored or are due again
    `schedules_due`, `schedules_before`   what of the table of schedules to bring back if it fails
    `then`         called last, with the error if there was one
    """

    __slots__ = (
        "acks",
        "msg_ids",
        "purged",
        "removed",
        "republished",
        "schedules",
        "schedules_before",
        "schedules_due",
        "singly",
        "size",
        "stored",
        "then",
        "ttls",
    )

    def __init__(self) -> None:
        self.acks: list[tuple[bytes, bytes]] = []
        self.msg_ids: dict[bytes, int] = {}
        self.removed: list[int] = []
        self.purged = False
        self.singly = True
        self.republished: list[Republished] = []
        self.stored = 0
        self.size = 0
        self.ttls: list[tuple[int, int]] = []
        self.schedules: list[tuple[int, int]] = []
        self.schedules_due: list[tuple[int, int]] = []
        self.schedules_before: list[tuple[bytes, int]] = []
        self.then: list[Settled] = []

    def note_purged(self, count: int) -> None:
        """A purge of some messages, by subject or down to a number, took away `count`."""
        if count:
            self.purged = True
            self.singly = self.singly and count == 1
