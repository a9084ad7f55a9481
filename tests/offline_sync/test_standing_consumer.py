"""Copying through a consumer that stands ready at the origin (2.14): asked to go on, told what is settled."""

from __future__ import annotations

import msgspec
import pytest

from eyot_sync.copying.actions import Answer, Phase, Request, Skip
from eyot_sync.copying.copier import Copier
from eyot_sync.copying.origin import Origin
from eyot_sync.copying.proof import Reached
from eyot_wire.jetstream.stream import StreamConsumerSource, StreamSource

FLOW = b"NATS/1.0 100 FlowControl Request\r\n\r\n"


def make_copier(last_seq: int = 0, *, mirror: bool = False) -> Copier:
    source = StreamSource(name="ORIGIN", consumer=StreamConsumerSource(name="C", deliver_subject="fixed"))
    ids = iter(range(1000))
    return Copier(Origin.of(source), mirror=mirror, last=Reached(last_seq), make_id=lambda _: f"{next(ids):08}")


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


def message(copier: Copier, sseq: int, cseq: int, now: float = 1.5) -> list[object]:
    reply = b"$JS.ACK.ORIGIN.C.1.%d.%d.1000.0" % (sseq, cseq)
    return list(copier.message(reply, b"a", b"", b"%d" % sseq, now))


def test_the_first_request_lets_the_origin_say_where_it_goes_on() -> None:
    copier = make_copier()
    request = copier.link_up(1.0)[-2]
    assert isinstance(request, Request)
    assert (request.subject, request.body) == (b"$JS.API.CONSUMER.RESET.ORIGIN.C", b"")
    assert copier.deliver == b"fixed"
    assert copier.api_subject == b"$JS.API.CONSUMER.RESET.ORIGIN.C"


def test_later_ones_say_what_comes_next() -> None:
    copier = make_copier(41)
    request = copier.link_up(1.0)[-2]
    assert isinstance(request, Request)
    assert request.body == b'{"seq":42}'


def test_a_mirror_skips_what_the_origin_has_settled_already() -> None:
    copier = make_copier(mirror=True)
    copier.link_up(1.0)
    copier.unidentified(1.0)
    assert copier.response(copier.reply, answer(7), 1.1) == [Skip(7)]


def test_what_comes_before_the_answer_is_of_an_earlier_time() -> None:
    copier = make_copier()
    copier.link_up(1.0)
    copier.unidentified(1.0)
    assert message(copier, 9, 9, 1.05) == []
    copier.response(copier.reply, answer(0), 1.1)
    assert message(copier, 1, 1) == []
    assert [each.payload for each in copier.take_batch()[0]] == [b"1"]


def test_what_is_settled_is_what_is_on_flash() -> None:
    copier = make_copier()
    copier.link_up(1.0)
    copier.unidentified(1.0)
    copier.response(copier.reply, answer(0), 1.1)
    message(copier, 3, 1)
    message(copier, 5, 2)
    assert copier.message(b"$JS.FC.ORIGIN.C.x", b"", FLOW, b"", 1.6) == []
    message(copier, 6, 3)
    batch, mark = copier.take_batch()
    header = b"NATS/1.0\r\nNats-Last-Consumer: 2\r\nNats-Last-Stream: 5\r\nEyot-Consumer: C\r\n\r\n"
    assert copier.committed(mark, 6, len(batch), copier.reply) == [Answer(b"$JS.FC.ORIGIN.C.x", header)]


def test_a_commit_of_an_earlier_request_settles_nothing() -> None:
    copier = make_copier()
    copier.link_up(1.0)
    copier.unidentified(1.0)
    copier.response(copier.reply, answer(0), 1.1)
    message(copier, 1, 1)
    (_, mark), asked = copier.take_batch(), copier.reply
    copier.link_up(2.0)
    copier.response(copier.reply, answer(1), 2.1)
    message(copier, 2, 1, 2.2)
    copier.message(b"$JS.FC.ORIGIN.C.y", b"", FLOW, b"", 2.3)
    assert copier.committed(mark, 1, 1, asked) == []


@pytest.mark.parametrize(("mirror", "code"), [(True, 10214), (False, 10217)])
def test_a_consumer_with_other_acknowledgements_is_refused(mirror: bool, code: int) -> None:
    copier = make_copier(mirror=mirror)
    copier.link_up(1.0)
    copier.response(copier.reply, answer(0, "explicit"), 1.1)
    assert copier.phase is Phase.WAITING
    assert copier.progress.error is not None
    assert copier.progress.error.err_code == code
