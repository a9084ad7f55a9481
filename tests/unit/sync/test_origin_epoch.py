"""What an origin's answers say of the stream that has a position in it, and which answers count."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eyot_sync.sourcing import stored_times
from eyot_sync.sourcing.actions import FetchLastMessage, Progress
from eyot_sync.sourcing.origin import Origin
from eyot_sync.sourcing.origin_answers import CreateResponse, OriginInfo, OriginState
from eyot_sync.sourcing.origin_check import ASKED_BYTES_MAX, OriginCheck, OriginPosition
from eyot_sync.sourcing.origin_epoch import Claim, Continue, OriginEpoch, Pause, Restart, ResumeByTime
from eyot_sync.sourcing.origin_verifier import NEAR_END, OriginVerifier
from eyot_wire.jetstream.stream import StreamSource
from eyot_wire.jetstream.struct import decode

OLD, NEW = "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"
AT_50 = OriginPosition(50, 5_000, 10)


def epoch_of(*, mirror: bool, **known: Any) -> OriginEpoch:
    known = {"identity": OLD, "skip_lost": False, "held_at": 0} | known
    return OriginEpoch(Progress(), mirror=mirror, **known)


def info_of(last_seq: int | None, created: str = OLD, messages: int = 9) -> OriginInfo:
    return OriginInfo(created=created, state=OriginState(messages=messages, first_seq=1, last_seq=last_seq))


@pytest.mark.parametrize(
    ("mirror", "known", "told"),
    [
        (False, {}, "OLD"),
        (False, {"identity": ""}, ""),
        (True, {}, ""),
        (True, {"whole": True}, "OLD"),
        (True, {"skipped": 7}, "OLD 7"),
        (True, {"skipped": 7, "identity": ""}, ""),
        (True, {"skipped": 7, "held_at": 5}, ""),
    ],
)
def test_what_is_claimed_of_the_messages_before(mirror: bool, known: dict[str, Any], told: str) -> None:
    text = epoch_of(mirror=mirror, **{"identity": "OLD"} | known).told
    assert text == told
    assert Claim.read(text) == Claim("OLD" if told else "", 7 if " " in told else 0)
    assert Claim.read("OLD seven") == Claim("OLD", 0)


LOST, OTHER = "lost messages", "has another message"


@pytest.mark.parametrize(
    ("mirror", "known", "before_first", "info", "refuted", "verdict", "error", "note"),
    [
        (False, {}, 50, info_of(50), False, Continue(), "", ""),
        (False, {}, 60, info_of(70), False, Continue(), "", ""),
        (False, {}, 50, info_of(None), False, Continue(), "", ""),
        (False, {}, 50, None, False, Continue(), "", ""),
        (False, {}, 40, None, False, ResumeByTime(40), LOST, ""),
        (False, {}, 50, info_of(45), False, ResumeByTime(45), LOST, ""),
        (False, {}, 50, info_of(70), True, ResumeByTime(49), "", OTHER),
        (False, {}, 50, info_of(45), True, ResumeByTime(45), LOST, OTHER),
        (False, {"identity": ""}, 50, info_of(50, NEW), False, Continue(), "", ""),
        (True, {"whole": True}, 50, info_of(50), False, Continue(), "", ""),
        (True, {"whole": True}, 50, info_of(45), False, Pause, "ended at 45", ""),
        (True, {"whole": True}, 50, info_of(45), True, Pause, "ended at 45", ""),
        (True, {"whole": True}, 50, info_of(70), True, Pause, OTHER, ""),
        (True, {"held_at": 46}, 50, info_of(70), False, Pause, "ended at 45", ""),
        (True, {"held_at": 46}, 40, info_of(40), False, Pause, "ended at 45", ""),
        (True, {"held_at": 46, "skip_lost": True}, 50, info_of(70), False, Continue(), "", "after 45"),
        (True, {"skip_lost": True}, 50, info_of(45), False, Continue(), "", "after 45"),
        (True, {}, 50, info_of(70, NEW), False, Pause, "was re-created", ""),
        (True, {"skip_lost": True}, 50, info_of(70, NEW), False, Continue(), "", "only what comes after 50"),
    ],
)  # fmt: skip
def test_verdicts(
    mirror: bool, known: dict[str, Any], before_first: int, info: OriginInfo | None, refuted: bool, verdict: Any,
    error: str, note: str,
) -> None:  # fmt: skip
    epoch = epoch_of(mirror=mirror, **known)
    found = epoch.assess(AT_50, before_first, info, refuted=refuted, newer=False)
    progress = epoch._progress
    told = progress.error
    if isinstance(found, Pause):
        assert verdict is Pause
        assert found.lag == (
            info.state.messages if info and info.created == NEW else 50 - (49 if refuted and error == OTHER else 45)
        )
        assert epoch.identity == OLD
        told = found.why
    else:
        assert found == verdict
    assert error in (told.description if told is not None else "")
    assert bool(error) == (told is not None)
    assert note in progress.note
    assert bool(note) == bool(progress.note)
    assert epoch.ended == (None if info is None else info.state.last_seq)
    if mirror and known.get("skip_lost"):
        assert (epoch.held_at, epoch.whole, epoch.skipped) == (0, False, 50)


@pytest.mark.parametrize(("asked", "newer", "restarts"), [(0, False, 0), (0, True, 1), (50, False, 1)])
def test_a_new_epoch_counts_where_something_of_the_old_one_was_copied(asked: int, newer: bool, restarts: int) -> None:
    epoch = epoch_of(mirror=False)
    verdict = epoch.assess(OriginPosition(asked), 0, info_of(70, NEW), refuted=False, newer=newer)
    assert isinstance(verdict, Restart if restarts else Continue)
    assert epoch._progress.epochs == restarts
    assert epoch.identity == NEW


@pytest.mark.parametrize(
    ("reached", "checkpoints", "others", "asked"),
    [
        (AT_50, (), (), "50"),
        (AT_50, ((47, 4_700), (60, 1)), (7,), "50 47 7"),
        (OriginPosition(50), ((47, 4_700),), (), "50 47"),
        (OriginPosition(50), (), (), ""),
        (OriginPosition(), ((47, 4_700),), (7,), "7"),
    ],
)
def test_what_an_origin_is_asked(
    reached: OriginPosition, checkpoints: list[tuple[int, int]], others: list[int], asked: str
) -> None:
    check = OriginCheck(reached, others, checkpoints)
    assert check.metadata == ({stored_times.KEY: asked} if asked else {})
    assert check.pending == bool(asked)
    body = json.loads(check.request(Origin.of(StreamSource(name="O")))[1])
    assert body == {"seq": reached.seq, "no_hdr": True} if reached.seq else {"no_hdr": True}


@pytest.mark.parametrize(
    ("reached", "told", "enough", "refuted"),
    [
        (AT_50, "50:5000 47:4700", True, False),
        (AT_50, "50:5001 47:4700", True, True),
        (AT_50, "50:0 47:4700", True, False),
        (AT_50, "50:0 47:4701", True, True),
        (AT_50, "50 47", False, False),
        (AT_50._replace(size=ASKED_BYTES_MAX), "50 47", False, False),
        (AT_50._replace(size=ASKED_BYTES_MAX + 1), "50 47", True, False),
        (AT_50._replace(size=0), "50 47", True, False),
        (AT_50._replace(size=1), "50 47", False, False),
        (AT_50._replace(ts_ns=0), "50 47", True, False),
        (AT_50._replace(ts_ns=0), "50:5000 47:4700", True, False),
    ],
)
def test_the_stored_times_at_an_origin(reached: OriginPosition, told: str, enough: bool, refuted: bool) -> None:
    check = OriginCheck(reached, (), ((47, 4_700),))
    assert check.heard({stored_times.KEY: told}) == enough
    assert check.pending == (not enough)
    assert check.refuted == refuted
    assert check.stored == ({} if ":" not in told else stored_times.read(told))


@pytest.mark.parametrize(
    ("seq", "time", "refuted"),
    [(50, "1970-01-01T00:00:00.000005Z", False), (50, "1970-01-01T00:00:01Z", True), (51, "1970-01-01T00:00:01Z", False), (50, "then", False)],
)  # fmt: skip
def test_the_last_copied_message_at_an_origin(seq: int, time: str, refuted: bool) -> None:
    check = OriginCheck(AT_50)
    check.message(json.dumps({"message": {"seq": seq, "time": time}}).encode())
    assert (check.pending, check.refuted) == (False, refuted)


def created(
    delivered: tuple[int, int] = (0, 50), pending: int = 0, metadata: dict[str, str] | None = None
) -> CreateResponse:
    body = {
        "name": "c",
        "num_pending": pending,
        "delivered": {"consumer_seq": delivered[0], "stream_seq": delivered[1]},
        "ack_floor": {"consumer_seq": 0, "stream_seq": 0},
        "config": {"metadata": metadata or {}},
    }
    return decode(json.dumps(body).encode(), CreateResponse, strict=False)


def verifier_of(*, at: OriginPosition = AT_50, **source: Any) -> OriginVerifier:
    names = iter(range(100))
    verifier = OriginVerifier(
        Origin.of(StreamSource(name="O", **source)), epoch_of(mirror=False), (), lambda length: str(next(names))
    )
    verifier.begin(at, (), 10.0)
    return verifier


def answer(verifier: OriginVerifier, **info: Any) -> None:
    state = {"messages": 9, "first_seq": 1, "last_seq": 50}
    assert verifier.answered(verifier.identity_reply, json.dumps({"created": OLD, "state": state} | info).encode())


def test_answers_count_for_their_request_alone() -> None:
    verifier = verifier_of()
    first = verifier.identity_reply
    [asked] = verifier.consumer_created(created())
    assert isinstance(asked, FetchLastMessage)
    answer(verifier)
    assert verifier.only_sourced
    assert not verifier.is_complete
    assert verifier.answered(asked.reply, b"{}")
    assert verifier.is_complete
    verifier.end()
    assert not verifier.answered(first, b"{}")
    verifier.begin(AT_50, (), 20.0)
    assert not verifier.only_sourced  # that was of the request before
    verifier.unidentified()
    verifier.unproven()
    assert verifier.is_complete
    answer(verifier)  # too late
    assert not verifier.only_sourced


@pytest.mark.parametrize("answers", [{"error": {"code": 404, "err_code": 1}}, {"created": ""}, {"state": 5}])
def test_an_answer_without_the_epoch_is_none(answers: dict[str, Any]) -> None:
    verifier = verifier_of()
    answer(verifier, **answers)
    assert not verifier.only_sourced
    assert verifier.first_if_none_waits == 0


def test_an_origin_that_takes_messages_of_clients_may_hold_any_header() -> None:
    verifier = verifier_of()
    answer(verifier, config={"subjects": ["a"]})
    assert not verifier.only_sourced


@pytest.mark.parametrize(("identified", "patient"), [(True, False), (False, True)])
def test_an_origin_that_ignores_one_of_two_requests(identified: bool, patient: bool) -> None:
    """What answered nothing at all may be slow, or its link; what tells its epoch does not answer for messages."""
    verifier = verifier_of()
    verifier.consumer_created(created())
    if identified:
        answer(verifier)
    verifier.give_up()
    assert verifier.is_complete
    verifier.begin(AT_50, (), 20.0)
    assert bool(verifier.consumer_created(created())) == patient
    verifier.unidentified()
    assert verifier.is_complete != patient


def test_an_origin_that_answered_both_is_asked_again() -> None:
    verifier = verifier_of()
    [asked] = verifier.consumer_created(created())
    assert isinstance(asked, FetchLastMessage)
    verifier.answered(asked.reply, b"{}")
    verifier.give_up()
    verifier.begin(AT_50, (), 20.0)
    assert verifier.consumer_created(created()) != []


@pytest.mark.parametrize(("delivered", "before_first"), [((0, 60), 60), ((0, 40), 40), ((3, 60), 50), ((3, 40), 40)])
def test_where_a_consumer_begins(delivered: tuple[int, int], before_first: int) -> None:
    verifier = verifier_of()
    assert verifier.consumer_created(created(delivered, metadata={stored_times.KEY: "50:5000"})) == []
    assert verifier.before_first == before_first
    assert verifier.stored == {50: 5000}


@pytest.mark.parametrize(
    ("state", "pending", "first"),
    [
        ({"messages": 9, "last_seq": 70}, 0, 71),
        ({"messages": 9, "last_seq": 70}, 1, 0),
        ({"messages": 0, "last_seq": 70}, 0, 0),
        ({"messages": 9}, 0, 0),
        ({"messages": 9, "last_seq": 0}, 0, 0),
    ],
)
def test_where_the_next_message_is_if_none_waits(state: dict[str, int], pending: int, first: int) -> None:
    verifier = verifier_of()
    assert verifier.first_if_none_waits == 0
    answer(verifier, state=state)
    verifier.consumer_created(created(pending=pending))
    assert verifier.first_if_none_waits == first


@pytest.mark.parametrize(
    ("asked", "before_first", "pending", "first_stored", "source", "first_seq", "doubted"),
    [
        (50, 50, 0, 1, {}, 51, False),
        (50, 50, 0, 1, {}, 52, True),
        (50, 50, 0, 1, {"filter_subject": "a"}, 52, False),
        (50, 40, 0, 1, {}, 51, False),
        (50, 60, 0, 1, {}, 61, False),
        (50, 60, 0, 1, {}, 62, True),
        (50, 50, NEAR_END, 1, {}, 52, True),
        (50, 50, NEAR_END + 1, 1, {}, 52, False),
        (0, 0, 0, 1, {}, 2, True),
        (0, 0, 0, 2, {}, 2, False),
        (0, 0, NEAR_END + 1, 1, {}, 2, True),
        (0, 0, 0, None, {}, 2, True),
    ],
)  # fmt: skip
def test_whether_a_consumer_may_have_begun_too_late(
    asked: int, before_first: int, pending: int, first_stored: int | None, source: dict[str, str], first_seq: int,
    doubted: bool,
) -> None:  # fmt: skip
    verifier = verifier_of(at=OriginPosition(asked), **source)
    if first_stored is not None:
        answer(verifier, state={"messages": 9, "first_seq": first_stored, "last_seq": 70})
    verifier.consumer_created(created((0, before_first), pending))
    assert verifier.leaves_out(first_seq) == doubted


def test_stored_times_are_read_from_any_peer() -> None:
    told = stored_times.answer(
        stored_times.question((50, 37, 50)) + " x 1x -1 " + "9" * 5000, {50: 5, 37: 0}.__getitem__
    )
    assert told == "50:5 37:0"
    assert stored_times.read(told) == {50: 5, 37: 0}
    assert (
        stored_times.read("50")
        is stored_times.read("")
        is stored_times.read("50:")
        is stored_times.read("50:x")
        is None
    )
    assert stored_times.read("50:" + "9" * 5000) is stored_times.read("9" * 5000 + ":5") is None
    assert len(stored_times.question(range(99)).split()) == stored_times.ASKED_MAX
    assert len(stored_times.answer(" ".join(map(str, range(99))), lambda seq: seq).split()) == stored_times.ASKED_MAX
