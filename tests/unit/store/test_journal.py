"""The journal in front of LMDB: replay, what a torn or damaged frame means, changing committers, reads before LMDB knows."""

import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eyot_store import Store, StoreError, StoreOptions
from eyot_store.changes import decode
from eyot_store.check.check import check
from eyot_store.environment import Environment
from eyot_store.journal.aside import read_aside, set_aside
from eyot_store.journal.high_water import FILE
from eyot_store.journal.journal import BLOCK, HEADER, MAGIC, Journal, read_frames, segment_name
from eyot_store.journal.losses import gone_in
from eyot_store.pages.pages import Pages
from eyot_store.records.record import pack_u64
from eyot_store.records.store_cipher import StoreKeys
from eyot_store.txn import Op
from eyot_wire.native import StoredRun
from support.store.store import FAST, JOURNAL, Loop, commit, fill, make_log, open_inline

WIDE = msgspec.structs.replace(JOURNAL, journal_segment_bytes=1 << 20)


def payloads(store: Store, name: str = "S") -> list[bytes]:
    log = next(log for log in store.streams() if log.name == name)
    return [m.payload for m in log.read(1, max_messages=999, max_bytes=1 << 30).messages]


def filled(path: Path, count: int = 5) -> None:
    """A store whose messages are in the journal only: `count` frames, one message each."""
    store = open_inline(path, WIDE)
    log = make_log(store)
    for number in range(count):
        fill(store, log, 1, payload=b"message %d" % number)
    assert store.stats.applies == 0
    store.crash()


def frames_at(path: Path, index: int = 0) -> list[int]:
    data = (path / "journal" / segment_name(index)).read_bytes()
    out, at = [], data.find(MAGIC)
    while at >= 0:
        out.append(at)
        at = data.find(MAGIC, at + 1)
    return out


def damage(path: Path, at: int, data: bytes) -> None:
    with (path / "journal" / segment_name(0)).open("r+b") as file:
        file.seek(at)
        file.write(data)


def test_what_only_the_journal_holds_is_there_after_a_crash(tmp_path: Path) -> None:
    filled(tmp_path / "store")
    report = check(tmp_path / "store")
    assert (report.problems, report.format, report.journal_frames) == ([], 2, 5)
    assert report.streams[0].messages == 0
    for options in (WIDE, FAST, JOURNAL):  # an LMDB store takes the journal over, too, and back
        store = open_inline(tmp_path / "store", options)
        assert store.damaged == []
        assert payloads(store) == [b"message %d" % number for number in range(5)]
        assert (tmp_path / "store" / "journal").exists() == (options is not FAST)
        store.crash()
        report = check(tmp_path / "store")
        assert (report.problems, report.format) == ([], 1 if options is FAST else 2)
        assert (report.journal_frames, report.streams[0].messages) == (0, 5)


def test_everything_that_is_read_is_read_before_lmdb_has_it(tmp_path: Path) -> None:
    store = open_inline(tmp_path / "store", WIDE)
    log = make_log(store)
    for seq in range(1, 31):
        fill(store, log, 1, subject=b"a" if seq % 3 else b"b", payload=b"%d" % seq)
    txn = store.begin()
    for seq in (2, 3, 11):
        assert log.remove(txn, seq)
    log.purge(txn, below_seq=2)
    log.put_consumer(txn, "c", b"config", b"state")
    log.put_consumer(txn, "gone", b"config", b"state")
    log.put_position(txn, b"p", b"1")
    log.skip_to(txn, 40)
    assert commit(store, txn) is None
    txn = store.begin()
    log.delete_consumer(txn, "gone")
    log.put_consumer_state(txn, "c", b"newer")
    log.put_position(txn, b"p", b"2")
    log.delete_position(txn, b"other")
    assert commit(store, txn) is None
    assert store.stats.applies == 0
    for again in range(3):
        if again == 2:
            store.crash()
            store = open_inline(tmp_path / "store", WIDE)
            log = store.streams()[0]
        expected = [seq for seq in range(4, 31) if seq != 11]
        assert [m.seq for m in log.read(1, max_messages=99, max_bytes=999).messages] == expected
        assert [m.payload for m in log.read(9, max_messages=3, max_bytes=999).messages] == [b"9", b"10", b"12"]
        assert [m.seq for m in log.read(1, max_messages=4, max_bytes=999, filters=(b"b",)).messages] == [6, 9, 12, 15]
        assert [log.get(seq) is None for seq in (3, 4, 11, 30, 31)] == [True, False, True, False, True]
        assert log.deleted() == [11, *range(31, 41)]
        assert (log.state.first_seq, log.state.last_seq, log.state.messages) == (4, 40, len(expected))
        assert log.count(10, (b"a",)) == 13
        assert log.last_seq_for(b"b") == 30
        assert log.consumers() == [("c", b"config", b"newer")]
        assert log.positions() == {b"p": b"2"}
        if not again:
            fill(store, make_log(store, "T"), 1)  # a stream goes straight into LMDB, after everything before it
            assert store.stats.applies == 1
            assert store._overlays is not None
            assert not [reader for reader in store._overlays.holding if reader is log.view.records]
    store.crash()


