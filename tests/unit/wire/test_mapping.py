"""Account mappings: order, weights, loss, clusters."""

import random
from collections import Counter

import pytest

from eyot_wire.mapping import DROPPED, Mapping, MappingTable, WeightedDest
from eyot_wire.transform import TransformError, domain_mapping


def shares(mapping: Mapping, subject: bytes, count: int = 2000) -> dict[bytes, float]:
    found = Counter(mapping.apply(subject) for _ in range(count))
    return {dest: round(seen / count, 1) for dest, seen in found.items()}


def test_order() -> None:
    table = MappingTable()
    assert not table
    assert table.apply(b"a.b") is None
    table.add(b"*.b", [b"first.$1"])
    table.add(b"a.*", [b"second.$1"])
    table.add(b"a.b.>", [b"third.>"])
    assert table
    assert table.apply(b"a.b") == b"first.a"
    assert table.apply(b"a.c") == b"second.c"
    assert table.apply(b"a.b.c") == b"third.c"
    assert table.apply(b"x.y") is None
    table.add(b"a.b", [b"literal"])
    assert table.apply(b"a.b") == b"literal"
    assert table.sources() == [b"a.b", b"*.b", b"a.*", b"a.b.>"]
    assert table.remove(b"a.b")
    assert not table.remove(b"a.b")
    assert not table.remove(b"q.*")
    assert table.apply(b"a.b") == b"first.a"
    table.add(b"*.b", [b"again.$1"])
    assert table.apply(b"a.b") == b"again.a"
    assert table.remove(b"*.b")
    assert table.apply(b"a.b") == b"second.b"
    assert table.remove(b"a.*")
    assert table.remove(b"a.b.>")
    assert not table
    assert table.apply(b"a.b") is None


def test_whatever_matches_everything_keeps_its_place() -> None:
    table = MappingTable()
    table.add(b"a.>", [b"one.>"])
    table.add(b">", [b"two.>"])
    table.add(b"b.>", [b"three.>"])
    assert table.apply(b"a.x") == b"one.x"
    assert table.apply(b"b.x") == b"two.b.x"


def test_domain_table() -> None:
    table = MappingTable()
    for src, dest in domain_mapping("D"):
        table.add(src, [dest])
    assert table.apply(b"$JS.D.API.INFO") == b"$JS.API.INFO"
    assert table.apply(b"$JS.D.API.CONSUMER.MSG.NEXT.S.C") == b"$JS.API.CONSUMER.MSG.NEXT.S.C"
    assert table.apply(b"$JS.D.API.$KV.bucket.key") == b"$KV.bucket.key"
    assert table.apply(b"$JS.API.INFO") is None


def test_weights() -> None:
    rng = random.Random(7)
    split = Mapping(b"a.*", [WeightedDest(b"b.$1", 30), WeightedDest(b"c.$1", 70)], rng=rng)
    assert shares(split, b"a.x") == {b"b.x": 0.3, b"c.x": 0.7}
    rest = Mapping(b"a.*", [WeightedDest(b"b.$1", 40)], rng=rng)
    assert shares(rest, b"a.x") == {b"b.x": 0.4, b"a.x": 0.6}
    loss = Mapping(b"a", [WeightedDest(b"a", 50), WeightedDest(b"b", 20)], rng=rng)
    assert shares(loss, b"a") == {b"a": 0.5, b"b": 0.2, DROPPED: 0.3}
    assert not loss.constant
    table = MappingTable(rng=rng)
    table.add(b"a", [WeightedDest(b"b", 50)])
    assert {table.apply(b"a") for _ in range(100)} == {b"a", b"b"}


def test_clusters() -> None:
    dests = [WeightedDest(b"b"), WeightedDest(b"c", cluster="east")]
    assert Mapping(b"a", dests).apply(b"a") == b"b"
    assert Mapping(b"a", dests, cluster="east").apply(b"a") == b"c"
    assert Mapping(b"a", dests, cluster="west").apply(b"a") == b"b"
    assert Mapping(b"a", dests[1:], cluster="west").apply(b"a") == b"a"


@pytest.mark.parametrize(
    ("src", "dests", "message"),
    [
        (b"a..b", [b"c"], "invalid subject"),
        (b"a", [], "without destinations"),
        (b"a", [b"$1"], "wildcard index out of range"),
        (b"a", [b"b", b"b"], 'duplicate entry for "b"'),
        (b"a", [WeightedDest(b"b", 101)], "individual weights"),
        (b"a", [WeightedDest(b"b", -1)], "individual weights"),
        (b"a", [WeightedDest(b"b", 60), WeightedDest(b"c", 41)], "total weight"),
        (b"a", [WeightedDest(b"b"), WeightedDest(b"$1", cluster="east")], "wildcard index"),
    ],
)
def test_refused(src: bytes, dests: list[WeightedDest | bytes], message: str) -> None:
    with pytest.raises(TransformError, match=message.replace("(", r"\(")):
        MappingTable().add(src, dests)


def test_remembered_subjects_are_bounded() -> None:
    table = MappingTable()
    table.add(b"a.*", [b"b.$1"])
    for number in range(10_000):
        assert table.apply(b"a.%d" % number) == b"b.%d" % number
    assert len(table.recent) <= 4096


def test_what_may_be_mapped_below_a_prefix() -> None:
    table = MappingTable()
    assert not table.maps_below(b"$JS.ACK.S.C.")
    for src in (b"$JS.hub.API.>", b"orders.*", b"$JS.ACK.S.D.1", b"$JS.ACK.S.CC.>"):
        table.add(src, [b"elsewhere.>" if src.endswith(b">") else b"elsewhere"])
    assert not table.maps_below(b"$JS.ACK.S.C.")
    for src in (b"$JS.ACK.S.C.1.2.3.4.5", b"$JS.ACK.S.C.*.2.3.4.5", b"$JS.ACK.>", b"*.ACK.S.C.1.2.3.4.5", b">"):
        table.add(src, [b"elsewhere.>" if src.endswith(b">") else b"elsewhere"])
        assert table.maps_below(b"$JS.ACK.S.C.")
        table.remove(src)
        assert not table.maps_below(b"$JS.ACK.S.C.")
