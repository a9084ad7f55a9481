"""Backups and restores in a `ConsumerWorld`: the client's side of them, chunk by chunk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from eyot_daemon.router.subscription import Subscription
from support.destinations import Got, Recorder
from support.js_consumers import ConsumerWorld
from support.schemas import check_answer

DELIVER = b"backup.here"


def filled(path: Path) -> ConsumerWorld:
    """With a stream of 200 messages of 300 bytes."""
    world = ConsumerWorld(path)
    world.create()
    world.fill(200, size=300)
    return world


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


def receiver(world: ConsumerWorld) -> Receiver:
    made = Receiver()
    made.sub = world.account.subscribe(DELIVER, made)
    return made


def answer_chunks(world: ConsumerWorld, to: Receiver) -> None:
    """Answer everything until nothing more comes."""
    answered = 0
    while answered < len(to.chunks):
        for got in to.chunks[answered:]:
            answered += 1
            if got.reply:
                world.account.publish(got.reply, origin=world.client)
        world.commit()


def take(world: ConsumerWorld, stream: str = "S", **options: Any) -> tuple[Any, bytes]:
    """A whole backup: the answer and the archive."""
    to = receiver(world)
    answer = check_answer(world.request(f"STREAM.SNAPSHOT.{stream}", {"deliver_subject": DELIVER.decode(), **options}))
    assert "error" not in answer, answer
    answer_chunks(world, to)
    world.account.unsubscribe(to.sub)
    assert to.end is not None
    assert to.end in (b"", b"NATS/1.0 204\r\n\r\n")
    return answer, to.data


def begin(world: ConsumerWorld, answer: Any, stream: str = "S", **config: Any) -> Any:
    body = {"config": {**answer["config"], **config}, "state": answer["state"]}
    return check_answer(world.request(f"STREAM.RESTORE.{stream}", body))


def send(world: ConsumerWorld, subject: str, data: bytes, chunk: int = 1000) -> Any:
    """All of it and the end; the first answer that says something."""
    for at in range(0, len(data), chunk):
        said = ask(world, subject, data[at : at + chunk])
        assert said is not None, "a chunk was not answered"
        if said:
            return check_answer(msgspec.json.decode(said))
    said = ask(world, subject, b"")
    assert said
    return check_answer(msgspec.json.decode(said))


def ask(world: ConsumerWorld, subject: str, payload: bytes) -> bytes | None:
    reply = world.publish(subject.encode(), payload)
    for _ in range(1000):
        world.commit()
        if (said := world.answer(reply)) is not None:
            return said
        world.advance(0)
    return None


def restore(world: ConsumerWorld, answer: Any, data: bytes, stream: str = "S", **config: Any) -> Any:
    begun = begin(world, answer, stream, **config)
    return begun if "error" in begun else send(world, begun["deliver_subject"], data)


def nothing_is_left(world: ConsumerWorld, name: str = "S") -> None:
    world.commit()
    assert world.request(f"STREAM.INFO.{name}")["error"]["err_code"] == 10059
    assert world.store.stream(world.account.name, name) is None
    assert not world.jsa.restores
    assert world.request("INFO")["storage"] == 0


def remove(world: ConsumerWorld) -> None:
    assert world.request("STREAM.DELETE.S")["success"]


def restarted(world: ConsumerWorld, *, crash: bool = False) -> ConsumerWorld:
    if crash:
        world.store.crash()
    else:
        world.js.stop()
        world.store.close()
    return ConsumerWorld(world.path, options=world.js.options, clock=world.clock)


def random_payloads(world: ConsumerWorld, count: int = 60) -> None:
    """What does not compress, so that there are many chunks."""
    rng = world.broker.rng
    for _ in range(count):
        world.account.publish(b"s.r", payload=rng.randbytes(900), origin=world.client)
    world.commit()
