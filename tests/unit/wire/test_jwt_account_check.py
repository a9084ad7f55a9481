"""Rules for accounts' tokens: the JWT library's, in its words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eyot_wire.pattern_set import TooManySteps
from eyot_wire.trust.covering import covering_pairs, covers
from eyot_wire.trust.jwt_account import decode_account
from eyot_wire.trust.jwt_account_check import mistakes
from support.trust.claims import ALPHA, BETA, OPERATOR, USER


def wrong(**nats: Any) -> list[str]:
    return mistakes(decode_account(OPERATOR.account(BETA, **nats)))


def stream(subject: str, **more: Any) -> dict[str, Any]:
    return {"type": "stream", "subject": subject, "account": ALPHA.public} | more


def service(subject: str, **more: Any) -> dict[str, Any]:
    return {"type": "service", "subject": subject, "account": ALPHA.public} | more


def activation(subject: str, kind: str = "stream", to: str = BETA.public) -> str:
    return ALPHA.sign(to, {"type": "activation", "kind": kind, "subject": subject})


def test_a_token_without_mistakes() -> None:
    assert not wrong(
        imports=[stream("s.a", token=activation("s.>")), service("r.*", local_subject="q.$1", share=True)],
        exports=[{"type": "service", "subject": "x.*", "account_token_position": 2, "allow_trace": True}],
        mappings={"a": [{"subject": "b", "weight": 40}, {"subject": "c", "weight": 60}]},
        trace={"dest": "t"},
        authorization={"auth_users": [USER.public], "allowed_accounts": ["*"]},
        default_permissions={"sub": {"allow": ["a q"]}},
        cluster_traffic="owner",
        info_url="https://x/y",
    )


@pytest.mark.parametrize(
    ("imported", "said"),
    [
        (stream("s.secret", token=activation("s.b")), ['activation token import subject "s.b" doesn\'t match import "s.secret"']),
        (stream("s.>", token=activation("s.b")), ['activation token import subject "s.b" doesn\'t match import "s.>"']),
        (stream("s.b", token=activation("s.b", "service")), ["mismatch between token import type service and type of import stream"]),
        (stream("s.b", token=activation("s.b", to=ALPHA.public)), ['activation token doesn\'t match account it is being included in, "s.b"']),
        (stream("s.b", token="x"), ['import "s.b" contains an invalid activation token']),
        (stream("s", account=USER.public, token=activation("s")), ['activation token doesn\'t match account for import "s"']),
        (stream("s", share=True), ['sharing information (for latency tracking) is only valid for services: "s"']),
        (service("s", allow_trace=True), ["AllowTrace only valid for stream import"]),
        (service("s", to="t", local_subject="u"), ["Local Subject replaces To"]),
        (stream("s.*", local_subject="t.>"), [
            "both, renaming subject and subject, need to end or not end in >",
            "subject does not contain enough * or reference wildcards $[0-9]",
        ]),
        (stream("a b"), ['subject "a b" cannot have spaces']),
        (stream("s", account=""), ["account to import from is not specified"]),
    ],
)  # fmt: skip
def test_imports(imported: dict[str, Any], said: list[str]) -> None:
    assert wrong(imports=[imported]) == said


@pytest.mark.parametrize(
    ("nats", "said"),
    [
        ({"exports": [{"type": "stream", "subject": "s", "response_type": "Stream"}]}, 'invalid response type for stream: "Stream"'),
        ({"exports": [{"type": "stream", "subject": "s", "allow_trace": True}]}, "AllowTrace only valid for service export"),
        ({"exports": [{"type": "service", "subject": "s", "response_type": "Few"}]}, 'invalid response type for service: "Few"'),
        ({"exports": [{"type": "stream", "subject": "s", "response_threshold": 5}]}, "response threshold only valid for services"),
        (
            {"exports": [{"type": "service", "subject": "s", "service_latency": {"sampling": 101, "results": "r"}}]},
            "sampling percentage needs to be between 1-100",
        ),
        ({"exports": [{"type": "stream", "subject": "s.>"}, {"type": "stream", "subject": "s.a"}]}, 'stream export subject "s.>" already exports "s.a"'),
        (
            {"exports": [{"type": "stream", "subject": "s.x", "account_token_position": 2}]},
            "Account Token Position can only be used with wildcard subjects: s.x",
        ),
        ({"exports": [{"type": "stream", "subject": "s.*"}], "limits": {"wildcards": False, "exports": 1}}, "the account contains wildcard exports that are not allowed by the operator"),
        ({"imports": [stream("s")], "limits": {"imports": 0}}, "the account contains more imports than allowed by the operator"),
        ({"imports": [service("a.*"), service("a.b")]}, f'overlapping subject namespace for "a.b" and "a.*" in same account "{ALPHA.public}"'),
        ({"mappings": {"a": [{"subject": "b", "weight": 60}, {"subject": "c", "weight": 60}]}}, 'Mapping "a" exceeds 100% among all of it\'s weighted to mappings'),
        ({"default_permissions": {"pub": {"allow": ["a q"]}}}, 'Permission Subject "a q" is not allowed to contain queue'),
        ({"trace": {"dest": "t.*"}}, 'the account Trace.Destination subject "t.*" is not a valid publish subject'),
        ({"authorization": {"auth_users": ["bob"]}}, 'AuthUser "bob" is not a valid user public key'),
        ({"authorization": {"allowed_accounts": ["*"]}}, "External authorization cannot have accounts without users specified"),
        ({"signing_keys": ["x"]}, "x is not an account public key"),
        ({"cluster_traffic": "mine"}, 'unknown cluster traffic option: "mine"'),
        ({"info_url": "here"}, "error parsing info url: no hostname or scheme"),
        ({"limits": {"streams": -1, "tiered_limits": {"R1": {}}}}, "JetStream Limits and tiered JetStream Limits are mutually exclusive"),
        ({"limits": {"tiered_limits": {"": {"disk_storage": 1}}}}, 'Tiered JetStream Limits can not contain a blank "" tier name'),
    ],
)  # fmt: skip
def test_the_rest(nats: dict[str, Any], said: str) -> None:
    assert wrong(**nats) == [said]


@pytest.mark.parametrize(
    ("granted", "wanted", "yes"),
    [
        ("a", "a", True), ("a.*", "a.b", True), ("a.*", "a.*", True), ("a.>", "a.b.c", True), ("a.>", "a.>", True), (">", "a", True),
        ("a.b", "a.*", False), ("a.*", "a.>", False), ("a.>", "a", False), ("a.*", "a.b.c", False), ("a.b.c", "a.b", False),
    ],
)  # fmt: skip
def test_what_a_subject_covers(granted: str, wanted: str, yes: bool) -> None:
    assert covers(granted, wanted) is yes


SUBJECTS = st.lists(
    st.lists(st.sampled_from(["a", "b", "*", ">", ""]), min_size=1, max_size=4).map(".".join), max_size=12
)


@settings(max_examples=1000)
@given(SUBJECTS)
def test_many_subjects_have_the_answers_of_comparing_them_one_by_one(subjects: list[str]) -> None:
    assert list(covering_pairs(subjects)) == [
        (inner, outer)
        for inner, wanted in enumerate(subjects)
        for outer, granted in enumerate(subjects)
        if inner != outer and covers(granted, wanted)
    ]


@pytest.mark.parametrize("shape", ["e.%d", "e.%d.*", "*.%d.x", "%d.>", "a.b.c.%d"])
def test_the_cost_of_an_account_grows_with_its_imports_and_exports(shape: str) -> None:
    """Those of 100,000 were compared in pairs: one push kept the server from everything else for minutes."""
    assert not list(covering_pairs([shape % number for number in range(50_000)]))
    few = [service(shape % number) for number in range(2000)]
    assert not wrong(exports=few, imports=few)


def test_the_overlaps_of_an_account_are_not_listed_without_end() -> None:
    found = wrong(exports=[stream("a.>"), *(stream("a.b") for _ in range(3000))], imports=[service("a")] * 3000)
    assert 1000 <= len(found) <= 2000


def test_subjects_that_fork_without_end_are_refused() -> None:
    words = [""]
    for _ in range(13):
        words = [f"{word}{token}." for word in words for token in "x*"]
    subjects = [f"{word}{number}" for number, word in enumerate(words)]
    with pytest.raises(TooManySteps):
        list(covering_pairs(subjects))
    exports = [{"type": "service", "subject": subject, "account": "A"} for subject in subjects]
    assert wrong(exports=exports) == ["service export subjects overlap in too many ways"]
    assert wrong(imports=exports) == ['subjects overlap in too many ways in same account "A"']
