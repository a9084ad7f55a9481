"""Requests about one stream that come before the first of them is on flash, in every order."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import msgspec
import pytest

from support.jetstream.consumers import ConsumerFixture

#: The words of requests and their bodies. Two letters stand for a message and for the end of a turn.
REQUESTS = {
    "create": ("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "allow_msg_schedules": True}),
    "mirror": ("STREAM.CREATE.S", {"name": "S", "mirror": {"name": "ORIGIN"}}),
    "update": ("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], "allow_msg_schedules": True, "max_msgs": 5}),
    "delete": ("STREAM.DELETE.S", b""),
    "purge": ("STREAM.PURGE.S", b""),
    "consumer": (
        "CONSUMER.CREATE.S.C",
        {"stream_name": "S", "config": {"durable_name": "C", "ack_policy": "explicit", "deliver_subject": "d"}},
    ),
    "no consumer": ("CONSUMER.DELETE.S.C", b""),
}
ORDERS = [order for order in product([*REQUESTS, "publish", "turn"], repeat=4) if {"create", "mirror"} & set(order)]


def _subscriptions(fixture: ConsumerFixture) -> list[bytes]:
    return sorted(sub.subject for sub in fixture.account.subscriptions())


@pytest.mark.parametrize("third", range(8))
def test_what_was_deleted_before_it_was_on_flash_stays_deleted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, third: int
) -> None:
    """A stream whose creation was committed after its deletion was asked for took the messages of its subjects for ever."""
    fixture = ConsumerFixture(tmp_path)
    before = _subscriptions(fixture)
    for order in ORDERS[third::8]:
        replies = []
        for step in order:
            if step == "turn":
                fixture.broker.flush()
            elif step == "publish":
                fixture.publish(b"s.x", b"x")
            else:
                words, body = REQUESTS[step]
                data = body if isinstance(body, bytes) else msgspec.json.encode(body)
                replies.append(fixture.publish(f"$JS.API.{words}".encode(), data))
        fixture.commit()
        fixture.run_on()
        assert all(fixture.answer(reply) for reply in replies), order
        subscribed = b"s.>" in _subscriptions(fixture)
        stream = fixture.jsa.streams.get("S")
        assert subscribed == (stream is not None and not stream.config.mirror), order
        if stream is not None:
            fixture.request("STREAM.DELETE.S")
            fixture.run_on()
        assert _subscriptions(fixture) == before, order
        assert not [record.getMessage() for record in caplog.records if record.levelname == "ERROR"], order
    assert not list(fixture.store.streams())


def test_each_message_that_a_stream_takes_is_answered(tmp_path: Path) -> None:
    """A publisher whose message came behind the request for the stream's deletion, in one read, waited for an answer in vain."""
    fixture = ConsumerFixture(tmp_path)
    refused = 0
    for order in product(["delete", "create", "purge", "publish", "turn"], repeat=4):
        fixture.create(subjects=["s.>"], allow_msg_schedules=True)
        replies = []
        for step in order:
            if step == "turn":
                fixture.broker.flush()
            elif step != "publish":
                words, body = REQUESTS[step]
                data = body if isinstance(body, bytes) else msgspec.json.encode(body)
                fixture.publish(f"$JS.API.{words}".encode(), data)
            elif b"s.>" in _subscriptions(fixture):
                replies.append(fixture.publish(b"s.x", b"x"))
        fixture.commit()
        fixture.run_on()
        answers = [fixture.answer(reply) for reply in replies]
        assert all(answers), order
        refused += sum(b'"err_code":10059' in answer for answer in answers if answer)
        fixture.request("STREAM.DELETE.S")
        fixture.run_on()
    assert refused
