"""Requests of the peer's mirrors and sources that were sent while the link was down, and that delay them now.

A nats-server whose mirror or source requests a consumer waits for the answer at an inbox of its own, `$JSC.R.<8
characters>`: for 5 s (2.9) or 30 s. A request that no server received is lost, but most versions do not repeat it
during its wait, not even when the link comes up. The inbox is then among the peer's first interest; a refusal sent
there ends the wait.

Such an inbox may also belong to a request that another server is about to answer. A refusal is therefore sent only when
the inbox was announced with the link, when no request with it came over the link, and when it is still there after the
usual time of an answer; and only to versions that then repeat sooner (`asks_again_sooner`). Source:
nats-server's stream.go of the versions named.
"""

from __future__ import annotations

from collections.abc import Iterable

from eyot_wire.digits import parse_uint
from eyot_wire.frames import LeafMsg

INBOX = b"$JSC.R."
#: A pending request is answered within this, or within this many round trips of the link.
GRACE_S = 0.75
GRACE_ROUND_TRIPS = 4
#: The most inboxes: in a large fleet, mirrors of disconnected leaf nodes hold many requests, too.
INBOXES_MAX = 1024

#: "Required Api level": a 2.14 repeats the request at once, without what needs that level.
REFUSAL = (
    b'{"type":"io.nats.jetstream.api.v1.consumer_create_response",'
    b'"error":{"code":412,"err_code":10185,"description":"JetStream minimum api level required"}}'
)


def asks_again_sooner(version: str) -> bool:
    """Return whether a nats-server of this version repeats a lost request sooner when it is refused.

    2.11.9 to 2.12.8 and 2.14.0 drop a pending request when a link comes up: a refusal would hit the new request. 2.9
    repeats at once, 2.14.1 and later too; the others after 10 s and more, without a refusal 30 s later.
    """
    at = _numbers(version)
    return not ((2, 11, 9) <= at <= (2, 12, 8) or (2, 13, 0) <= at <= (2, 14, 0)) and at >= (2, 9, 0)


def compares_identities(version: str) -> bool:
    """Return whether a nats-server of this version compares the origin's identity with that of what it has.

    `REFUSAL` makes it repeat the request without: it would not notice that the origin was created again.
    """
    return _numbers(version) >= (2, 15, 0)


def _numbers(version: str) -> tuple[int, ...]:
    """Return major, minor and patch; () for other text, since the peer says what it likes."""
    numbers = [parse_uint(number) for number in version.split("-", 1)[0].split(".")]
    known = tuple(number for number in numbers if number is not None)
    return known if len(known) == len(numbers) == 3 else ()


class StaleRequests:
    """The inboxes of one link, from its first interest until they were checked. Times are monotonic seconds."""

    __slots__ = ("_inboxes", "due_at")

    def __init__(self) -> None:
        self.due_at: float | None = None
        self._inboxes: dict[bytes, None] = {}

    def __bool__(self) -> bool:
        return bool(self._inboxes)

    def announced(self, subject: bytes) -> None:
        """Note the peer's interest in `subject`; counts until `complete`."""
        if self.due_at is None and len(self._inboxes) < INBOXES_MAX and subject.startswith(INBOX):
            self._inboxes[subject] = None

    def withdrawn(self, subject: bytes) -> None:
        """Note withdrawn interest: the request was answered, or given up."""
        self._inboxes.pop(subject, None)

    def heard(self, messages: Iterable[LeafMsg]) -> None:
        """Note messages of the peer: a request that came over this link will be answered."""
        for message in messages:
            if message.reply.startswith(INBOX):
                self._inboxes.pop(message.reply, None)

    def complete(self, now: float, rtt_s: float) -> None:
        """Note that the peer's initial interest is complete."""
        if self.due_at is None:
            self.due_at = now + max(GRACE_S, GRACE_ROUND_TRIPS * rtt_s)

    def take(self) -> list[bytes]:
        """At `due_at`: the inboxes to refuse."""
        inboxes = list(self._inboxes)
        self._inboxes.clear()
        return inboxes
