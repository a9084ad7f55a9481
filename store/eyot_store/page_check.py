"""Checks one page of an LMDB 0.9 data file before LMDB reads it, in plain Python.

LMDB trusts its pages: a damaged one aborts the process, or worse. `_page_check.pyx` is the compiled twin. This module
runs without a compiler, and tests compare both (see `native.py`).

A page is a header (number, pad, flags, lower, upper; where the offsets of the nodes end and where the nodes begin), the
offsets, and the nodes at the page's end. A node is 8 bytes (size or child in three halves, flags, size of the key), key
and data, even in length.
"""

from __future__ import annotations

import os
import struct
import sys

Buffer = bytes | bytearray | memoryview

WORD = struct.calcsize("P")
"""Bytes of a page number."""
HEADER_SIZE = WORD + 8
NODE_SIZE = 8
BRANCH, LEAF, OVERFLOW = 0x01, 0x02, 0x04
BIG, SUBTREE = 0x01, 0x02
"""Flags of nodes: the data lies in overflow pages; the data is a named database."""
DB_SIZE = 8 + 5 * WORD
"""Bytes of a database's record."""
KEY_MAX = 511

NUMBER_KEY = -2
ANY_KEY = -1
MAIN_KEY = 0
"""What `key_size` may be besides a number of bytes: keys that are page-sized numbers of the machine's, in their order (the list of free
pages); keys of any size; such keys, and named databases among the data."""

PROBLEMS = (
    "sound",
    "it bears another number",
    "it is no page of a tree",
    "its header does not fit",
    "a node lies outside",
    "a node's flags are unknown",
    "a key has a wrong size",
    "its keys are out of order",
    "its nodes do not fill it",
    "a child's number is out of range",
)
"""What is wrong, by minus the number that `check_page` returns."""

_header = struct.Struct("=" + ("Q" if WORD == 8 else "I") + "HHHH").unpack_from
_u16 = struct.Struct("=H").unpack_from
_node = struct.Struct("=HHHH").unpack_from
_word = struct.Struct("=" + ("Q" if WORD == 8 else "I")).unpack_from
_run = struct.Struct("=" + ("Q" if WORD == 8 else "I") + "xxHI").unpack


def check_page(page: Buffer, pgno: int, last_pgno: int, key_size: int) -> int:
    """Check a whole page that must be a branch or leaf with the number `pgno`, in a database with keys of `key_size`.

    Returns the number of nodes with data in overflow pages; a negative result means damage, `PROBLEMS[-result]`.
    """
    size = len(page)
    number, _, flags, lower, upper = _header(page)
    if number != pgno:
        return -1
    if flags not in (BRANCH, LEAF):
        return -2
    count = (lower - HEADER_SIZE) >> 1
    if lower < HEADER_SIZE or lower & 1 or upper < lower or upper > size or upper & 1 or count < 1 + (flags == BRANCH):
        return -3
    used = big = 0
    before: bytes | None = None
    for index in range(count):
        at = _u16(page, HEADER_SIZE + 2 * index)[0]
        if at < upper or at & 1 or at + NODE_SIZE > size:
            return -4
        low, high, node_flags, keyed = _node(page, at)
        end = at + NODE_SIZE + keyed
        if flags == BRANCH:
            child = low | high << 16 | (node_flags << 32 if WORD == 8 else 0)
            if end > size:
                return -4
            if child < 2 or child > last_pgno or child == pgno:
                return -9
        else:
            if node_flags & ~(BIG | SUBTREE) or (node_flags & SUBTREE and (key_size or node_flags & BIG)):
                return -5
            if node_flags & SUBTREE and low | high << 16 != DB_SIZE:
                return -5
            end += WORD if node_flags & BIG else low | high << 16
            big += node_flags & BIG
            if end > size:
                return -4
        used += (end - at + 1) & ~1
        if index or flags == LEAF:
            wanted = WORD if key_size == NUMBER_KEY else key_size
            if keyed != wanted if wanted > 0 else not 0 < keyed <= KEY_MAX:
                return -6
            key = bytes(page[at + NODE_SIZE : at + NODE_SIZE + keyed])
            if key_size == NUMBER_KEY and sys.byteorder == "little":
                key = key[::-1]
            if before is not None and key <= before:
                return -7
            before = key
    if used != size - upper:
        return -8
    return big


def is_branch(page: Buffer) -> bool:
    """Return whether it is a branch."""
    return _u16(page, WORD + 2)[0] == BRANCH  # type: ignore[no-any-return]


def nodes_of(page: Buffer) -> int:
    """Return how many nodes it has."""
    return (_u16(page, WORD + 4)[0] - HEADER_SIZE) >> 1  # type: ignore[no-any-return]


