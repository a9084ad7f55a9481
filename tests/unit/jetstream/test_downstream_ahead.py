"""A downstream that is ahead of its origin (a device that was set up again, with a nats-server hub): skipped messages are reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eyot_wire.jetstream.stream_source import identity_of
from eyot_wire.status import SyncStatus
from support.jetstream.consumers import Box, ConsumerFixture

COPY: dict[str, Any] = {
    "ack_policy": "none",
    "max_deliver": 1,
    "flow_control": True,
    "idle_heartbeat": 1_000_000_000,
    "inactive_threshold": 10_000_000_000,
    "direct": True,
}


def asking(fixture: ConsumerFixture, deliver: str, after: int, **says: str) -> Box:
    box = fixture.listen(deliver.encode())
    start: dict[str, Any] = {"deliver_policy": "by_start_sequence", "opt_start_seq": after + 1} if after else {}
    metadata = {"metadata": {f"eyot.{key}": value for key, value in says.items()}} if says else {}
    fixture.add_ephemeral(**{**COPY, "deliver_subject": deliver, **start, **metadata})
    fixture.commit()
    return box


def confirm(fixture: ConsumerFixture, box: Box) -> None:
    fixture.advance(1.5, 0.5)
    for got in [got for got in box.got if got.reply.startswith(b"$JS.FC.")]:
        box.got.remove(got)
        fixture.account.publish(got.reply, origin=fixture.client)
    fixture.commit()


def status(fixture: ConsumerFixture) -> SyncStatus:
    (found,) = fixture.stream("S").downstream.statuses()
    return found


@pytest.fixture(params=["limits", "workqueue"])
def fixture(request: pytest.FixtureRequest, tmp_path: Path) -> ConsumerFixture:
    """4 messages of a new life; the hub holds 10 of the one before."""
    made = ConsumerFixture(tmp_path)
    made.create(retention=request.param)
    made.fill(4)
    return made


def test_what_is_passed_over_is_not_called_confirmed(fixture: ConsumerFixture) -> None:
    box = asking(fixture, "$JS.S.hub", 10)
    fixture.fill(3)
    assert box.seqs == [5, 6, 7]  # a nats-server passes over what it believes to have
    confirm(fixture, box)
    found = status(fixture)
    assert (found.confirmed_seq, found.backlog, found.eta_s) == (0, 7, None)
    assert found.oldest_s is not None
    assert "up to 10 of an earlier S" in (found.error or "")
    assert "first_seq 11" in (found.remedy or "")
    assert fixture.request("STREAM.INFO.S")["state"]["messages"] == 7


def test_nor_when_the_copy_has_gone_past_it(fixture: ConsumerFixture) -> None:
    box = asking(fixture, "$JS.S.hub", 10)
    fixture.fill(8)
    confirm(fixture, box)
    found = status(fixture)
    assert (found.confirmed_seq, found.backlog) == (12, 10)
    assert "sequences: 10 messages" in (found.error or "")
    fixture = fixture.restart()
    fixture.leave(asking(fixture, "$JS.S.again", 12))
    fixture.commit()
    assert (status(fixture).confirmed_seq, status(fixture).backlog) == (12, 10)
    fixture.request("STREAM.PURGE.S", {"seq": 11})
    fixture.commit()
    assert status(fixture).backlog == 0
    assert "earlier" not in (status(fixture).error or "")


def test_a_copy_that_begins_anew_gets_everything(fixture: ConsumerFixture) -> None:
    fixture.leave(asking(fixture, "$JS.S.ahead", 10))
    box = asking(fixture, "$JS.S.anew", 0)
    assert box.seqs == [1, 2, 3, 4]
    confirm(fixture, box)
    found = status(fixture)
    assert (found.confirmed_seq, found.backlog, found.error) == (4, 0, None)


def test_a_copy_that_says_that_it_is_of_this_life_has_what_it_confirms(fixture: ConsumerFixture) -> None:
    """It began anew, and this server could not write that down."""
    fixture.leave(asking(fixture, "$JS.S.ahead", 10))
    fixture.fill(8)
    epoch = identity_of(fixture.request("STREAM.INFO.S")["created"])
    other = asking(fixture, "$JS.S.other", 12, life="another1")
    confirm(fixture, other)
    fixture.leave(other)
    assert "earlier S" in (status(fixture).error or "")
    asking(fixture, "$JS.S.back", 12, life=epoch)
    fixture.fill(1)
    fixture.commit()
    assert "earlier S" not in (status(fixture).error or "")


def test_who_does_not_read_is_told_of(fixture: ConsumerFixture) -> None:
    box = asking(fixture, "$JS.S.hub", 0)
    confirm(fixture, box)
    fixture.leave(box)
    fixture.fill(1)
    found = status(fixture)
    assert "does not read S at the moment" in (found.error or "")
    assert "eyot sync forget S" in (found.remedy or "")
    assert found.eta_s is None


def test_who_confirms_nothing_is_told_of(fixture: ConsumerFixture) -> None:
    asking(fixture, "$JS.S.hub", 0)
    fixture.advance(20.0, 1.0)
    assert status(fixture).error is None
    fixture.advance(15.0, 1.0)
    assert "has confirmed nothing for 3" in (status(fixture).error or "")


def test_a_copy_that_says_that_it_is_of_another_life_has_nothing_of_this_one(fixture: ConsumerFixture) -> None:
    """The hub had copied this life, and was restored from a backup of the time before."""
    box = asking(fixture, "$JS.S.first", 0)
    confirm(fixture, box)
    assert status(fixture).confirmed_seq == 4
    fixture.leave(box)
    asking(fixture, "$JS.S.restored", 10, life="another1")
    held = fixture.request("STREAM.INFO.S")["state"]["messages"]
    assert status(fixture).backlog == held
    assert not held or "earlier S" in (status(fixture).error or "")


def test_a_mirror_that_skips_what_a_restored_origin_has_says_so(fixture: ConsumerFixture) -> None:
    """It found that out after its request, when the origin may have sent it everything behind."""
    epoch = identity_of(fixture.request("STREAM.INFO.S")["created"])
    first = asking(fixture, "$JS.M.first", 0)
    confirm(fixture, first)  # it has 1 to 4, and an origin that is restored to here
    fixture.leave(first)
    fixture.fill(8)
    fixture.leave(asking(fixture, "$JS.M.unaware", 10, life=epoch))
    skips = asking(fixture, "$JS.M.skips", 10, life=f"{epoch} 10")
    confirm(fixture, skips)
    assert (status(fixture).confirmed_seq, status(fixture).backlog) == (12, 6)
    assert "sequences: 6 messages" in (status(fixture).error or "")
    fixture.leave(skips)
    fixture = fixture.restart()
    confirm(fixture, asking(fixture, "$JS.M.later", 12, life=f"{epoch} 10"))
    assert (status(fixture).confirmed_seq, status(fixture).backlog) == (12, 6)
