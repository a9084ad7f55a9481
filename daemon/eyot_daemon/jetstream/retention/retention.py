"""Interest and work-queue retention: which messages are still needed.

With limits retention acknowledgements do not matter to the stream. A work queue removes a message as soon as its
consumer has acknowledged it. With interest retention a message is removed when every consumer that it concerns has
acknowledged it; one that concerns none is not stored at all.

A downstream that has read the stream counts as a consumer permanently, also while its link is down and its hidden
consumer is deleted: messages that it has not confirmed are kept (`jetstream/downstream`).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from eyot_daemon.jetstream.ports import ConsumerPort

if TYPE_CHECKING:
    from eyot_daemon.jetstream.downstream.tracker import DownstreamTracker
    from eyot_daemon.jetstream.stream_core import StreamCore
    from eyot_store.log.log import Log, Unwanted
    from eyot_store.txn import Txn

#: Messages read in one go.
READ_MESSAGES_MAX = 1024
READ_BYTES_MAX = 4 << 20
#: No reason for a loss: every consumer of the message has acknowledged it.
_CONSUMED = ""


class Retention:
    """The rules of one stream; reads its present configuration and consumers each time.

    `sweep(txn)` stages the removal of unneeded messages in a small stream; in a large one it starts a walk.
    """

    def __init__(
        self,
        stream: "StreamCore",
        consumers: Mapping[str, ConsumerPort],
        downstream: "DownstreamTracker",
        sweep: "Callable[[Txn], object]",
    ) -> None:
        self._stream = stream
        self._log: Log = stream.log
        self._consumers = consumers
        self._downstream = downstream
        self._sweep = sweep

    def has_interest(self, subject: bytes) -> bool:
        """Return whether a message on `subject` must be stored."""
        if self._stream.config.retention != "interest":
            return True
        if any(consumer.wants(subject) for consumer in self._consumers.values()):
            return True
        return self._downstream.wants(subject)

    def acked(self, consumer: ConsumerPort, seqs: Iterable[int], txn: "Txn") -> None:
        """Stage the removal of those of `seqs` that no consumer needs any more, now that `consumer` is done with them."""
        retention = self._stream.config.retention
        if retention == "limits":
            return
        others = [other for other in self._consumers.values() if other is not consumer]
        alone = not others and not self._downstream.known
        for seq in seqs:
            if retention == "workqueue" or alone or not self._needed(seq, others):
                self._log.remove(txn, seq, why=_CONSUMED)

    def confirmed(self, first: int, last: int, txn: "Txn") -> None:
        """Stage the removal of messages between that a downstream turns out to have and nothing else needs."""
        retention = self._stream.config.retention
        if retention == "limits":
            return
        out, seq = self._downstream, max(first, self._log.state.first_seq)
        consumers = list(self._consumers.values())
        while seq <= min(last, self._log.committed_seq):
            read = self._log.read(seq, max_messages=READ_MESSAGES_MAX, max_bytes=READ_BYTES_MAX)
            for message in read.messages:
                if message.seq > last or not out.has(message.seq, message.subject):
                    continue
                if retention == "workqueue" or not self._needed(message.seq, consumers):
                    self._log.remove(txn, message.seq, why=_CONSUMED)
            seq = read.next_seq

    def _needed(self, seq: int, consumers: list[ConsumerPort]) -> bool:
        message = self._log.get(seq)
        if message is None:
            return False
        if any(consumer.needs(seq, message.subject) for consumer in consumers):
            return True
        return self._downstream.needs(seq, message.subject)

    def drop_unneeded(self, txn: "Txn") -> None:
        """Stage the removal of every committed message that no consumer needs; of many messages, some later.

        Called when a consumer was removed, or interest retention came into force.
        """
        if self._stream.config.retention != "interest":
            return
        if not self._consumers and not self._downstream.known:
            self._log.purge(txn, why=_CONSUMED)
        else:
            self._sweep(txn)

    def unneeded(self) -> "Unwanted":
        """Return whether no consumer needs a message, with interest retention; as of now, to be asked of many messages."""
        consumers = list(self._consumers.values())
        out = self._downstream

        def unneeded(seq: int, subject: bytes) -> bool:
            return not any(consumer.needs(seq, subject) for consumer in consumers) and not out.needs(seq, subject)

        return unneeded
