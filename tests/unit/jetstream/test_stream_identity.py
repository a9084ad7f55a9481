"""Streams tell the sources of nats-server 2.15 their identity, so that a source notices a stream that was created again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eyot_daemon.jetstream.downstream.missed import messages_missed
from eyot_wire import headers
from eyot_wire.jetstream.stream_source import identity_of
from support.jetstream.consumers import ConsumerFixture

SOURCE = {"deliver_subject": "d", "ack_policy": "none", "direct": True, "sourcing": True, "name": "JS_SRC_x"}


@pytest.fixture
def fixture(tmp_path: Path) -> ConsumerFixture:
    fixture = ConsumerFixture(tmp_path)
    fixture.create()
    fixture.fill(10)
    return fixture


def ask(fixture: ConsumerFixture, words: str, body: Any = b"", *, level: int = 5, expected: str | None = "") -> Any:
    """A request of a source: the decoded answer, and the identity in its header."""
    header = {"Nats-Required-Api-Level": str(level)}
    if expected is not None:
        header["Nats-Stream-Identity"] = expected
    answer = fixture.request(words, body, header)
    identity = headers.get(fixture.inbox.got[-1].header, b"Nats-Stream-Identity")
    return answer, None if identity is None else identity.decode()


def create(fixture: ConsumerFixture, **how: Any) -> Any:
    return ask(fixture, "CONSUMER.CREATE.S", {"stream_name": "S", "config": SOURCE}, **how)


def own_identity(fixture: ConsumerFixture) -> str:
    return identity_of(fixture.request("STREAM.INFO.S")["created"])


def test_a_source_is_told_the_identity(fixture: ConsumerFixture) -> None:
    answer, identity = create(fixture)
    assert answer["name"].startswith("JS_SRC_x")
    assert identity == own_identity(fixture)
    assert create(fixture, expected=identity)[1] == identity
    assert create(fixture, level=4, expected=None)[1] == identity, "a request that was refused as stale is repeated so"


def test_a_source_that_expects_another_stream_is_refused(fixture: ConsumerFixture) -> None:
    before = own_identity(fixture)
    fixture.request("STREAM.DELETE.S")
    fixture.clock.advance(1.0)
    fixture.create()
    answer, identity = create(fixture, expected=before)
    assert answer["error"]["err_code"] == 10225
    assert answer["error"]["description"] == f"consumer's stream identity does not match: {own_identity(fixture)}"
    assert identity is None
    assert not fixture.stream().consumers


def test_a_reset_tells_it_too(fixture: ConsumerFixture) -> None:
    fixture.add(ack_policy="explicit")
    answer, identity = ask(fixture, "CONSUMER.RESET.S.C", expected="another1")
    assert answer["reset_seq"] == 1
    assert identity == own_identity(fixture)


def test_others_are_not_offered_that_level(fixture: ConsumerFixture) -> None:
    assert create(fixture, expected=None)[0]["error"]["err_code"] == 10185
    assert create(fixture, level=6)[0]["error"]["err_code"] == 10185
    plain = {"stream_name": "S", "config": {"ack_policy": "explicit"}}
    assert ask(fixture, "CONSUMER.CREATE.S", plain)[0]["error"]["err_code"] == 10185
    assert ask(fixture, "STREAM.INFO.S")[0]["error"]["err_code"] == 10185
    assert ask(fixture, "CONSUMER.CREATE.S", plain, level=4, expected=None)[1] is None


@pytest.mark.parametrize(
    ("created", "known", "by_plain", "by_comparing"),
    [
        pytest.param([10], [True], True, True, id="it was heard after the stream was created"),
        pytest.param([10, 20], [True, False], True, True, id="nobody reads a stream of before"),
        pytest.param([10, 40], [True, False], True, False, id="nobody reads a stream that was created since"),
        pytest.param([10], [False], True, False, id="nobody is known: the device was set up anew"),
    ],
)
def test_which_lost_requests_are_refused(
    created: list[int], known: list[bool], by_plain: bool, by_comparing: bool
) -> None:
    """A refused 2.15 repeats without the identity that it has: not if a stream may have been created again meanwhile."""
    trackers: Any = [
        SimpleNamespace(
            records=SimpleNamespace(known=each, confirmed_at_ns=30 if each else 0), missed=each, created_ns=at
        )
        for at, each in zip(created, known, strict=True)
    ]
    assert messages_missed(trackers, compares_identities=False) is by_plain
    assert messages_missed(trackers, compares_identities=True) is by_comparing
