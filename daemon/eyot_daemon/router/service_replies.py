"""Pending replies of requesters in other accounts, at the account with the service.

A request that crosses accounts has a reply subject `_R_.<account id>.<request id>`; `ServiceReplies` remembers the
requester. A single reply ends that (response type singleton), one without payload and headers (chunked), or the threshold without any.
"""

from __future__ import annotations

import secrets

from eyot_daemon.router import service_latency
from eyot_daemon.router.account import Account
from eyot_daemon.router.service_latency import Responder, SampledRequest
from eyot_daemon.router.subscription import Kind, Origin, Subscription
from eyot_daemon.turn.timers import TimerHandle

REPLY_PREFIX = b"_R_."
_JS_ACK = b"$JS.ACK."
_ALPHABET = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
#: The most pending replies of an exporting account; beyond it, the requester with the most loses its oldest.
REPLIES_MAX = 65_536


def _random_token() -> bytes:
    return bytes(_ALPHABET[byte % 62] for byte in secrets.token_bytes(6))


class AwaitedReply:
    """Where replies to one `_R_` subject go."""

    __slots__ = ("account", "deadline", "measured", "reply", "response_type", "threshold_s")

    def __init__(self, account: Account, reply: bytes, response_type: str, threshold_s: float, now: float) -> None:
        self.account = account
        self.reply = reply
        self.response_type = response_type
        self.threshold_s = threshold_s
        self.deadline = now + threshold_s
        self.measured: SampledRequest | None = None


class ServiceReplies:
    """The reply subjects of an exporting account, with their requesters (a destination of kind ACCOUNT)."""

    kind = Kind.ACCOUNT

    def __init__(self, account: Account) -> None:
        self.account = account
        self.prefix = REPLY_PREFIX + _random_token() + b"."
        self.awaited: dict[bytes, AwaitedReply] = {}
        #: reply subjects of each account that waits, the oldest first
        self._of: dict[Account, dict[bytes, None]] = {}
        self.given_up = 0  # awaited replies forgotten because there were too many
        self.expired = 0
        self._timer: TimerHandle | None = None
        #: who answered, while another account's reply is passed on to a request that this account passed on
        self._responder: Responder | None = None
        sub = Subscription(account, self.prefix + b">", self)
        sub.rewrite = self._replied
        account.attach(sub)

    def expect(self, account: Account, reply: bytes, response_type: str, threshold_s: float) -> bytes:
        """Return a reply subject in the exporting account that leads to `reply` in `account`."""
        if len(self.awaited) >= REPLIES_MAX:
            self._give_one_up(account)
        now = self.account.broker.clock.monotonic()
        subject = self.prefix + _random_token()
        while subject in self.awaited:
            subject = self.prefix + _random_token()
        self.awaited[subject] = AwaitedReply(account, reply, response_type, threshold_s, now)
        self._of.setdefault(account, {})[subject] = None
        if self._timer is None or self._timer.deadline > now + threshold_s:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self.account.broker.timers.call_at(now + threshold_s, self._expire)
        return subject

    def measure(self, subject: bytes, request: SampledRequest) -> None:
        """Attach a measurement, which the reply on `subject`, or its absence, ends."""
        self.awaited[subject].measured = request

    def forget(self, subject: bytes) -> AwaitedReply | None:
        awaited = self.awaited.pop(subject, None)
        if awaited is not None:
            mine = self._of[awaited.account]
            del mine[subject]
            if not mine:
                del self._of[awaited.account]
        return awaited

    def _give_one_up(self, account: Account) -> None:
        """Evict a pending reply: the oldest of the account with the most, so that a moderate requester never loses one to others."""
        mine = self._of.get(account)
        if mine is None or len(mine) * len(self._of) < len(self.awaited):
            mine = max(self._of.values(), key=len)
        self.forget(next(iter(mine)))
        self.given_up += 1

    def _replied(
        self,
        sub: Subscription,
        subject: bytes,
        shown: bytes,
        reply: bytes,
        header: bytes,
        payload: bytes,
        origin: Origin | None,
    ) -> bool:
        awaited = self.awaited.get(subject)
        if awaited is None:
            return False
        if awaited.response_type == "singleton" or (awaited.response_type == "chunked" and not header and not payload):
            self.forget(subject)
        else:
            awaited.deadline = self.account.broker.clock.monotonic() + awaited.threshold_s
        responder = self._responder or Responder(origin, self.account)
        if awaited.measured is not None:
            awaited.measured.ended(service_latency.OK, responder)
            awaited.measured = None
        if reply and not reply.startswith(_JS_ACK):
            # The responder expects an answer itself: the way back leads through the requester's account.
            back = service_replies(awaited.account)
            reply = back.expect(self.account, reply, awaited.response_type, awaited.threshold_s)
        original = shown if shown != subject else b""
        passing = service_replies(awaited.account) if awaited.reply.startswith(REPLY_PREFIX) else None
        if passing is not None:
            passing._responder = responder
        try:
            delivered = awaited.account.publish_imported(
                awaited.reply, reply, header, payload, original=original, origin=None
            )
        finally:
            if passing is not None:
                passing._responder = None
        return delivered > 0

    def _expire(self) -> None:
        now = self.account.broker.clock.monotonic()
        late = [subject for subject, awaited in self.awaited.items() if awaited.deadline <= now]
        for subject in late:
            gone = self.forget(subject)
            if gone is not None and gone.measured is not None:
                gone.measured.ended(service_latency.TIMEOUT)
        self.expired += len(late)
        self._timer = None
        if self.awaited:
            # One timer for all deadlines: it fires at most every second, and no earlier than the next deadline.
            soonest = min(awaited.deadline for awaited in self.awaited.values())
            self._timer = self.account.broker.timers.call_at(max(soonest, now + 1.0), self._expire)

    def deliver(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> bool:
        return self._replied(sub, subject, subject, reply, header, payload, origin)

    def flush(self) -> None:
        """Nothing is buffered here."""


def service_replies(account: Account) -> ServiceReplies:
    """Return the `ServiceReplies` of an account, created on first use."""
    replies = account.service_replies
    if replies is None:
        replies = account.service_replies = ServiceReplies(account)
    assert isinstance(replies, ServiceReplies)
    return replies
