"""What a mirror notes of where its messages are from, and what is found where nobody noted it."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from eyot_daemon.jetstream.copies import origin_marks
from eyot_daemon.jetstream.copies.origin_marks import MARKS_KEY, OriginMarks
from eyot_daemon.jetstream.copies.position import Position, read_position
from eyot_daemon.jetstream.copies.resume_point import source_position
from eyot_sync.copying.actions import Copied
from eyot_sync.copying.origin import Origin
from eyot_wire.jetstream.stream import StreamSource
from support.js_world import World

T0 = 1_600_000_000_000_000_000


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.create("M", subjects=None, mirror={"name": "O"})
    return world


def marked(seq: int, mark: str, *, payload: bytes = b"12345") -> Copied:
    return Copied(seq, T0 + seq, b"o.a", f"NATS/1.0\r\nNats-Stream-Source: {mark}\r\n\r\n".encode(), payload)


def store(world: World, marks: OriginMarks, *messages: Copied) -> None:
    world.stream("M").ingest_copied(
        messages, mirror=True, positions=lambda taken: marks.note(messages, taken), on_done=lambda result: None
    )


def noted(world: World) -> dict[bytes, Position]:
    positions = world.stream("M").log.positions()
    return {key: read_position(value) for key, value in positions.items() if not key.startswith(b"eyot.")}


def size(message: Copied) -> int:
    return len(message.header) + len(message.payload)


def test_the_last_mark_of_each_origin_is_noted_with_the_messages(world: World) -> None:
    marks = OriginMarks(world.stream("M"))
    messages = [
        marked(1, "L1 5 > > a life1 100"),
        marked(2, "L2 1 > > a life2 50"),
        marked(3, "L1 6 > > a life1 90"),
        Copied(4, T0, b"o.a", b"", b"not marked"),
        marked(5, "L1 9 > > a life1 95"),
    ]
    store(world, marks, *messages)
    assert noted(world) == {}, "not before the messages are on flash"
    world.commit()
    assert noted(world) == {
        b"L1 > >": Position(9, "life1", 95, size(messages[4]), 100, ((5, 100), (6, 90))),
        b"L2 > >": Position(1, "life2", 50, size(messages[1]), 50),
    }
    store(world, marks, marked(6, "L1 10 > > a life1 96"), marked(7, "L1 11 > > a life1 97"))
    world = world.crash()
    assert noted(world)[b"L1 > >"].seq == 9
    store(world, OriginMarks(world.stream("M")), marked(6, "L1 10 > > a life1 96"), marked(7, "L1 11 > > a life1 97"))
    world.commit()
    assert noted(world)[b"L1 > >"].witnesses == ((6, 90), (9, 95), (10, 96))


def test_another_life_begins_anew_and_one_set_back_has_no_witnesses(world: World) -> None:
    marks = OriginMarks(world.stream("M"))
    store(world, marks, marked(1, "L 5 > > a life1 100"), marked(2, "L 3 > > a life1 80"))
    world.commit()
    (position,) = noted(world).values()
    assert (position.seq, position.ts_ns, position.newest_ns, position.witnesses) == (3, 80, 100, ())
    store(world, marks, marked(3, "L 1 > > a life2 20"))
    world.commit()
    (position,) = noted(world).values()
    assert (position.identity, position.seq, position.newest_ns, position.witnesses) == ("life2", 1, 20, ())


def test_what_was_not_taken_is_not_noted(world: World) -> None:
    marks = OriginMarks(world.stream("M"))
    messages = [marked(seq, f"L {seq} > > a life {seq}") for seq in (1, 2, 3)]
    records = dict(marks.note(messages, 2))
    assert read_position(records[b"L > >"]).seq == 2
    assert not list(marks.note(messages, 2)), "noted already"
    assert read_position(dict(marks.note(messages, 3))[b"L > >"]).seq == 3


def test_what_failed_is_noted_again(world: World) -> None:
    marks = OriginMarks(world.stream("M"))
    messages = [marked(1, "L 1 > > a life 1")]
    assert list(marks.note(messages, 1))
    marks.reload()
    assert read_position(dict(marks.note(messages, 1))[b"L > >"]).seq == 1


def test_messages_do_not_fill_the_store_with_origins_that_they_make_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(origin_marks, "ORIGINS_MAX", 3)
    marks = OriginMarks(world.stream("M"))
    made_up: Sequence[str] = ["eyot.mirror 1", "x" * 600 + " 1", "A 1", "B 1", "C 1", "D 1", "A 2"]
    store(world, marks, *(marked(seq, mark) for seq, mark in enumerate(made_up, 1)))
    world.commit()
    assert {key: position.seq for key, position in noted(world).items()} == {b"A": 2, b"B": 1, b"C": 1}


def test_what_was_stored_before_is_looked_through_once(world: World) -> None:
    stream = world.stream("M")
    before = [marked(1, "L1 5 > > a life1 100"), marked(2, "OLD 7")]
    stream.ingest_copied(before, mirror=True, on_done=lambda result: None)
    world.commit()
    store(world, OriginMarks(stream), marked(3, "L2 1 > > a life2 50"), marked(4, "L1 6 > > a life1 101"))
    world.commit()
    assert source_position(stream, Origin.of(StreamSource(name="L1"))).witnesses == (), "as noted, not looked for"
    world.commit()
    assert noted(world).keys() == {b"L1 > >", b"L2 > >"}
    assert source_position(stream, Origin.of(StreamSource(name="OLD"))) == Position(7, size=size(before[1]))
    world.commit()
    assert noted(world).keys() == {b"L1 > >", b"L2 > >", b"OLD"}
    assert noted(world)[b"L1 > >"].seq == 6
    record = stream.log.positions()[MARKS_KEY]
    assert source_position(stream, Origin.of(StreamSource(name="OLD"))).seq == 7
    assert source_position(stream, Origin.of(StreamSource(name="NEW"))) == Position()
    world.commit()
    assert stream.log.positions()[MARKS_KEY] == record
