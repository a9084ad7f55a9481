"""What a small archive may take up while it is read: much can be packed into little."""

import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from eyot_wire.archive import natsarc, tar
from eyot_wire.archive.block import encode_record, hasher
from eyot_wire.archive.errors import ArchiveError
from eyot_wire.archive.reader import ArchiveReader
from eyot_wire.archive.s2 import S2Writer
from eyot_wire.archive.varint import uvarint, varint

pytestmark = pytest.mark.slow

MIB = 1 << 20
#: Of one archive, what its parts take up included. The archives are small themselves, for tracing each allocation takes long.
HELD_MAX = 4 * MIB
META = b'{"Created":"2023-11-14T22:13:20Z","name":"S"}'


def index_head() -> bytes:
    return bytes((11, 4)) + b"".join(map(uvarint, (7, 700, 1))) + varint(1) + uvarint(9) + varint(1)


def many_subjects() -> Iterator[bytes]:
    """An index of 5 MiB, nearly all of it subjects."""
    one = uvarint(32) + b"s" * 32 + b"".join(map(uvarint, (2, 1, 2)))
    count = 5 * MIB // len(one)
    body = index_head() + uvarint(count) + one * count + uvarint(0) + uvarint(0) + bytes(8)
    yield tar.encode_member("meta.inf", META, 1.5)
    yield tar.encode_member("msgs/index.db", body + hasher("S").digest(body), 1.5)


def many_blocks() -> Iterator[bytes]:
    """The same, nearly all of it blocks that never came."""
    one = b"".join(map(uvarint, (1, 1, 0, 1, 0, 0, 0, 0)))
    count = MIB // 4 // len(one)
    blocks = b"".join(uvarint(number) + one for number in range(1, count + 1))
    body = index_head() + uvarint(0) + uvarint(count) + blocks + uvarint(0) + bytes(8)
    yield tar.encode_member("meta.inf", META, 1.5)
    yield tar.encode_member("msgs/index.db", body + hasher("S").digest(body), 1.5)


def many_block_indexes() -> Iterator[bytes]:
    """Indexes of 2.9, each with very many deletions, whose blocks never come."""
    yield tar.encode_member("meta.inf", META, 1.5)
    dead = b"".join(uvarint(128 + (at & 127)) for at in range(50_000))
    head = bytes((22, 1)) + b"".join(map(uvarint, (4, 400, 2))) + varint(2) + uvarint(7) + varint(7)
    for number in range(1, 5):
        yield tar.encode_member(f"msgs/{number}.idx", head + uvarint(50_000) + bytes(8) + dead, 1.5)


def small_messages() -> Iterator[bytes]:
    yield tar.encode_member("meta.inf", META, 1.5)
    hash64 = hasher("S-1")
    yield tar.encode_member(
        "msgs/1.blk", b"".join(encode_record(hash64, seq, seq, b"s", b"", b"") for seq in range(1, 35_000)), 1.5
    )
    yield tar.END


def small_messages_flat() -> Iterator[bytes]:
    state = b'{"first_seq":1,"last_seq":9,"last_ts":"2023-11-14T22:13:21Z","consumer_count":0}'
    yield natsarc.MAGIC + natsarc.encode_entry(b"state.json", 0, 0, b"", state)
    for seq in range(1, 35_000):
        yield natsarc.encode_entry(b"s", 1, seq, b"", b"")


def large_files() -> Iterator[bytes]:
    yield tar.encode_member("meta.inf", META, 1.5)
    for number in range(20):
        yield tar.encode_member(f"obs/c{number}/meta.inf", bytes(MIB), 1.5)


@pytest.mark.parametrize(
    "made", [many_subjects, many_blocks, many_block_indexes, small_messages, small_messages_flat, large_files]
)
def test_little_is_held_of_what_an_archive_stands_for(made: Callable[[], Iterator[bytes]]) -> None:
    writer, packed = S2Writer(), []
    waiting = bytearray()
    for piece in made():
        waiting += piece
        if len(waiting) > MIB:
            packed.append(writer.write(bytes(waiting)))
            waiting.clear()
    packed.append(writer.write(bytes(waiting)))
    reader = ArchiveReader("S")
    tracemalloc.start()
    try:
        for chunk in packed:
            for at in range(0, len(chunk), 128 * 1024):
                reader.feed(chunk[at : at + 128 * 1024])
                while reader.step() is not None:  # each step's parts are stored before the next
                    pass
        peak = tracemalloc.get_traced_memory()[1]
    except ArchiveError:
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < HELD_MAX, f"{peak / MIB:.0f} MiB"
