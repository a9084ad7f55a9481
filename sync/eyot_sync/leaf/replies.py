"""Replies that a leaf node may send although its user may not publish to their subjects (`allow_responses`).

The hub remembers the reply subject of each message sent to such a leaf node, as long and for as many replies as the
permissions say. The memory is bounded: the oldest subjects are dropped first.
"""

from __future__ import annotations

import math
from collections import OrderedDict

from eyot_sync.leaf.events import ReplyRule

REMEMBERED_MAX = 16_384


class AllowedReplies:
    """Reply subjects, each with its remaining allowance."""

    __slots__ = ("_left", "_rule")

    def __init__(self, rule: ReplyRule) -> None:
        self._rule = rule
        # Subject to (deadline, messages left); insertion order is order of age.
        self._left: OrderedDict[bytes, tuple[float, float]] = OrderedDict()

    def sent(self, reply: bytes, now: float) -> None:
        """Record the reply subject of a message sent to the leaf node."""
        rule = self._rule
        self._left.pop(reply, None)
        if len(self._left) >= REMEMBERED_MAX:
            self._left.popitem(last=False)
        deadline = now + rule.expires_s if rule.expires_s >= 0 else math.inf
        self._left[reply] = (deadline, rule.max_messages if rule.max_messages >= 0 else math.inf)

    def take(self, subject: bytes, now: float) -> bool:
        """Return whether a message on this subject is accepted as a reply; if so, use up one permission."""
        allowance = self._left.get(subject)
        if allowance is None:
            return False
        deadline, left = allowance
        if now >= deadline or left < 1:
            del self._left[subject]
            return False
        if left == 1:
            del self._left[subject]
        else:
            self._left[subject] = (deadline, left - 1)
        return True