def test_a_torn_last_frame_was_never_there(tmp_path: Path) -> None:
    store = open_inline(tmp_path / "whole", WIDE)
    log = make_log(store)
    for number in range(5):
        mark_before_last = (tmp_path / "whole" / FILE).read_bytes()
        fill(store, log, 1, payload=b"message %d" % number)
    store.crash()
    last = frames_at(tmp_path / "whole")[-1]
    (tmp_path / "whole" / FILE).write_bytes(mark_before_last)  # it is written when the frame is durable
    for torn in (0, 3, 7, 12, HEADER.size, 25, 40):
        path = tmp_path / str(torn)
        shutil.copytree(tmp_path / "whole", path)
        damage(path, last + torn, bytes(BLOCK))
        assert check(path).problems == []
        store = open_inline(path, WIDE)
        assert store.damaged == []
        assert len(payloads(store)) == 4
        fill(store, store.streams()[0], 1, payload=b"again")
        store.crash()
        store = open_inline(path, WIDE)
        assert payloads(store)[4:] == [b"again"]
        store.crash()


@pytest.mark.parametrize("offset", [0, 5, 10, 17, 30])
def test_a_damaged_frame_is_named_and_others_are_kept(tmp_path: Path, offset: int) -> None:
    path = tmp_path / "store"
    filled(path)
    at = frames_at(path)[2] + offset
    byte = (path / "journal" / segment_name(0)).read_bytes()[at]
    damage(path, at, bytes([byte ^ 0x10]))
    assert check(path).problems == ["journal: frame 3 is damaged"]
    store = open_inline(path, WIDE)
    whole = offset < 30  # the record itself
    assert store.damaged == [
        "journal: frame 3 is damaged; what it held is lost, but for 1 message"
        if whole
        else "journal: frame 3 is damaged; what it held is lost",
        *([] if whole else ["stream A/S: sequences 3 are lost"]),
    ]
    assert payloads(store) == [b"message %d" % number for number in ((0, 1, 2, 3, 4) if whole else (0, 1, 3, 4))]
    assert store.streams()[0].deleted() == ([] if whole else [3])
    store.crash()
    assert check(path).problems == []


def test_what_a_damaged_frame_held_is_all_that_is_missing(tmp_path: Path) -> None:
    """Of seven frames with all kinds of changes one is damaged, in its head, or in its first or last message."""
    store = open_inline(tmp_path / "whole", WIDE)
    log = make_log(store)

    def frame(*steps: Callable[[Any], object]) -> None:
        txn = store.begin()
        for step in steps:
            step(txn)
        assert commit(store, txn) is None

    def message(number: int) -> Callable[[Any], object]:
        return lambda txn: log.append(txn, b"a", b"", b"message %d." % number, number, seq=number)

    frame(message(1))
    frame(message(2), message(3), lambda txn: log.put_consumer(txn, "C", b"configured", b"state 2"))
    frame(lambda txn: log.remove(txn, 1), lambda txn: log.put_position(txn, b"key", b"3"))
    frame(lambda txn: log.skip_to(txn, 6), lambda txn: log.put_consumer_state(txn, "C", b"state 4"))
    frame(message(7), message(8), lambda txn: log.delete_position(txn, b"key"))
    frame(lambda txn: log.purge(txn, below_seq=3))
    frame(message(9))
    store.crash()
    frames = frames_at(tmp_path / "whole")
    assert len(frames) == 7
    added = {1: {1}, 2: {2, 3}, 5: {7, 8}, 7: {9}}
    gone = {3: {1}, 6: {1, 2}}
    for damaged in range(1, 8):
        for one in (0, *added.get(damaged, ())):
            path = tmp_path / f"{damaged} {one}"
            shutil.copytree(tmp_path / "whole", path)
            data = (path / "journal" / segment_name(0)).read_bytes()
            damage(path, data.find(b"message %d." % one) if one else frames[damaged - 1], b"!")
            store = open_inline(path, WIDE)
            log = store.streams()[0]
            lost = {one} if one else set[int]()
            left = {1, 2, 3, 7, 8, 9} - lost - {seq for at, seqs in gone.items() if at != damaged for seq in seqs}
            assert set(log.view.live_seqs_from(1)) == left, (damaged, one)
            assert (log.state.messages, log.state.last_seq) == (len(left), 9)
            assert log.state.last_ts_ns == max(left)
            if damaged in (2, 3, 4):  # the sequences that the fourth skips may have held messages in the missing one
                lost |= {4, 5, 6}
            assert {seq for first, last in gone_in(log.positions()) for seq in range(first, last + 1)} == lost
            assert log.positions().get(b"key") == (b"3" if damaged == 5 else None)
            consumer = [] if damaged == 2 else [("C", b"configured", b"state 2" if damaged == 4 else b"state 4")]
            assert log.consumers() == consumer
            store.close()
            assert check(path).problems == []


