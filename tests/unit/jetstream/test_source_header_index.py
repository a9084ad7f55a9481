"""The index of the origins of a mirror's messages, and the scan of messages that are not indexed."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from eyot_daemon.jetstream.sourcing import resume_point
from eyot_daemon.jetstream.sourcing.positions import (
    Position,
    PositionUpdate,
    encode_position,
    read_position,
    read_position_update,
)
from eyot_daemon.jetstream.sourcing.resume_point import HEADER_INDEX_KEY, SourceHeaderIndex, source_position
from eyot_daemon.jetstream.stream.stream import Stream
from eyot_sync.sourcing.origin import Origin
from eyot_wire import headers
from eyot_wire.jetstream.copied_run import CopiedMessage
from eyot_wire.jetstream.stream import StreamSource
from support.jetstream.consumers import ConsumerFixture
from support.jetstream.fixture import Fixture

T0 = 1_600_000_000_000_000_000


@pytest.fixture
def fixture(tmp_path: Path) -> Fixture:
    fixture = Fixture(tmp_path)
    fixture.create("M", subjects=None, mirror={"name": "O"})
    return fixture


def marked(seq: int, mark: str, *, payload: bytes = b"12345") -> CopiedMessage:
    return CopiedMessage(seq, T0 + seq, b"o.a", f"NATS/1.0\r\nNats-Stream-Source: {mark}\r\n\r\n".encode(), payload)


def store(fixture: Fixture, marks: SourceHeaderIndex, *messages: CopiedMessage) -> None:
    fixture.stream("M").ingest_copied(
        messages, mirror=True, positions=lambda taken: marks.note(messages, taken), on_done=lambda result: None
    )


def noted(fixture: Fixture) -> dict[bytes, Position]:
    positions = fixture.stream("M").log.positions()
    return {key: read_position(value) for key, value in positions.items() if not key.startswith(b"eyot.")}


def index_of(stream: Stream) -> SourceHeaderIndex:
    """The index of a mirror whose origin takes nothing from clients."""
    index = SourceHeaderIndex(stream)
    index.only_sourced = True
    return index


def size(message: CopiedMessage) -> int:
    return len(message.header) + len(message.payload)


def test_the_last_mark_of_each_origin_is_noted_with_the_messages(fixture: Fixture) -> None:
    marks = index_of(fixture.stream("M"))
    messages = [
        marked(1, "L1 5 > > a life1 100"),
        marked(2, "L2 1 > > a life2 50"),
        marked(3, "L1 6 > > a life1 90"),
        CopiedMessage(4, T0, b"o.a", b"", b"not marked"),
        marked(5, "L1 9 > > a life1 95"),
    ]
    store(fixture, marks, *messages)
    assert noted(fixture) == {}, "not before the messages are on flash"
    fixture.commit()
    assert noted(fixture) == {
        b"L1 > >": Position(9, "life1", 95, size(messages[4]), 100, ((5, 100), (6, 90))),
        b"L2 > >": Position(1, "life2", 50, size(messages[1]), 50),
    }
    store(fixture, marks, marked(6, "L1 10 > > a life1 96"), marked(7, "L1 11 > > a life1 97"))
    fixture = fixture.crash()
    assert noted(fixture)[b"L1 > >"].seq == 9
    store(
        fixture,
        index_of(fixture.stream("M")),
        marked(6, "L1 10 > > a life1 96"),
        marked(7, "L1 11 > > a life1 97"),
    )
    fixture.commit()
    assert noted(fixture)[b"L1 > >"].checkpoints == ((6, 90), (9, 95), (10, 96))


def test_another_life_begins_anew_and_one_set_back_has_no_witnesses(fixture: Fixture) -> None:
    marks = index_of(fixture.stream("M"))
    store(fixture, marks, marked(1, "L 5 > > a life1 100"), marked(2, "L 3 > > a life1 80"))
    fixture.commit()
    (position,) = noted(fixture).values()
    assert (position.seq, position.ts_ns, position.newest_ns, position.checkpoints) == (3, 80, 100, ())
    store(fixture, marks, marked(3, "L 1 > > a life2 20"))
    fixture.commit()
    (position,) = noted(fixture).values()
    assert (position.identity, position.seq, position.newest_ns, position.checkpoints) == ("life2", 1, 20, ())


def test_what_was_told_counts_when_the_mirror_is_as_far(fixture: Fixture) -> None:
    marks = index_of(fixture.stream("M"))
    marks.told(
        PositionUpdate(
            2, {b"L > >": Position(7, "created", 70, 5, 75, ((6, 75),)), b"OLD > >": Position(3)}, whole=True
        )
    )
    store(fixture, marks, marked(1, "L 4 > > a"))
    fixture.commit()
    assert noted(fixture) == {b"L > >": Position(4, size=size(marked(1, "L 4 > > a")))}
    later = marked(3, "L 9 > > a")
    store(fixture, marks, marked(2, "L 7 > > a"), later)
    fixture.commit()
    assert noted(fixture)[b"OLD > >"] == Position(3)
    assert noted(fixture)[b"L > >"] == Position(9, "created", 0, size(later), 75, ((6, 75), (7, 70))), "it goes on"
    store(fixture, marks, marked(4, "L 1 > > a"))
    fixture.commit()
    assert noted(fixture)[b"L > >"] == Position(1, size=size(later)), "which life that is nobody said"
    marks.told(PositionUpdate(3, {b"L > >": Position(8, "created", 80)}))
    assert not list(marks.note((), 4)), "of what was before"
    marks.told(PositionUpdate(4, {b"L > >": Position(1, "later", 10)}))
    assert dict(marks.note((), 4))[b"L > >"] == encode_position(Position(1, "later", 10))


def test_what_was_told_is_folded_where_the_mirror_is_far_behind(
    fixture: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resume_point, "POSITION_UPDATES_MAX", 2)
    marks = index_of(fixture.stream("M"))
    for upto in (1, 2, 3, 4):
        marks.told(PositionUpdate(upto, {b"%d" % upto: Position(upto), b"L": Position(10 * upto)}))
    records = dict(marks.note([marked(3, "A 1")], 3))
    assert {key: read_position(records[key]).seq for key in (b"1", b"2", b"3", b"L")} == {
        b"1": 1,
        b"2": 2,
        b"3": 3,
        b"L": 30,
    }
    assert read_position(dict(marks.note([marked(4, "A 2")], 4))[b"L"]).seq == 40


def test_a_mirror_is_told_what_changed(tmp_path: Path) -> None:
    fixture = ConsumerFixture(tmp_path)
    fixture.create("T", subjects=None, sources=[{"name": "A"}, {"name": "B"}])

    def copy(seq: int, *positions: tuple[bytes, Position]) -> None:
        records = [(key, encode_position(position)) for key, position in positions]
        fixture.stream("T").ingest_copied(
            [CopiedMessage(seq, T0, b"o", b"", b"")],
            mirror=False,
            positions=lambda _: records,
            on_done=lambda result: None,
        )
        fixture.commit()

    def told_since() -> PositionUpdate | None:
        fixture.advance(1.5, 0.5)
        asked = [got for got in box.got if got.reply.startswith(b"$JS.FC.")]
        box.got.clear()
        for got in asked:
            fixture.account.publish(got.reply, origin=fixture.client)
        fixture.commit()
        (told,) = [headers.get(got.header, b"Eyot-Origins") for got in asked]
        return None if told is None else read_position_update(told.decode())

    copy(1, (b"A > >", Position(1, "a")), (b"B > >", Position(2, "b")), (b"eyot.x", Position()))
    box = fixture.listen(b"$JS.M.x")
    config = {
        "deliver_subject": "$JS.M.x",
        "direct": True,
        "ack_policy": "none",
        "flow_control": True,
        "idle_heartbeat": 10**9,
    }
    assert not fixture.stream("T").downstream.records.mirrored
    answer = fixture.add_ephemeral("T", **config, metadata={"eyot.origins": "?"})
    assert fixture.stream("T").downstream.records.mirrored
    told = read_position_update(answer["config"]["metadata"]["eyot.origins"])
    assert told == PositionUpdate(1, {b"A > >": Position(1, "a"), b"B > >": Position(2, "b")}, whole=True)
    assert told_since() is None
    copy(3, (b"B > >", Position(3, "b")))
    assert told_since() == PositionUpdate(2, {b"B > >": Position(3, "b")})
    assert read_position_update("?") is None
    assert read_position_update("AAAA") is None


def test_who_does_not_ask_is_told_nothing(tmp_path: Path) -> None:
    fixture = ConsumerFixture(tmp_path)
    fixture.create("T", subjects=None, sources=[{"name": "A"}])
    box = fixture.listen(b"$JS.S.x")
    fixture.stream("T").ingest_copied(
        [CopiedMessage(1, T0, b"o", b"", b"")],
        mirror=False,
        positions=lambda _: [(b"A > >", encode_position(Position(1)))],
        on_done=lambda result: None,
    )
    fixture.commit()
    flow = {"flow_control": True, "idle_heartbeat": 10**9, "ack_policy": "none"}
    fixture.add_ephemeral("T", deliver_subject="$JS.S.x", direct=True, **flow)
    fixture.advance(1.5, 0.5)
    asked = [got.header for got in box.got if got.reply.startswith(b"$JS.FC.")]
    assert asked == [b"NATS/1.0 100 FlowControl Request\r\n\r\n"]


def test_what_was_not_taken_is_not_noted(fixture: Fixture) -> None:
    marks = index_of(fixture.stream("M"))
    messages = [marked(seq, f"L {seq} > > a life {seq}") for seq in (1, 2, 3)]
    records = dict(marks.note(messages, 2))
    assert read_position(records[b"L > >"]).seq == 2
    assert not list(marks.note(messages, 2)), "noted already"
    assert read_position(dict(marks.note(messages, 3))[b"L > >"]).seq == 3


def test_what_failed_is_noted_again(fixture: Fixture) -> None:
    marks = index_of(fixture.stream("M"))
    messages = [marked(1, "L 1 > > a life 1")]
    assert list(marks.note(messages, 1))
    marks.reload()
    assert read_position(dict(marks.note(messages, 1))[b"L > >"]).seq == 1


def test_messages_do_not_fill_the_store_with_origins_that_they_make_up(
    fixture: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resume_point, "ORIGINS_MAX", 3)
    marks = index_of(fixture.stream("M"))
    made_up: Sequence[str] = ["eyot.mirror 1", "x" * 600 + " 1", "A 1", "B 1", "C 1", "D 1", "A 2"]
    store(fixture, marks, *(marked(seq, mark) for seq, mark in enumerate(made_up, 1)))
    fixture.commit()
    assert {key: position.seq for key, position in noted(fixture).items()} == {b"A": 2, b"B": 1, b"C": 1}


def test_what_was_stored_before_is_looked_through_once(fixture: Fixture) -> None:
    stream = fixture.stream("M")
    before = [marked(1, "L1 5 > > a life1 100"), marked(2, "OLD 7")]
    stream.ingest_copied(before, mirror=True, on_done=lambda result: None)
    fixture.commit()
    store(fixture, index_of(stream), marked(3, "L2 1 > > a life2 50"), marked(4, "L1 6 > > a life1 101"))
    fixture.commit()
    assert source_position(stream, Origin.of(StreamSource(name="L1"))).checkpoints == (), "as noted, not looked for"
    fixture.commit()
    assert noted(fixture).keys() == {b"L1 > >", b"L2 > >"}
    assert source_position(stream, Origin.of(StreamSource(name="OLD"))) == Position(7, size=size(before[1]))
    fixture.commit()
    assert noted(fixture).keys() == {b"L1 > >", b"L2 > >", b"OLD"}
    assert noted(fixture)[b"L1 > >"].seq == 6
    record = stream.log.positions()[HEADER_INDEX_KEY]
    assert source_position(stream, Origin.of(StreamSource(name="OLD"))).seq == 7
    assert source_position(stream, Origin.of(StreamSource(name="NEW"))) == Position()
    fixture.commit()
    assert stream.log.positions()[HEADER_INDEX_KEY] == record