def key_at(page: Buffer, index: int) -> bytes:
    """Return the key of a node of a sound page; that of a branch's first node is meaningless."""
    at = _u16(page, HEADER_SIZE + 2 * index)[0]
    return bytes(page[at + NODE_SIZE : at + NODE_SIZE + _u16(page, at + 6)[0]])


def child_at(page: Buffer, index: int) -> int:
    """Return the page that a node of a sound branch leads to."""
    low, high, flags, _ = _node(page, _u16(page, HEADER_SIZE + 2 * index)[0])
    return low | high << 16 | (flags << 32 if WORD == 8 else 0)  # type: ignore[no-any-return]


def search(page: Buffer, key: bytes) -> int:
    """Return the node of a sound branch that leads to `key`; the first one of a leaf whose key is not below it."""
    branch = is_branch(page)
    low, high = int(branch), nodes_of(page)
    while low < high:
        middle = (low + high) >> 1
        found = key_at(page, middle)
        if found < key or (branch and found == key):
            low = middle + 1
        else:
            high = middle
    return low - 1 if branch else low


def data_at(page: Buffer, index: int) -> tuple[int, int, int]:
    """Of a node of a sound leaf: its flags, the size of the data, and where in the page they, or the number of their first overflow page, are."""
    at = _u16(page, HEADER_SIZE + 2 * index)[0]
    low, high, flags, keyed = _node(page, at)
    return flags, low | high << 16, at + NODE_SIZE + keyed


def next_unsound_run(page: Buffer, index: int, file: int, page_size: int, end: int) -> int:
    """Return the first node of a sound leaf, from `index` on, whose data lie in overflow pages that are not as they should be.

    `file` is the descriptor, `end` the number of its pages. Without such a node: the number of nodes. A page that cannot be
    read is not as it should be.
    """
    count = nodes_of(page)
    while index < count:
        flags, size, at = data_at(page, index)
        if flags & BIG:
            pgno, pages = _word(page, at)[0], (HEADER_SIZE - 1 + size) // page_size + 1
            if pgno < 2 or pgno + pages > end:
                return index
            try:
                head = os.pread(file, HEADER_SIZE, pgno * page_size)
            except OSError:
                return index
            if len(head) < HEADER_SIZE:
                return index
            number, kind, reserved = _run(head)
            # LMDB keeps the pages of data that became shorter within a transaction.
            if number != pgno or kind != OVERFLOW or not pages <= reserved <= end - pgno:
                return index
        index += 1
    return count


def runs_of(page: Buffer, index: int, page_size: int, end: int, pages_max: int) -> list[tuple[int, int]]:
    """Return the overflow pages of a leaf's nodes from `index` on, as (first, number), adjacent ones together.

    It ends with the node that reaches `pages_max`, and before one whose pages are outside of a file of `end` pages.
    """
    found: list[tuple[int, int]] = []
    first = after = taken = 0
    count = nodes_of(page)
    while index < count and taken < pages_max:
        flags, size, at = data_at(page, index)
        index += 1
        if not flags & BIG:
            continue
        pages = (HEADER_SIZE - 1 + size) // page_size + 1
        pgno = _word(page, at)[0] if at + WORD <= len(page) else 0
        if pgno < 2 or pgno + pages > end:
            break
        taken += pages
        if pgno != after:
            if after:
                found.append((first, after - first))
            first = pgno
        after = pgno + pages
    if after:
        found.append((first, after - first))
    return found


def mark_children(page: Buffer, seen: bytearray) -> int:
    """Mark the children of a sound branch in `seen`, a byte for each page, with 1. Returns the first that was marked already; else 0."""
    twice = 0
    for index in range(nodes_of(page)):
        child = child_at(page, index)
        if seen[child] and not twice:
            twice = child
        seen[child] = 1
    return twice


def next_unknown(page: Buffer, index: int, end: int, known: bytearray, kind: int) -> int:
    """Return the first node of a sound branch in [`index`, `end`) whose child is not `kind` in `known`; `end` if there is none."""
    while index < end:
        child = child_at(page, index)
        if child >= len(known) or known[child] != kind:
            return index
        index += 1
    return end


def way_is_known(view: Buffer, page_size: int, known: bytearray, kind: int, root: int, depth: int, key: bytes) -> bool:
    """Return whether every page from `root` to the leaf of `key` is `kind` in `known`, in a tree of `depth` levels.

    Each page must have the kind that its level requires. `view` is the mapped file; a page outside of it is not known.
    """
    pgno = root
    for level in range(1, depth + 1):
        if pgno >= len(known) or known[pgno] != kind or (pgno + 1) * page_size > len(view):
            return False
        page = view[pgno * page_size : (pgno + 1) * page_size]
        if is_branch(page) != (level < depth):
            return False
        if level < depth:
            pgno = child_at(page, search(page, key))
    return True
