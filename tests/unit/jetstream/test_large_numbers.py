"""Numbers at the ends of what JSON and nats-server know: every request is answered, and publishing continues."""

import logging
from pathlib import Path
from typing import Any

import pytest

from support.jetstream.consumers import ConsumerFixture

NUMBERS = (-(1 << 63), -1, (1 << 62) + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
STREAM = [
    "first_seq",
    "max_msgs",
    "max_bytes",
    "max_age",
    "max_msg_size",
    "max_msgs_per_subject",
    "max_consumers",
    "duplicate_window",
    "num_replicas",
    "subject_delete_marker_ttl",
]
CONSUMER = [
    "opt_start_seq",
    "ack_wait",
    "max_deliver",
    "max_ack_pending",
    "max_waiting",
    "max_batch",
    "max_expires",
    "max_bytes",
    "inactive_threshold",
    "idle_heartbeat",
    "rate_limit_bps",
    "num_replicas",
    "priority_timeout",
]
REQUESTS: list[tuple[str, dict[str, Any], str]] = [
    *(("STREAM.CREATE.T", {"name": "T", "subjects": ["t"]}, member) for member in STREAM),
    *(("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"]}, member) for member in STREAM),
    ("STREAM.PURGE.S", {}, "seq"),
    ("STREAM.PURGE.S", {}, "keep"),
    ("STREAM.INFO.S", {"subjects_filter": ">"}, "offset"),
    ("STREAM.NAMES", {}, "offset"),
    ("STREAM.LIST", {}, "offset"),
    ("STREAM.MSG.GET.S", {}, "seq"),
    ("STREAM.MSG.GET.S", {"next_by_subj": "s.>"}, "seq"),
    ("STREAM.MSG.DELETE.S", {}, "seq"),
    ("DIRECT.GET.S", {}, "seq"),
    *(
        ("DIRECT.GET.S", {"next_by_subj": "s.>", "seq": 1, "batch": 2}, member)
        for member in ("seq", "batch", "max_bytes")
    ),
    *(("DIRECT.GET.S", {"multi_last": ["s.>"]}, member) for member in ("seq", "up_to_seq", "batch", "max_bytes")),
    ("CONSUMER.RESET.S.C", {}, "seq"),
    ("CONSUMER.LIST.S", {}, "offset"),
    ("CONSUMER.NAMES.S", {}, "offset"),
    *(
        ("CONSUMER.MSG.NEXT.S.C", {"batch": 1, "no_wait": True}, member)
        for member in ("batch", "expires", "max_bytes", "idle_heartbeat", "min_pending", "min_ack_pending", "priority")
    ),
]


@pytest.fixture
def fixture(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> ConsumerFixture:
    caplog.set_level(logging.ERROR)
    fixture = ConsumerFixture(tmp_path / "store")
    fixture.create("S", subjects=["s.>"], allow_direct=True, allow_msg_ttl=True)
    config = {"name": "C", "durable_name": "C", "ack_policy": "explicit"}
    fixture.request("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config})
    fixture.put(b"s.a", b"1")
    return fixture


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize(("words", "body", "member"), REQUESTS)
def test_every_number_is_answered(
    fixture: ConsumerFixture,
    caplog: pytest.LogCaptureFixture,
    words: str,
    body: dict[str, Any],
    member: str,
    number: int,
) -> None:
    answers = fixture.messages(words, {**body, member: number})
    fixture.advance(0.1)
    assert answers or words.startswith(("DIRECT", "CONSUMER.MSG.NEXT"))
    for subject in (b"s.a", b"t"):
        stored = fixture.put(subject, b"2")
        assert stored is None or stored.get("seq") or "error" in stored
    assert fixture.put(b"s.b", b"3")
    for name in ("S", "T"):
        info = fixture.request(f"STREAM.INFO.{name}")
        assert "state" in info or info["error"]["err_code"] == 10059
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("member", CONSUMER)
@pytest.mark.parametrize("number", NUMBERS)
def test_every_number_of_a_consumer_is_answered(
    fixture: ConsumerFixture, caplog: pytest.LogCaptureFixture, member: str, number: int
) -> None:
    for policy in ("all", "by_start_sequence"):
        for deliver in ({}, {"deliver_subject": "to"}):
            config = {"name": "D", "ack_policy": "explicit", "deliver_policy": policy, **deliver, member: number}
            assert fixture.request("CONSUMER.CREATE.S.D", {"stream_name": "S", "config": config})
            fixture.messages("CONSUMER.MSG.NEXT.S.D", {"batch": 1, "no_wait": True})
            assert fixture.request("CONSUMER.INFO.S.D")
            fixture.request("CONSUMER.DELETE.S.D")
    assert fixture.put(b"s.b", b"3")["seq"] == 2
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("name", ["Nats-Expected-Last-Sequence", "Nats-Expected-Last-Subject-Sequence", "Nats-TTL"])
def test_every_number_in_a_header_is_answered(
    fixture: ConsumerFixture, caplog: pytest.LogCaptureFixture, name: str, number: int
) -> None:
    assert fixture.put(b"s.a", b"2", {name: str(number)})
    assert fixture.put(b"s.b", b"3")["seq"]
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("place", [4, 6])
@pytest.mark.parametrize("payload", [b"-NAK", b"+TERM why"])
def test_an_acknowledgement_with_more_digits_than_any_number_has(
    fixture: ConsumerFixture, place: int, payload: bytes
) -> None:
    """Longer subjects than a client's line holds come over leaf connections."""
    fixture.messages("CONSUMER.MSG.NEXT.S.C")
    tokens = b"$JS.ACK.S.C.1.1.1.1.0".split(b".")
    tokens[place] = b"9" * 5000
    fixture.publish(b".".join(tokens), payload)
    fixture.commit()
    assert fixture.request("CONSUMER.INFO.S.C")["num_ack_pending"] == (payload == b"-NAK")


def test_a_first_sequence_leaves_room_for_what_comes(fixture: ConsumerFixture) -> None:
    most = 1 << 62
    refused = fixture.create("T", subjects=["t"], first_seq=most + 1)
    assert refused["error"]["err_code"] == 10052
    fixture.create("T", subjects=["t"], first_seq=most)
    assert [fixture.put(b"t", b"x")["seq"] for _ in range(3)] == [most, most + 1, most + 2]
