"""Archives: reading of written ones, in any pieces; archives of nats-server, and damaged ones."""

from __future__ import annotations

import io
import tarfile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eyot_wire.archive import block_index, natsarc, tar, writer
from eyot_wire.archive.block import BlockParser, encode_placeholder, encode_record, hasher
from eyot_wire.archive.consumer_dat import decode_progress, encode_progress
from eyot_wire.archive.errors import ArchiveError, UnexpectedContent
from eyot_wire.archive.reader import ArchiveReader
from eyot_wire.archive.s2 import S2Reader, S2Writer
from eyot_wire.archive.seqset import decode_seqset
from eyot_wire.archive.values import (
    ArchivedMessage,
    ConsumerPart,
    ConsumerProgress,
    EndPart,
    GonePart,
    MessagesPart,
    Part,
    StatePart,
    StreamPart,
)
from eyot_wire.archive.varint import Cursor, uvarint, varint
from eyot_wire.archive.writer import FlatWriter, TarWriter

NOW_NS = 1_700_000_000_123_456_789
CREATED = "2023-11-14T22:13:20.5Z"
CONFIG = b'{"name":"S","subjects":["s.>"]}'
HEADER = b"NATS/1.0\r\nA: b\r\n\r\n"

seq_steps = st.one_of(st.just(1), st.integers(2, 5), st.integers(40, 200))
contents = st.tuples(
    seq_steps,
    st.sampled_from([b"s.a", b"s.b.c", b"s." + b"x" * 300]),
    st.sampled_from([b"", HEADER]),
    st.binary(max_size=80),
)
sequences = st.integers(1, 1 << 50)
progresses = st.builds(
    ConsumerProgress,
    delivered=st.tuples(sequences, sequences),
    ack_floor=st.tuples(st.integers(0, 1000), st.integers(0, 1000)),
    pending=st.dictionaries(st.integers(1001, 1 << 50), st.tuples(st.integers(1001, 1 << 50), st.integers(0, 2**61))),
    redelivered=st.dictionaries(st.integers(1001, 1 << 50), st.integers(1, 100)),
)


def messages_of(made: list[tuple[int, bytes, bytes, bytes]]) -> list[ArchivedMessage]:
    found, seq = [], 0
    for step, subject, header, payload in made:
        seq += step
        found.append(ArchivedMessage(seq, NOW_NS + seq, subject, header, payload))
    return found


def written(
    kind: type[TarWriter] | type[FlatWriter],
    messages: list[ArchivedMessage],
    last_seq: int,
    consumers: dict[str, ConsumerProgress],
) -> bytes:
    made = kind("S", NOW_NS)
    state = b'{"first_seq":%d,"last_seq":%d,"last_ts":"%s","consumer_count":%d}' % (
        messages[0].seq if messages else last_seq + 1,
        last_seq,
        b"2023-11-14T22:13:21Z",
        len(consumers),
    )
    out = made.begin(CONFIG, CREATED, state)
    parts = [made.consumer(name, b'{"durable_name":"c"}', CREATED, each) for name, each in consumers.items()]
    body = b"".join(made.messages(messages[at : at + 3]) for at in range(0, len(messages), 3))
    body += made.messages_end(last_seq, NOW_NS + last_seq)
    return out + b"".join([*parts, body] if made.consumers_first else [body, *parts]) + made.end()


def parts_of(data: bytes, sizes: list[int] | None = None, stream: str = "S") -> list[Part]:
    reader, found, at = ArchiveReader(stream), [], 0
    for size in [*(sizes or []), len(data)]:
        reader.feed(data[at : at + size])
        at += size
        while (parts := reader.step()) is not None:
            found += parts
    reader.end()
    return found


def messages_in(parts: list[Part]) -> list[ArchivedMessage]:
    """What is left when all is said."""
    alive: dict[int, ArchivedMessage] = {}
    for part in parts:
        if isinstance(part, MessagesPart):
            alive.update((each.seq, each) for each in part.messages)
        elif isinstance(part, GonePart):
            gone = [seq for seq in alive if any(first <= seq <= last for first, last in part.ranges)]
            gone += [
                seq for seq in alive if any(first <= seq <= last and seq in dead for first, last, dead in part.among)
            ]
            for seq in (*part.seqs, *gone):
                alive.pop(seq, None)
    return list(alive.values())


def of_kind(parts: list[Part], kind: type[Any]) -> list[Any]:
    return [part for part in parts if isinstance(part, kind)]


