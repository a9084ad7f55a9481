"""The shared part of one stream's components: its log, configuration and transactions, and the loop's clock and timers.

Components (ages, schedules, limits, batches, ...) receive this, not their stream. Every change of a stream is submitted
to the store as one transaction with a `Batch` of the answers to send. Batches complete in submit order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from eyot_store.errors import StoreError
from eyot_wire.jetstream.model import PubAckError, StreamConfig, encode

if TYPE_CHECKING:
    from eyot_daemon.jetstream.messages.batch import Batch, CommitCallback
    from eyot_daemon.router.account import Account
    from eyot_store.log.log import Log
    from eyot_store.store import Store
    from eyot_store.txn import Txn
    from eyot_wire.jetstream.errors import ApiError


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
        #: between the stream's start and its end; nothing is stored and no timer acts outside
        self.live = False
        domain_field = b'"domain":%b,' % encode(domain) if domain else b""
        #: what PubAcks begin with, up to the sequence
        self.ack_head = b'{"stream":%b,%b"seq":' % (encode(config.name), domain_field)
        self._settled = settled
        self._in_flight: deque[Batch] = deque()

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
        self._in_flight.append(batch)
        try:
            self.store.submit(txn, lambda failure: self._through(batch, failure))
        except StoreError as failure:
            self._through(batch, failure)

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
