"""Which inboxes of a new link are refused, and by which servers."""

from __future__ import annotations

import json

import pytest

from eyot_sync.sourcing.stale_requests import (
    GRACE_S,
    INBOXES_MAX,
    REFUSAL,
    StaleRequests,
    asks_again_sooner,
    compares_identities,
)
from eyot_wire.frames import LeafMsg


def request(reply: bytes) -> LeafMsg:
    return LeafMsg(b"$JS.leaf.API.CONSUMER.CREATE.S", reply, b"", b"{}", ())


def watched(*inboxes: bytes) -> StaleRequests:
    stale = StaleRequests()
    for inbox in inboxes:
        stale.announced(inbox)
    return stale


def test_what_was_announced_with_the_link_is_refused_once() -> None:
    stale = watched(b"$JSC.R.aaaaaaaa", b"_INBOX.b", b"$JS.S.cccccccc")
    stale.complete(10.0, 0.001)
    assert stale.due_at == 10.0 + GRACE_S
    assert stale.take() == [b"$JSC.R.aaaaaaaa"]
    assert stale.take() == []


def test_what_came_later_is_left_alone() -> None:
    stale = watched(b"$JSC.R.aaaaaaaa")
    stale.complete(10.0, 0.001)
    stale.announced(b"$JSC.R.bbbbbbbb")
    assert stale.take() == [b"$JSC.R.aaaaaaaa"]


def test_what_was_answered_or_asked_over_this_link_is_left_alone() -> None:
    stale = watched(b"$JSC.R.aaaaaaaa", b"$JSC.R.bbbbbbbb", b"$JSC.R.cccccccc")
    stale.complete(10.0, 0.001)
    stale.withdrawn(b"$JSC.R.aaaaaaaa")
    stale.heard([request(b"$JSC.R.bbbbbbbb"), request(b""), request(b"_INBOX.x")])
    assert stale.take() == [b"$JSC.R.cccccccc"]


def test_a_slow_link_gets_more_time() -> None:
    stale = watched(b"$JSC.R.aaaaaaaa")
    stale.complete(10.0, 0.6)
    assert stale.due_at == pytest.approx(12.4)


def test_memory_is_bounded() -> None:
    stale = watched(*(b"$JSC.R.%08d" % number for number in range(2 * INBOXES_MAX)))
    assert len(stale.take()) == INBOXES_MAX


@pytest.mark.parametrize(
    "version", ["2.9.10", "2.10.26", "2.11.8", "2.12.9", "2.14.1", "2.14.6", "2.15.1", "2.15.0-dev"]
)
def test_servers_that_ask_again_sooner(version: str) -> None:
    assert asks_again_sooner(version)


@pytest.mark.parametrize("version", ["2.8.4", "2.11.9", "2.11.17", "2.12.0", "2.12.8", "2.14.0", "", "2.14", "x.y.z"])
def test_servers_that_do_not(version: str) -> None:
    assert not asks_again_sooner(version)


def test_servers_that_compare_identities() -> None:
    """They repeat a refused request without the identity of the stream that they have copied."""
    assert all(map(compares_identities, ["2.15.0", "2.15.1-RC.1", "3.0.0"]))
    assert not any(map(compares_identities, ["2.9.10", "2.14.6", "", "2.15", "x.y.z"]))


def test_the_refusal_can_be_read() -> None:
    assert json.loads(REFUSAL)["error"]["err_code"] == 10185


@pytest.mark.parametrize(
    "version", ["", "2.14", "2.14.2.1", "2.x.0", "2.\u00b2.0", "2." + "9" * 5000 + ".0", " 2.14.2"]
)
def test_a_version_that_is_none(version: str) -> None:
    assert not asks_again_sooner(version)
    assert not compares_identities(version)
