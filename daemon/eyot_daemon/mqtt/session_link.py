"""What a session and the connection of its client pass to each other."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

#: A connection that has this much to send gets nothing more from the queue, and no messages of QoS 0.
BACKLOG_BYTES: Final = 1 << 20


class Outgoing(NamedTuple):
    """A message for a client. `qos`: at which it is sent; `identifiers`: of the subscriptions that it is for."""

    topic: str
    reply: bytes
    header: bytes
    payload: bytes
    qos: int
    retain: bool
    identifiers: tuple[int, ...] = ()
    #: user properties that say where streams have it; None: nobody asked
    context: tuple[tuple[str, str], ...] | None = None

    @property
    def size(self) -> int:
        """Bytes that it takes while it waits."""
        return len(self.payload) + len(self.header) + len(self.topic)


class Queued(NamedTuple):
    """A message that the queue handed over."""

    sseq: int
    deliveries: int
    subject: bytes
    header: bytes
    payload: bytes


class SessionLink(Protocol):
    """The connection of a session, as the session uses it."""

    #: how many messages of QoS 1 and 2 the client takes at once
    receive_maximum: int
    cid: int

    @property
    def address(self) -> str:
        """Host and port of the client."""
        ...

    @property
    def backlog(self) -> int:
        """Bytes that wait to be sent."""
        ...

    def send_publish(self, outgoing: Outgoing, packet_id: int, *, dup: bool) -> bool:
        """Send PUBLISH; False: it is larger than the client takes, or cannot be a topic."""
        ...

    def send_pubrel(self, packet_id: int) -> None: ...

    def allows(self, topic_filter: str) -> bool:
        """Return whether the client may have messages for one of its filters."""
        ...

    def may_receive(self, subject: bytes) -> bool:
        """Return whether nothing denies the client messages on a subject."""
        ...

    def context_of(self, queued: Queued) -> tuple[tuple[str, str], ...]:
        """Return where streams have a queued message, as user properties."""
        ...

    def taken_over(self) -> None:
        """Another connection has the session now: end this one."""
        ...

    def fail(self, text: str) -> None:
        """End the connection for a reason of the server's."""
        ...

    def session_deleted(self) -> None:
        """End the connection: an operator deletes the session."""
        ...
