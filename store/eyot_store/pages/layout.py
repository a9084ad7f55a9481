"""LMDB's meta pages and records of trees, as values: what a data file says about itself.

Integers have the byte order and the word size of the machine, as in LMDB.
"""

from __future__ import annotations

import os
from struct import Struct
from typing import NamedTuple, TypeGuard

from eyot_store.page_check import DB_SIZE, HEADER_SIZE, MAIN_KEY, NUMBER_KEY, WORD, Buffer

#: The number that stands for no page: the root of an empty tree.
NO_PAGE = (1 << 8 * WORD) - 1
#: Key size of trees whose keys are sequences: 8 bytes, big-endian.
SEQUENCE_KEY = 8
_LETTER = "Q" if WORD == 8 else "I"
_DB = Struct(f"=IHH5{_LETTER}")
_META = Struct(f"=II{_LETTER}{_LETTER}")
_META_SIZE = HEADER_SIZE + _META.size + 2 * DB_SIZE + 2 * WORD
_LAST = Struct(f"=2{_LETTER}")
#: The header of a page: its number, 2 bytes that are not used, its flags, and the count of overflow pages.
HEADER = Struct(f"={_LETTER}HHI")
#: Reads a page number at an offset.
page_number = Struct(f"={_LETTER}").unpack_from
_MAGIC = 0xBEEFC0DE
_VERSION = 1
_P_META = 0x08
#: Data of more overflow pages, on average over a tree, are long.
_SHORT_PAGES = 4


class Db(NamedTuple):
    """LMDB's record of a tree."""

    flags: int
    depth: int
    branches: int
    leaves: int
    overflows: int
    entries: int
    root: int


#: The record of an empty tree.
EMPTY = Db(0, 0, 0, 0, 0, 0, NO_PAGE)


class Tree(NamedTuple):
    """A tree of one snapshot."""

    name: str
    db: Db
    key_size: int
    last_pgno: int


class Meta(NamedTuple):
    """A meta page."""

    slot: int
    page_size: int
    txnid: int
    free: Db
    main: Db
    last_pgno: int

    @property
    def free_tree(self) -> Tree:
        """The list of free pages."""
        return Tree("list of free pages", self.free, NUMBER_KEY, self.last_pgno)

    @property
    def main_tree(self) -> Tree:
        """The unnamed database."""
        return Tree("main database", self.main, MAIN_KEY, self.last_pgno)


def db_of(data: Buffer, at: int = 0) -> Db:
    """Return the record of a database."""
    _, *fields = _DB.unpack_from(data, at)
    return Db(*fields)


def pack_db(db: Db, pad: int = 0) -> bytes:
    """Return the record of a database as LMDB writes it."""
    return _DB.pack(pad, *db)


def pack_meta(meta: Meta) -> bytes:
    """Return a whole meta page, as LMDB writes it."""
    head = HEADER.pack(meta.slot, 0, _P_META, 0)
    body = _META.pack(_MAGIC, _VERSION, 0, (meta.last_pgno + 1) * meta.page_size)
    dbs = pack_db(meta.free, meta.page_size) + pack_db(meta.main)
    return (head + body + dbs + _LAST.pack(meta.last_pgno, meta.txnid)).ljust(meta.page_size, b"\0")


def read_meta(file: int, slot: int, page_size: int) -> Meta | None:
    """Return the meta page in `slot`, or None."""
    try:
        data = os.pread(file, _META_SIZE, slot * page_size)
    except OSError:
        return None
    return _meta_of(data, slot)


def _meta_of(data: Buffer, slot: int) -> Meta | None:
    if len(data) < _META_SIZE:
        return None
    number, _, flags, _ = HEADER.unpack_from(data, 0)
    magic, version, _, _ = _META.unpack_from(data, HEADER_SIZE)
    at = HEADER_SIZE + _META.size
    page_size = _DB.unpack_from(data, at)[0]
    last_pgno, txnid = _LAST.unpack_from(data, at + 2 * DB_SIZE)
    sound = number == slot and flags == _P_META and magic == _MAGIC and version == _VERSION
    if not sound or page_size not in (512 << shift for shift in range(7)) or (txnid and txnid & 1 != slot):
        return None
    return Meta(slot, page_size, txnid, db_of(data, at), db_of(data, at + DB_SIZE), last_pgno)


def page_size_of(file: int) -> int:
    """Return the size of the file's pages; 0 if no meta page shows it."""
    first = read_meta(file, 0, 4096)
    if first is not None:
        return first.page_size
    for shift in range(7):
        second = read_meta(file, 1, 512 << shift)
        if second is not None and second.page_size == 512 << shift:
            return second.page_size
    return 0


def tree_name(name: bytes) -> str:
    """Return a database's name for messages."""
    text = name.decode("ascii", "replace")
    return "messages" if text.startswith("stream:") else f"database {text}"


def has_long_data(tree: Tree | None) -> TypeGuard[Tree]:
    """Return whether the data of a tree have several overflow pages on average.

    py-lmdb touches all of them when a cursor comes to an entry; what needs only keys or the beginning asks `Pages` instead.
    """
    return tree is not None and tree.db.overflows > _SHORT_PAGES * tree.db.entries