@pytest.mark.parametrize("how", ["zeros", "cut", "gone"])
@pytest.mark.parametrize("sealed", [False, True])
def test_a_journal_whose_end_is_gone_is_noticed(tmp_path: Path, how: str, sealed: bool) -> None:
    options = msgspec.structs.replace(WIDE, keys=StoreKeys(b"secret")) if sealed else WIDE
    path = tmp_path / "store"
    store = open_inline(path, options)
    log, other = make_log(store), make_log(store, "T")
    for number in range(5):
        fill(store, log, 2, payload=b"message %d" % number)
    fill(store, other, 1)
    store.crash()
    segment = path / "journal" / segment_name(0)
    if how == "zeros":
        segment.write_bytes(bytes(segment.stat().st_size))
    elif how == "cut":
        segment.write_bytes(b"")
    else:
        segment.unlink()
    assert check(path, options.keys).problems == [f"journal: frame {number} is damaged" for number in range(1, 7)]
    store = open_inline(path, options)
    assert store.damaged == [
        "journal: frames 1 to 6 are damaged; what they held is lost",
        "stream A/S: sequences 1 to 10 are lost",
        "stream A/T: sequences 1 are lost",
    ]
    assert (path / "readers-doubted.on").exists()
    fill(store, store.streams()[0], 1, payload=b"again")
    assert [(log.state.first_seq, log.state.last_seq) for log in store.streams()] == [(11, 11), (2, 1)]
    store.crash()
    store = open_inline(path, options)
    assert store.damaged == []
    assert [(log.state.first_seq, log.state.last_seq) for log in store.streams()] == [(11, 11), (2, 1)]
    store.close()
    assert check(path, options.keys).problems == []


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("mark", ["gone", "zeros", "cut"])
@pytest.mark.parametrize("left", ["first segment", "nothing"])
def test_a_journal_that_lost_its_end_and_its_mark_gives_no_sequence_again(
    tmp_path: Path, left: str, mark: str, sealed: bool
) -> None:
    options = msgspec.structs.replace(
        JOURNAL, journal_segment_bytes=64 << 10, keys=StoreKeys(b"secret") if sealed else None
    )
    path = tmp_path / "store"
    store = open_inline(path, options)
    log, idle = make_log(store), make_log(store, "T")
    copied = make_log(store, "M", config=b'{"name":"M","mirror":{"name":"S"}}')
    fill(store, idle, 3)
    fill(store, copied, 4)
    while not (path / "journal" / segment_name(1)).exists():
        fill(store, log, 1, payload=bytes(5000))
    fill(store, log, 4, payload=bytes(5000))
    given = log.state.last_seq
    store.crash()
    for segment in sorted((path / "journal").iterdir())[left != "nothing" :]:
        segment.unlink()
    if mark == "gone":
        (path / FILE).unlink()
    else:
        (path / FILE).write_bytes(bytes(8192) if mark == "zeros" else b"")
    words = f"journal: {FILE} is missing or damaged, so what the journal held at its end is not known"
    assert check(path, options.keys).problems == [words]
    store = open_inline(path, options)
    assert store.damaged[0] == words
    spans = {log.name: gone_in(log.positions())[-1:] for log in store.streams()}
    assert store.damaged[1:] == [
        f"stream A/{name}: sequences {first} to {last} may be lost" for name in "ST" for first, last in spans[name]
    ]
    assert (path / "readers-doubted.on").exists()
    at_least = {"S": given, "T": 3}
    states = {log.name: log.state.last_seq for log in store.streams()}
    for log in store.streams():
        if log.name in at_least:
            assert log.state.last_seq > at_least[log.name]
            assert spans[log.name][0][1] == log.state.last_seq
    # A mirror asks its origin for what it lacks: these sequences are the origin's.
    assert states["M"] == 4
    fill(store, next(log for log in store.streams() if log.name == "S"), 1, payload=b"again")
    store.crash()
    store = open_inline(path, options)
    assert store.damaged == []
    assert {log.name: log.state.last_seq for log in store.streams()} == {**states, "S": states["S"] + 1}
    store.close()
    (path / FILE).unlink()  # LMDB holds everything, and says so
    assert check(path, options.keys).problems == []
    store = open_inline(path, options)
    assert store.damaged == []
    store.close()


