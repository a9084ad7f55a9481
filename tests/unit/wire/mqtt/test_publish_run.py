"""Runs of plain publishes: both twins scan the same, and a reader of runs reads the same packets as the decoder."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eyot_wire.mqtt import encoder, native
from eyot_wire.mqtt.decoder import decode
from eyot_wire.mqtt.errors import MqttError
from eyot_wire.mqtt.packets import Connect, Packet, Publish
from eyot_wire.mqtt.plain_publishes import AckedPublishes, MixedPublishes, PlainPublishes
from eyot_wire.mqtt.properties import Properties
from eyot_wire.mqtt.reader import RUNS, PacketReader, Runs
from support.mqtt import publish_run_fixture as fixture

seeds = st.integers(0, 2**48)


def test_the_compiled_twin_was_built_and_is_chosen() -> None:
    assert native.COMPILED
    assert native.scan_run is fixture.TWINS[1].scan_run
    assert native.scan_mixed is fixture.TWINS[1].scan_mixed
    assert native.scan_acked is fixture.TWINS[1].scan_acked


@settings(max_examples=500, deadline=None)
@given(seeds)
def test_both_twins_scan_the_same(seed: int) -> None:
    assert fixture.scanned(1, seed) == fixture.scanned(0, seed)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=40), st.binary(max_size=4), st.integers(0, 20), st.integers(0, 60))
@example(b"\x30\x03\0\x01a", b"\0\x01a", 0, 5)
@example(b"\x30\x03\0\x01a", b"\0\x01a", 0, 4)
@example(b"\x30\x83\0\0\x01a", b"\0\x01a", 0, 60)
@example(b"\x30\xff\xff\xff\xff\x01", b"", 0, 60)
@example(b"\x30\xff\xff\xff\x7f", b"", 0, 60)
@example(b"\x30", b"", 0, 60)
def test_both_twins_scan_the_same_in_any_bytes(data: bytes, head: bytes, at: int, most: int) -> None:
    plain, compiled = (twin.scan_run(data, at, head, most) for twin in fixture.TWINS)
    assert plain == compiled
    assert fixture.payloads_of(0, data, len(head)) == fixture.payloads_of(1, data, len(head))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=40), st.binary(max_size=4), st.integers(0, 20), st.integers(0, 60), st.integers(0, 3))
@example(b"\x30\x03\0\x01a\x30\x03\0\x01a", b"\0\x01a", 0, 5, 0)
@example(b"\x30\x03\0\x01a", b"\0\x01a", 0, 5, 1)
@example(b"\x30\x04\0\x01a\0", b"\0\x01a\0", 0, 6, 1)
@example(b"\x30\x01\0", b"\0\x01a", 0, 60, 0)
@example(b"\x30\x02\xff\xff", b"\xff\xff", 0, 60, 0)
@example(b"\x32\x05\0\x01a\0\x01", b"\0\x01a", 0, 60, 0)
@example(b"\x32\x05\0\x01a\0\0", b"\0\x01a", 0, 60, 0)
@example(b"\x32\x04\0\x01a\1", b"\0\x01a", 0, 60, 0)
@example(b"\x32\x06\0\x01a\0\x01\0", b"\0\x01a", 0, 60, 1)
@example(b"\x32\x06\0\x01a\0\x01\x05", b"\0\x01a", 0, 60, 1)
def test_both_twins_scan_other_runs_the_same_in_any_bytes(
    data: bytes, head: bytes, at: int, most: int, head_more: int
) -> None:
    plain, compiled = fixture.TWINS
    heads = {head: "", head[:1]: ""}
    assert plain.scan_mixed(data, at, heads, head_more, most) == compiled.scan_mixed(data, at, heads, head_more, most)
    acked = (
        plain.scan_acked(data, at, head, bool(head_more), most),
        compiled.scan_acked(data, at, head, bool(head_more), most),
    )
    assert acked[0] == acked[1]


def new_reader(bytes_max: int, level: int) -> PacketReader:
    """A reader that has read CONNECT."""
    reader = PacketReader(bytes_max, connect_bytes_max=1 << 16)
    list(reader.feed(encoder.connect(Connect(level, "x"))))
    return reader


def read_until_damaged(pieces: Iterable[bytes], read: Callable[[bytes], Iterable[Packet | Runs]]) -> list[object]:
    """Return the packets of all pieces, each alone; last the error's name."""
    got: list[object] = []
    try:
        for piece in pieces:
            for packet in read(piece):
                got += packet.publishes() if isinstance(packet, RUNS) else [packet]
    except MqttError as error:
        got.append(type(error).__name__)
    return got


def check(run: Runs, alone: list[Publish], level: int) -> None:
    """What a run says of itself is so."""
    assert run.count == len(alone)
    assert run.payload_bytes == sum(len(each.payload) for each in alone)
    assert run.payload_max == max(len(each.payload) for each in alone)
    if isinstance(run, PlainPublishes):
        assert {each.topic for each in alone} == {run.topic}
        for other in (4, 5):
            encoded = [encoder.publish(other, each.topic, each.payload) for each in alone]
            assert run.packets(other) == b"".join(encoded)
            assert max(map(len, encoded)) <= run.packet_max(other)
    elif isinstance(run, MixedPublishes):
        assert list(dict.fromkeys(each.topic for each in alone)) == run.topics
        encoded = [encoder.publish(level, each.topic, each.payload) for each in alone]
        assert run.packets == b"".join(encoded)
        assert max(map(len, encoded)) <= run.packet_max()
        assert len(run.topics) > 1
    else:
        assert {(each.topic, each.qos, each.retain, each.dup) for each in alone} == {(run.topic, 1, False, False)}