# -- round trips -------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=150)
@given(
    st.lists(contents, max_size=30),
    st.integers(0, 300),
    st.dictionaries(st.sampled_from(["a", "b c", "d"]), progresses, max_size=2),
    st.lists(st.integers(1, 400), max_size=20),
    st.sampled_from([0, 1, 500, 1 << 22]),
    st.sampled_from([0, 30, 100_000]),
)
def test_a_tar_archive_comes_back(
    made: list[tuple[int, bytes, bytes, bytes]],
    beyond: int,
    consumers: dict[str, ConsumerProgress],
    sizes: list[int],
    block_bytes: int,
    placeholders: int,
) -> None:
    messages = messages_of(made)
    last_seq = (messages[-1].seq if messages else 0) + beyond
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "BLOCK_BYTES", block_bytes)
        patch.setattr(writer, "PLACEHOLDERS_MAX", placeholders)
        parts = parts_of(written(TarWriter, messages, last_seq, consumers), sizes)
    assert isinstance(parts[0], StreamPart)
    assert parts[0].created_ns == 1_700_000_000_500_000_000
    assert messages_in(parts) == messages
    end = parts[-1]
    assert isinstance(end, EndPart)
    assert end.last_seq == last_seq
    if last_seq:
        assert end.last_ts_ns == NOW_NS + last_seq
    assert {each.name: at_seconds(each.progress) for each in of_kind(parts, ConsumerPart)} == {
        name: at_seconds(each) for name, each in consumers.items()
    }


@settings(deadline=None, max_examples=100)
@given(
    st.lists(contents, max_size=30),
    st.integers(0, 300),
    st.dictionaries(st.sampled_from(["a", "b"]), progresses, max_size=2),
    st.lists(st.integers(1, 400), max_size=20),
)
def test_a_flat_archive_comes_back(
    made: list[tuple[int, bytes, bytes, bytes]], beyond: int, consumers: dict[str, ConsumerProgress], sizes: list[int]
) -> None:
    messages = messages_of(made)
    last_seq = (messages[-1].seq if messages else 0) + beyond
    parts = parts_of(written(FlatWriter, messages, last_seq, consumers), sizes, stream="any name")
    assert isinstance(parts[0], StatePart)
    assert messages_in(parts) == messages
    assert parts[-1] == EndPart(last_seq, 1_700_000_001_000_000_000)
    assert {each.name: each.progress for each in of_kind(parts, ConsumerPart)} == consumers