def test_a_mark_that_is_torn_leaves_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "store"
    filled(path)
    whole = (path / FILE).read_bytes()
    for slot in (0, 4096):
        torn = bytearray(whole)
        torn[slot + 8 : slot + 4096] = bytes(4088)
        (path / FILE).write_bytes(torn)
        store = open_inline(path, WIDE)
        assert store.damaged == []
        assert len(payloads(store)) == 5
        store.crash()


def spoil_last_page(path: Path, stream_id: int) -> None:
    """Fill the last page with messages of a stream in LMDB with zeros."""
    pages = Pages(path / "data.mdb")
    tree = pages.tree(pages.metas()[0].txnid, b"stream:%08x" % stream_id, 8)
    assert tree is not None
    last = [int.from_bytes(page[:8], "little") for page, _, _ in pages.walk(tree)][-1]
    pages.close()
    with (path / "data.mdb").open("r+b") as file:
        file.seek(last * BLOCK)
        file.write(bytes(BLOCK))


@pytest.mark.parametrize("sealed", [False, True])
def test_what_the_journal_has_for_a_damaged_stream_is_set_aside(tmp_path: Path, sealed: bool) -> None:
    """Its messages are; what it has for the stream beside them is applied."""
    path = tmp_path / "store"
    keys = StoreKeys(b"secret") if sealed else None
    wide = msgspec.structs.replace(WIDE, keys=keys)
    store = open_inline(path, msgspec.structs.replace(FAST, keys=keys))
    for name in "ST":
        fill(store, make_log(store, name), 300, payload=bytes(100))
    store.close()
    store = open_inline(path, wide)
    for log in store.streams():
        fill(store, log, 20, payload=b"in the journal")
    txn = store.begin()
    store.streams()[0].put_position(txn, b"key", b"position")
    assert commit(store, txn) is None
    store.crash()
    spoil_last_page(path, 1)
    store = open_inline(path, wide)
    assert [log.name for log, _ in store.fenced()] == ["S"]
    assert store.streams()[1].state.last_seq == 320
    assert store.streams()[0].positions() == {b"key": b"position"}
    (changes,) = read_aside(path, store._environment.store_cipher)
    store.close()
    assert [(stream_id, [len(data.items) for _, data in ops]) for stream_id, ops in changes] == [(1, [20])]
    assert (b"in the journal" in (path / "set-aside").read_bytes()) != sealed


