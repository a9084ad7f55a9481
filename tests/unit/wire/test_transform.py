"""Subject transforms: every mapping function, what is refused, reversal."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eyot_wire.transform import Transform, TransformError, domain_mapping, fnv1a_32


@pytest.mark.parametrize(
    ("src", "dest", "subject", "expected"),
    [
        (b"a", b"b.c", b"a", b"b.c"),
        (b"a", b"b", b"a.x", None),
        (b"a.*", b"b.$1", b"a.x", b"b.x"),
        (b"a.*.*", b"b.$2.$1", b"a.x.y", b"b.y.x"),
        (b"a.*.*", b"b.{{wildcard(2)}}.{{Wildcard( 1 )}}", b"a.x.y", b"b.y.x"),
        (b"a.*.*", b"b.c", b"a.x.y", b"b.c"),
        (b"a.*", b"b.$1", b"a.x.y", None),
        (b"a.>", b"b.>", b"a.x.y", b"b.x.y"),
        (b"a.>", b"b.>", b"a", None),
        (b"a.>", b"b.>", b"ab.x", None),
        (b"*.>", b"z.$1.>", b"a.x.y", b"z.a.x.y"),
        (b"*.>", b"z.>", b"a.x.y", b"z.x.y"),
        (b"", b"all.>", b"a.x", b"all.a.x"),
        (b">", b">", b"a.x", b"a.x"),
        (b"a.*", b"", b"a.x", b"a.x"),
        (b"a.*", b"", b"b.x", None),
        (b"a.*", b"b.$x.$", b"a.1", b"b.$x.$"),
        (b"a.*", b"$JS.$1", b"a.1", b"$JS.1"),
        # nats-server's own results on the wire
        (b"p.*.*", b"p.{{partition(10,1,2)}}", b"p.foo.bar", b"p.0"),
        (b"p.*.*", b"p.{{partition(10,1,2)}}", b"p.a.b", b"p.6"),
        (b"w.>", b"w.{{partition(10)}}.>", b"w.zed", b"w.1.zed"),
        (b"w.zed", b"w.{{partition(10)}}", b"w.zed", b"w.1"),
        (b"s.*", b"{{split(1,-)}}", b"s.a-b--c", b"a.b.c"),
        (b"s.*", b"t.{{Split(1, -)}}", b"s.-x-", b"t.x"),
        (b"s.*", b"{{split(1,--)}}", b"s.a-b--c", b"a-b.c"),
        (b"s.*", b"{{sliceFromLeft(1,3)}}", b"s.abcdefgh", b"abc.def.gh"),
        (b"s.*", b"{{SliceFromRight(1,3)}}", b"s.abcdefgh", b"ab.cde.fgh"),
        (b"s.*", b"{{SliceFromRight(1,4)}}", b"s.abcdefgh", b"abcd.efgh"),
        (b"s.*", b"{{sliceFromLeft(1,8)}}", b"s.abcdefgh", b"abcdefgh"),
        (b"s.*", b"{{splitFromLeft(1,3)}}", b"s.abcdefgh", b"abc.defgh"),
        (b"s.*", b"{{splitFromRight(1,3)}}", b"s.abcdefgh", b"abcde.fgh"),
        (b"s.*", b"{{splitFromLeft(1,8)}}", b"s.abcdefgh", b"abcdefgh"),
        (b"s.*", b"{{splitFromRight(1,0)}}", b"s.abcdefgh", b"abcdefgh"),
    ],
)
def test_apply(src: bytes, dest: bytes, subject: bytes, expected: bytes | None) -> None:
    assert Transform(src, dest).apply(subject) == expected


@pytest.mark.parametrize(
    ("src", "dest", "message"),
    [
        (b"a..b", b"c", "invalid subject"),
        (b"a", b"b..c", "invalid subject"),
        (b"a", b"b.*", "invalid subject"),
        (b"a", b"b.>", "invalid subject"),
        (b"a.>", b"b", "invalid subject"),
        (b"a.>", b"b.>.c", "invalid subject"),
        (b"a", b"b c", "invalid subject"),
        (b"a", b"$1", "invalid mapping destination: wildcard index out of range in $1"),
        (b"a.*", b"$2", "invalid mapping destination: wildcard index out of range in $2"),
        (b"a", b"$0", "invalid mapping destination: wildcard index out of range in $0"),
        (
            b"a.*",
            b"{{partition(3,2)}}",
            "invalid mapping destination: wildcard index out of range in {{partition(3,2)}}",
        ),
        (b"a.*", b"{{foo(1)}}", "invalid mapping destination: unknown function in {{foo(1)}}"),
        (b"a.*", b"{{left(1,1)}}", "invalid mapping destination: unknown function in {{left(1,1)}}"),
        (b"a.*", b"{{WILDCARD(1)}}", "invalid mapping destination: unknown function in {{WILDCARD(1)}}"),
        (b"a.*", b"{{}}", "invalid mapping destination: unknown function in {{}}"),
        (b"a.*", b"{{wildcard()}}", "invalid mapping destination: not enough arguments passed to the function"),
        (b"a.*", b"{{split(1)}}", "invalid mapping destination: not enough arguments passed to the function"),
        (b"a.*", b"{{wildcard(1,2)}}", "invalid mapping destination: too many arguments passed to the function"),
        (
            b"a.*",
            b"{{wildcard(x)}}",
            "invalid mapping destination: function argument is invalid or in the wrong format",
        ),
        (b"a.*", b"{{partition(x,1)}}", "function argument is invalid or in the wrong format"),
        (b"a.*", b"{{partition(99999999999,1)}}", "function argument is invalid or in the wrong format"),
        (b"a.*", b"{{wildcard(%b)}}" % (b"1" * 5000), "function argument is invalid or in the wrong format"),
        (b"a.*", b"{{split(1,- )}}", "function argument is invalid or in the wrong format"),
        (b"a.*", b"{{random(99999999999)}}", "function argument is invalid or in the wrong format"),
    ],
)
def test_refused(src: bytes, dest: bytes, message: str) -> None:
    with pytest.raises(TransformError) as caught:
        Transform(src, dest)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("dest", "made"),
    [
        (b"x.{{left(1,2)}}.{{right( 1 , 3 )}}", b"x.ab.def"),
        (b"x.{{Left(1,9)}}.{{Right(1,0)}}", b"x.abcdef.abcdef"),
        (b"x.{{left(1,-1)}}", b"x.abcdef"),
        (b"$0.{{wildcard(0)}}", b"a.a"),
        (b"{{partition(0,1)}}.{{random(0)}}", b"0.0"),
    ],
)
def test_republish(dest: bytes, made: bytes) -> None:
    # As nats-server 2.14.6 republishes a.abcdef.
    assert Transform(b"a.*", dest, republish=True).apply(b"a.abcdef") == made


def test_fnv() -> None:
    # From the FNV reference.
    assert fnv1a_32(b"") == 0x811C9DC5
    assert fnv1a_32(b"a") == 0xE40C292C
    assert fnv1a_32(b"foobar") == 0xBF9CF968


def test_random() -> None:
    transform = Transform(b"a.*", b"b.{{random(3)}}.$1", rng=random.Random(1))
    assert not transform.constant
    assert {transform.apply(b"a.x") for _ in range(100)} == {b"b.%d.x" % number for number in range(3)}
    assert Transform(b"a.*", b"b.{{partition(3,1)}}").constant


def test_import_transforms_are_reversible() -> None:
    transform = Transform(b"a.*.b.*", b"x.$2.$1", strict=True)
    assert transform.apply(b"a.1.b.2") == b"x.2.1"
    back = transform.reversed()
    assert back.apply(b"x.2.1") == b"a.1.b.2"
    assert Transform(b"a.*.>", b"b.$1.>", strict=True).reversed().apply(b"b.x.y.z") == b"a.x.y.z"
    assert Transform(b"a.b", b"c", strict=True).reversed().apply(b"c") == b"a.b"
    assert Transform(b"a.>", b"b.>").reversed().apply(b"b.x") == b"a.x"
    for src, dest in ((b"a.*.*", b"x.$1"), (b"a.*", b"x"), (b"a.*", b"x.{{partition(3,1)}}")):
        with pytest.raises(TransformError):
            Transform(src, dest, strict=True)
        with pytest.raises(TransformError):
            Transform(src, dest).reversed()


@pytest.mark.parametrize(
    ("src", "dest", "pattern", "expected"),
    [
        (b"a.*", b"b.$1", b"a.*", b"b.*"),
        (b"a.*", b"b.$1", b"a.x", b"b.x"),
        (b"a.*", b"b.$1", b"a.>", None),
        (b"a.>", b"b.>", b"a.>", b"b.>"),
        (b"a.>", b"b.>", b"a.*.c", b"b.*.c"),
        (b"a.>", b"b.>", b">", None),
        (b"a.b", b"c", b"a.b", b"c"),
        (b"a.b", b"c", b"a.*", None),
    ],
)
def test_apply_pattern(src: bytes, dest: bytes, pattern: bytes, expected: bytes | None) -> None:
    assert Transform(src, dest).apply_pattern(pattern) == expected


def test_domain_mapping() -> None:
    table = domain_mapping("edge")
    assert len(table) == 9
    assert (b"$JS.edge.API.INFO", b"$JS.API.INFO") in table
    assert (b"$JS.edge.API.CONSUMER.>", b"$JS.API.CONSUMER.>") in table
    assert (b"$JS.edge.API.$KV.>", b"$KV.>") in table
    found = [Transform(src, dest).apply(b"$JS.edge.API.STREAM.INFO.S") for src, dest in table]
    assert [each for each in found if each] == [b"$JS.API.STREAM.INFO.S"]


tokens = st.from_regex(rb"[a-z-]{1,6}", fullmatch=True)


@given(tokens, st.integers(1, 8))
def test_cutting_keeps_all_bytes(token: bytes, size: int) -> None:
    for name in (b"splitFromLeft", b"splitFromRight", b"sliceFromLeft", b"sliceFromRight"):
        made = Transform(b"*", b"{{%b(1,%d)}}" % (name, size)).apply(token)
        assert made is not None
        pieces = made.split(b".")
        assert b"".join(pieces) == token
        assert b"" not in pieces
        if name.startswith(b"slice"):
            assert max(map(len, pieces)) <= max(size, 1)
            assert sum(len(piece) != size for piece in pieces) <= 1