def at_seconds(progress: ConsumerProgress) -> ConsumerProgress:
    """Times as `o.dat` keeps them."""
    pending = {seq: (cseq, ts_ns // 10**9) for seq, (cseq, ts_ns) in progress.pending.items()}
    return ConsumerProgress(
        delivered=progress.delivered,
        ack_floor=progress.ack_floor,
        pending=pending,
        redelivered=progress.redelivered,
    )


@given(progresses)
def test_a_consumers_progress_comes_back(progress: ConsumerProgress) -> None:
    assert at_seconds(decode_progress(encode_progress(progress, NOW_NS))) == at_seconds(progress)


def test_a_consumers_progress_of_the_first_version() -> None:
    numbers = [3, 5, 4, 6, 1]  # floor and the next to be delivered, relative to it
    data = bytes((22, 1)) + b"".join(map(uvarint, numbers)) + varint(1000) + uvarint(2) + varint(7) + uvarint(0)
    assert decode_progress(data) == ConsumerProgress(
        delivered=(6, 10), ack_floor=(3, 5), pending={7: (0, 1007 * 10**9)}
    )


def test_the_tar_is_one_that_others_read() -> None:
    data = written(TarWriter, messages_of([(1, b"s.a", b"", b"x")]), 1, {"c": ConsumerProgress()})
    reader = S2Reader()
    reader.feed(data)
    plain = b"".join(iter(lambda: reader.next_block() or b"", b""))
    with tarfile.open(fileobj=io.BytesIO(plain)) as archive:
        assert archive.getnames() == [
            "meta.inf", "meta.sum", "msgs/1.blk", "obs/c/meta.inf", "obs/c/meta.sum", "obs/c/o.dat"
        ]  # fmt: skip
        assert {(each.mode, each.uname, each.isreg()) for each in archive} == {(0o600, "nats", True)}


def test_a_name_that_only_fits_an_extended_header() -> None:
    name = "c" * 200
    [consumer] = of_kind(parts_of(written(TarWriter, [], 0, {name: ConsumerProgress()})), ConsumerPart)
    assert consumer.name == name


def test_holes_for_which_placeholders_do_not_suffice_begin_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "PLACEHOLDERS_MAX", 0)
    monkeypatch.setattr(writer, "HOLE_BLOCKS_MAX", 2)
    made = TarWriter("S", NOW_NS)
    data = made.begin(CONFIG, CREATED, b"") + made.messages(
        [ArchivedMessage(seq * 1000, NOW_NS, b"s", b"", b"") for seq in range(1, 6)]
    )
    data += made.messages_end(5000, NOW_NS) + made.end()
    reader = S2Reader()
    reader.feed(data)
    plain = b"".join(iter(lambda: reader.next_block() or b"", b""))
    with tarfile.open(fileobj=io.BytesIO(plain)) as archive:
        blocks = [each.size for each in archive if each.name.endswith(".blk")]
    assert blocks == [31, 31, 93], "two blocks that began at holes, then holes left open"
    assert [each.seq for each in messages_in(parts_of(data))] == [1000, 2000, 3000, 4000, 5000]


# -- what nats-server writes and Eyot does not -------------------------------------------------------------------------


def seqset(seqs: set[int], version: int = 2) -> bytes:
    """A set as nats-server encodes it."""
    width = 2048 if version == 2 else 4096
    nodes: dict[int, int] = {}
    for seq in seqs:
        base = seq - seq % width
        nodes[base] = nodes.get(base, 0) | 1 << seq - base
    out = bytes((22, version)) + len(nodes).to_bytes(4, "little") + len(seqs).to_bytes(4, "little")
    for base, bits in sorted(nodes.items()):
        out += base.to_bytes(8, "little") + bits.to_bytes(width // 8, "little") + b"\x01\x00"
    return out


@given(st.sets(st.integers(1, 20_000), max_size=50), st.sampled_from([1, 2]))
def test_a_set_of_sequences(seqs: set[int], version: int) -> None:
    cursor = Cursor(seqset(seqs, version) + b"rest")
    found = decode_seqset(cursor)
    assert list(found) == sorted(seqs)
    assert all(seq in found for seq in seqs)
    assert 20_001 not in found
    assert cursor.left == 4


def index_db(version: int, blocks: list[tuple[int, int, int, set[int]]], last_seq: int, stream: str = "S") -> bytes:
    """`index.db` of one of its versions: blocks as (number, first, last, dead)."""
    body = bytes((11, version))
    body += b"".join(map(uvarint, (7, 700, 1))) + varint(NOW_NS) + uvarint(last_seq) + varint(NOW_NS + 1)
    body += uvarint(2)
    for subject, total in ((b"s.a", 5), (b"s.b", 1)):
        body += uvarint(len(subject)) + subject + uvarint(total) + uvarint(1)
        if total > 1 or version >= 4:
            body += uvarint(2)
    body += uvarint(len(blocks))
    for number, first, last, dead in blocks:
        body += uvarint(number) + uvarint(99) + uvarint(first) + varint(0) + uvarint(last) + varint(5)
        body += uvarint(len(dead)) + uvarint(1) * min(version - 1, 2)
        if dead:
            body += seqset(dead)
    body += uvarint(blocks[-1][0] if blocks else 0) + bytes(8)
    return body + hasher(stream).digest(body)


def tarred(*files: tuple[str, bytes], end: bytes = tar.END) -> bytes:
    return S2Writer().write(b"".join(tar.encode_member(name, data, 1.5) for name, data in files) + end)


META = b'{"Created":"2023-11-14T22:13:20Z","name":"S"}'


def block(number: int, *seqs: int, more: bytes = b"") -> tuple[str, bytes]:
    hash64 = hasher(f"S-{number}")
    return f"msgs/{number}.blk", b"".join(encode_record(hash64, seq, seq, b"s.a", b"", b"x") for seq in seqs) + more


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_an_index_says_what_limits_removed(version: int) -> None:
    index = index_db(version, [(2, 13, 20, {15, 16}), (3, 21, 30, set())], 40)
    data = tarred(
        ("meta.inf", META),
        block(1, 1, 2, 3),
        block(2, *range(11, 21)),
        block(3, *range(21, 26)),
        ("msgs/index.db", index),
    )
    parts = parts_of(data)
    assert [each.seq for each in messages_in(parts)] == [13, 14, 17, 18, 19, 20, 21, 22, 23, 24, 25]
    assert parts[-1] == EndPart(40, NOW_NS + 1)


def test_a_damaged_index_is_none() -> None:
    index = bytearray(index_db(4, [(1, 3, 3, set())], 3))
    index[-1] ^= 1
    data = tarred(("meta.inf", META), block(1, 1, 2, 3), ("msgs/index.db", bytes(index)))
    assert [each.seq for each in messages_in(parts_of(data))] == [1, 2, 3]


def test_an_index_too_large_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eyot_wire.archive.tarred.INDEX_MAX", 50)
    index = index_db(4, [(1, 3, 3, set())], 3)
    data = tarred(("meta.inf", META), block(1, 1, 2, 3), ("msgs/index.db", index))
    assert [each.seq for each in messages_in(parts_of(data))] == [1, 2, 3]


@pytest.mark.parametrize("version", [1, 2])
def test_the_index_of_a_block_of_2_9(version: int) -> None:
    dead = seqset({4, 6}, 2) if version == 2 else uvarint(2) + uvarint(4)
    index = bytes((22, version)) + b"".join(map(uvarint, (4, 400, 2))) + varint(2) + uvarint(7) + varint(7)
    index += uvarint(2) + bytes(8) + dead
    state = block_index.decode_block_index(index)
    assert (state.first_seq, state.last_seq, list(state.dead)) == (2, 7, [4, 6])
    data = tarred(("meta.inf", META), ("msgs/1.idx", index), ("msgs/1.fss", b"?"), block(1, *range(1, 8)))
    assert [each.seq for each in messages_in(parts_of(data))] == [2, 3, 5, 7]


def test_tombstones_and_erased_messages() -> None:
    erased = encode_placeholder(hasher("S-2"), 6, 0)
    tombstone = encode_record(hasher("S-2"), 1 << 62 | 2, NOW_NS, b"", b"", b"")
    last = encode_record(hasher("S-2"), 1 << 62 | 9, NOW_NS + 9, b"", b"", b"")
    data = tarred(("meta.inf", META), block(1, 1, 2, 3), block(2, 4, 5, more=erased + tombstone + last))
    parts = parts_of(data)
    assert [each.seq for each in messages_in(parts)] == [1, 3, 4, 5]
    assert parts[-1] == EndPart(9, NOW_NS + 9)


# -- what is broken ----------------------------------------------------------------------------------------------------


def bad_record() -> bytes:
    return encode_record(hasher("S-2"), 9, 1, b"s", b"", b"x")  # hashed for another block


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ([], "no such file"),
        ([("meta.inf", b"{")], "meta.inf"),
        ([("meta.inf", b'{"name":"T"}')], "stream names do not match"),
        ([("meta.inf", META), ("meta.sum", b"0123456789abcdef")], "checksum"),
        ([("meta.inf", META), ("meta.inf", META)], "unexpected content"),
        ([block(1, 1)], "unexpected content"),
        ([("meta.inf", META), ("../x", b"")], "unexpected content"),
        ([("meta.inf", META), ("/etc/x", b"")], "unexpected content"),
        ([("meta.inf", META), ("msgs/a/../../x", b"")], "unexpected content"),
        ([("meta.inf", META), ("errors.txt", b"disk on fire")], "disk on fire"),
        ([("meta.inf", META), ("msgs/1.blk", bad_record())], "invalid checksum"),
        ([("meta.inf", META), ("msgs/1.blk", bad_record()[:-1])], "sanity check failed"),
        ([("meta.inf", META), ("msgs/1.blk", b"short")], "message overrun"),
        ([("meta.inf", META), ("msgs/1.blk", bytes(40))], "sanity check failed"),
        ([("meta.inf", META), block(1, 5, 6), block(2, 6, 7)], "out of order"),
        ([("meta.inf", META), ("obs/c/meta.inf", b"{}")], "not complete"),
        ([("meta.inf", META), ("obs/c/o.dat", b"")], "unexpected content"),
        ([("meta.inf", META), ("obs/c/meta.inf", b"{}"), ("obs/c/meta.sum", b"")], "checksum"),
        ([("meta.inf", META), ("obs/c/meta.inf", b"{}"), ("obs/c/o.dat", b"\x16\x09")], "unsupported version"),
        ([("meta.inf", META), ("obs/c/meta.inf", b"{}"), ("obs/c/o.dat", b"\x16\x02\x01")], "corrupt"),
    ],
)
def test_broken_archives_are_refused(files: list[tuple[str, bytes]], words: str) -> None:
    with pytest.raises(ArchiveError, match=words):
        parts_of(tarred(*files))


