"""The permissions of one link: rules of allowed and denied subjects, in both directions.

A leaf link differs from a client in three points. A wildcard interest needs only to overlap an allowed entry (messages
are filtered one by one afterwards). Subjects of the link machinery itself (`$LDS.` loop detection, gateway replies) are
never checked as interest. And `$MQTT.` passes any allow list, though not a deny list.

An entry `subject queue` applies to clients only. On a link nats-server knows no queue group when it checks: the entry allows and
denies nothing, and a list of such entries alone allows nothing.
"""

from __future__ import annotations

from msgspec import Struct

from eyot_wire.subject import is_literal, is_subset, matches, overlaps

# Interest under these prefixes belongs to the link machinery and is announced and accepted unchecked.
UNCHECKED_INTEREST: tuple[bytes, ...] = (b"$LDS.", b"$GR.", b"_GR_.")
# Messages under these prefixes are replies that the peer was entitled to by the request that preceded them.
UNCHECKED_MESSAGES: tuple[bytes, ...] = (b"_R_.", b"$JS.ACK.")
_MQTT = b"$MQTT."
# Verdicts kept per rule; cleared whole when full, since refilling costs a few matches only.
_MEMO_MAX = 8192


class SubjectRule(Struct, frozen=True):
    """`allow` None allows everything that `deny` does not name; an empty `allow` allows nothing."""

    allow: tuple[bytes, ...] | None = None
    deny: tuple[bytes, ...] = ()

    def with_denies(self, *denies: bytes) -> SubjectRule:
        return SubjectRule(self.allow, (*self.deny, *denies)) if denies else self


ALLOW_ALL = SubjectRule()


class RuleChecker:
    """A `SubjectRule` made fast: verdicts on literal subjects are remembered."""

    __slots__ = ("_allow", "_deny", "_memo", "_open", "rule")

    def __init__(self, rule: SubjectRule) -> None:
        self.rule = rule
        self._allow = None if rule.allow is None else _without_queues(rule.allow)
        self._deny = _without_queues(rule.deny)
        self._open = self._allow is None and not self._deny
        self._memo: dict[bytes, bool] = {}

    @property
    def is_open(self) -> bool:
        """Whether nothing is denied and everything is allowed."""
        return self._open

    def permits(self, subject: bytes) -> bool:
        """Return whether a message with this literal subject may pass."""
        if self._open:
            return True
        verdict = self._memo.get(subject)
        if verdict is None:
            if len(self._memo) >= _MEMO_MAX:
                self._memo.clear()
            verdict = self._memo[subject] = self._check_message(subject)
        return verdict

    def permits_interest(self, subject: bytes) -> bool:
        """Return whether interest in this subject or pattern may be announced, of whatever queue group."""
        if self._open or subject.startswith(UNCHECKED_INTEREST):
            return True
        if any(is_subset(subject, entry) for entry in self._deny):
            return False
        if self._allow is None or subject.startswith(_MQTT):
            return True
        return any(overlaps(subject, entry) for entry in self._allow)

    def refuses_literal(self, subject: bytes) -> bool:
        """Return whether this is interest that can never be served: a literal subject that may not pass as a message."""
        return not self._open and is_literal(subject) and not self.permits(subject)

    def _check_message(self, subject: bytes) -> bool:
        if any(matches(entry, subject) for entry in self._deny):
            return False
        if self._allow is None or subject.startswith(_MQTT):
            return True
        return any(matches(entry, subject) for entry in self._allow)


def _without_queues(entries: tuple[bytes, ...]) -> tuple[bytes, ...]:
    return tuple(entry for entry in entries if b" " not in entry)