def test_what_is_set_aside_by_half_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, write = len(os.listdir("/proc/self/fd")), os.write
    with monkeypatch.context() as during:
        during.setattr(os, "write", lambda fd, data: write(fd, data[:9]))
        with pytest.raises(OSError, match="the disk accepts no more bytes"):
            set_aside(tmp_path, [(1, [(Op.SKIP, 7)])], None, flush=True)
    set_aside(tmp_path, [(1, [(Op.SKIP, 8)])], None, flush=True)
    assert read_aside(tmp_path, None) == [[(1, [(Op.SKIP, 8)])]]
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("others_are_damaged", [False, True])
def test_what_was_set_aside_is_applied_once(tmp_path: Path, others_are_damaged: bool) -> None:
    """However often it stands in the file, and is read: the file stays while a stream that it concerns is damaged."""
    path, beside = tmp_path / "store", tmp_path / "beside"
    store = open_inline(path, FAST)
    for name in "ST":
        fill(store, make_log(store, name), 20)
    store.close()
    shutil.copytree(path, beside)
    store = open_inline(beside, WIDE)
    log, other = store.streams()
    fill(store, log, 5)
    for step in (
        lambda txn: log.remove(txn, 12),
        lambda txn: log.purge(txn, below_seq=6),
        lambda txn: (log.skip_to(txn, 30), other.append(txn, b"s", b"", b"", 1)),
    ):
        txn = store.begin()
        step(txn)
        assert commit(store, txn) is None
    fill(store, log, 2)
    expected, time = log.state.bytes, log.state.last_ts_ns
    mark = store._environment.read_journal_mark()
    assert mark is not None
    store.crash()
    changes = [decode(frame.body) for frame in read_frames(beside / "journal", *mark)[0]]
    assert len(changes) == 5
    for number in (0, 1, 2, 3, 0, 1, 2, 3, 4):
        set_aside(path, changes[number], None, flush=False)
    if others_are_damaged:
        spoil_last_page(path, 2)
    for below in (6, 15, 15):
        store = open_inline(path, FAST)
        assert store.recounted == []
        assert (path / "set-aside").exists() == others_are_damaged
        log = store.streams()[0]
        state = log.state
        assert (state.first_seq, state.last_seq, state.last_ts_ns) == (below, 32, time)
        assert list(log.view.live_seqs_from(1)) == [seq for seq in (*range(below, 26), 31, 32) if seq != 12]
        assert state.messages == 21 if below == 6 else 13
        assert state.bytes * 21 == expected * state.messages
        txn = store.begin()
        log.purge(txn, below_seq=15)
        assert commit(store, txn) is None
        store.close()


def test_a_store_is_not_opened_without_its_journal(tmp_path: Path) -> None:
    path = tmp_path / "store"
    filled(path)
    (path / "journal").rename(tmp_path / "elsewhere")
    for options in (WIDE, FAST):
        with pytest.raises(StoreError, match="may hold acknowledged messages"):
            open_inline(path, options)
    assert check(path).problems == ["the journal is missing"]
    (tmp_path / "elsewhere").rename(path / "journal")
    store = open_inline(path, FAST)
    assert len(payloads(store)) == 5
    store.crash()


def test_segments_are_used_again_and_never_too_many(tmp_path: Path) -> None:
    path = tmp_path / "store"
    store = open_inline(path, JOURNAL)
    log = make_log(store)
    for number in range(200):
        fill(store, log, 3, payload=b"%d" % number * 100)
    assert store.stats.applies > 10
    assert sorted(file.name for file in (path / "journal").iterdir()) == [segment_name(0), segment_name(1)]
    fill(store, log, 1, payload=bytes(1 << 16))  # larger than a segment
    expected = payloads(store)
    store.crash()
    store = open_inline(path, msgspec.structs.replace(JOURNAL, journal_segments=1))
    assert payloads(store) == expected
    assert [file.name for file in (path / "journal").iterdir()] == [segment_name(0)]
    for _ in range(100):
        fill(store, store.streams()[0], 3)
    store.close()
    report = check(path)
    assert (report.problems, report.journal_frames, report.streams[0].messages) == ([], 0, 901)