def test_a_link_in_the_archive_is_refused() -> None:
    info = tarfile.TarInfo("meta.inf")
    info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with pytest.raises(UnexpectedContent):
        parts_of(S2Writer().write(info.tobuf() + tar.END))


def test_subjects_that_are_none_are_refused() -> None:
    hash64 = hasher("S-1")
    for subject in (b"a b", b"a..b", b"a.", b"", b"a\r\nPING"):
        record = encode_record(hash64, 1, 1, subject, b"", b"x")
        with pytest.raises(ArchiveError, match="sanity check failed"):
            BlockParser(hash64, "[1]").parse(record, 0, len(record), whole=True)
        entry = natsarc.encode_entry(b"state.json", 1, 0, b"", b"{}") + natsarc.encode_entry(subject, 1, 1, b"", b"x")
        with pytest.raises(ArchiveError, match="valid subject"):
            parts_of(S2Writer().write(natsarc.MAGIC + entry + natsarc.END))


def test_a_message_may_have_a_wildcard_for_its_subject() -> None:
    # A stream stores what a client publishes to `a.>` unless the client is pedantic.
    hash64 = hasher("S-1")
    for subject in (b"a.>", b"*", b"a.>.b"):
        record = encode_record(hash64, 1, 1, subject, b"", b"x")
        parser = BlockParser(hash64, "[1]")
        parser.parse(record, 0, len(record), whole=True)
        entry = natsarc.encode_entry(b"state.json", 1, 0, b"", b"{}") + natsarc.encode_entry(subject, 1, 1, b"", b"x")
        flat = messages_in(parts_of(S2Writer().write(natsarc.MAGIC + entry + natsarc.END)))
        assert [each.subject for each in parser.messages + flat] == [subject, subject]


