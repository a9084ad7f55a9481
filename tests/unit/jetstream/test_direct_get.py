"""Direct get: single messages, batches, the last of each of several subjects, and the statuses of what cannot be."""

from pathlib import Path
from typing import Any

import pytest

from eyot_daemon.jetstream.api import messages
from eyot_wire import headers
from eyot_wire.jetstream.copied_run import CopiedMessage
from support.jetstream.fixture import Fixture


@pytest.fixture
def fixture(tmp_path: Path) -> Fixture:
    fixture = Fixture(tmp_path)
    fixture.create(allow_direct=True)
    for number in range(1, 7):
        fixture.put(b"s.%d" % (number % 3), b"%d" % number, {"Mine": "x"})
        fixture.clock.advance(1)
    return fixture


def direct(fixture: Fixture, **asked: Any) -> list[tuple[bytes, bytes]]:
    return fixture.messages("DIRECT.GET.S", asked)


def seqs(answers: list[tuple[bytes, bytes]]) -> list[int]:
    return [int(seq) for seq in (headers.get(header, b"Nats-Sequence") for header, _ in answers) if seq is not None]


def status(answer: tuple[bytes, bytes]) -> tuple[int, str] | None:
    return headers.status(answer[0])


def test_a_message_comes_with_its_headers_and_its_place(fixture: Fixture) -> None:
    assert direct(fixture, seq=2) == [
        (
            b"NATS/1.0\r\nMine: x\r\nNats-Stream: S\r\nNats-Subject: s.2\r\nNats-Sequence: 2\r\n"
            b"Nats-Time-Stamp: 2023-11-14T22:13:21Z\r\n\r\n",
            b"2",
        )
    ]


@pytest.mark.parametrize(
    ("asked", "seq"),
    [
        ({"last_by_subj": "s.1"}, 4),
        ({"last_by_subj": "s.*"}, 6),
        ({"next_by_subj": "s.1"}, 1),
        ({"next_by_subj": "s.1", "seq": 2}, 4),
        ({"start_time": "2023-11-14T22:13:22.5Z"}, 4),
    ],
)
def test_ways_to_find_one(fixture: Fixture, asked: dict[str, Any], seq: int) -> None:
    assert seqs(direct(fixture, **asked)) == [seq]


def test_the_last_of_a_subject_can_be_asked_for_in_the_subject(fixture: Fixture) -> None:
    assert seqs(fixture.messages("DIRECT.GET.S.s.2")) == [5]


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (b"", (408, "Empty Request")),
        (b"{}", (408, "Empty Request")),
        (b"xx", (408, "Malformed Request")),
        (b'{"seq":99}', (404, "Message Not Found")),
        (b'{"last_by_subj":"nope"}', (404, "Message Not Found")),
        (b'{"seq":1,"last_by_subj":"s.1"}', (408, "Bad Request")),
        (b'{"batch":2,"last_by_subj":"s.1"}', (408, "Bad Request")),
        (b'{"batch":2,"seq":99}', (404, "Message Not Found")),
        (b'{"multi_last":["nope"]}', (404, "No Results")),
        (b'{"multi_last":["s.1"],"next_by_subj":"s.1"}', (408, "Bad Request")),
        (b'{"seq":0}', (408, "Empty Request")),
        (b'{"batch":3}', (408, "Empty Request")),
        (b'{"seq":1,"max_bytes":4}', None),
        (b'{"seq":1,"something":"new"}', None),
    ],
)
def test_statuses(fixture: Fixture, body: bytes, wanted: tuple[int, str] | None) -> None:
    reply = fixture.publish(b"$JS.API.DIRECT.GET.S", body)
    fixture.commit()
    fixture.run_on()  # on a slow machine a search ends in a later turn
    answers = [(got.header, got.payload) for got in fixture.inbox.got if got.subject == reply]
    assert [status(answer) for answer in answers] == [wanted]


def test_a_subject_in_the_subject_excludes_other_ways(fixture: Fixture) -> None:
    (answer,) = fixture.messages("DIRECT.GET.S.s.1", {"seq": 1})
    assert status(answer) == (408, "Bad Request")
    assert seqs(fixture.messages("DIRECT.GET.S.s.1", {"max_bytes": 1})) == [4]


def test_without_headers_even_the_place_is_left_out(fixture: Fixture) -> None:
    assert direct(fixture, seq=2, no_hdr=True) == [(b"", b"2")]


def test_streams_that_do_not_answer_have_no_responders(fixture: Fixture) -> None:
    fixture.create("CLOSED")
    for name in ("CLOSED", "NOPE"):
        (answer,) = fixture.messages(f"DIRECT.GET.{name}", {"seq": 1})
        assert status(answer) == (503, "")


def test_a_batch_counts_down_and_ends(fixture: Fixture) -> None:
    answers = direct(fixture, batch=3, next_by_subj="s.>", seq=2)
    assert seqs(answers) == [2, 3, 4]
    pending = [headers.get(header, b"Nats-Num-Pending") for header, _ in answers]
    last = [headers.get(header, b"Nats-Last-Sequence") for header, _ in answers]
    assert pending == [b"4", b"3", b"2", b"2"]
    assert last == [b"0", b"2", b"3", b"4"]
    assert status(answers[-1]) == (204, "EOB")


