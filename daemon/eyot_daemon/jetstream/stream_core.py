"""What the parts of one stream share: its log, configuration and transactions, the loop's clock and timers, and its consumers' interface.

Parts (ages, schedules, limits, batches, ...) receive `StreamCore`, not their stream. Every change of a stream is submitted
to the store as one transaction with a `Batch` of everything to be sent when it has a result: PubAcks, republished messages
and API answers. When the transaction is committed they are sent. When it failed, publishers get error 10077 and API
requests their error. Batches complete in submit order. Everything runs in the loop's thread, within a turn.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from eyot_daemon.jetstream.config.rules import FLASH_KEY, FLASH_PACED
from eyot_store.errors import StoreError
from eyot_wire.jetstream.model import ConsumerConfig, ConsumerInfo, PubAckError, StreamConfig, encode

if TYPE_CHECKING:
    from eyot_daemon.router.account import Account
    from eyot_daemon.router.subscription import Subscription
    from eyot_store.log.log import Log
    from eyot_store.store import Store
    from eyot_store.txn import Txn
    from eyot_wire.jetstream.errors import ApiError


class ConsumerPort(Protocol):
    """One consumer, as its stream uses it. A consumer reads the stream's log up to `committed_seq`, never beyond."""

    @property
    def name(self) -> str: ...

    @property
    def config(self) -> ConsumerConfig: ...

    @property
    def internal(self) -> bool:
        """Whether the daemon itself receives the messages, and wakes the consumer for those that it wants."""
        ...

    def wake(self) -> None:
        """Deliver after messages were committed, or room was made. Cheap when there is nothing to deliver."""
        ...

    def wants(self, subject: bytes) -> bool:
        """Return whether the consumer's filters match this literal subject."""
        ...

    def needs(self, seq: int, subject: bytes | None) -> bool:
        """Return whether the message concerns the consumer and is not acknowledged by it yet (delivered or not).

        None: its subject is unknown, because it is damaged.
        Called with interest retention: a message that no consumer needs is removed.
        """
        ...

    def messages_removed(self, seqs: Sequence[int]) -> None:
        """Drop these sequences, which left the stream, from the pending messages, and correct the counts."""
        ...

    def purged(self, *, singly: bool = False) -> None:
        """Forget all messages that `stream.log` no longer holds: any number of them left the stream at once.

        `singly`: publish one advisory "terminated" for each pending message.
        """
        ...

    def stream_updated(self) -> None:
        """`stream.config` was replaced (limits for consumers, subjects, ...)."""
        ...

    def info(self) -> ConsumerInfo: ...

    def stream_deleted(self) -> list[Subscription]:
        """End with the stream: answer waiting requests (409 Consumer Deleted), drop timers, publish an advisory.

        The store deletes the consumer together with the stream. Returns the subscriptions, for the caller to retire.
        """
        ...

    def stop(self) -> None:
        """Stop with the daemon: answer waiting requests (409 Server Shutdown), drop subscriptions and timers."""
        ...


class Republished(NamedTuple):
    """A stored message to be published again: all that `Republisher.make` needs."""

    subject: bytes
    header: bytes
    payload: bytes
    seq: int
    ts_ns: int
    last_seq: int


CommitCallback = Callable[[StoreError | None], None]


class Expired(NamedTuple):
    """A message that left the stream for its age; `size`: bytes of subject, header and payload."""

    seq: int
    subject: bytes
    size: int


class Batch(msgspec.Struct, eq=False):
    """The effects of one transaction of a stream after its commit.

    `acks`         (reply, PubAck) to send once it is on flash
    `msg_ids`      ids that were put into the duplicate window, with their sequences
    `removed`      sequences that limits removed
    `expired`      messages whose own TTL has passed, or that grew too old in a stream with TTLs
    `purged`       true when an unknown number of messages went (age, roll-up, purge)
    `singly`       what was purged went one by one, as far as nats-server is concerned, whose consumers then say of each that was
                   pending that it is terminated
    `stored`       messages appended, for which consumers are woken
    `size`         bytes of the transaction, where the messages were published
    `ttls`         (sequence, due time) of appended messages that have a TTL
    `schedules`    (due time, sequence) of schedules that were stored or are due again
    `schedules_clock`  how often the clock had been set back when `schedules` were computed
    `schedules_due`, `schedules_before`   what of the table of schedules to bring back if it fails
    `then`         called last, with the error if there was one
    """

    acks: list[tuple[bytes, bytes]] = []
    msg_ids: dict[bytes, int] = {}
    removed: list[int] = []
    expired: list[Expired] = []
    purged: bool = False
    singly: bool = True
    republished: list[Republished] = []
    stored: int = 0
    size: int = 0
    ttls: list[tuple[int, int]] = []
    schedules: list[tuple[int, int]] = []
    schedules_clock: int = 0
    schedules_due: list[tuple[int, int]] = []
    schedules_before: list[tuple[bytes, int]] = []
    then: list[CommitCallback] = []

    def note_purged(self, count: int) -> None:
        """Note that a purge by subject, or down to a number, removed `count` messages."""
        if count:
            self.purged = True
            self.singly = self.singly and count == 1


