"""Sourcing through a durable consumer at the origin (2.14): resets to resume, and acknowledgements by flow control."""

from __future__ import annotations

import msgspec
import pytest

from eyot_sync.sourcing.actions import Answer, Request, Skip, Unsubscribe
from eyot_sync.sourcing.origin import Origin
from eyot_sync.sourcing.origin_check import OriginPosition
from eyot_sync.sourcing.phase import Phase
from eyot_sync.sourcing.source_consumer import SourceConsumer
from eyot_sync.sourcing.source_state import ResumeState, SourceConfig
from eyot_wire.jetstream.stream import StreamConsumerSource, StreamSource

FLOW = b"NATS/1.0 100 FlowControl Request\r\n\r\n"


def make_source_consumer(last_seq: int = 0, *, mirror: bool = False) -> SourceConsumer:
    source = StreamSource(name="ORIGIN", consumer=StreamConsumerSource(name="C", deliver_subject="fixed"))
    ids = iter(range(1000))
    return SourceConsumer(
        SourceConfig(Origin.of(source), mirror),
        ResumeState(last=OriginPosition(last_seq)),
        make_id=lambda _: f"{next(ids):08}",
    )


def answer(before: int, policy: str = "flow_control") -> bytes:
    at = {"consumer_seq": 0, "stream_seq": before}
    return msgspec.json.encode(
        {
            "type": "io.nats.jetstream.api.v1.consumer_reset_response",
            "name": "C",
            "config": {"ack_policy": policy},
            "delivered": at,
            "ack_floor": at,
            "reset_seq": before + 1,
        }
    )


def message(source_consumer: SourceConsumer, sseq: int, cseq: int, now: float = 1.5) -> list[object]:
    reply = b"$JS.ACK.ORIGIN.C.1.%d.%d.1000.0" % (sseq, cseq)
    return list(source_consumer.message(reply, b"a", b"", b"%d" % sseq, now))


def test_the_first_request_lets_the_origin_say_where_it_goes_on() -> None:
    source_consumer = make_source_consumer()
    request = source_consumer.link_up(1.0)[-2]
    assert isinstance(request, Request)
    assert (request.subject, request.body) == (b"$JS.API.CONSUMER.RESET.ORIGIN.C", b"")
    assert source_consumer.request.deliver == b"fixed"
    assert source_consumer.api_subject == b"$JS.API.CONSUMER.RESET.ORIGIN.C"


def test_later_ones_say_what_comes_next() -> None:
    source_consumer = make_source_consumer(41)
    request = source_consumer.link_up(1.0)[-2]
    assert isinstance(request, Request)
    assert request.body == b'{"seq":42}'


def test_a_mirror_skips_what_the_origin_has_settled_already() -> None:
    source_consumer = make_source_consumer(mirror=True)
    source_consumer.link_up(1.0)
    source_consumer.unidentified(1.0)
    assert source_consumer.response(source_consumer.request.reply, answer(7), 1.1) == [Skip(7)]


def test_what_comes_before_the_answer_is_of_an_earlier_time() -> None:
    source_consumer = make_source_consumer()
    source_consumer.link_up(1.0)
    source_consumer.unidentified(1.0)
    assert message(source_consumer, 9, 9, 1.05) == []
    source_consumer.response(source_consumer.request.reply, answer(0), 1.1)
    assert message(source_consumer, 1, 1) == []
    assert [each.payload for each in source_consumer.take_batch()[0]] == [b"1"]


def test_what_is_settled_is_what_is_on_flash() -> None:
    source_consumer = make_source_consumer()
    source_consumer.link_up(1.0)
    source_consumer.unidentified(1.0)
    source_consumer.response(source_consumer.request.reply, answer(0), 1.1)
    message(source_consumer, 3, 1)
    message(source_consumer, 5, 2)
    assert source_consumer.message(b"$JS.FC.ORIGIN.C.x", b"", FLOW, b"", 1.6) == []
    message(source_consumer, 6, 3)
    batch, mark = source_consumer.take_batch()
    header = b"NATS/1.0\r\nNats-Last-Consumer: 2\r\nNats-Last-Stream: 5\r\nEyot-Consumer: C\r\n\r\n"
    assert source_consumer.committed(mark, 6, len(batch), source_consumer.request.reply) == [
        Answer(b"$JS.FC.ORIGIN.C.x", header)
    ]


def test_a_commit_of_an_earlier_request_settles_nothing() -> None:
    source_consumer = make_source_consumer()
    source_consumer.link_up(1.0)
    source_consumer.unidentified(1.0)
    source_consumer.response(source_consumer.request.reply, answer(0), 1.1)
    message(source_consumer, 1, 1)
    (_, mark), asked = source_consumer.take_batch(), source_consumer.request.reply
    source_consumer.link_up(2.0)
    source_consumer.response(source_consumer.request.reply, answer(1), 2.1)
    message(source_consumer, 2, 1, 2.2)
    source_consumer.message(b"$JS.FC.ORIGIN.C.y", b"", FLOW, b"", 2.3)
    assert source_consumer.committed(mark, 1, 1, asked) == []


@pytest.mark.parametrize(("mirror", "code"), [(True, 10214), (False, 10217)])
def test_a_consumer_with_other_acknowledgements_is_refused(mirror: bool, code: int) -> None:
    source_consumer = make_source_consumer(mirror=mirror)
    source_consumer.link_up(1.0)
    source_consumer.response(source_consumer.request.reply, answer(0, "explicit"), 1.1)
    assert source_consumer.phase is Phase.WAITING
    assert source_consumer.progress.error is not None
    assert source_consumer.progress.error.err_code == code


def test_it_is_not_ours_to_delete() -> None:
    source_consumer = make_source_consumer()
    source_consumer.link_up(1.0)
    source_consumer.unidentified(1.0)
    source_consumer.response(source_consumer.request.reply, answer(0), 1.1)
    assert source_consumer.is_connected
    assert [type(each) for each in source_consumer.stop(release=True)] == [Unsubscribe]