def test_a_batch_is_bounded_in_bytes_and_may_start_at_a_time(fixture: Fixture) -> None:
    size = len(b"NATS/1.0\r\nMine: x\r\n\r\n") + 1
    assert seqs(direct(fixture, batch=10, max_bytes=2 * size, seq=1)) == [1, 2]
    assert seqs(direct(fixture, batch=10, max_bytes=1, seq=1)) == [1]
    assert seqs(direct(fixture, batch=10, start_time="2023-11-14T22:13:22.5Z")) == [4, 5, 6]


@pytest.mark.parametrize("at_once", [False, True])
def test_a_batch_goes_on_in_later_turns(fixture: Fixture, monkeypatch: pytest.MonkeyPatch, at_once: bool) -> None:
    """Others have their turns between; with very many batches under way it is sent at once, since what waits is bounded."""
    monkeypatch.setattr(messages, "BATCH_OF_A_TURN", 2)
    monkeypatch.setattr(messages, "BATCHES_MAX", 0 if at_once else 100)
    reply = fixture.publish(b"$JS.API.DIRECT.GET.S", b'{"batch":6,"seq":1}')
    fixture.commit()

    def answers() -> list[bytes]:
        return [got.header for got in fixture.inbox.got if got.subject == reply]

    if not at_once:
        assert len(answers()) == 2
        assert fixture.request("STREAM.INFO.S")["state"]["messages"] == 6  # another request is answered between
    told = len(answers())
    while fixture.broker.later_turns:
        assert fixture.broker.timers.run_due(fixture.clock.monotonic(), limit=1)
        assert told < len(answers()) <= told + 3
        told = len(answers())
    found = answers()
    assert seqs([(header, b"") for header in found]) == [1, 2, 3, 4, 5, 6]
    assert headers.status(found[-1]) == (204, "EOB")


def test_a_batch_of_a_stream_that_goes_away_ends(fixture: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "BATCH_OF_A_TURN", 2)
    fixture.publish(b"$JS.API.DIRECT.GET.S", b'{"batch":6,"seq":1}')
    fixture.commit()
    assert fixture.request("STREAM.DELETE.S")["success"]
    while fixture.broker.timers.run_due(fixture.clock.monotonic(), limit=1):
        pass
    assert not fixture.broker.later_turns


def test_the_last_of_several_subjects(fixture: Fixture) -> None:
    answers = direct(fixture, multi_last=["s.1", "s.2"])
    assert seqs(answers) == [4, 5]
    assert status(answers[-1]) == (204, "EOB")
    assert headers.get(answers[-1][0], b"Nats-UpTo-Sequence") == b"6"
    assert seqs(direct(fixture, multi_last=["s.*"])) == [4, 5, 6]
    assert seqs(direct(fixture, multi_last=["s.*"], batch=2)) == [4, 5]
    assert seqs(direct(fixture, multi_last=["s.*"], seq=5)) == [5, 6]


def test_a_filter_that_is_no_subject_hides_nothing(fixture: Fixture) -> None:
    assert seqs(direct(fixture, multi_last=["", "s.1", "s..2", "s.2 x", "s.>.3"])) == [4]
    assert [status(answer) for answer in direct(fixture, multi_last=["", "s..2"])] == [(404, "No Results")]


def test_the_last_as_of_earlier(fixture: Fixture) -> None:
    assert seqs(direct(fixture, multi_last=["s.*"], up_to_seq=4)) == [2, 3, 4]
    assert seqs(direct(fixture, multi_last=["s.*"], up_to_time="2023-11-14T22:13:22Z")) == [1, 2]


def test_too_many_subjects(tmp_path: Path) -> None:
    fixture = Fixture(tmp_path / "other")
    fixture.create(allow_direct=True)
    for number in range(1025):
        fixture.publish(b"s.%d" % number)
    fixture.commit()
    assert [status(answer) for answer in direct(fixture, multi_last=["s.*"])] == [(413, "Too Many Results")]


def test_a_mirror_answers_for_its_origin(fixture: Fixture) -> None:
    fixture.create("M", subjects=None, mirror={"name": "FAR", "external": {"api": "$JS.d.API"}}, mirror_direct=True)
    (answer,) = fixture.messages("DIRECT.GET.FAR", {"seq": 1})
    assert status(answer)[0] == 503  # as long as nothing has reached it
    message = CopiedMessage(7, 1_600_000_000_000_000_000, b"o.a", b"", b"far")
    fixture.stream("M").ingest_copied([message], mirror=True, skip_to=0, on_done=lambda result: None)
    fixture.commit()
    (answer,) = fixture.messages("DIRECT.GET.FAR", {"seq": 1})
    assert status(answer) == (404, "Message Not Found")
    (answer,) = fixture.messages("DIRECT.GET.FAR", {"seq": 7})
    assert answer[-1] == b"far"
