"""Nats-Stream-Source: writing ours, reading every generation's."""

import pytest

from eyot_wire.stream_source import StreamSourceValue, encode, full_index, hash8, index_name, parse


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
    "value", [b"", b"ORIG", b"ORIG x", b"ORIG 1 a", b" 1", b"ORIG -1", b"$JS.ACK.ORIG.C", b"ORIG 1 a "[:-1]]
)
def test_unreadable(value: bytes) -> None:
    assert parse(value) is None


def test_whose_copy() -> None:
    name = index_name("S", "$JS.hub.API")
    one, other = full_index(name, ["a.>"]), full_index(name, ["b.>"])
    value = parse(encode(name, 5, "a.x", ["a.>"]))
    assert value is not None
    assert value.is_from(one)
    assert not value.is_from(other)
    old = parse(f"{name} 5".encode())
    assert old is not None
    assert old.is_from(one)
    assert old.is_from(other)
    assert not old.is_from(full_index("S"))