STATE = natsarc.encode_entry(b"state.json", 1, 0, b"", b'{"consumer_count":0}')


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (natsarc.encode_entry(b"other", 1, 0, b"", b"{}"), "expected state.json first"),
        (natsarc.encode_entry(b"state.json", 1, 0, b"", b"["), "error in state.json"),
        (natsarc.encode_entry(b"state.json", 1, 0, b"", b'{"last_ts":"then"}'), "error in state.json"),
        (natsarc.encode_entry(b"state.json", 1, 0, b"", b'{"last_seq":-1}'), "negative"),
        (natsarc.encode_entry(b"state.json", 1, 0, b"", b'{"consumer_count":1}') + natsarc.END, "expected consumer"),
        (STATE + natsarc.encode_entry(b"s", 1, 0, b"", b""), "expected message sequence"),
        (STATE + natsarc.encode_entry(b"s", 1, 2, b"", b"") * 2, "out of order"),
        (STATE + natsarc.encode_entry(b"s", 1, 2, b"", b""), "unexpected EOF"),
        (STATE + uvarint(1 << 40) + varint(1) + uvarint(1) + uvarint(0) * 2, "invalid archive stream"),
        (STATE + uvarint(1) + varint(1) + uvarint(1) + uvarint(1 << 62) + uvarint(0), "invalid archive stream"),
    ],
)
def test_broken_flat_archives_are_refused(body: bytes, words: str) -> None:
    with pytest.raises(ArchiveError, match=words):
        parts_of(S2Writer().write(natsarc.MAGIC + body))


@settings(deadline=None, max_examples=300)
@given(st.sampled_from([TarWriter, FlatWriter]), st.data())
def test_whatever_is_wrong_is_said_as_an_archive_error(
    kind: type[TarWriter] | type[FlatWriter], data: st.DataObject
) -> None:
    """Bytes changed beneath the compression, where no checksum of S2 notices."""
    whole = written(
        kind, messages_of([(1, b"s.a", HEADER, b"abc"), (3, b"s.b", b"", b"d")]), 9, {"c": ConsumerProgress()}
    )
    reader = S2Reader()
    reader.feed(whole)
    plain = bytearray(b"".join(iter(lambda: reader.next_block() or b"", b"")))
    for _ in range(data.draw(st.integers(1, 3))):
        plain[data.draw(st.integers(0, len(plain) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(plain)))
    try:
        parts_of(S2Writer().write(bytes(plain[:cut] if data.draw(st.booleans()) else plain)))
    except ArchiveError:
        pass


def test_a_small_archive_that_stands_for_much_is_worked_on_in_pieces() -> None:
    """A bomb: every step gives a block at most, and keeps no more than that."""
    made = S2Writer()
    head = tar.encode_member("meta.inf", META, 1.0)
    info = tarfile.TarInfo("msgs/large.tmp")
    info.size = 64 << 20
    data = (
        made.write(head + info.tobuf()) + b"".join(made.write(bytes(1 << 20)) for _ in range(64)) + made.write(tar.END)
    )
    assert len(data) < 4 << 20
    reader = ArchiveReader("S")
    reader.feed(data)
    steps = 0
    while (parts := reader.step()) is not None:
        steps += 1
        assert reader._window.left <= 4 << 20
    assert steps >= 64
    reader.end()
    assert parts is None
