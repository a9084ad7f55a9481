"""Accounts as their tokens say them."""

from __future__ import annotations

from typing import Any

import msgspec

from eyot_daemon.auth.claims_accounts import account_options
from eyot_daemon.config.accounts import AccountJetStreamOptions, AccountLimits, AccountOptions, ImportOptions
from eyot_wire.trust.jwt_account import decode_account
from support.claims import ALPHA, BETA, OPERATOR, SIGNING, Key

NOW = 1_700_000_000.0


def built(**of: dict[str, Any]) -> tuple[dict[str, AccountOptions], tuple[str, ...]]:
    keys = {"alpha": ALPHA, "beta": BETA}
    known = [decode_account(OPERATOR.account(keys[name], **claims)) for name, claims in of.items()]
    accounts, problems = account_options(known, NOW)
    return {one.name: one for one in accounts}, problems


def test_limits_mappings_and_jetstream() -> None:
    accounts, problems = built(
        alpha={
            "limits": {"conn": 5, "leaf": 2, "subs": 7, "payload": 64, "disk_storage": 1000, "streams": 3},
            "mappings": {"a": [{"subject": "b", "weight": 60}, {"subject": "c"}]},
        },
        beta={"limits": {"tiered_limits": {"R1": {"mem_storage": -1}, "R3": {"disk_storage": 5}}}},
    )
    assert problems == ()
    alpha, beta = accounts[ALPHA.public], accounts[BETA.public]
    assert alpha.limits == AccountLimits(connections_max=5, subscriptions_max=7, payload_max=64, leafnodes_max=2)
    assert alpha.jetstream == AccountJetStreamOptions(memory_max=0, file_max=1000, streams_max=3, consumers_max=0)
    assert [(one.subject, one.weight) for one in alpha.mappings[0].destinations] == [("b", 60), ("c", 100)]
    r1 = AccountJetStreamOptions(memory_max=-1, file_max=0, streams_max=0, consumers_max=0)
    r3 = AccountJetStreamOptions(memory_max=0, file_max=5, streams_max=0, consumers_max=0)
    assert beta.jetstream == msgspec.structs.replace(r1, tiers=(("R1", r1), ("R3", r3)))


def test_imports_in_both_forms() -> None:
    exports = [{"type": "stream", "subject": "s.>"}, {"type": "service", "subject": "r.*"}]
    imports = [
        {"type": "stream", "subject": "s.a", "account": ALPHA.public, "to": "p"},
        {"type": "stream", "subject": "s.b", "account": ALPHA.public, "local_subject": "q"},
        {"type": "service", "subject": "mine", "account": ALPHA.public, "to": "r.x"},
        {"type": "service", "subject": "r.y", "account": ALPHA.public, "local_subject": "yours"},
        {"type": "service", "subject": "secret", "account": ALPHA.public},
    ]
    accounts, problems = built(alpha={"exports": exports}, beta={"imports": imports})
    assert [(one.kind, one.subject, one.to, one.prefix) for one in accounts[BETA.public].imports] == [
        ("stream", b"s.a", b"", b"p"),
        ("stream", b"s.b", b"q", b""),
        ("service", b"r.x", b"mine", b""),
        ("service", b"r.y", b"yours", b""),
    ]
    assert [problem.endswith("service import not authorized") for problem in problems] == [True]


def activated(signer: Key, **claims: Any) -> tuple[ImportOptions, ...]:
    activation = signer.sign(
        BETA.public,
        {"type": "activation", "kind": "stream", "subject": "s.>", "issuer_account": ALPHA.public},
        **({"iat": 100} | claims),
    )
    revoked = {BETA.public: 50}
    accounts, _ = built(
        alpha={
            "exports": [{"type": "stream", "subject": "s.>", "token_req": True, "revocations": revoked}],
            "signing_keys": [SIGNING.public],
        },
        beta={"imports": [{"type": "stream", "subject": "s.a", "account": ALPHA.public, "token": activation}]},
    )
    return accounts[BETA.public].imports


def test_private_exports_need_an_activation() -> None:
    assert activated(ALPHA)
    assert activated(SIGNING)
    assert not activated(BETA), "not the exporter's signature"
    assert not activated(ALPHA, exp=200), "expired"
    assert not activated(ALPHA, iat=50), "revoked"


def test_circles_and_unknown_accounts_are_left_out() -> None:
    export = [{"type": "service", "subject": "r"}]
    accounts, problems = built(
        alpha={"exports": export, "imports": [{"type": "service", "subject": "r", "account": BETA.public}]},
        beta={
            "exports": export,
            "imports": [
                {"type": "service", "subject": "r", "account": ALPHA.public},
                {"type": "service", "subject": "t", "account": SIGNING.public},
            ],
        },
    )
    assert sum(len(one.imports) for one in accounts.values()) == 1
    assert sorted(problem.rpartition(": ")[2].split(" account")[0] for problem in problems) == [
        f'"{SIGNING.public}"',
        "import forms a cycle",
    ]
