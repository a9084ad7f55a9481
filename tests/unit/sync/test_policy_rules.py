"""Which policy applies to a stream and to a remote."""

from __future__ import annotations

import pytest

from eyot_sync.policy.policy import (
    DEFAULT_STREAM,
    MeteredPolicy,
    RemotePolicy,
    StreamPolicy,
    StreamRule,
    SyncPolicies,
)


def rule(name: str, priority: int, account: str = "") -> StreamRule:
    return StreamRule(name=name, account=account, policy=StreamPolicy(priority=priority))


RULES = SyncPolicies(streams=(rule("*", 1, "A"), rule("LOG*", 2), rule("LOGS", 3), rule("ALARMS", 9, "B")))


@pytest.mark.parametrize(
    ("account", "name", "priority"),
    [
        ("B", "LOGS", 3),  # its own name goes before patterns
        ("A", "LOGS", 3),
        ("B", "LOG-2", 2),
        ("A", "LOG-2", 1),  # the first pattern that fits
        ("B", "ALARMS", 9),
        ("A", "ALARMS", 1),  # the rule of another account is none
        ("C", "ALARMS", DEFAULT_STREAM.priority),
        ("C", "logs", DEFAULT_STREAM.priority),
    ],
)
def test_streams(account: str, name: str, priority: int) -> None:
    assert RULES.stream(account, name).priority == priority


REMOTES = SyncPolicies(
    remotes=(
        RemotePolicy(host="hub", port=7422, account="A", metered=MeteredPolicy(budget=1)),
        RemotePolicy(host="hub", port=7422, metered=MeteredPolicy(budget=2)),
        RemotePolicy(host="other", port=7422, metered=MeteredPolicy(budget=3)),
    )
)


@pytest.mark.parametrize(
    ("addresses", "account", "budget"),
    [
        ((("hub", 7422),), "A", 1),
        ((("hub", 7422),), "B", 2),
        ((("spare", 7422), ("other", 7422)), "A", 3),  # by one of its addresses
        ((("hub", 7423),), "A", None),
        ((("spare", 7422),), "A", None),
    ],
)
def test_remotes(addresses: tuple[tuple[str, int], ...], account: str, budget: int | None) -> None:
    found = REMOTES.remote(addresses, account)
    metered = None if found is None else found.metered
    assert (None if metered is None else metered.budget) == budget
