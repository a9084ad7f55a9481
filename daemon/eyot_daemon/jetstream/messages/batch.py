"""One transaction of a stream, and everything to be sent when it has a result.

PubAcks, republished messages and API answers wait here. When the transaction is committed they are sent. When it
failed, publishers get error 10077 and API requests their error.
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


CommitCallback = Callable[[StoreError | None], None]


class Batch:
    """The effects of one transaction of a stream after its commit.

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
        self.then: list[CommitCallback] = []

    def note_purged(self, count: int) -> None:
        """Note that a purge by subject, or down to a number, removed `count` messages."""
        if count:
            self.purged = True
            self.singly = self.singly and count == 1
