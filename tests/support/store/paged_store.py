"""A store of several leaves, and its pages to be damaged."""

from __future__ import annotations

from pathlib import Path

from eyot_store.pages.layout import SEQUENCE_KEY, Tree
from eyot_store.pages.pages import Pages
from support.store.store import commit, fill, make_log, open_inline

PAGE = 4096


def make_paged_store(path: Path) -> Path:
    """Return the path of a closed store with three streams of 600 messages, some of several pages."""
    store = open_inline(path)
    for name in "STU":
        log = make_log(store, name)
        for size in (100, 9000, 100):
            fill(store, log, 200, payload=name.encode() * size)
    txn = store.begin()
    log.put_consumer(txn, "durable", b"config", b"state")
    assert commit(store, txn) is None
    store.close()
    return path


def tree_of(path: Path, stream_id: int) -> tuple[Pages, Tree]:
    pages = Pages(path / "data.mdb")
    tree = pages.tree(pages.metas()[0].txnid, b"stream:%08x" % stream_id, SEQUENCE_KEY)
    assert tree is not None
    return pages, tree


def leaves_of(path: Path, stream_id: int) -> list[int]:
    """The page numbers of a stream's leaves, in order."""
    pages, tree = tree_of(path, stream_id)
    found = [int.from_bytes(page[:8], "little") for page, _, _ in pages.walk(tree)]
    pages.close()
    return found


def spoil(path: Path, pgno: int, at: int = 10, data: bytes = b"\xff" * 6) -> None:
    with (path / "data.mdb").open("r+b") as file:
        file.seek(pgno * PAGE + at)
        file.write(data)
