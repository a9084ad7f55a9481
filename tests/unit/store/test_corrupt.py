"""Damaged files: what is damaged is named, what is not stays readable, and nothing is ever read wrongly."""

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest

from eyot_store import StoreError
from eyot_store.check.check import LOST_ENTRY, check
from eyot_store.check.main import compact
from eyot_store.environment import FORMAT_KEY, NEXT_ID_KEY, counters_key, messages_db_name
from eyot_store.log.damaged_messages import MET_MAX, DamagedMessages
from eyot_store.records.record import decode_record, encode_record, pack_u64, salt_of
from eyot_wire.native import StoredRun
from support.store.store import commit, fill, make_log, open_inline

TESTS = Path(__file__).parents[2]


def flip(path: Path, needle: bytes, offset: int = 0, bit: int = 0x10) -> None:
    """Flip a bit in the only place of the data file that holds `needle`."""
    data = bytearray((path / "data.mdb").read_bytes())
    at = data.index(needle)
    data[at + offset] ^= bit
    (path / "data.mdb").write_bytes(data)


def edit(path: Path, change: Callable[[lmdb.Environment, lmdb.Transaction], None]) -> None:
    """Change the file with LMDB alone."""
    with lmdb.open(str(path), max_dbs=16, map_size=1 << 26) as env, env.begin(write=True) as txn:
        change(env, txn)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed store with ten messages in stream S and two in T."""
    path = tmp_path / "store"
    store = open_inline(path)
    log, other = make_log(store), make_log(store, "T")
    for seq in range(1, 11):
        fill(store, log, 1, subject=b"a" if seq % 2 else b"b", payload=b"payload of %d." % seq)
    fill(store, other, 2)
    txn = store.begin()
    log.put_consumer(txn, "durable", b"consumer's config", b"consumer's state")
    log.put_position(txn, b"origin", b"a position")
    assert commit(store, txn) is None
    store.close()
    return path


def test_a_flipped_bit_in_a_record(path: Path) -> None:
    flip(path, b"payload of 4.")
    report = check(path)
    assert report.problems == ["stream A/S sequence 4: checksum does not match"]
    assert [(stream.name, stream.corrupt) for stream in report.streams] == [("S", [4]), ("T", [])]
    store = open_inline(path)
    log, other = store.streams()
    with pytest.raises(StoreError) as caught:
        log.get(4)
    assert (caught.value.reason, caught.value.stream, caught.value.seq) == ("corrupt", "A/S", 4)
    assert str(caught.value) == "stream A/S sequence 4: checksum does not match"
    run = StoredRun()
    assert log.reading(run, 1, up_to=10, max_bytes=1 << 20)() == 4
    with pytest.raises(StoreError, match="stream A/S sequence 4: checksum does not match"):
        log.reading(run, 4, up_to=10, max_bytes=1 << 20)()
    assert run.seqs() == [1, 2, 3]
    assert log.reading(run, 5, up_to=10, max_bytes=1 << 20)() == 11
    assert run.seqs() == [1, 2, 3, 5, 6, 7, 8, 9, 10]
    found = log.read_run(1, max_messages=99, max_bytes=999)
    assert found is not None
    assert (found[0].seqs(), found[1]) == ([1, 2, 3], 4)
    with pytest.raises(StoreError, match="stream A/S sequence 4: checksum does not match"):
        log.read_run(4, max_messages=99, max_bytes=999)
    # A read ends before it, the next one says so, and one goes on behind it.
    result = log.read(1, max_messages=99, max_bytes=999)
    assert ([m.seq for m in result.messages], result.next_seq) == ([1, 2, 3], 4)
    with pytest.raises(StoreError):
        log.read(4, max_messages=99, max_bytes=999)
    assert len(log.read(5, max_messages=99, max_bytes=999).messages) == 6
    assert [m.seq for m in other.read(1, max_messages=9, max_bytes=99).messages] == [1, 2]
    # It counts for the stream, but for no subject.
    assert log.state.messages == 10
    assert dict(log.subject_totals()) == {b"a": 5, b"b": 4}
    assert (log.first_seq_for(b"b"), log.last_seq_for(b"b"), log.seq_at_time(6)) == (2, 10, 6)
    # So it does after a removal that is given up. The store names it, once.
    txn = store.begin()
    assert log.remove(txn, 4)
    assert dict(log.subject_totals()) == {b"a": 5, b"b": 4}
    store.abort(txn)
    assert dict(log.subject_totals()) == {b"a": 5, b"b": 4}
    assert store.damaged == ["stream A/S had 1 damaged message (sequence 4)"]
    # It can be removed, and with the last message what it counted for is forgotten.
    txn = store.begin()
    assert log.remove(txn, 4)
    assert commit(store, txn) is None
    assert len(log.read(1, max_messages=99, max_bytes=999).messages) == 9
    txn = store.begin()
    assert log.purge(txn) == 9
    assert commit(store, txn) is None
    assert log.state.bytes == 0
    store.close()
    assert check(path).problems == []


@pytest.mark.parametrize("filter_", [b"", b"b"])
def test_purging_over_a_damaged_record(path: Path, filter_: bytes) -> None:
    flip(path, b"payload of 4.")
    store = open_inline(path)
    log = store.streams()[0]
    txn = store.begin()
    assert log.purge(txn, below_seq=7, subject_filter=filter_) == (2 if filter_ else 6)
    assert commit(store, txn) is None
    assert log.state.messages == (8 if filter_ else 4)
    store.close()
    assert [stream.corrupt for stream in check(path).streams] == [[4] if filter_ else [], []]


def test_a_record_under_another_key_or_in_another_stream_is_not_taken(path: Path) -> None:
    def swap(env: lmdb.Environment, txn: lmdb.Transaction) -> None:
        first, second = (env.open_db(messages_db_name(number), txn=txn) for number in (1, 2))
        third, fourth = (txn.get(pack_u64(seq), db=first) for seq in (3, 4))
        txn.put(pack_u64(3), fourth, db=first)
        txn.put(pack_u64(4), third, db=first)
        txn.put(pack_u64(1), txn.get(pack_u64(1), db=first), db=second)

    edit(path, swap)
    store = open_inline(path)
    log, other = store.streams()
    for each, seq in ((log, 3), (log, 4), (other, 1)):
        with pytest.raises(StoreError):
            each.get(seq)
    store.crash()


@pytest.mark.parametrize(
    ("needle", "problem"),
    [
        (b"consumer's config", "stream A/S: consumer durable: checksum does not match"),
        (b"consumer's state", "stream A/S: state of consumer durable: checksum does not match"),
        (b"a position", "stream A/S: position origin: checksum does not match"),
    ],
)
def test_damaged_consumers_and_positions(path: Path, needle: bytes, problem: str) -> None:
    flip(path, needle)
    assert check(path).problems == [problem]
    store = open_inline(path)
    log = store.streams()[0]
    with pytest.raises(StoreError):
        log.positions() if needle == b"a position" else log.consumers()
    assert log.get(1) is not None
    store.crash()


@pytest.mark.parametrize("bits", [1, 3])
def test_a_damaged_stream_entry_concerns_that_stream_alone(path: Path, bits: int) -> None:
    def damage(env: lmdb.Environment, txn: lmdb.Transaction) -> None:
        streams = env.open_db(b"streams", txn=txn)
        entry = bytearray(txn.get(pack_u64(1), db=streams))
        entry[2] ^= bits
        txn.put(pack_u64(1), bytes(entry), db=streams)

    edit(path, damage)
    store = open_inline(path)
    end = {
        1: "; a flipped bit of stream A/S is put right",
        3: "; the stream, called B/S perhaps, stays on disk, unused",
    }
    assert store.damaged == ["entry of stream 1: checksum does not match" + end[bits]]
    assert [log.name for log in store.streams()] == (["S", "T"] if bits == 1 else ["T"])
    assert store.streams()[-1].get(1) is not None
    store.close()
    assert "entry of stream 1: checksum does not match" in check(path).problems


@pytest.mark.parametrize("how", ["damaged", "missing", "missing after removals", "wrong"])
def test_counters_that_do_not_fit_are_counted_anew(path: Path, how: str) -> None:
    removed = [9, 10] if "removals" in how else []
    store = open_inline(path)
    txn = store.begin()
    assert all(store.streams()[0].remove(txn, seq) for seq in removed)
    assert commit(store, txn) is None
    store.close()

    def damage(env: lmdb.Environment, txn: lmdb.Transaction) -> None:
        key = counters_key(1)
        if "missing" in how:
            txn.delete(key)
        elif how == "damaged":
            txn.put(key, b"\0" + txn.get(key)[1:])
        else:
            txn.delete(pack_u64(2), db=env.open_db(messages_db_name(1), txn=txn))

    edit(path, damage)
    assert len(check(path).problems) == (2 if how == "wrong" else 1)
    store = open_inline(path)
    assert store.recounted == ["A/S"]
    log = store.streams()[0]
    assert log.state.messages == 10 - len(removed) - (how == "wrong")
    assert log.state.last_seq == 10  # in older pages of the file, where the last messages were removed
    assert log.state.bytes == sum(
        log.message_bytes(m.subject, m.header, m.payload) for m in log.read(1, max_messages=99, max_bytes=999).messages
    )
    fill(store, log, 1)
    store.close()
    assert check(path).problems == []


def test_check_names_what_belongs_to_nothing(path: Path) -> None:
    def add(env: lmdb.Environment, txn: lmdb.Transaction) -> None:
        env.open_db(b"stream:00000099", txn=txn)
        txn.put(b"stray", b"1")
        txn.put(pack_u64(77) + b"c", b"1", db=env.open_db(b"consumers", txn=txn))

    edit(path, add)
    assert check(path).problems == [
        "the id of the next stream is 3, and 153 is used already",
        f"stream 153: {LOST_ENTRY}",
        "consumer c: belongs to stream 77, which does not exist",
        "stray: belongs to nothing",
    ]


def test_an_unknown_format_is_refused(path: Path) -> None:
    edit(path, lambda _, txn: txn.put(FORMAT_KEY, b"5"))
    written = (path / "data.mdb").read_bytes()
    with pytest.raises(
        StoreError, match="on-disk format 5; this release reads formats 1 to 4; a newer release"
    ) as caught:
        open_inline(path)
    assert caught.value.reason == "format"
    assert "install that release again, or restore a backup" in caught.value.message
    assert (path / "data.mdb").read_bytes() == written
    with pytest.raises(StoreError, match="a newer release wrote the store"):  # that is no damage
        check(path)
    edit(path, lambda _, txn: txn.put(FORMAT_KEY, b"0"))
    assert check(path).problems == ["format: 0, but this release reads 1 to 4"]
    edit(path, lambda _, txn: txn.delete(FORMAT_KEY))
    with pytest.raises(StoreError, match="not an Eyot store"):
        open_inline(path)


def test_not_a_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no store in"):
        check(tmp_path)
    (tmp_path / "data.mdb").write_bytes(b"something else" * 1000)
    assert check(tmp_path).problems[0].startswith("structure: ")
    with pytest.raises(StoreError):
        open_inline(tmp_path)


def test_one_process_at_a_time(path: Path) -> None:
    store = open_inline(path)
    script = "import sys; from support.store.store import open_inline, Path; open_inline(Path(sys.argv[1]))"
    second = subprocess.run(
        [sys.executable, "-c", script, path],
        env={"PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "is in use by another process" in second.stderr
    # A check is possible while it is open, from one snapshot.
    script = "import sys; from eyot_store.check.check import LOST_ENTRY, check; from pathlib import Path; print(check(Path(sys.argv[1])))"
    checked = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=True)
    assert "live=True" in checked.stdout
    assert "problems=[]" in checked.stdout
    fill(store, store.streams()[0], 1)
    store.close()
    open_inline(path).close()


READ_ALL = """
import sys
from pathlib import Path
from eyot_store import StoreError
from eyot_store.check.check import LOST_ENTRY, check
from support.store.store import open_inline

