"""Nats-Stream-Source: writing ours, reading every generation's."""

import pytest

from eyot_wire.jetstream.stream_source import (
    Mark,
    SourceStamp,
    StreamSourceValue,
    encode,
    epoch_field,
    full_index,
    hash8,
    identity_of,
    index_name,
    parse,
    read_mark,
)


def test_hash_as_seen_on_the_wire() -> None:
    assert hash8("$JS.hub.API") == "bTMUkJQk"
    assert index_name("ORIG", "$JS.hub.API") == "ORIG:bTMUkJQk"
    assert index_name("ORIG") == "ORIG"


def test_encode() -> None:
    # As nats-server 2.14.5 wrote it.
    assert encode("ORIG:bTMUkJQk", 2, "o.1", ["o.1"]) == b"ORIG:bTMUkJQk 2 o.1 > o.1"
    assert encode("S", 7, "x") == b"S 7 > > x"
    assert encode("S", 7, "x", ["a", ""], ["b", ""]) == b"S 7 a\f> b\f> x"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"$JS.ACK.ORIG.C.1.22.3.17.2", StreamSourceValue("ORIG", 22)),
        (b"ORIG:bTMUkJQk 2", StreamSourceValue("ORIG:bTMUkJQk", 2)),
        (b"ORIG 2 o.1 >", StreamSourceValue("ORIG", 2, "ORIG o.1 >")),
        (b"ORIG 2 o.1 > o.1", StreamSourceValue("ORIG", 2, "ORIG o.1 >", "o.1")),
        (b"ORIG 2 a\fb >\f> o.1 id7", StreamSourceValue("ORIG", 2, "ORIG a\fb >\f>", "o.1", "id7")),
    ],
)
def test_parse(value: bytes, expected: StreamSourceValue) -> None:
    assert parse(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"ORIG",
        b"ORIG x",
        b" 1",
        b"ORIG -1",
        b"$JS.ACK.ORIG.C",
        b"ORIG 1 a",
        b"ORIG " + b"9" * 5000,
        b"ORIG 18446744073709551616",
    ],
)
def test_unreadable(value: bytes) -> None:
    assert parse(value) is None


def _header(value: bytes) -> bytes:
    return b"NATS/1.0\r\nA: b\r\nNats-Stream-Source: " + value + b"\r\nC: d\r\n\r\n"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"$JS.ACK.ORIG.C.1.22.3.17.2", Mark(b"ORIG", 22, "", 0)),
        (b"ORIG:bTMUkJQk 2", Mark(b"ORIG:bTMUkJQk", 2, "", 0)),
        (b"ORIG 2 o.1 >", Mark(b"ORIG o.1 >", 2, "", 0)),
        (b"ORIG 2 a\fb >\f> o.1", Mark(b"ORIG a\fb >\f>", 2, "", 0)),
        (b"ORIG 2 > > o.1 id7", Mark(b"ORIG > >", 2, "id7", 0)),
        (b"ORIG 2 a\fb >\f> o.1 id7 17", Mark(b"ORIG a\fb >\f>", 2, "id7", 17)),
        (b"ORIG 2 > > o.1 id7 soon", Mark(b"ORIG > >", 2, "id7", 0)),
        (b"ORIG x > > o.1 id7 17", None),
        (b"ORIG", None),
    ],
)
def test_marks_of_every_generation_are_read(value: bytes, expected: Mark | None) -> None:
    assert read_mark(_header(value)) == expected


def test_what_is_stamped_is_read() -> None:
    stamp = SourceStamp("S:hash", ["a.>"], ["b.>"])
    created = "2026-11-22T10:11:44.5Z"
    epoch = epoch_field(created)
    key = full_index("S:hash", ["a.>"], ["b.>"]).encode()
    assert read_mark(stamp.block(5, b"a.x", epoch, 99)) == Mark(key, 5, identity_of(created), 99)
    assert read_mark(stamp.block(5, b"a.x", epoch_field(""), 99)) == Mark(key, 5, "", 0)
    assert read_mark(b"") is None


def test_an_identity_is_nats_servers() -> None:
    assert identity_of("2026-11-22T10:11:44.5Z") == hash8("2026-11-22T10:11:44.5Z")
    assert identity_of(hash8("x")) == hash8("x")
    assert identity_of("") == ""
