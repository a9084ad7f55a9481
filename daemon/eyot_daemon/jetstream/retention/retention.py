"""Who still needs a message: interest and work-queue retention.

With limits retention acknowledgements mean nothing to the stream. A work queue drops a message as soon as its consumer
has acknowledged it. With interest retention a message goes when every consumer that it concerns has, and one that
concerns none is not stored at all.

A mirror or source that has read the stream counts as a consumer for good, also while its link is down and its hidden consumer gone:
what it has not confirmed is kept for it (`downstream.py`).
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from eyot_daemon.jetstream.downstream.tracker import downstreams_of
from eyot_daemon.jetstream.ports import ConsumerPort

if TYPE_CHECKING:
    from eyot_daemon.jetstream.stream.stream import Stream
    from eyot_store.log.log import Log, Unwanted
    from eyot_store.txn import Txn

#: Messages looked at in one go.
READ_MESSAGES_MAX = 1024
READ_BYTES_MAX = 4 << 20
#: No reason for a loss: whoever was to have the message has it.
_CONSUMED = ""


class Retention:
    """The rules of one stream; reads its configuration and consumers anew each time."""

    def __init__(self, stream: "Stream") -> None:
        self._stream = stream
        self._log: Log = stream.log

    def has_interest(self, subject: bytes) -> bool:
        """True if a message on `subject` is worth storing."""
        if self._stream.config.retention != "interest":
            return True
        if any(consumer.wants(subject) for consumer in self._stream.consumers.values()):
            return True
        return downstreams_of(self._stream).wants(subject)

    def acked(self, consumer: ConsumerPort, seqs: Iterable[int], txn: "Txn") -> None:
        """`consumer` is done with `seqs`: stage the removal of those that nobody needs any more."""
        retention = self._stream.config.retention
        if retention == "limits":
            return
        others = [other for other in self._stream.consumers.values() if other is not consumer]
        alone = not others and not downstreams_of(self._stream).known
        for seq in seqs:
            if retention == "workqueue" or alone or not self._needed(seq, others):
                self._log.remove(txn, seq, why=_CONSUMED)

    def confirmed(self, first: int, last: int, txn: "Txn") -> None:
        """A mirror or source turns out to have what lies between: stage the removal of what nobody else needs."""
        retention = self._stream.config.retention
        if retention == "limits":
            return
        out, seq = downstreams_of(self._stream), max(first, self._log.state.first_seq)
        consumers = list(self._stream.consumers.values())
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
        return downstreams_of(self._stream).needs(seq, message.subject)

    def drop_unneeded(self, txn: "Txn") -> None:
        """Stage the removal of every committed message that no consumer needs (one left, or interest came into force); of many
        messages some later."""
        if self._stream.config.retention != "interest":
            return
        if not self._stream.consumers and not downstreams_of(self._stream).known:
            self._log.purge(txn, why=_CONSUMED)
        else:
            self._stream.sweep.begin(txn)

    def unneeded(self) -> "Unwanted":
        """Whether no consumer needs a message, with interest retention; as of now, to be asked of many messages."""
        consumers = list(self._stream.consumers.values())
        out = downstreams_of(self._stream)

        def unneeded(seq: int, subject: bytes) -> bool:
            return not any(consumer.needs(seq, subject) for consumer in consumers) and not out.needs(seq, subject)

        return unneeded
