"""The borders inside JetStream: what streams ask of consumers, of the copying of mirrors and sources, and the reverse.

Streams, consumers and copying are separate rooms that call each other through these Protocols. Rules of the border:

- Everything runs in the loop's thread, within a turn.
- What changes durable state is staged in a `Txn`; what the outside may know of it leaves in the `on_done` of the submit.
- A consumer reads `stream.log` up to `stream.log.committed_seq`, never beyond.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from eyot_wire.jetstream.model import ConsumerConfig, ConsumerInfo, StreamConfig, StreamSourceInfo

if TYPE_CHECKING:
    from eyot_daemon.jetstream.account import JetStreamAccount
    from eyot_daemon.jetstream.api_request import Endpoint
    from eyot_daemon.jetstream.stream.stream import Stream
    from eyot_daemon.router.account import Account
    from eyot_daemon.router.broker import Broker
    from eyot_store.log.log import Log
    from eyot_store.store import Store
    from eyot_store.txn import Txn


class ConsumerPort(Protocol):
    """What a stream asks of one of its consumers."""

    @property
    def name(self) -> str: ...

    @property
    def config(self) -> ConsumerConfig: ...

    def wake(self) -> None:
        """Messages were committed (or room was made): deliver what may be delivered. Cheap when there is nothing."""
        ...

    def wants(self, subject: bytes) -> bool:
        """True if the consumer's filters match this literal subject."""
        ...

    def needs(self, seq: int, subject: bytes) -> bool:
        """True if the message is the consumer's business and not acknowledged by it yet (delivered or not).

        Asked on interest retention: a message that no consumer needs is removed.
        """
        ...

    def messages_removed(self, seqs: Sequence[int]) -> None:
        """These sequences left the stream and will not be acknowledged: drop them from pending, correct the counts."""
        ...

    def purged(self, *, singly: bool = False) -> None:
        """Any number of messages left the stream at once: whatever `stream.log` no longer holds is gone. `singly`: of what was
        pending each is told as terminated."""
        ...

    def stream_updated(self) -> None:
        """`stream.config` was replaced (limits for consumers, subjects, ...)."""
        ...

    def info(self) -> ConsumerInfo: ...

    def stream_deleted(self, *, told: bool = True) -> None:
        """The stream is going: answer waiting requests (409 Consumer Deleted), drop subscriptions and timers. The
        store forgets the consumer together with the stream. `told`: by an advisory too."""
        ...

    def stop(self) -> None:
        """The daemon stops: answer waiting requests (409 Server Shutdown), drop subscriptions and timers."""
        ...


class ConsumersPort(Protocol):
    """Consumers as a room: their API endpoints, and bringing them back from the store."""

    @property
    def endpoints(self) -> Sequence["Endpoint"]: ...

    def restore(self, stream: "Stream") -> None:
        """Make the consumers in `stream.log.consumers()` live again (`stream.add_consumer`)."""
        ...


class StreamPort(Protocol):
    """What consumers and copying may use of a stream."""

    @property
    def name(self) -> str: ...

    @property
    def config(self) -> StreamConfig: ...

    @property
    def log(self) -> "Log": ...

    @property
    def store(self) -> "Store": ...

    @property
    def account(self) -> "Account": ...

    @property
    def jsa(self) -> "JetStreamAccount": ...

    @property
    def broker(self) -> "Broker": ...

    @property
    def created_ns(self) -> int: ...

    @property
    def consumers(self) -> Mapping[str, ConsumerPort]: ...

    def add_consumer(self, consumer: ConsumerPort) -> None:
        """Register a live consumer; it is woken by every commit from now on."""
        ...

    def remove_consumer(self, consumer: ConsumerPort, txn: "Txn | None" = None) -> None:
        """Unregister it. On interest retention, messages that nobody needs any more are removed in `txn`."""
        ...

    def consumer_acked(self, consumer: ConsumerPort, seqs: Iterable[int], txn: "Txn") -> None:
        """`consumer` is done with these messages (its own state says so already): on work-queue and interest retention
        they are removed in `txn`, the transaction that holds the acknowledgement. Nothing on limits retention."""
        ...

    def wake_consumers(self) -> None: ...


class SourcingPort(Protocol):
    """Mirrors and sources: told about streams that have them, asked how they are doing."""

    def stream_created(self, stream: "Stream") -> None:
        """A stream with `config.mirror` or `config.sources` is live (created, or restored at start)."""
        ...

    def stream_updated(self, stream: "Stream", old: StreamConfig) -> None:
        """Called on every update where the old or the new configuration has a mirror or sources."""
        ...

    def stream_deleted(self, stream: "Stream") -> None: ...

    def stream_stopped(self, stream: "Stream") -> None:
        """The stream is out of reach for now (JetStream is off for its account); it stays on disk."""
        ...

    def stop(self) -> None:
        """The daemon stops: nothing is copied any more."""
        ...

    def mirror_info(self, stream: "Stream") -> StreamSourceInfo | None: ...

    def sources_info(self, stream: "Stream") -> list[StreamSourceInfo]: ...
