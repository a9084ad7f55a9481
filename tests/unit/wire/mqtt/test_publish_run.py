"""Runs of plain publishes: both twins scan the same, and a reader of runs reads the same packets as the decoder."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eyot_wire.mqtt import encoder, native
from eyot_wire.mqtt.decoder import decode
from eyot_wire.mqtt.errors import MqttError
from eyot_wire.mqtt.packets import Connect, Packet, Publish
from eyot_wire.mqtt.plain_publishes import PlainPublishes
from eyot_wire.mqtt.properties import Properties
from eyot_wire.mqtt.reader import PacketReader
from support import publish_run_fixture as fixture

seeds = st.integers(0, 2**48)


def test_the_compiled_twin_was_built_and_is_chosen() -> None:
    assert native.COMPILED
    assert native.scan_run is fixture.TWINS[1].scan_run


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


@pytest.mark.parametrize("level", [4, 5])
@settings(max_examples=200, deadline=None)
@given(seed=seeds)
def test_a_reader_of_runs_reads_what_the_decoder_does(level: int, seed: int) -> None:
    chance = Random(seed)
    sent = fixture.publishes(chance, level)
    reader = PacketReader(1 << 20, connect_bytes_max=1 << 16)
    list(reader.feed(encoder.connect(Connect(level, "x"))))
    got: list[Packet] = []
    for piece in fixture.cut(chance, b"".join(sent)):
        for packet in reader.feed_runs(piece):
            if isinstance(packet, PlainPublishes):
                alone = packet.publishes()
                assert packet.count == len(alone)
                assert packet.payload_bytes == sum(len(each.payload) for each in alone)
                assert packet.payload_max == max(len(each.payload) for each in alone)
                for other in (4, 5):
                    encoded = [encoder.publish(other, each.topic, each.payload) for each in alone]
                    assert packet.packets(other) == b"".join(encoded)
                    assert max(map(len, encoded)) <= packet.packet_max(other)
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
    reader = PacketReader(1 << 30, connect_bytes_max=1 << 16)
    list(reader.feed(encoder.connect(Connect(level, "x"))))
    got: list[object] = []
    try:
        for piece in fixture.cut(chance, data):
            for packet in reader.feed_runs(piece):
                got += packet.publishes() if isinstance(packet, PlainPublishes) else [packet]
    except MqttError as error:
        got.append(type(error).__name__)
    assert got == fixture.one_by_one(data, level)


def test_consecutive_publishes_are_one_operation() -> None:
    reader = PacketReader(1 << 20, connect_bytes_max=1 << 16)
    list(reader.feed(encoder.connect(Connect(5, "x"))))
    one = encoder.publish(5, "a/b", b"1")
    kept = encoder.publish(5, "a/b", b"2", retain=True)
    typed = encoder.publish(5, "a/b", b"3", properties=Properties(content_type="x"))
    packets = list(reader.feed_runs(one * 3 + kept + one + typed + one * 2 + one[:3]))
    counts = [each.count if isinstance(each, PlainPublishes) else each for each in packets]
    assert [counts[0], counts[2], counts[4]] == [3, 1, 2]
    assert counts[1] == Publish("a/b", b"2", retain=True)
    assert reader.pending == 3
