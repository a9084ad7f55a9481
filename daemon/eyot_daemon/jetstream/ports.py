"""The interface of consumers for their stream; everything runs in the loop's thread, within a turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from eyot_wire.jetstream.model import ConsumerConfig, ConsumerInfo


class ConsumerPort(Protocol):
    """One consumer, as its stream uses it. A consumer reads the stream's log up to `committed_seq`, never beyond."""

    @property
    def name(self) -> str: ...

    @property
    def config(self) -> ConsumerConfig: ...

    def wake(self) -> None:
        """Deliver after messages were committed, or room was made. Cheap when there is nothing to deliver."""
        ...

    def wants(self, subject: bytes) -> bool:
        """Return whether the consumer's filters match this literal subject."""
        ...

    def needs(self, seq: int, subject: bytes) -> bool:
        """Return whether the message concerns the consumer and is not acknowledged by it yet (delivered or not).

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

    def stream_deleted(self, *, told: bool = True) -> None:
        """End with the stream: answer waiting requests (409 Consumer Deleted), drop subscriptions and timers.

        The store deletes the consumer together with the stream. `told`: also publish an advisory.
        """
        ...

    def stop(self) -> None:
        """Stop with the daemon: answer waiting requests (409 Server Shutdown), drop subscriptions and timers."""
        ...
