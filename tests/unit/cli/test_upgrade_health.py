"""When a daemon is worse than before an upgrade, and for how long it is watched."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eyot_cli.upgrade.install import health
from eyot_cli.upgrade.install.health import Before, Comparison, Sample, is_reachable

BEFORE = Before(
    store=True, offline=[], links={"hub": "hub.example:7422"}, last_seqs={"$G > R": 10}, clients=True, publishing=True
)
SAMPLE = Sample(
    uptime_s=1.0, store_error=None, offline=[], links={"hub": ("hub.example:7422", "up", False)}, last_seqs={"$G > R": 11},
    published=["$G > R"], clients=1,
)  # fmt: skip


def comparison(before: Before = BEFORE, *, reachable: bool = True) -> Comparison:
    return Comparison(before, lambda address: reachable)


def test_a_daemon_as_before_is_not_worse() -> None:
    verdict = comparison().compare(SAMPLE, 0.0)
    assert (verdict.worse, verdict.unknown) == ([], [])


@pytest.mark.parametrize("state", ["connecting", "waiting", "gone"])
def test_a_link_is_worse_only_if_its_address_can_be_reached(state: str) -> None:
    links = {} if state == "gone" else {"hub": ("hub.example:7422", state, False)}
    sample = replace(SAMPLE, links=links)
    assert comparison().compare(sample, 0.0).worse == [f"the link hub is {state}, and its address can be reached"]
    verdict = comparison(reachable=False).compare(sample, 0.0)
    assert (verdict.worse, len(verdict.unknown)) == ([], 1)


def test_a_link_that_a_policy_keeps_down_is_not_worse() -> None:
    verdict = comparison().compare(replace(SAMPLE, links={"hub": ("hub.example:7422", "waiting", True)}), 0.0)
    assert (verdict.worse, verdict.unknown) == ([], [])


def test_starting_again_and_again_is_worse() -> None:
    """Also when every look at the daemon finds it well."""
    compared = comparison(replace(BEFORE, publishing=False))
    uptimes = [1.0, 11.0, 2.0, 3.0, 1.0, 11.0]
    worse = [compared.compare(replace(SAMPLE, uptime_s=uptime_s), 0.0).worse for uptime_s in uptimes]
    assert worse == [[], [], [], [], *[["the daemon has started 3 times"]] * 2]


def test_publishing_is_worse_after_a_minute_without_a_message() -> None:
    compared, stops = comparison(), replace(SAMPLE, last_seqs={"$G > R": 20})
    assert compared.compare(stops, 0.0).worse == []
    assert compared.compare(stops, 60.0).worse == []
    assert compared.compare(stops, 61.0).worse == ["no message arrives from clients"]
    assert compared.compare(replace(SAMPLE, last_seqs={"$G > R": 21}), 70.0).worse == []
    # What mirrors and sources bring depends on the link.
    only_copies = comparison()
    for at_s, seq in ((0.0, 20), (61.0, 30)):
        worse = only_copies.compare(replace(SAMPLE, published=[], last_seqs={"$G > R": seq}), at_s).worse
    assert worse == ["no message arrives from clients"]


def test_a_stream_must_have_all_once_and_may_be_deleted_later() -> None:
    compared = comparison(replace(BEFORE, publishing=False))
    lacks = ["the stream $G > R does not have all that it had"]
    assert compared.compare(replace(SAMPLE, last_seqs={}), 0.0).worse == lacks
    assert compared.compare(replace(SAMPLE, last_seqs={"$G > R": 9}), 1.0).worse == lacks
    assert compared.compare(replace(SAMPLE, last_seqs={"$G > R": 10}), 2.0).worse == []
    assert compared.compare(replace(SAMPLE, last_seqs={}), 3.0).worse == []


def test_what_was_not_well_is_not_compared() -> None:
    before = Before(store=False, offline=["$G > R"], links={}, last_seqs={}, clients=False, publishing=False)
    sample = replace(SAMPLE, store_error="full", offline=["$G > R"], links={"hub": ("x", "waiting", False)}, clients=0)
    assert comparison(before).compare(sample, 0.0).worse == []


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("hub:4111", ("hub", 4111)),
        ("hub", ("hub", 7422)),
        ("nats-leaf://user:secret@hub:1", ("hub", 1)),
        ("tls://[fd00::1]:99", ("fd00::1", 99)),
        ("wss://hub/leafnode", ("hub", 443)),
        ("ws://hub", ("hub", 80)),
        ("mqtts://hub", ("hub", 8883)),
        ("http://hub:80/", ("hub", 80)),
    ],
)
def test_the_address_of_a_link_is_tried(
    address: str, expected: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def refuse(where: tuple[str, int], timeout: float) -> None:
        tried.append(where)
        raise ConnectionRefusedError

    monkeypatch.setattr(health.socket, "create_connection", refuse)
    assert not is_reachable(address)
    assert tried == [expected]


def test_an_address_that_nobody_can_read_is_not_reached() -> None:
    assert not is_reachable("")
    assert not is_reachable("hub:99999999")