class StreamCore:
    """`settled(batch, failure)` is called for each transaction that is through: on flash, or failed."""

    __slots__ = (
        "_in_flight",
        "_settled",
        "account",
        "ack_head",
        "clock",
        "config",
        "domain",
        "live",
        "log",
        "name",
        "rejected",
        "store",
        "timers",
    )

    def __init__(
        self,
        account: Account,
        store: Store,
        stream_log: Log,
        config: StreamConfig,
        domain: str,
        settled: Callable[[Batch, StoreError | None], None],
    ) -> None:
        self.account = account
        self.clock = account.broker.clock
        self.timers = account.broker.timers
        self.store = store
        self.log = stream_log
        self.name = config.name
        #: the configuration in force
        self.config = config
        #: the server's JetStream domain; "" without one
        self.domain = domain
        #: JetStream's error code -> messages that publishers sent since the start, and that were not stored for it
        self.rejected: Counter[int] = Counter()
        #: between the stream's start and its end; nothing is stored and no timer acts outside
        self.live = False
        domain_field = b'"domain":%b,' % encode(domain) if domain else b""
        #: what PubAcks begin with, up to the sequence
        self.ack_head = b'{"stream":%b,%b"seq":' % (encode(config.name), domain_field)
        self._settled = settled
        self._in_flight: deque[Batch] = deque()

    def reject(self, api_error: ApiError, messages: int = 1) -> None:
        """Count messages that are not stored, whether their publisher waits for an answer or not."""
        self.rejected[api_error.err_code] += messages

    def refusal(self, api_error: ApiError) -> bytes:
        """Return the error that a publisher receives instead of a PubAck."""
        return encode(PubAckError(error=api_error, stream=self.name))

    # -- transactions ----------------------------------------------------------------------------------------------

    @contextmanager
    def staging(self) -> Iterator[Txn]:
        """Yield a transaction that is rolled back if its staging fails (an unreadable record, for example)."""
        txn = self.store.begin()
        try:
            yield txn
        except BaseException:
            self.store.abort(txn)
            raise

    def submit(self, txn: Txn, batch: Batch) -> None:
        """Hand in a transaction of this stream; `batch` settles when it is through."""
        # Only messages: requests of the API, removals and positions are few, and others wait for them.
        txn.patient = batch.stored > 0 and self.config.metadata.get(FLASH_KEY) == FLASH_PACED
        self._in_flight.append(batch)
        try:
            self.store.submit(txn, partial(self._through, batch))
        except StoreError as failure:
            self._through(batch, failure)

    @staticmethod
    def submit_together(
        store: Store, txn: Txn, members: Sequence[tuple[StreamCore, Batch]], done: CommitCallback
    ) -> None:
        """Hand in one transaction of several streams; their batches settle in order when it is through, and then `done`."""
        for core, batch in members:
            core._in_flight.append(batch)

        def through(failure: StoreError | None) -> None:
            for core, batch in members:
                core._through(batch, failure)
            done(failure)

        try:
            store.submit(txn, through)
        except StoreError as failure:
            through(failure)

    @property
    def commits_under_way(self) -> bool:
        """Return whether `after_commits` would wait."""
        return bool(self._in_flight)

    def after_commits(self, fn: CommitCallback) -> None:
        """Call `fn` when everything staged so far is through; at once when nothing is under way."""
        if self._in_flight:
            self._in_flight[-1].then.append(fn)
        else:
            fn(None)

    def _through(self, batch: Batch, failure: StoreError | None) -> None:
        self._in_flight.remove(batch)
        self._settled(batch, failure)
        for then in batch.then:
            then(failure)