@pytest.mark.parametrize("level", [4, 5])
@settings(max_examples=200, deadline=None)
@given(seed=seeds)
def test_a_reader_of_runs_reads_what_the_decoder_does(level: int, seed: int) -> None:
    chance = Random(seed)
    sent = fixture.publishes(chance, level)
    reader = new_reader(1 << 20, level)
    got: list[Packet] = []
    for piece in fixture.cut(chance, b"".join(sent)):
        for packet in reader.feed_runs(piece):
            if isinstance(packet, RUNS):
                alone = packet.publishes()
                check(packet, alone, level)
                got += alone
            else:
                got.append(packet)
    assert got == [decode(each[0], each[fixture.body_at(each) :], level) for each in sent]


@pytest.mark.parametrize("level", [4, 5])
@settings(max_examples=400, deadline=None)
@given(seed=seeds)
def test_damage_is_found_where_the_decoder_finds_it(level: int, seed: int) -> None:
    chance = Random(seed)
    data = fixture.damaged(chance, level)
    reader = new_reader(1 << 30, level)
    assert read_until_damaged(fixture.cut(chance, data), reader.feed_runs) == fixture.one_by_one(data, level)


def test_consecutive_publishes_are_one_operation() -> None:
    reader = new_reader(1 << 20, 5)
    one = encoder.publish(5, "a/b", b"1")
    kept = encoder.publish(5, "a/b", b"2", retain=True)
    typed = encoder.publish(5, "a/b", b"3", properties=Properties(content_type="x"))
    packets = list(reader.feed_runs(one * 3 + kept + one + typed + one * 2 + one[:3]))
    counts = [each.count if isinstance(each, PlainPublishes) else each for each in packets]
    assert [counts[0], counts[2], counts[4]] == [3, 1, 2]
    assert counts[1] == Publish("a/b", b"2", retain=True)
    assert reader.pending == 3


@pytest.mark.parametrize("level", [4, 5])
def test_publishes_on_topics_in_turn_are_one_operation_once_the_topics_are_known(level: int) -> None:
    reader = new_reader(1 << 20, level)
    pair = encoder.publish(level, "a/b", b"1") + encoder.publish(level, "c", b"22")
    list(reader.feed_runs(pair))
    (run,) = reader.feed_runs(pair * 3)
    assert isinstance(run, MixedPublishes)
    assert (run.topics, run.count, run.payload_bytes, run.payload_max) == (["a/b", "c"], 6, 9, 2)
    assert [(each.topic, each.count) for each in run.runs()] == [("a/b", 1), ("c", 1)] * 3


@pytest.mark.parametrize("level", [4, 5])
def test_publishes_of_qos_1_are_one_operation_up_to_one_that_was_sent_before(level: int) -> None:
    reader = new_reader(1 << 20, level)
    made = [encoder.publish(level, "a", b"%d" % each, qos=1, packet_id=each) for each in (7, 8)]
    again = encoder.publish(level, "a", b"7", qos=1, packet_id=7, dup=True)
    found = list(reader.feed_runs(b"".join(made) + again + made[0]))
    assert found[1] == Publish("a", b"7", 1, dup=True, packet_id=7)
    runs = [each for each in found if isinstance(each, AckedPublishes)]
    assert [(each.packet_ids, each.payloads) for each in runs] == [([7, 8], [b"7", b"8"]), ([7], [b"7"])]


@pytest.mark.parametrize("level", [4, 5])
@settings(max_examples=200, deadline=None)
@given(seeds)
def test_what_is_a_run_as_a_whole_is_what_the_decoder_reads(level: int, seed: int) -> None:
    chance = Random(seed)
    data = fixture.damaged(chance, level)
    reader = new_reader(1 << 30, level)

    def read(piece: bytes) -> Iterable[Packet | Runs]:
        run = reader.acked_alone(piece)
        return reader.feed_runs(piece) if run is None else [run]

    assert read_until_damaged(fixture.cut(chance, data), read) == fixture.one_by_one(data, level)


@pytest.mark.parametrize("level", [4, 5])
def test_a_run_as_a_whole_has_the_topic_of_the_last_one(level: int) -> None:
    reader = new_reader(60, level)
    one, two = (encoder.publish(level, "a", each, qos=1, packet_id=each[0]) for each in (b"1", b"2"))
    assert reader.acked_alone(one) is None  # the decoder reads the first on each topic
    list(reader.feed_runs(one))
    run = reader.acked_alone(memoryview(one + two))
    assert run is not None
    assert run.publishes() == [Publish("a", each, 1, packet_id=each[0]) for each in (b"1", b"2")]
    others = [
        encoder.publish(level, "b", b"1", qos=1, packet_id=1),
        encoder.publish(level, "a", b"1"),
        encoder.publish(level, "a", b"1", qos=1, packet_id=1, dup=True),
        encoder.publish(level, "a", bytes(60), qos=1, packet_id=1),
        encoder.PINGREQ,
        one[:-1],
        b"",
    ]
    assert [reader.acked_alone(before + each) for each in others for before in (b"", one) if before + each != one] == [
        None
    ] * (2 * len(others) - 1)
    list(reader.feed_runs(one[:3]))
    assert reader.acked_alone(one) is None
    (run,) = [each for each in reader.feed_runs(one[3:] + one) if isinstance(each, AckedPublishes)]
    assert run.publishes() == [Publish("a", b"1", 1, packet_id=49)] * 2
