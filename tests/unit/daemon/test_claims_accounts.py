"""Accounts as their tokens say them."""

from __future__ import annotations

from typing import Any

import msgspec

from eyot_daemon.auth.claims_accounts import account_options
from eyot_daemon.config.accounts import AccountJetStreamOptions, AccountLimits, AccountOptions
from eyot_wire.trust.jwt_account import decode_account
from support.trust.claims import ALPHA, BETA, OPERATOR, SIGNING, Key

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


def test_a_prefix_may_end_with_its_dot() -> None:
    """As in nats-server. What makes no subject is left out, and said so."""
    imports = [
        {"type": "stream", "subject": f"s.{number}", "account": ALPHA.public, "to": to}
        for number, to in enumerate(("p", "p.q.", "p..", ".", "a..b"))
    ]
    accounts, problems = built(alpha={"exports": [{"type": "stream", "subject": "s.>"}]}, beta={"imports": imports})
    assert [one.prefix for one in accounts[BETA.public].imports] == [b"p", b"p.q"]
    assert [problem.rpartition(": ")[2] for problem in problems] == [
        'invalid subject "p."',
        'invalid subject "."',
        'invalid subject "a..b"',
    ]


def activation(signer: Key = ALPHA, subject: str = "s.>", kind: str = "stream", to: Key = BETA, **claims: Any) -> str:
    """What `signer` lets the account `to` import of ALPHA."""
    body = {"type": "activation", "kind": kind, "subject": subject, "issuer_account": ALPHA.public}
    return signer.sign(to.public, body, **({"iat": 100} | claims))


def imported(token: str, *others: dict[str, Any], subject: str = "s.a") -> list[bytes]:
    """What BETA has of ALPHA's private streams when its import of `subject` carries a token."""
    revoked = {BETA.public: 50}
    wanted = {"type": "stream", "subject": subject, "account": ALPHA.public, "token": token}
    accounts, _ = built(
        alpha={
            "exports": [
                {"type": "stream", "subject": "s.>", "token_req": True, "revocations": revoked},
                {"type": "stream", "subject": "t.>", "token_req": True},
                {"type": "service", "subject": "s.>", "token_req": True},
            ],
            "signing_keys": [SIGNING.public],
        },
        beta={"imports": [wanted, *others]},
    )
    return [one.subject for one in accounts[BETA.public].imports]


def test_private_exports_need_an_activation() -> None:
    assert imported(activation())
    assert imported(activation(SIGNING))
    assert imported(activation(subject="s.*"))
    assert not imported(activation(BETA)), "not the exporter's signature"
    assert not imported(activation(exp=200)), "expired"
    assert not imported(activation(nbf=int(NOW) + 5)), "not yet valid"
    assert not imported(activation(iat=50)), "revoked"
    assert not imported(activation(to=SIGNING)), "another account's"
    assert not imported(activation(kind="service")), "of a service"
    assert not imported("")


def test_an_activation_is_good_for_its_own_import_alone() -> None:
    good = {"type": "stream", "subject": "s.b", "account": ALPHA.public, "token": activation(subject="s.b")}
    late = activation(subject="s.c", exp=200)
    assert imported("", good, subject="s.secret") == [b"s.b"], "no token"
    assert imported(activation(subject="s.b"), good, subject="s.secret") == [b"s.b"], "another subject's"
    assert imported(activation(subject="s.b"), good, subject="s.>") == [b"s.b"], "wider than granted"
    assert imported(late, good, subject="s.c") == [b"s.b"], "its own has expired"
    assert imported(activation(subject="s.b"), good, subject="t.b") == [b"s.b"], "another export's"


def test_revoking_an_export_leaves_others_alone() -> None:
    other = {"type": "stream", "subject": "t.b", "account": ALPHA.public, "token": activation(subject="t.b", iat=10)}
    assert imported(activation(iat=50), other) == [b"t.b"]


def test_a_service_in_its_old_form_is_granted_by_the_exporters_subject() -> None:
    def services(subject: str, to: str, granted: str) -> list[bytes]:
        token = activation(subject=granted, kind="service")
        wanted = {"type": "service", "subject": subject, "to": to, "account": ALPHA.public, "token": token}
        exports = [{"type": "service", "subject": "r.>", "token_req": True}]
        accounts, _ = built(alpha={"exports": exports}, beta={"imports": [wanted]})
        return [one.subject for one in accounts[BETA.public].imports]

    assert services("mine", "r.x", "r.x") == [b"r.x"]
    assert services("r.x", "r.y", "r.x") == []


def test_the_export_of_the_same_subject_decides() -> None:
    exports = [{"type": "stream", "subject": "s.>"}, {"type": "stream", "subject": "s.a", "token_req": True}]
    wanted = [{"type": "stream", "subject": name, "account": ALPHA.public} for name in ("s.a", "s.b")]
    accounts, _ = built(alpha={"exports": exports}, beta={"imports": wanted})
    assert [one.subject for one in accounts[BETA.public].imports] == [b"s.b"]


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