path = Path(sys.argv[1])
report = check(path)
print("sound" if report.ok else "damaged", flush=True)
if any(problem.startswith("structure") for problem in report.problems):
    sys.exit()
try:
    store = open_inline(path)
except StoreError:
    sys.exit()
for log in store.streams():
    seq = 1
    while seq <= log.committed_seq:
        try:
            result = log.read(seq, max_messages=3, max_bytes=1 << 20)
        except StoreError as error:
            seq = max(error.seq, seq) + 1
            continue
        for m in result.messages:
            print(log.name, m.seq, m.ts_ns, m.subject.decode(), m.payload.decode(), sep="|")
        seq = result.next_seq
store.crash()
"""


@pytest.mark.slow
def test_bits_flipped_anywhere_are_found_or_harmless(path: Path, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    intact = (path / "data.mdb").read_bytes()
    environment = {"PYTHONPATH": str(TESTS)}
    victim = tmp_path / "victim"
    victim.mkdir()

    def run() -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", READ_ALL, victim], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (seed, done.stderr)
        return done.stdout.splitlines()

    (victim / "data.mdb").write_bytes(intact)
    whole = run()
    assert whole[0] == "sound"
    assert len(whole) == 13
    used = len(intact.rstrip(b"\0"))
    for _ in range(25):
        damaged = bytearray(intact)
        damaged[rng.randrange(used)] ^= 1 << rng.randrange(8)
        (victim / "data.mdb").write_bytes(damaged)
        found = run()
        assert set(found[1:]) <= set(whole), (seed, found)


def test_record_round_trip_and_every_single_bit() -> None:
    salt, key = salt_of(7), pack_u64(300)
    record = encode_record(salt, key, 123_456_789, b"a.b", b"NATS/1.0\r\n\r\n", b"payload")
    message = decode_record(salt, key, record)
    assert (message.seq, message.ts_ns, message.subject) == (300, 123_456_789, b"a.b")
    assert (message.header, message.payload) == (b"NATS/1.0\r\n\r\n", b"payload")
    for bit in range(len(record) * 8):
        damaged = bytearray(record)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(StoreError):
            decode_record(salt, key, bytes(damaged))
    for bit in range(64):
        with pytest.raises(StoreError):
            decode_record(salt, pack_u64(300 ^ 1 << bit), record)
    for other_key, other_salt in ((key, salt_of(8)), (pack_u64(301), salt)):
        with pytest.raises(StoreError):
            decode_record(other_salt, other_key, record)


def test_format_of_a_record_is_as_documented() -> None:
    """Byte for byte: docs/format.md has this example."""
    record = encode_record(salt_of(1), pack_u64(1), 1_700_000_000_000_000_000, b"a", b"", b"hi")
    assert record.hex() == "94cf17979cfe362a0000c40161c400c4026869" + record[-4:].hex()
    assert record[-4:].hex() == "6d91bdca"


def test_the_oldest_messages_go_with_the_damaged_among_them(path: Path) -> None:
    flip(path, b"payload of 4.")
    store = open_inline(path)
    log = store.streams()[0]
    txn = store.begin()
    removed = [log.remove_first(txn, 9, "max_msgs") for _ in range(3)]
    assert removed == [[1, 2, 3], [4], [5, 6, 7, 8, 9, 10]]
    assert log.remove_first(txn, 9, "max_msgs") == []
    assert commit(store, txn) is None
    assert (log.state.messages, log.state.bytes) == (0, 0)
    store.close()
    assert check(path).problems == []


def test_a_damaged_message_that_is_deleted_takes_its_bytes_along(path: Path) -> None:
    """What it counted for is told by the lengths in its record, which a damaged payload leaves as they were."""
    flip(path, b"payload of 4.")
    store = open_inline(path)
    log = store.streams()[0]
    before = log.state.bytes
    txn = store.begin()
    assert log.remove(txn, 4)
    assert commit(store, txn) is None
    assert log.state.bytes == before - log.message_bytes(b"b", b"", b"payload of 4.")
    store.close()
    assert check(path).problems == []
    store = open_inline(path)
    log = store.streams()[0]
    assert log.state.bytes == before - log.message_bytes(b"b", b"", b"payload of 4.")
    store.close()


@pytest.mark.parametrize("offset", [-9, -1, 0])
def test_a_stream_without_messages_has_no_bytes(path: Path, offset: int) -> None:
    flip(path, b"payload of 4.", offset)
    store = open_inline(path)
    log = store.streams()[0]
    txn = store.begin()
    for seq in (1, 2, 3, 5, 6, 7, 8, 9, 10, 4):
        log.remove(txn, seq)
    assert commit(store, txn) is None
    assert (log.state.messages, log.state.bytes) == (0, 0)
    store.close()
    assert check(path).problems == []


def test_counters_that_are_counted_anew_count_damaged_messages(path: Path) -> None:
    before = open_inline(path)
    expected = before.streams()[0].state.bytes
    before.close()
    flip(path, b"payload of 4.")

    def forget(env: lmdb.Environment, txn: lmdb.Transaction) -> None:
        txn.delete(counters_key(1))

    edit(path, forget)
    store = open_inline(path)
    assert store.streams()[0].state.bytes == expected
    store.close()


def _bits(name: bytes) -> list[bytes]:
    """`name` with each of its bits flipped."""
    return [name[:at] + bytes([name[at] ^ 1 << bit]) + name[at + 1 :] for at in range(len(name)) for bit in range(8)]


NEXT_IDS = [None, b"", b"0", b"1", b"2", b"-3", b"3 ", b"99", b"9" * 40, *_bits(b"3")]


@pytest.mark.parametrize("compacts", [False, True])
@pytest.mark.parametrize("value", NEXT_IDS)
def test_a_damaged_next_id_is_no_id_of_an_old_stream(path: Path, value: bytes | None, compacts: bool) -> None:
    edit(path, lambda _, txn: txn.delete(NEXT_ID_KEY) if value is None else txn.put(NEXT_ID_KEY, value))
    is_sound = value is not None and value.isdigit() and 3 <= int(value) < 1 << 50
    assert bool(check(path).problems) == (not is_sound)
    if compacts:
        assert bool(compact(path, None)[2]) == (not is_sound)
    store = open_inline(path)
    assert bool(store.damaged) == (not is_sound and not compacts)
    log, other = store.streams()
    assert make_log(store, "NEW").id > other.id > log.id
    assert (log.state.messages, other.state.messages) == (10, 2)
    store.close()
    assert check(path).problems == []


@pytest.mark.parametrize("name", _bits(b"trash:00000003"))
def test_a_damaged_mark_of_a_deleted_stream_removes_no_other_one(path: Path, name: bytes) -> None:
    edit(path, lambda _, txn: txn.put(name, b"1"))
    check(path)
    try:
        store = open_inline(path)
    except StoreError:
        return
    for _ in range(20):
        store.commit_now()
    assert [log.state.messages for log in store.streams()][:2] == [10, 2]
    assert all(log.get(seq) is not None for log in store.streams()[:2] for seq in range(1, log.committed_seq + 1))
    store.close()


def test_each_damaged_message_is_told_of_once() -> None:
    """Up to a bound, beyond which a log is hardly readable."""
    damaged, told = DamagedMessages(), list[int]()
    damaged.met([9])
    damaged.on_met = told.append
    for seqs in ([3, 1, 9], range(100, 94 + MET_MAX), [3], [1 << 20, 1, (1 << 20) + 1, 1 << 21, 1 << 22, 1 << 23]):
        damaged.met(seqs)
    expected = [3, 1, *range(100, 94 + MET_MAX), 1 << 20, (1 << 20) + 1, 1 << 21, 1 << 22, 1 << 23]
    assert told == expected[: MET_MAX - 1]
    assert list(damaged) == sorted([9, *told])
    assert str(damaged) == "1,024 damaged messages (sequence 1, 3, 9, 100, 101, 102, 103, 104, ...)"
