"""The lowest layer of archives: checksums, S2, HighwayHash, varints. Both twins, libraries and models beside each other."""

from __future__ import annotations

from importlib.util import find_spec

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eyot_wire.archive import crc32c as plain_crc
from eyot_wire.archive import highwayhash as plain_hash
from eyot_wire.archive import native, plain_chunks, s2_block
from eyot_wire.archive.errors import ArchiveError
from eyot_wire.archive.s2 import BLOCK_MAX, S2Reader, S2Writer, masked_crc
from eyot_wire.archive.varint import Cursor, uvarint, varint

DECODERS = (native.decode_block, s2_block.decode_block)

repeated = st.lists(st.tuples(st.binary(min_size=1, max_size=20), st.integers(1, 200)), max_size=12).map(
    lambda runs: b"".join(piece * times for piece, times in runs)
)


def test_the_compiled_twin_is_chosen_where_it_was_built() -> None:
    assert (find_spec("eyot_wire._archive") is not None) == native.COMPILED


# -- checksums ---------------------------------------------------------------------------------------------------------


def test_the_check_value_of_crc32c() -> None:
    assert native.crc32c(b"123456789") == plain_crc.crc32c(b"123456789") == 0xE3069283


@given(st.binary(max_size=300))
def test_both_twins_make_the_same_crc_as_the_library(data: bytes) -> None:
    assert native.crc32c(data) == plain_crc.crc32c(data)
    # A frame of the library holds a block's masked checksum behind its header and the identifier's chunk.
    frame = bytes(cramjam.snappy.compress(data))
    if data:
        assert int.from_bytes(frame[14:18], "little") == masked_crc(data)


@pytest.mark.parametrize(
    ("size", "expected"), [(0, 0x907A56DE22C26E53), (1, 0x7EAB43AAC7CDDD78), (2, 0xB8D0569AB0B53D62)]
)
def test_the_vectors_of_highwayhash(size: int, expected: int) -> None:
    key = bytes(range(32))
    for twin in (native.HighwayHash64, plain_hash.HighwayHash64):
        assert int.from_bytes(twin(key).digest(bytes(range(size))), "little") == expected


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=200))
def test_both_twins_make_the_same_hash(key: bytes, data: bytes) -> None:
    made = native.HighwayHash64(key)
    assert made.digest(data) == made.digest(data) == plain_hash.HighwayHash64(key).digest(data)


def test_a_key_has_32_bytes() -> None:
    for twin in (native.HighwayHash64, plain_hash.HighwayHash64):
        with pytest.raises(ValueError, match="32 bytes"):
            twin(b"short")


# -- blocks ------------------------------------------------------------------------------------------------------------


@given(repeated)
def test_what_the_library_compressed_comes_back(data: bytes) -> None:
    block = bytes(cramjam.snappy.compress_raw(data))
    for decode in DECODERS:
        assert decode(block, 1 << 20) == data


Element = tuple[str, bytes, int, int]
elements = st.lists(
    st.one_of(
        st.tuples(st.just("literal"), st.binary(min_size=1, max_size=400), st.just(0), st.just(0)),
        st.tuples(st.just("copy1"), st.just(b""), st.integers(1, 2047), st.integers(4, 11)),
        st.tuples(st.just("copy2"), st.just(b""), st.integers(1, 65535), st.integers(1, 64)),
        st.tuples(st.just("copy4"), st.just(b""), st.integers(1, 70_000), st.integers(1, 64)),
        st.tuples(st.just("repeat"), st.just(b""), st.just(0), st.integers(4, 80_000)),
    ),
    max_size=12,
)


def built(made: list[Element]) -> tuple[bytes, bytes]:
    """A block of these elements, offsets made to fit, and what it stands for, by a model that is as simple as can be."""
    out, code, last = bytearray(b"seed"), bytearray(b"\x0cseed"), 1
    for kind, literal, offset, size in made:
        if kind == "literal":
            width = 1 if len(literal) > 60 else 0
            head = [(59 + width) << 2, len(literal) - 1 & 0xFF] if width else [(len(literal) - 1) << 2]
            if len(literal) > 256:
                head = [61 << 2, len(literal) - 1 & 0xFF, len(literal) - 1 >> 8]
            code += bytes(head) + literal
            out += literal
            continue
        if kind == "repeat":
            offset = last
            rest = size - 4
            if rest < 5:
                code += bytes((rest << 2 | 1, 0))
            elif rest < 260:
                code += bytes((5 << 2 | 1, 0, rest - 4))
            elif rest < 65_792:
                code += bytes((6 << 2 | 1, 0)) + (rest - 256).to_bytes(2, "little")
            else:
                code += bytes((7 << 2 | 1, 0)) + (rest - 65_536).to_bytes(3, "little")
        else:
            offset = min(offset, len(out))
            if kind == "copy1":
                code += bytes((offset >> 8 << 5 | (size - 4) << 2 | 1, offset & 0xFF))
            elif kind == "copy2":
                code += bytes(((size - 1) << 2 | 2,)) + min(offset, 65_535).to_bytes(2, "little")
                offset = min(offset, 65_535)
            else:
                code += bytes(((size - 1) << 2 | 3,)) + offset.to_bytes(4, "little")
        last = offset
        for _ in range(size):
            out.append(out[-offset])
    return uvarint(len(out)) + bytes(code), bytes(out)


