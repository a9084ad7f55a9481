"""Requests of the peer's mirrors and sources that were sent while the link was down, and that hold them up now.

A nats-server whose copies ask for a consumer waits for the answer at an inbox of its own, `$JSC.R.<8 characters>`: for 5 s (2.9) or
30 s. A request sent while nobody could hear it is lost, yet as long as its wait lasts most versions do not ask again, not even
when the link comes up. The inbox is then among the interest that the peer announces first; a refusal sent there ends the wait.

Such an inbox may also belong to a request that somebody else is about to answer. So one is refused only when it was announced with
the link, when no request with it came over the link, and when it is still there after a time in which requests are answered; and
only to versions that ask again the sooner for it (`asks_again_sooner`).
Source: sync.md section 5; nats-server's stream.go of the versions named.
"""

from __future__ import annotations

from collections.abc import Iterable

from eyot_wire.frames import LeafMsg

INBOX = b"$JSC.R."
#: A request that is under way is answered within this, or within so many round trips of this link.
GRACE_S = 0.75
GRACE_ROUND_TRIPS = 4
#: No more than this many are looked at: copies whose leafs are away hold requests too, in a large fleet many.
INBOXES_MAX = 1024

#: "Does not have the API level that was asked for": a 2.14 asks again at once, without what needs that level.
REFUSAL = (
    b'{"type":"io.nats.jetstream.api.v1.consumer_create_response",'
    b'"error":{"code":412,"err_code":10185,"description":"JetStream minimum api level required"}}'
)


def asks_again_sooner(version: str) -> bool:
    """Does a nats-server of this version ask again sooner when a request that was lost is refused?

    2.11.9 to 2.12.8 and 2.14.0 forget a request that is under way when a link comes up: to them a refusal would be one of the new
    request. 2.9 asks again at once, 2.14.1 and later too; the others after 10 s and more, without a refusal 30 s later.
    """
    numbers = version.split("-", 1)[0].split(".")
    if len(numbers) != 3 or not all(number.isdigit() for number in numbers):
        return False
    at = tuple(int(number) for number in numbers)
    return not ((2, 11, 9) <= at <= (2, 12, 8) or (2, 13, 0) <= at <= (2, 14, 0)) and at >= (2, 9, 0)


class StaleRequests:
    """The inboxes of one link, from its first interest until they were looked at. Times are monotonic seconds."""

    __slots__ = ("_inboxes", "due_at")

    def __init__(self) -> None:
        self.due_at: float | None = None
        self._inboxes: dict[bytes, None] = {}

    def __bool__(self) -> bool:
        return bool(self._inboxes)

    def announced(self, subject: bytes) -> None:
        """The peer has interest in `subject`; counts until `complete`."""
        if self.due_at is None and len(self._inboxes) < INBOXES_MAX and subject.startswith(INBOX):
            self._inboxes[subject] = None

    def withdrawn(self, subject: bytes) -> None:
        """The interest is gone: the request was answered, or given up."""
        self._inboxes.pop(subject, None)

    def heard(self, messages: Iterable[LeafMsg]) -> None:
        """Messages of the peer: a request that came over this link has its answer coming."""
        for message in messages:
            if message.reply.startswith(INBOX):
                self._inboxes.pop(message.reply, None)

    def complete(self, now: float, rtt_s: float) -> None:
        """The interest that the peer had when the link came up is known."""
        if self.due_at is None:
            self.due_at = now + max(GRACE_S, GRACE_ROUND_TRIPS * rtt_s)

    def take(self) -> list[bytes]:
        """At `due_at`: the inboxes to refuse."""
        inboxes = list(self._inboxes)
        self._inboxes.clear()
        return inboxes
