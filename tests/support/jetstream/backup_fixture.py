"""Backups and restores in a `ConsumerFixture`: the client's requests and answers, chunk by chunk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from eyot_daemon.router.subscription import Subscription
from support.clients.destinations import Got, Recorder
from support.jetstream.consumers import ConsumerFixture
from support.jetstream.schemas import check_answer

DELIVER = b"backup.here"


def filled(path: Path) -> ConsumerFixture:
    """With a stream of 200 messages of 300 bytes."""
    fixture = ConsumerFixture(path)
    fixture.create()
    fixture.fill(200, size=300)
    return fixture


class Receiver(Recorder):
    """Takes a backup's chunks; `answer` says how many it has taken."""

    sub: Subscription

    @property
    def chunks(self) -> list[Got]:
        return [got for got in self.got if got.payload]

    @property
    def data(self) -> bytes:
        return b"".join(got.payload for got in self.got)

    @property
    def end(self) -> bytes | None:
        """The header of the message at the end."""
        return next((got.header for got in self.got if not got.payload), None)


def receiver(fixture: ConsumerFixture) -> Receiver:
    made = Receiver()
    made.sub = fixture.account.subscribe(DELIVER, made)
    return made


def answer_chunks(fixture: ConsumerFixture, to: Receiver) -> None:
    """Answer everything until nothing more comes."""
    answered = 0
    while answered < len(to.chunks):
        for got in to.chunks[answered:]:
            answered += 1
            if got.reply:
                fixture.account.publish(got.reply, origin=fixture.client)
        fixture.commit()


def take(fixture: ConsumerFixture, stream: str = "S", **options: Any) -> tuple[Any, bytes]:
    """A whole backup: the answer and the archive."""
    to = receiver(fixture)
    answer = check_answer(
        fixture.request(f"STREAM.SNAPSHOT.{stream}", {"deliver_subject": DELIVER.decode(), **options})
    )
    assert "error" not in answer, answer
    answer_chunks(fixture, to)
    fixture.account.unsubscribe(to.sub)
    assert to.end is not None
    assert to.end in (b"", b"NATS/1.0 204\r\n\r\n")
    return answer, to.data


def begin(fixture: ConsumerFixture, answer: Any, stream: str = "S", **config: Any) -> Any:
    body = {"config": {**answer["config"], **config}, "state": answer["state"]}
    return check_answer(fixture.request(f"STREAM.RESTORE.{stream}", body))


def send(fixture: ConsumerFixture, subject: str, data: bytes, chunk: int = 1000) -> Any:
    """All of it and the end; the first answer that says something."""
    for at in range(0, len(data), chunk):
        said = ask(fixture, subject, data[at : at + chunk])
        assert said is not None, "a chunk was not answered"
        if said:
            return check_answer(msgspec.json.decode(said))
    said = ask(fixture, subject, b"")
    assert said
    return check_answer(msgspec.json.decode(said))


def ask(fixture: ConsumerFixture, subject: str, payload: bytes) -> bytes | None:
    reply = fixture.publish(subject.encode(), payload)
    for _ in range(1000):
        fixture.commit()
        if (said := fixture.answer(reply)) is not None:
            return said
        fixture.advance(0)
    return None


def restore(fixture: ConsumerFixture, answer: Any, data: bytes, stream: str = "S", **config: Any) -> Any:
    begun = begin(fixture, answer, stream, **config)
    return begun if "error" in begun else send(fixture, begun["deliver_subject"], data)


def nothing_is_left(fixture: ConsumerFixture, name: str = "S") -> None:
    fixture.commit()
    assert fixture.request(f"STREAM.INFO.{name}")["error"]["err_code"] == 10059
    assert fixture.store.stream(fixture.account.name, name) is None
    assert not fixture.jsa.restores
    assert fixture.request("INFO")["storage"] == 0


def remove(fixture: ConsumerFixture) -> None:
    assert fixture.request("STREAM.DELETE.S")["success"]


def restarted(fixture: ConsumerFixture, *, crash: bool = False) -> ConsumerFixture:
    if crash:
        fixture.store.crash()
    else:
        fixture.js.stop()
        fixture.store.close()
    return ConsumerFixture(fixture.path, options=fixture.js.options, clock=fixture.clock)


def random_payloads(fixture: ConsumerFixture, count: int = 60) -> None:
    """What does not compress, so that there are many chunks."""
    rng = fixture.broker.rng
    for _ in range(count):
        fixture.account.publish(b"s.r", payload=rng.randbytes(900), origin=fixture.client)
    fixture.commit()
