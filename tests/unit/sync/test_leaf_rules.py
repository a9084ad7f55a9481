"""Permissions and JetStream denies of a link."""

from __future__ import annotations

import pytest

from eyot_sync.leaf.denies import CLIENT_DENIES, SYSTEM_DENIES, LinkDenies, jetstream_denies
from eyot_sync.leaf.permissions import ALLOW_ALL, RuleChecker, SubjectRule


def denies(account: str = "ACC", **changes: object) -> LinkDenies:
    settings: dict[str, object] = {
        "is_system": False,
        "own_domain": "leaf",
        "own_jetstream": True,
        "peer_domain": "hub",
        "default_js_domains": {},
    } | changes
    return jetstream_denies(account=account, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "send", "receive"),
    [
        ({}, (*CLIENT_DENIES, b"$JS.leaf.API.>"), CLIENT_DENIES),
        ({"peer_domain": ""}, (*CLIENT_DENIES, b"$JS.leaf.API.>"), CLIENT_DENIES),
        ({"own_domain": ""}, CLIENT_DENIES, CLIENT_DENIES),
        ({"own_domain": "", "peer_domain": ""}, CLIENT_DENIES, CLIENT_DENIES),
        ({"peer_domain": "leaf"}, CLIENT_DENIES, CLIENT_DENIES),
        ({"own_jetstream": False}, CLIENT_DENIES, CLIENT_DENIES),
        ({"is_system": True}, SYSTEM_DENIES, SYSTEM_DENIES),
        ({"is_system": True, "peer_domain": "leaf"}, SYSTEM_DENIES, SYSTEM_DENIES),
        ({"default_js_domains": {"ACC": ""}}, (), ()),
        ({"default_js_domains": {"ACC": "hub"}}, (*CLIENT_DENIES, b"$JS.leaf.API.>"), CLIENT_DENIES),
        ({"is_system": True, "default_js_domains": {"ACC": ""}}, SYSTEM_DENIES, SYSTEM_DENIES),
    ],
)
def test_table(changes: dict[str, object], send: tuple[bytes, ...], receive: tuple[bytes, ...]) -> None:
    assert denies(**changes) == LinkDenies(send, receive)  # type: ignore[arg-type]


def test_allow_all() -> None:
    checker = RuleChecker(ALLOW_ALL)
    assert checker.permits(b"a")
    assert checker.permits_interest(b">")
    assert not checker.refuses_literal(b"a")


def test_empty_allow_list_allows_nothing_but_mqtt() -> None:
    checker = RuleChecker(SubjectRule(allow=()))
    assert not checker.permits(b"a")
    assert not checker.permits_interest(b">")
    assert checker.permits(b"$MQTT.sub.x")
    assert checker.permits_interest(b"$MQTT.sub.x")
    assert not RuleChecker(SubjectRule(allow=(), deny=(b"$MQTT.>",))).permits(b"$MQTT.sub.x")


def test_interest_needs_only_overlap_and_deny_must_cover() -> None:
    checker = RuleChecker(SubjectRule(allow=(b"in.*.x",), deny=(b"in.secret.>",)))
    assert checker.permits_interest(b"in.>")
    assert checker.permits_interest(b"*.*.x")
    assert not checker.permits_interest(b"out.>")
    assert checker.permits_interest(b"in.*.x"), "overlaps a deny only partly: filtered by message"
    assert not checker.permits_interest(b"in.secret.x")
    assert not checker.permits_interest(b"in.secret.*")


def test_entries_with_a_queue_group_have_no_effect() -> None:
    checker = RuleChecker(SubjectRule(allow=(b"work v1.*", b"open", b"open v1.*"), deny=(b"open bad",)))
    assert not checker.permits_interest(b"work")
    assert not checker.permits(b"work")
    assert checker.permits_interest(b"open")
    assert checker.permits_interest(b">"), "overlaps the entry without a queue group"
    assert checker.permits(b"open")
    assert not RuleChecker(SubjectRule(allow=(b"in.a q1",))).permits_interest(b"in.>")


def test_verdicts_do_not_grow_without_bound() -> None:
    checker = RuleChecker(SubjectRule(deny=(b"x.>",)))
    for number in range(20_000):
        assert checker.permits(b"inbox.%d" % number)
    assert len(checker._memo) <= 8192
    assert not checker.permits(b"x.1")
