"""Damaged pages of the database: no process ends, the stream concerned is fenced and named, all others continue."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import lmdb
import msgspec
import pytest

from eyot_store import StoreError, native, page_check
from eyot_store.check.check import check
from eyot_store.check.main import compact, main, repair_store
from eyot_store.check.repair import repair
from eyot_store.environment import messages_db_name
from eyot_store.journal.losses import gone_in
from eyot_store.pages.pages import Pages
from eyot_store.pages.survey import survey
from eyot_store.records.record import pack_u64
from eyot_store.records.store_cipher import StoreKeys
from eyot_wire.quantities import counted
from support.store.damages import bases, play
from support.store.paged_store import PAGE, leaves_of, make_paged_store, spoil, tree_of
from support.store.store import FAST, JOURNAL, commit, fill, make_log, open_inline


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make_paged_store(tmp_path / "store")


@pytest.mark.parametrize("which", [0, 5, -1])
@pytest.mark.parametrize("options", [FAST, JOURNAL], ids=["lmdb", "journal"])
def test_a_damaged_leaf_fences_its_stream_by_name_and_no_other(path: Path, which: int, options) -> None:
    spoil(path, leaves_of(path, 2)[which])
    store = open_inline(path, options)
    log, damaged, other = store.streams()
    assert [name.name for name, _ in store.fenced()] == ["T"]
    error = store.why_fenced(damaged)
    assert error is not None
    assert error.reason == "corrupt"
    assert error.message.startswith("stream A/T: page ")
    assert "sequences from " in error.message
    for seq in (1, 300, 600):
        with pytest.raises(StoreError, match="stream A/T: page"):
            damaged.get(seq)
    txn = store.begin()
    damaged.append(txn, b"x", b"", b"", 1)
    failure = commit(store, txn)
    assert failure is not None
    assert failure.reason == "corrupt"
    for each in (log, other):
        fill(store, each, 3)
        assert [message.seq for message in each.read(599, max_messages=9, max_bytes=999_999).messages] == [
            599,
            600,
            601,
            602,
            603,
        ]
    store.close()
    store = open_inline(path, options)
    assert [each.state.last_seq for each in store.streams()] == [603, 600, 603]
    store.close()


def test_a_leaf_that_is_damaged_while_the_stream_is_served(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "eyot_store.pages.mend.survey", lambda pages, meta, leaves=False: survey(pages, meta, leaves=leaves)
    )
    spoil(path, leaves_of(path, 2)[3])
    store = open_inline(path)
    told = []
    store.on_fence = lambda log, error: told.append((log.name, str(error)))
    log = store.streams()[1]
    assert log.get(1) is not None
    seqs = iter(range(1, 600))
    with pytest.raises(StoreError, match="stream A/T: page"):
        list(map(log.get, seqs))
    assert [name for name, _ in told] == ["T"]
    with pytest.raises(StoreError, match="stream A/T: page"):
        log.get(1)
    store.close()


def test_a_meta_page_that_cannot_be_read_any_more_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_inline(path)
    log = store.streams()[0]
    fill(store, log, 1)
    monkeypatch.setattr("eyot_store.pages.pages.read_meta", lambda *_: None)
    with pytest.raises(StoreError, match="the meta page of commit"):
        log.get(1)
    assert store.fenced() == []
    monkeypatch.undo()
    assert log.get(1) is not None
    store.close()


def test_a_fenced_stream_can_be_deleted(path: Path) -> None:
    spoil(path, leaves_of(path, 2)[3])
    store = open_inline(path)
    log = store.streams()[1]
    txn = store.begin()
    log.delete(txn)
    assert commit(store, txn) is None
    fill(store, make_log(store, "T"), 5)
    for _ in range(50):
        store.commit_now()
    store.close()
    store = open_inline(path)
    assert [log.state.last_seq for log in store.streams()] == [600, 5, 600]
    store.close()


def test_the_commit_before_is_used_where_the_last_one_is_damaged(path: Path) -> None:
    pages = Pages(path / "data.mdb")
    newest = pages.metas()[0]
    pages.close()
    spoil(path, newest.main.root)
    store = open_inline(path)
    assert len(store.damaged) == 1
    assert "the one before it is used" in store.damaged[0]
    assert [log.state.last_seq for log in store.streams()] == [600, 600, 600]
    for log in store.streams():
        fill(store, log, 2)
    store.close()
    store = open_inline(path)
    assert store.damaged == []
    store.close()


@pytest.mark.parametrize("slot", [0, 1])
def test_one_of_two_meta_pages_is_enough(path: Path, slot: int) -> None:
    spoil(path, slot, 0, bytes(PAGE))
    store = open_inline(path)
    assert "a meta page of the database is damaged" in store.damaged[0]
    for log in store.streams():
        fill(store, log, 2)
    store.close()
    store = open_inline(path)
    assert store.damaged == []
    assert [log.state.last_seq for log in store.streams()] == [602, 602, 602]
    store.close()


@pytest.mark.parametrize("counters", ["in the file", "gone, small records", "gone, records in pages of their own"])
def test_a_commit_that_is_lost_with_its_meta_page_gives_no_sequence_twice(path: Path, counters: str) -> None:
    store = open_inline(path)
    fill(store, store.streams()[1], 3, payload=bytes(9000 if "own" in counters else 10))
    store.crash()
    pages = Pages(path / "data.mdb")
    newest = pages.metas()[0]
    pages.close()
    spoil(path, newest.slot, 0, bytes(PAGE))
    if "gone" in counters:
        assert newest.main.depth == 1
        spoil(path, newest.main.root, 0, bytes(PAGE))
    store = open_inline(path)
    assert "stream A/T: sequences 601 to 603 are lost" in store.damaged
    fill(store, store.streams()[1], 1)
    assert [log.state.last_seq for log in store.streams()] == [600, 604, 600]
    assert (path / "readers-doubted.on").exists()
    store.close()


def test_messages_of_a_stream_whose_creation_was_lost_stop_no_start_and_no_repair(tmp_path: Path) -> None:
    path = tmp_path / "store"
    store = open_inline(path, JOURNAL)
    fill(store, make_log(store, "S"), 3)
    fill(store, make_log(store, "T"), 4)
    store.crash()
    pages = Pages(path / "data.mdb")
    newest = pages.metas()[0]
    pages.close()
    spoil(path, newest.main.root)  # the last commit of LMDB created T
    shutil.copytree(path, tmp_path / "other")
    store = open_inline(path, JOURNAL)
    assert [(log.name, log.state.last_seq) for log in store.streams()] == [("S", 3)]
    told = "stream number 2, which the database does not hold any more: 4 messages in the journal are lost"
    assert told in store.damaged
    fill(store, make_log(store, "T"), 1)
    store.close()
    store = open_inline(path, JOURNAL)
    assert [(log.name, log.state.last_seq) for log in store.streams()] == [("S", 3), ("T", 1)]
    assert store.damaged == []
    store.close()
    assert main([str(tmp_path / "other"), "--repair"]) == 0
    assert main([str(tmp_path / "other")]) == 0


@pytest.mark.parametrize("what", ["entry", "database"])
def test_messages_of_a_stream_that_cannot_be_opened_stop_no_start(tmp_path: Path, what: str) -> None:
    path = tmp_path / "store"
    store = open_inline(path, JOURNAL)
    logs = [make_log(store, "S"), make_log(store, "T"), make_log(store, "U")]
    for log in logs:
        fill(store, log, 3)
    store.close()
    store = open_inline(path, JOURNAL)
    for log in store.streams():
        fill(store, log, 4)
    store.crash()
    with lmdb.open(str(path), max_dbs=64) as environment, environment.begin(write=True) as txn:
        if what == "entry":
            streams = environment.open_db(b"streams", txn=txn)
            sealed = bytearray(txn.get(pack_u64(2), db=streams))
            sealed[4:12] = bytes(8)
            txn.put(pack_u64(2), bytes(sealed), db=streams)
        else:
            txn.drop(environment.open_db(messages_db_name(2), txn=txn))
    store = open_inline(path, JOURNAL)
    assert [(log.name, log.state.last_seq) for log in store.streams()] == [("S", 7), ("U", 7)]
    assert any(sentence.endswith("4 messages in the journal are lost") for sentence in store.damaged), store.damaged
    for log in store.streams():
        fill(store, log, 1)
    store.close()


def test_a_damaged_list_of_free_pages_is_forgotten(path: Path) -> None:
    pages = Pages(path / "data.mdb")
    meta = pages.metas()[0]
    pages.close()
    spoil(path, meta.free.root)
    store = open_inline(path)
    assert "the list of free pages is damaged" in store.damaged[0]
    for log in store.streams():
        fill(store, log, 200, payload=b"y" * 3000)
    store.close()
    store = open_inline(path)
    assert store.damaged == []
    assert [log.get(800).payload for log in store.streams()] == [b"y" * 3000] * 3
    store.close()


@pytest.mark.parametrize("name", [b"consumers", b"consumer_states", b"positions", b"subjects"])
def test_what_is_readable_of_a_shared_database_is_kept(path: Path, name: bytes) -> None:
    store = open_inline(path)
    for log in store.streams():
        for number in range(60):
            txn = store.begin()
            log.put_consumer(txn, f"c{number}", b"config" * 20, b"state" * 20)
            log.put_position(txn, b"p%d" % number, b"value" * 20)
            assert commit(store, txn) is None
    store.close()
    pages = Pages(path / "data.mdb")
    tree = pages.tree(pages.metas()[0].txnid, name, page_check.ANY_KEY)
    assert tree is not None
    leaves = [int.from_bytes(page[:8], "little") for page, _, _ in pages.walk(tree)]
    pages.close()
    spoil(path, leaves[len(leaves) // 2])
    store = open_inline(path)
    if name != b"subjects":
        assert any("are lost" in sentence for sentence in store.damaged)
    logs = store.streams()
    consumers = [len(log.consumers()) for log in logs]
    positions = [len(log.positions()) for log in logs]
    assert sum(consumers) > 100
    assert sum(positions) > 100
    if name == b"consumers":
        assert sum(consumers) < 181
    if name == b"positions":
        assert sum(positions) < 180
    for log in logs:
        fill(store, log, 3)
        assert log.get(1) is not None
    store.close()
    store = open_inline(path)
    assert store.damaged == []
    assert [len(log.consumers()) for log in store.streams()] == consumers
    store.close()


def leaf_of_streams(path: Path) -> int:
    pages = Pages(path / "data.mdb")
    tree = pages.tree(pages.metas()[0].txnid, b"streams", page_check.ANY_KEY)
    pages.close()
    assert tree is not None
    assert tree.db.depth == 1
    return tree.db.root


@pytest.mark.parametrize("how", ["header", "moved"])
def test_entries_of_streams_are_found_wherever_they_are(path: Path, how: str) -> None:
    pgno = leaf_of_streams(path)
    if how == "header":
        spoil(path, pgno, 0, b"\x01")  # the page bears another number
    else:
        data = bytearray((path / "data.mdb").read_bytes())
        data += data[pgno * PAGE : (pgno + 1) * PAGE]
        data[pgno * PAGE : (pgno + 1) * PAGE] = bytes(PAGE)
        (path / "data.mdb").write_bytes(data)
    store = open_inline(path)
    assert sum("is recovered from page" in sentence for sentence in store.damaged) == 3
    assert not any("is lost" in sentence for sentence in store.damaged)
    assert [log.name for log in store.streams()] == ["S", "T", "U"]
    assert [log.state.messages for log in store.streams()] == [600] * 3
    assert [len(log.consumers()) for log in store.streams()].count(1) == 1
    store.close()
    assert check(path).ok


def test_what_belongs_to_an_entry_that_is_lost_is_named_until_the_store_is_compacted(path: Path) -> None:
    data = bytearray((path / "data.mdb").read_bytes())
    at = leaf_of_streams(path) * PAGE
    leaf = bytes(data[at : at + PAGE])
    for index in range(3):
        _, size, place = native.data_at(leaf, index)
        entry = leaf[place - 8 : place + size]
        while (at := data.find(entry)) >= 0:  # older ones, too
            data[at : at + len(entry)] = bytes(len(entry))
    (path / "data.mdb").write_bytes(data)
    sentences = repair(path, None)
    for number in (1, 2, 3):
        assert f"the entry of stream {number} is lost" in sentences
    problems = check(path).problems
    assert len(problems) == 3
    assert all("its entry is lost" in problem for problem in problems)
    store = open_inline(path)
    assert store.streams() == []
    fill(store, make_log(store, "NEW"), 3)
    store.close()
    assert compact(path, None)[1] < 1 << 20
    assert check(path).ok


@pytest.mark.slow
@pytest.mark.parametrize("how", ["header", "zeros", "branch"])
@pytest.mark.parametrize("sealed", [False, True])
def test_repairing_keeps_what_can_be_read(path: Path, tmp_path: Path, how: str, sealed: bool) -> None:
    keys = StoreKeys(b"secret") if sealed else None
    options = msgspec.structs.replace(JOURNAL, keys=keys)
    store = open_inline(path, options)
    for log in store.streams():
        fill(store, log, 30, payload=b"in the journal")
    store.crash()
    pages, tree = tree_of(path, 2)
    leaves = [(int.from_bytes(page[:8], "little"), low, high) for page, low, high in pages.walk(tree)]
    root = tree.db.root
    pages.close()
    pgno, low, high = leaves[3]
    assert high is not None
    first, last = int.from_bytes(low, "big"), int.from_bytes(high, "big") - 1
    if how == "header":
        spoil(path, pgno)
    elif how == "zeros":
        spoil(path, pgno, 0, bytes(PAGE))
    else:
        spoil(path, root)
    assert main([str(path), *key_option(tmp_path, sealed)]) == 1
    with pytest.raises(StoreError, match="stream 2: page"):
        compact(path, keys)
    sentences = repair_store(path, keys)
    assert any("stream A/T: page" in sentence for sentence in sentences)
    gone = f"stream A/T: sequences {first} to {last} are lost, as far as they held messages"
    assert (gone in sentences) == (how == "zeros")
    assert main([str(path), *key_option(tmp_path, sealed)]) == 0
    assert (path / "readers-doubted.on").exists()
    store = open_inline(path, options)
    assert store.damaged == []
    assert store.fenced() == []
    for log in store.streams():
        assert log.state.last_seq == 630
        assert gone_in(log.positions()) == ([(first, last)] if how == "zeros" and log.name == "T" else [])
        missing = [seq for seq in range(1, 631) if log.get(seq) is None]
        assert missing == (list(range(first, last + 1)) if how == "zeros" and log.name == "T" else [])
        assert log.state.messages == 630 - len(missing)
        fill(store, log, 1)
    store.close()
    compact(path, keys)
    assert check(path, keys).problems == []
    assert sorted(file.name for file in path.iterdir() if file.name.startswith("set")) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("sealed", [False, True])
def test_a_raw_repair_finds_leaves_that_nothing_leads_to(
    path: Path, tmp_path: Path, seed: int, sealed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """The root is gone, and some leaves at random are. Seed 0: the root alone; what was removed or purged does not come back."""
    rng = random.Random(seed)
    options = msgspec.structs.replace(FAST, keys=StoreKeys(b"secret") if sealed else None)
    store = open_inline(path, options)
    log = next(log for log in store.streams() if log.name == "T")
    removed = set(rng.sample(range(50, 600), 40))
    for seq in removed:
        txn = store.begin()
        assert log.remove(txn, seq)
        assert commit(store, txn) is None
    txn = store.begin()
    log.purge(txn, below_seq=10)
    assert commit(store, txn) is None
    fill(store, log, 3, payload=b"last")
    truth = {seq: log.get(seq) for seq in range(10, 604) if seq not in removed}
    store.close()
    pages, tree = tree_of(path, 2)
    leaves = [(int.from_bytes(page[:8], "little"), low, high) for page, low, high in pages.walk(tree)]
    root = tree.db.root
    pages.close()
    lost: set[int] = set()
    for pgno, low, high in rng.sample(leaves, seed):
        spoil(path, pgno, 0, rng.choice([bytes(PAGE), rng.randbytes(PAGE)]))
        first = max(int.from_bytes(low, "big"), 10)
        lost |= set(range(first, int.from_bytes(high, "big") if high is not None else 604)) - removed
    # The header of a leaf is damaged, what it holds is whole.
    spoil(path, rng.choice([pgno for pgno, _, _ in leaves]), 0, rng.randbytes(14))
    spoil(path, root, 0, bytes(PAGE))
    assert main([str(path), "--repair", "--raw", *key_option(tmp_path, sealed)]) == 0
    said = capsys.readouterr().out
    gone = spans_of(lost)
    found = spans_of(set(truth) - lost)
    assert f"stream A/T: sequences {found} are recovered from pages that nothing leads to" in said
    assert (f"stream A/T: gone: {counted(len(lost), 'message')}" in said) == bool(lost)
    store = open_inline(path, options)
    assert store.damaged == []
    log = next(log for log in store.streams() if log.name == "T")
    assert {seq: log.get(seq) for seq in range(1, 604) if log.get(seq) is not None} == {
        seq: message for seq, message in truth.items() if seq not in lost
    }
    assert log.state.last_seq == 603
    spans = gone_in(log.positions())
    assert bool(spans) == bool(lost)
    assert all(any(first <= seq <= last for first, last in spans) for seq in lost), gone
    store.close()


def spans_of(seqs: set[int]) -> str:
    """As `eyot-check` says it."""
    spans: list[list[int]] = []
    for seq in sorted(seqs):
        if spans and spans[-1][1] == seq - 1:
            spans[-1][1] = seq
        else:
            spans.append([seq, seq])
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in spans)


def test_a_raw_repair_is_a_repair(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(path), "--raw"]) == 2
    assert "--raw goes with --repair" in capsys.readouterr().err


def key_option(folder: Path, sealed: bool) -> list[str]:
    (folder / "key").write_text("secret")
    return ["--key-file", str(folder / "key")] if sealed else []


def test_a_page_that_two_trees_lead_to_is_nobodys(path: Path) -> None:
    leaves = leaves_of(path, 1)
    pages, tree = tree_of(path, 2)
    root = bytearray(pages.read(tree.db.root))
    pages.close()
    node = int.from_bytes(root[18:20], "little")
    root[node : node + 4] = leaves[1].to_bytes(4, "little")
    spoil(path, tree.db.root, 0, bytes(root))
    store = open_inline(path)
    assert {log.name for log, _ in store.fenced()} == {"S", "T"}
    fill(store, store.streams()[2], 1)
    store.close()


@pytest.mark.slow
def test_damages_at_random(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice of `make damage`."""
    monkeypatch.setenv("DAMAGE_DIR", str(tmp_path))
    figures, failures = play(24, 11)
    assert failures == []
    assert figures["cases"] == 24


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "cases", "repairs"),
    [(3, [49], 1), (4, [29], 1), (70001, [320, 429, 1840], 2), (70002, [2800], 1), (77001, [411], 1)],
    ids=[
        "purge set aside",
        "many ways to a page",
        "counts of an index agree by chance, removals of a lost frame, counters lost with the last commit",
        "as many are back as are lost",
        "a stale page is of another database",
    ],
)
def test_damages_that_once_went_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, cases: list[int], repairs: int
) -> None:
    monkeypatch.setenv("DAMAGE_DIR", str(tmp_path))
    figures, failures = play(0, seed, cases)
    assert failures == []
    assert (figures["cases"], figures["repairs"]) == (len(cases), repairs)


def test_stores_to_be_damaged_are_whole(tmp_path: Path) -> None:
    for base in bases(tmp_path, 3):
        store = open_inline(base.path, base.options)
        assert store.damaged == store.recounted == []
        for log in store.streams():
            for seq, (subject, payload) in base.truth[log.name].items():
                message = log.get(seq)
                assert message is not None
                assert (message.subject, message.payload) == (subject, payload)
        store.close()
