"""The pages of the database: what is found sound, by both twins, and what LMDB is asked to do only then."""

from __future__ import annotations

import random
from pathlib import Path

import lmdb
import pytest

from eyot_store import native, page_check
from eyot_store.environment import messages_db_name
from eyot_store.page_check import ANY_KEY, HEADER_SIZE, LEAF, OVERFLOW, WORD
from eyot_store.pages.errors import PageError
from eyot_store.pages.layout import SEQUENCE_KEY
from eyot_store.pages.pages import Pages
from eyot_store.pages.survey import survey
from eyot_store.records.record import pack_u64
from support.store.paged_store import PAGE, leaves_of, make_paged_store, spoil, tree_of
from support.store.store import fill, make_log, open_inline

NAMES = (
    "check_page",
    "child_at",
    "data_at",
    "is_branch",
    "key_at",
    "mark_children",
    "next_unknown",
    "next_unsound_run",
    "nodes_of",
    "runs_of",
    "search",
    "way_is_known",
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make_paged_store(tmp_path / "store")


def test_a_sound_file_is_sound(path: Path) -> None:
    pages = Pages(path / "data.mdb")
    metas = pages.metas()
    assert len(metas) == 2
    for meta in metas:
        found = survey(pages, meta, leaves=True)
        assert (found.main, found.shared, found.streams, found.free) == (None, {}, {}, "")
        assert len(found.trees) == 8
    pages.close()


@pytest.mark.parametrize("seed", range(12))
def test_whatever_lmdb_writes_is_sound(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries that grow, shrink and go, several times within a transaction.

    A record of a downstream that had shrunk within a transaction kept its pages, was taken for damaged, and lost at the next start.
    """
    rng = random.Random(seed)
    names = [b"positions", b"consumers", b"streams"]
    with lmdb.open(str(tmp_path), map_size=256 << 20, max_dbs=8) as env:
        dbs = [env.open_db(name) for name in names]
        for _ in range(rng.choice([1, 5, 40])):
            with env.begin(write=True) as txn:
                for _ in range(rng.choice([2, 20, 200])):
                    db, key = (
                        rng.choice(dbs),
                        rng.choice([b"a", b"b", rng.randbytes(rng.choice([1, 8, 20])), rng.randbytes(2)]),
                    )
                    if rng.random() < 0.2:
                        txn.delete(key, db=db)
                    else:
                        txn.put(
                            key,
                            rng.randbytes(rng.choice([0, 30, 1000, 2039, 2040, 3000, 4080, 4081, 9000, 60_000])),
                            db=db,
                        )
        with env.begin() as txn:
            wanted = {name: sorted(txn.cursor(db)) for name, db in zip(names, dbs, strict=True)}
    for twin in (native.next_unsound_run, page_check.next_unsound_run):
        monkeypatch.setattr("eyot_store.pages.pages.next_unsound_run", twin)
        pages = Pages(tmp_path / "data.mdb")
        for meta in pages.metas():
            found = survey(pages, meta, leaves=True)
            assert (found.main, found.shared, found.streams, found.free) == (None, {}, {}, "")
        for name in names:
            tree = pages.tree(pages.metas()[0].txnid, name, ANY_KEY)
            assert tree is not None
            leaves = [(page, index) for page, _, _ in pages.walk(tree) for index in range(native.nodes_of(page))]
            assert [(native.key_at(*leaf), pages.data(tree, *leaf)) for leaf in leaves] == wanted[name]
        pages.close()


def test_walking_finds_every_key_that_lmdb_finds(path: Path) -> None:
    with lmdb.open(str(path), max_dbs=16, readonly=True) as env, env.begin() as txn:
        wanted = [key for key, _ in txn.cursor(env.open_db(b"stream:00000002", txn=txn, create=False))]
    pages, tree = tree_of(path, 2)
    found = [native.key_at(page, index) for page, _, _ in pages.walk(tree) for index in range(native.nodes_of(page))]
    assert found == wanted
    pages.close()


def test_a_damaged_length_takes_no_memory(path: Path) -> None:
    pages = Pages(path / "data.mdb")
    size = pages.file_size()
    with (path / "data.mdb").open("rb") as file:
        assert pages.run(3, 9000) == file.read()[3 * PAGE + HEADER_SIZE :][:9000]
    for pgno, length in ((3, size), (3, (1 << 32) - 1), (1 << 60, 5), (size // PAGE, 1)):
        assert pages.run(pgno, length) == b""
    pages.close()
    with (path / "data.mdb").open("r+b") as file:
        file.truncate(5 << 30)
    pages = Pages(path / "data.mdb")
    assert pages.run(3, (1 << 32) - 1) == b""
    pages.close()


def test_an_append_asks_for_the_last_leaf_and_the_overflow_pages_of_its_last_entry_only(tmp_path: Path) -> None:
    path = tmp_path / "store"
    store = open_inline(path)
    fill(store, make_log(store, "S"), 5, payload=b"S" * 9000)
    store.close()
    pages, tree = tree_of(path, 1)
    leaf = pages.read(tree.db.root)
    runs = [int.from_bytes(leaf[at : at + 8], "little") for _, _, at in (native.data_at(leaf, i) for i in range(5))]
    pages.close()
    spoil(path, runs[1])
    pages, tree = tree_of(path, 1)
    pages.end(tree)
    for check_all in (pages.ends, pages.all):
        with pytest.raises(PageError, match="overflow"):
            check_all(tree)
    pages.end(tree)
    pages.close()
    spoil(path, runs[4])
    pages, tree = tree_of(path, 1)
    with pytest.raises(PageError, match="overflow"):
        pages.end(tree)
    pages.close()


@pytest.mark.parametrize("seed", range(4))
def test_both_twins_say_the_same_of_any_page(path: Path, seed: int) -> None:
    from eyot_store import _page_check as compiled

    rng = random.Random(seed)
    data = (path / "data.mdb").read_bytes()
    for _ in range(3000):
        pgno = rng.randrange(len(data) // PAGE)
        page = bytearray(data[pgno * PAGE : pgno * PAGE + PAGE])
        for _ in range(rng.choice([0, 0, 1, 1, 5])):
            page[rng.choice([rng.randrange(80), rng.randrange(PAGE)])] ^= 1 << rng.randrange(8)
        key_size = rng.choice([page_check.NUMBER_KEY, page_check.ANY_KEY, page_check.MAIN_KEY, 8])
        last = rng.choice([len(data) // PAGE, 5])
        found = page_check.check_page(page, pgno, last, key_size)
        assert compiled.check_page(page, pgno, last, key_size) == found
        if found < 0:
            continue
        assert compiled.is_branch(page) == page_check.is_branch(page)
        assert compiled.nodes_of(page) == page_check.nodes_of(page)
        for index in range(page_check.nodes_of(page)):
            assert compiled.key_at(page, index) == page_check.key_at(page, index)
            assert compiled.data_at(page, index) == page_check.data_at(page, index)
            assert compiled.child_at(page, index) == page_check.child_at(page, index)
        for key in (b"", rng.randbytes(8), page_check.key_at(page, 0), b"\xff" * 9):
            assert compiled.search(page, key) == page_check.search(page, key)
        for index in (0, 3):
            asked = (page, index, PAGE, rng.choice([len(data) // PAGE, 9]), rng.choice([0, 1, 7, 1 << 20]))
            assert compiled.runs_of(*asked) == page_check.runs_of(*asked)
        if page_check.is_branch(page):
            marks = bytearray(len(data) // PAGE + 1), bytearray(len(data) // PAGE + 1)
            assert compiled.mark_children(page, marks[0]) == page_check.mark_children(page, marks[1])
            assert marks[0] == marks[1]
            end = page_check.nodes_of(page)
            assert (
                compiled.next_unknown(page, 0, end, marks[0], 1)
                == end
                == page_check.next_unknown(page, 0, end, marks[0], 1)
            )


@pytest.mark.parametrize("seed", range(4))
def test_both_twins_find_the_same_overflow_pages_unsound(path: Path, seed: int) -> None:
    from eyot_store import _page_check as compiled

    rng = random.Random(seed)
    data = bytearray((path / "data.mdb").read_bytes())
    starts = range(0, len(data), PAGE)
    kinds = {at // PAGE: int.from_bytes(data[at + WORD + 2 : at + WORD + 4], "little") for at in starts}
    for pgno in rng.sample([pgno for pgno, kind in kinds.items() if kind == OVERFLOW], 6):
        data[pgno * PAGE + rng.choice([0, 1, WORD + 2, WORD + 4, WORD + 7])] ^= 1 << rng.randrange(8)
    (path / "damaged").write_bytes(data)
    found = []
    with (path / "damaged").open("rb") as file:
        for pgno in [pgno for pgno, kind in kinds.items() if kind == LEAF]:
            page = bytes(data[pgno * PAGE : pgno * PAGE + PAGE])
            if page_check.check_page(page, pgno, len(data) // PAGE, page_check.ANY_KEY) < 0:
                continue
            for end in (len(data) // PAGE, len(data) // PAGE + 9, len(data) // PAGE // 2, 3):
                index = -1
                while index < page_check.nodes_of(page):
                    asked = (page, index + 1, file.fileno(), PAGE, end)
                    index = page_check.next_unsound_run(*asked)
                    assert compiled.next_unsound_run(*asked) == index
                    found.append(index - page_check.nodes_of(page))
        with pytest.raises(ValueError):
            compiled.next_unsound_run(page, -1, file.fileno(), PAGE, 9)
    assert any(found)
    assert not all(found)


def test_a_way_is_known_if_all_its_pages_are_and_both_twins_say_so(path: Path) -> None:
    """A page that was not looked at, or that is a leaf where a branch must be, makes the way unknown, wherever it is."""
    from eyot_store import _page_check as compiled

    pages = Pages(path / "data.mdb")
    data = (path / "data.mdb").read_bytes()
    tree = pages.tree(pages.metas()[0].txnid, messages_db_name(1), SEQUENCE_KEY)
    assert tree is not None
    assert tree.db.depth > 1

    def both(known: bytearray, key: bytes, *, depth: int = tree.db.depth, size: int = len(data)) -> bool:
        asked = (data[:size], PAGE, known, 3, tree.db.root, depth, key)
        found = page_check.way_is_known(*asked)
        assert compiled.way_is_known(*asked) is found
        return found

    rng = random.Random(1)
    for seq in (0, 1, 300, 600, 1 << 63):
        key = pack_u64(seq)
        nothing = bytearray(len(data) // PAGE)
        assert not both(nothing, key)
        pages.key(tree, key)
        known = bytearray(pages.known)
        assert both(known, key)
        assert both(known + bytes(10), key)
        assert not both(known, key, depth=tree.db.depth - 1), "a branch where a leaf must be"
        assert not both(known, key, depth=tree.db.depth + 1), "a leaf where a branch must be"
        assert not both(known, key, size=tree.db.root * PAGE), "the file was longer when it was mapped"
        assert not both(known[: tree.db.root], key)
        for pgno in [at for at, kind in enumerate(known) if kind == 3]:
            without = bytearray(known)
            without[pgno] = rng.choice([0, 1, 2, 4])
            both(without, key)
        known[tree.db.root] = 0
        assert not both(known, key)
    pages.close()


def test_a_page_error_says_where(path: Path) -> None:
    pages, tree = tree_of(path, 2)
    with pytest.raises(PageError) as caught:
        pages.sound(tree, leaves_of(path, 1)[0], 2, b"\0" * 8, b"\0" * 7 + b"\1")
    assert "it holds entries of another place" in str(caught.value)
    pages.close()