def test_with_threads(tmp_path: Path) -> None:
    loop = Loop()
    options = StoreOptions(journal_segment_bytes=64 << 10, journal_segments=3)
    store = Store.open(tmp_path / "store", notify=loop.notify, options=options)
    done: list[StoreError | None] = []
    txn = store.begin()
    logs = [store.create_stream(txn, "A", name, b"{}", 1) for name in ("S", "T")]
    store.submit(txn, done.append)
    for number in range(3000):
        txn = store.begin()
        logs[number % 2].append(txn, b"a", b"", b"%d" % number * 10, number)
        if number % 5 == 4:
            logs[1].remove(txn, number // 5)
        store.submit(txn, done.append)
        if number % 50 == 0:
            loop.run(lambda number=number: len(done) > number + 1)  # type: ignore[misc]  # the creation, too
            read = logs[0].read(1, max_messages=9999, max_bytes=1 << 30).messages
            assert [m.seq for m in read] == list(range(1, number // 2 + 2))
    loop.run(lambda: len(done) == 3001)
    assert set(done) == {None}
    assert store.stats.applies > 1
    store.close()
    assert check(tmp_path / "store").problems == []
    store = open_inline(tmp_path / "store", JOURNAL)
    assert payloads(store, "S") == [b"%d" % number * 10 for number in range(0, 1998, 2)]
    store.crash()


def test_room_and_files_are_made_before_they_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """... by the thread that brings LMDB up to date: who commits waits for neither."""
    made: list[tuple[str, str]] = []

    def noted(kind: type, name: str) -> None:
        real = getattr(kind, name)

        def call(*args: object, **named: object) -> object:
            made.append((name, threading.current_thread().name))
            return real(*args, **named)

        monkeypatch.setattr(kind, name, call)

    loop = Loop()
    options = StoreOptions(flush=False, map_size=4 << 20, journal_segment_bytes=256 << 10)
    store = Store.open(tmp_path / "store", notify=loop.notify, options=options)
    done: list[StoreError | None] = []
    noted(Journal, "_make_segment")
    noted(Environment, "make_room")
    txn = store.begin()
    log = store.create_stream(txn, "A", "S", b"{}", 1)
    store.submit(txn, done.append)
    committer: Any = store._committer
    for number in range(400):
        loop.run(lambda: len(done) == number + 1)  # noqa: B023
        while committer._applier._chores:
            time.sleep(0.001)
        with committer._applier.lmdb_lock, committer._journal._adding:
            pass  # what was taken up is done
        txn = store.begin()
        log.append(txn, b"a", b"", bytes(10_000), number)
        store.submit(txn, done.append)
    loop.run(lambda: len(done) == 401)
    assert set(done) == {None}
    assert {name for name, _ in made} == {"_make_segment", "make_room"}
    assert {thread for _, thread in made} == {"eyot-apply"}
    assert store.stats.map_growths >= 1
    store.close()
    assert check(tmp_path / "store").problems == []


def test_a_stream_that_lmdb_cannot_change_does_not_stop_the_others(tmp_path: Path) -> None:
    path = tmp_path / "store"
    store = open_inline(path, JOURNAL)
    broken, sound = make_log(store, "B"), make_log(store, "S")
    with store._environment.lmdb.begin(write=True) as txn:  # what no sound store has: a record from the future
        txn.put(pack_u64(1 << 40), b"nonsense", db=store._environment.messages[broken.id])
    for number in range(100):
        fill(store, sound, 1, payload=bytes(200))
        txn = store.begin()
        if number == 3:
            broken.append(txn, b"a", b"", b"", 1)
        assert commit(store, txn) is None
    assert store.stats.applies > 2
    txn = store.begin()
    broken.append(txn, b"a", b"", b"", 1)
    error = commit(store, txn)
    assert error is not None
    assert error.reason == "corrupt"
    expected = payloads(store, "S")
    assert len(expected) == 100
    store.crash()
    store = open_inline(path, JOURNAL)
    assert payloads(store, "S") == expected
    store.crash()


def test_what_went_straight_into_lmdb_is_read_before_the_loop_hears_how_far_lmdb_is(tmp_path: Path) -> None:
    """Found by simulation: a message that shared its group with a change of configuration was passed over by readers."""
    told: list[Callable[[], None]] = []
    store = Store.open(tmp_path / "store", notify=told.append, options=WIDE)
    txn = store.begin()
    log = store.create_stream(txn, "A", "S", b"{}", 1)
    store.submit(txn)
    store.commit_now()
    txn = store.begin()
    log.append(txn, b"a", b"", b"in the journal", 1)
    store.submit(txn)
    store.commit_now()
    for fn in told:
        fn()
    told.clear()
    txn = store.begin()
    log.append(txn, b"a", b"", b"straight", 2)
    log.set_config(txn, b"{}")
    store.submit(txn)
    store.commit_now()
    told[-1]()  # the group's results; that LMDB has caught up is told before, and arrives later
    assert log.committed_seq == 2
    assert payloads(store) == [b"in the journal", b"straight"]
    store.crash()


def test_what_is_about_to_go_is_in_no_copy(tmp_path: Path) -> None:
    store = open_inline(tmp_path / "store", WIDE)
    log = make_log(store)
    fill(store, log, 4)
    log.purge(store.begin(), below_seq=2)
    log.remove(store.begin(), 3)
    run = StoredRun()
    assert log.reading(run, 1, up_to=4, max_bytes=999)() == 5
    assert run.seqs() == [2, 4]
    store.crash()
