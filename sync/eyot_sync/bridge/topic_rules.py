"""Which topic of the remote a subject here has, and the other way round.

A rule is a filter with two prefixes, as in mosquitto's `topic`: the topic here is `local_prefix` and what the filter
matches, the topic there `remote_prefix` and the same. Subjects are topics by nats-server's conversion. Of several
rules the first that matches decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from eyot_wire.mqtt import topics
from eyot_wire.subject import is_subset, matches


class TopicRule(Struct, frozen=True, kw_only=True):
    """One entry of `topics { out }` or `topics { in }`. `qos`: -1 for the bridge's own; `retain`: outgoing only."""

    filter: str
    local_prefix: str = ""
    remote_prefix: str = ""
    qos: int = -1
    retain: bool = False


class Converted(NamedTuple):
    """A topic of the other side, and the rule that says so."""

    topic: str
    rule: TopicRule


#: Without `topics { out }` everything is forwarded under its own topic.
EVERYTHING = TopicRule(filter="#")


class OutRules:
    """The rules of outgoing messages."""

    def __init__(self, rules: Sequence[TopicRule]) -> None:
        self._rules = [(rule, topics.filter_subjects(rule.local_prefix + rule.filter) or ()) for rule in rules]
        subjects = list(dict.fromkeys(each for _, found in self._rules for each in found))
        #: Patterns of the subjects that are forwarded, none within another; empty: all.
        self.filters = tuple(
            each for each in subjects if not any(each != other and is_subset(each, other) for other in subjects)
        )
        if b">" in self.filters:
            self.filters = ()

    def convert(self, subject: bytes) -> Converted | None:
        """Return the topic of a message at the remote; None if no rule matches, or it has no topic."""
        for rule, patterns in self._rules:
            if any(matches(pattern, subject) for pattern in patterns):
                topic = topics.to_topic(subject)
                if topic is None:
                    return None
                moved = _moved(topic, rule.local_prefix, rule.remote_prefix)
                return Converted(moved, rule) if moved else None
        return None


class InRules:
    """The rules of incoming messages."""

    def __init__(self, rules: Sequence[TopicRule]) -> None:
        self.rules = tuple(rules)

    def convert(self, topic: str) -> Converted | None:
        """Return the topic here of a message of the remote; None if no rule matches."""
        for rule in self.rules:
            if matches_filter(subscription_of(rule), topic):
                moved = _moved(topic, rule.remote_prefix, rule.local_prefix)
                return Converted(moved, rule) if moved else None
        return None


def _moved(topic: str, prefix: str, other: str) -> str:
    """Return a topic with another prefix; "" if nothing is left. `plant/#` matches `plant`, too, which lacks the slash."""
    if topic.startswith(prefix):
        return other + topic[len(prefix) :]
    return other.removesuffix("/")


def subscription_of(rule: TopicRule) -> str:
    """Return the filter to subscribe to at the remote."""
    return rule.remote_prefix + rule.filter


def matches_filter(topic_filter: str, topic: str) -> bool:
    """Return whether a topic filter matches a topic (MQTT 5.0, 4.7)."""
    wanted, levels = topic_filter.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in ("#", "+"):
        return False
    for index, level in enumerate(wanted):
        if level == "#":
            return True
        if index >= len(levels) or level not in ("+", levels[index]):
            return False
    return len(wanted) == len(levels)