@settings(deadline=None)
@given(elements)
def test_every_element_of_s2(made: list[Element]) -> None:
    block, expected = built(made)
    for decode in DECODERS:
        assert decode(block, 1 << 22) == expected
        with pytest.raises(ValueError, match="s2"):
            decode(block, len(expected) - 1)


@settings(deadline=None, max_examples=300)
@given(st.one_of(st.binary(max_size=60), st.tuples(elements, st.data()).map(lambda each: built(each[0])[0])), st.data())
def test_both_twins_refuse_the_same(block: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, max(len(block) - 1, 0)))
    damaged = block[:at] + data.draw(st.binary(max_size=2)) + block[at + 1 :]
    outcomes = []
    for decode in DECODERS:
        try:
            outcomes.append(decode(damaged, 1 << 20))
        except ValueError as error:
            outcomes.append(str(error).encode())
    assert outcomes[0] == outcomes[1]


# -- streams -----------------------------------------------------------------------------------------------------------


def read_all(stream: bytes, sizes: list[int]) -> bytes:
    reader, out, at = S2Reader(), bytearray(), 0
    for size in [*sizes, len(stream)]:
        piece = bytearray(stream[at : at + size])
        reader.feed(piece)
        at += size
        while (block := reader.next_block()) is not None:
            out += block
        piece[:] = b"?" * len(piece)  # as the next read overwrites it
    reader.end()
    return bytes(out)


@settings(deadline=None)
@given(st.lists(repeated, max_size=5), st.lists(st.integers(0, 50), max_size=30))
def test_a_stream_comes_back_whatever_the_pieces(parts: list[bytes], sizes: list[int]) -> None:
    writer = S2Writer()
    stream = b"".join(writer.write(part) for part in parts)
    assert read_all(stream, sizes) == b"".join(parts)


IDENTIFIER = b"\xff\x06\x00\x00S2sTwO"


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 255), st.sampled_from([0, 1, 40, 4_096, 65_535, 65_536, 65_537, 200_000])), max_size=6
    ),
    st.lists(st.integers(0, 70_000), max_size=6),
)
def test_both_twins_make_the_same_plain_chunks(parts: list[tuple[int, int]], sizes: list[int]) -> None:
    data = [bytes((byte,)) * size for byte, size in parts]
    made = native.plain_chunks(data)
    assert made == plain_chunks.plain_chunks(data)
    assert read_all(IDENTIFIER + made, sizes) == b"".join(data)


@pytest.mark.parametrize("first", range(0, 60, 7))
def test_what_is_held_may_be_overwritten(first: int) -> None:
    """A turn ends between two blocks: the rest waits, while the buffer of the read has other bytes."""
    stream = IDENTIFIER + b"".join(plain(b"%d" % number * 10) for number in range(4))
    reader, out = S2Reader(), []
    for piece in (bytearray(stream[:first]), bytearray(stream[first:])):
        reader.feed(piece)
        out += [bytes(block)] if (block := reader.next_block()) is not None else []
        reader.hold()
        piece[:] = b"?" * len(piece)
    out += [bytes(block) for block in iter(reader.next_block, None)]
    assert out == [b"%d" % number * 10 for number in range(4)]
    assert reader.pending == 0


def chunk(kind: int, content: bytes) -> bytes:
    return bytes((kind,)) + len(content).to_bytes(3, "little") + content


def plain(data: bytes) -> bytes:
    return chunk(1, masked_crc(data).to_bytes(4, "little") + data)


def test_chunks_that_can_be_skipped_are() -> None:
    stream = (
        IDENTIFIER + plain(b"one") + chunk(0xFE, bytes(70_000)) + chunk(0x99, b"index") + IDENTIFIER + plain(b"two")
    )
    assert read_all(stream, [3, 10, 40_000]) == b"onetwo"


@pytest.mark.parametrize(
    "stream",
    [
        b"PK\x03\x04 something else",
        plain(b"no identifier"),
        b"\xff\x06\x00\x00S2sTw!",
        b"\xff\x07\x00\x00S2sTwO!",
        IDENTIFIER + chunk(0x02, b"reserved"),
        IDENTIFIER + chunk(0x01, b"abc"),
        IDENTIFIER + chunk(0x01, b"\0\0\0\0wrong sum"),
        IDENTIFIER + chunk(0x00, masked_crc(b"x").to_bytes(4, "little") + uvarint(BLOCK_MAX + 1)),
        IDENTIFIER + b"\x00\xff\xff\xff",
        IDENTIFIER + plain(b"whole") + plain(b"cut short")[:-1],
        IDENTIFIER + chunk(0xFE, bytes(10))[:-1],
    ],
)
def test_what_is_no_stream_is_refused(stream: bytes) -> None:
    with pytest.raises(ArchiveError):
        read_all(stream, [])


# -- integers ----------------------------------------------------------------------------------------------------------


@given(st.integers(0, (1 << 64) - 1), st.integers(-(1 << 63), (1 << 63) - 1))
def test_integers_come_back(unsigned: int, signed: int) -> None:
    cursor = Cursor(uvarint(unsigned) + varint(signed) + b"rest")
    assert (cursor.uvarint(), cursor.varint(), cursor.take(4), cursor.left) == (unsigned, signed, b"rest", 0)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 10, b"\xff" * 9 + b"\x02"])
def test_integers_that_are_none(data: bytes) -> None:
    with pytest.raises(ArchiveError):
        Cursor(data).uvarint()
