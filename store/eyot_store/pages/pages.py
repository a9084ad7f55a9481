"""The pages of an LMDB data file, read without LMDB, to check them before LMDB trusts them.

LMDB's pages carry no checksums, and LMDB asserts: a damaged page aborts the process at the first read. Code that is
about to read or write through LMDB therefore first checks the pages on its way here (`ready` and its siblings). A
checked page stays sound: LMDB never changes a page that a snapshot uses, and this process itself writes its
replacement.

A tree is walked from its root. Each page must have its number, the kind that its depth requires, and nodes that are
inside, in order, and between the keys of its parent. Content is checked elsewhere: records by their checksums.

Unchecked pages are read with `pread`, so that a failing disk gives an error; others through a map of the file. The disk
is asked for pages that will be read before the first of them is waited for.
"""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from eyot_store.errors import RESTORE, StoreError
from eyot_store.native import (
    check_page,
    child_at,
    data_at,
    is_branch,
    key_at,
    next_unknown,
    next_unsound_run,
    nodes_of,
    runs_of,
    search,
    way_is_known,
)
from eyot_store.page_check import (
    ANY_KEY,
    BIG,
    DB_SIZE,
    HEADER_SIZE,
    MAIN_KEY,
    NUMBER_KEY,
    OVERFLOW,
    PROBLEMS,
    SUBTREE,
    Buffer,
)
from eyot_store.pages.errors import PageError, SnapshotGoneError
from eyot_store.pages.layout import (
    HEADER,
    NO_PAGE,
    SEQUENCE_KEY,
    Meta,
    Tree,
    db_of,
    has_long_data,
    page_number,
    page_size_of,
    read_meta,
    tree_name,
)

DEPTH_MAX = 20
_KINDS = {MAIN_KEY: 1, ANY_KEY: 2, SEQUENCE_KEY: 3, NUMBER_KEY: 4}
#: Added to the kind of a leaf that is sound, but whose overflow pages were not looked at.
_WITHOUT_RUNS = 8
_UNPROVEN_MAX = 64 << 20
"""Of longer data, the header of their first page must be sound before memory is taken for them."""
_LEAF_PAGES_MAX = 1024
"""Short data are read from the disk with the check of their leaf, but no more than so many pages."""
_MAPPED = sys.maxsize > 1 << 32


class Pages:
    """The pages of one data file. Any thread that holds the interpreter may use them."""

    def __init__(self, path: Path, known: bytes = b"") -> None:
        """Open a file; `known`: the checked pages of another instance for the same file.

        Raises StoreError("corrupt") without a meta page, and OSError.
        """
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.page_size = page_size_of(self._file)
        if not self.page_size:
            os.close(self._file)
            raise StoreError(
                "corrupt",
                "neither of the database's two meta pages can be read, and nothing else leads to the messages",
                remedy=RESTORE,
            )
        self._map: mmap.mmap | None = None
        self._view = memoryview(b"")
        #: By page: 0, or the kind of tree it was found sound for, perhaps with `_WITHOUT_RUNS`.
        self._known = bytearray(known)
        self._pages = 0
        self._snapshots: dict[int, tuple[Meta, dict[bytes, Tree | None]]] = {}
        self._grow()

    def close(self) -> None:
        """Let go of the file."""
        self._view = memoryview(b"")
        self._map = None  # holders of a view of it free it
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def metas(self) -> list[Meta]:
        """Return the meta pages that can be read, the newest first."""
        found = [read_meta(self._file, slot, self.page_size) for slot in (0, 1)]
        sound = [meta for meta in found if meta is not None and meta.page_size == self.page_size]
        return sorted(sound, key=lambda meta: -meta.txnid)

    def tree(self, txnid: int, name: bytes, key_size: int) -> Tree | None:
        """Return the named database in the snapshot that a read transaction has, or a write transaction began with. Raises PageError."""
        known = self._snapshots.get(txnid)
        if known is None:
            known = self._snapshot(txnid), {}
            if len(self._snapshots) > 3:
                with suppress(KeyError, StopIteration, RuntimeError):
                    del self._snapshots[next(iter(self._snapshots))]
            self._snapshots[txnid] = known
        meta, trees = known
        if name not in trees:
            trees[name] = self._find_tree(meta, name, key_size)
        return trees[name]

    @property
    def known(self) -> bytes:
        """Which pages were found sound, for another one."""
        return bytes(self._known)

    def file_size(self) -> int:
        """Bytes of the file."""
        return os.fstat(self._file).st_size

    def forget(self) -> None:
        """Forget the known snapshots, after the environment was reopened."""
        self._snapshots.clear()

    def _snapshot(self, txnid: int) -> Meta:
        for _ in range(3):
            first, second = (read_meta(self._file, txnid & 1, self.page_size) for _ in range(2))
            if first is not None and first == second and first.txnid == txnid:
                return first
        raise SnapshotGoneError(txnid)

    def _find_tree(self, meta: Meta, name: bytes, key_size: int) -> Tree | None:
        main = meta.main_tree
        if main.db.root == NO_PAGE:
            return None
        page, _, _ = self._leaf(main, name)
        index = search(page, name)
        if index >= nodes_of(page) or key_at(page, index) != name:
            return None
        flags, size, at = data_at(page, index)
        if not flags & SUBTREE or size != DB_SIZE:
            raise PageError("main database", page_number(page)[0], f"{name!r} is not a database")
        return Tree(tree_name(name), db_of(page, at), key_size, meta.last_pgno)

    # -- pages ---------------------------------------------------------------------------------------------------------

    def read(self, pgno: int) -> Buffer:
        """Return an unchecked page. Raises PageError."""
        try:
            data = os.pread(self._file, self.page_size, pgno * self.page_size)
        except OSError as error:
            raise PageError("file", pgno, f"it cannot be read: {error.strerror}") from None
        if len(data) < self.page_size:
            raise PageError("file", pgno, "the file ends before it")
        return data

    def expect(self, numbers: Iterable[int]) -> None:
        """Have the disk read these pages together. With a cold cache, each would be waited for in turn."""
        for pgno in numbers:
            if pgno < self._pages:
                self._expect(pgno, 1)

    def _expect(self, pgno: int, pages: int) -> None:
        os.posix_fadvise(self._file, pgno * self.page_size, pages * self.page_size, os.POSIX_FADV_WILLNEED)

    def _grow(self) -> None:
        size = os.fstat(self._file).st_size
        self._pages = size // self.page_size
        self._known.extend(bytes(max(self._pages - len(self._known), 0)))
        if _MAPPED and size:
            self._map = mmap.mmap(self._file, size, prot=mmap.PROT_READ)
            self._view = memoryview(self._map)

    def _mapped(self, pgno: int) -> Buffer:
        if not _MAPPED:
            return self.read(pgno)
        start = pgno * self.page_size
        return self._view[start : start + self.page_size]

    def sound(self, tree: Tree, pgno: int, level: int, low: bytes, high: bytes | None, *, runs: bool = True) -> Buffer:
        """Return the page `pgno` at depth `level` (from 1) of `tree`; its keys must be >= `low` and < `high`.

        `runs`: a leaf's overflow pages are checked, too. Raises PageError.
        """
        kind = _KINDS[tree.key_size]
        if pgno >= self._pages:
            self._grow()
        if pgno < self._pages and (
            self._known[pgno] == kind or (not runs and self._known[pgno] == kind + _WITHOUT_RUNS)
        ):
            page = self._mapped(pgno)
            if is_branch(page) == (level < tree.db.depth):
                return page
        try:
            page = self.read(pgno)
        except PageError as error:
            raise PageError(tree.name, pgno, error.why, low, high) from None
        found = check_page(page, pgno, tree.last_pgno, tree.key_size)
        if found < 0:
            raise PageError(tree.name, pgno, PROBLEMS[-found], low, high)
        branch = is_branch(page)
        if branch != (level < tree.db.depth):
            raise PageError(tree.name, pgno, "it is as deep as no such page can be", low, high)
        if tree.key_size != NUMBER_KEY:
            last = key_at(page, nodes_of(page) - 1)
            if key_at(page, int(branch)) < low or (high is not None and last >= high):
                raise PageError(tree.name, pgno, "it holds entries of another place", low, high)
        if found and runs:
            for damage in self.damaged_runs(tree, page):
                raise damage
        self._known[pgno] = kind if runs or not found else kind + _WITHOUT_RUNS
        return page

    def damaged_runs(self, tree: Tree, page: Buffer) -> Iterator[PageError]:
        """Check the overflow pages of a sound leaf's nodes, and yield what is wrong with each that is damaged.

        The disk reads them first, with the data that follow where these are short.
        """
        if has_long_data(tree):
            nodes = (data_at(page, index) for index in range(nodes_of(page)))
            self.expect(page_number(page, at)[0] for flags, _, at in nodes if flags & BIG)
        else:
            for first, pages in runs_of(page, 0, self.page_size, self._pages, _LEAF_PAGES_MAX):
                self._expect(first, pages)
        index = -1
        while True:
            end = min(tree.last_pgno + 1, self._pages)
            index = next_unsound_run(page, index + 1, self._file, self.page_size, end)
            if index == nodes_of(page):
                return
            # It says what is wrong; nothing may be, where the file has grown.
            _, size, at = data_at(page, index)
            try:
                self.check_run(tree, key_at(page, index), page_number(page, at)[0], size)
            except PageError as error:
                yield error

    def check_run(self, tree: Tree, key: bytes, pgno: int, size: int) -> int:
        """Return the number of overflow pages from `pgno` on, for data of `size`. Raises PageError.

        They may be more than the data need: LMDB keeps the pages of data that became shorter within a transaction.
        """
        pages = (HEADER_SIZE - 1 + size) // self.page_size + 1
        high = key + b"\0"
        if pgno < 2 or pgno + pages - 1 > tree.last_pgno:
            raise PageError(tree.name, pgno, "an overflow page's number is out of range", key, high)
        try:
            head = os.pread(self._file, HEADER_SIZE, pgno * self.page_size)
        except OSError as error:
            raise PageError(tree.name, pgno, f"it cannot be read: {error.strerror}", key, high) from None
        if pgno + pages > self._pages:
            self._grow()
        if len(head) < HEADER_SIZE or pgno + pages > self._pages:
            raise PageError(tree.name, pgno, "the file ends before it", key, high)
        number, _, flags, count = HEADER.unpack(head)
        if number != pgno or flags != OVERFLOW or not pages <= count <= tree.last_pgno + 1 - pgno:
            raise PageError(tree.name, pgno, "it is not the overflow page that it should be", key, high)
        return int(count)

    def data(self, tree: Tree, page: Buffer, index: int) -> bytes:
        """Return the data of a node of a sound leaf, wherever they are. Raises PageError."""
        flags, size, at = data_at(page, index)
        if not flags & BIG:
            return bytes(page[at : at + size])
        pgno = page_number(page, at)[0]
        self.check_run(tree, key_at(page, index), pgno, size)
        try:
            data = os.pread(self._file, size, pgno * self.page_size + HEADER_SIZE)
        except OSError as error:
            key = key_at(page, index)
            raise PageError(tree.name, pgno, f"it cannot be read: {error.strerror}", key, key + b"\0") from None
        return data

    def beginning(self, tree: Tree, key: bytes) -> tuple[bytes, int]:
        """Return what the first overflow page holds of the data of `key`, and their size.

        (b"", 0): they have no such page, or there are none. Raises PageError.
        """
        page, _, _ = self._leaf(tree, key)
        index = search(page, key)
        if index == nodes_of(page) or key_at(page, index) != key:
            return b"", 0
        flags, size, at = data_at(page, index)
        if not flags & BIG:
            return b"", 0
        return self.run(page_number(page, at)[0], min(size, self.page_size - HEADER_SIZE)), size

    def keys_from(self, tree: Tree, first: bytes, last: bytes, limit: int) -> list[bytes]:
        """Return up to `limit` keys of [first, last]. Raises PageError."""
        found: list[bytes] = []
        key: bytes | None = first
        while key is not None and key <= last and len(found) < limit:
            page, _, high = self._leaf(tree, key)
            for index in range(search(page, key), nodes_of(page)):
                one = key_at(page, index)
                if one > last or len(found) == limit:
                    return found
                found.append(one)
            key = high
        return found

    def run(self, pgno: int, size: int) -> bytes:
        """Return the apparent data of overflow pages from `pgno` on; b"" where no data of this size can be."""
        start = pgno * self.page_size
        if start + HEADER_SIZE + size > self._pages * self.page_size:
            return b""
        try:
            if size > _UNPROVEN_MAX:  # a damaged length may be anything up to 4 GiB
                head = os.pread(self._file, HEADER_SIZE, start)
                number, _, flags, count = HEADER.unpack(head)
                if (number, flags) != (pgno, OVERFLOW) or count < (HEADER_SIZE - 1 + size) // self.page_size + 1:
                    return b""
            return os.pread(self._file, size, start + HEADER_SIZE)
        except OSError:
            return b""

    # -- checks before LMDB calls --------------------------------------------------------------------------------------

    def _way(self, tree: Tree, key: bytes | None) -> tuple[int, bytes, bytes | None]:
        """Return the number of the leaf that would hold `key` (None: the last one), and the keys that bound it."""
        pgno, low, high = tree.db.root, b"", None
        for level in range(1, min(tree.db.depth, DEPTH_MAX)):
            page = self.sound(tree, pgno, level, low, high)
            count = nodes_of(page)
            index = count - 1 if key is None else search(page, key)
            if index:
                low = key_at(page, index)
            if index + 1 < count:
                high = key_at(page, index + 1)
            pgno = child_at(page, index)
        return pgno, low, high

    def _leaf(self, tree: Tree, key: bytes | None, *, runs: bool = True) -> tuple[Buffer, bytes, bytes | None]:
        """Return the leaf that would hold `key` (None: the last one), and the keys that bound it; `runs`: see `sound`."""
        pgno, low, high = self._way(tree, key)
        return self.sound(tree, pgno, min(tree.db.depth, DEPTH_MAX), low, high, runs=runs), low, high

    def key(self, tree: Tree | None, key: bytes) -> None:
        """Check before LMDB looks `key` up. Raises PageError."""
        if tree is not None and tree.db.root != NO_PAGE and not self._knows_way(tree, key):
            self._leaf(tree, key)

    def _knows_way(self, tree: Tree, key: bytes) -> bool:
        """Return whether every page on the way to `key` was found sound before; much cheaper than `_leaf`, which then finds nothing."""
        db = tree.db
        return db.depth > 0 and way_is_known(
            self._view, self.page_size, self._known, _KINDS[tree.key_size], db.root, min(db.depth, DEPTH_MAX), key
        )

    def keys(self, tree: Tree | None, keys: list[bytes]) -> None:
        """Check before LMDB looks up keys. Raises PageError."""
        if tree is None or tree.db.root == NO_PAGE:
            return
        unknown = [key for key in keys if not self._knows_way(tree, key)]
        self.expect(self._way(tree, key)[0] for key in unknown)
        low, high = b"\xff" * 9, None
        for key in unknown:
            if key < low or (high is not None and key >= high):
                _, low, high = self._leaf(tree, key)

    def ahead(self, tree: Tree | None, first: bytes, entries: int) -> None:
        """Check before LMDB reads up to `entries` entries from `first` on. Raises PageError."""
        if tree is None or tree.db.root == NO_PAGE:
            return
        _, _, high = self._leaf(tree, first)
        while high is not None and entries >= 0:
            page, _, high = self._leaf(tree, high)
            entries -= nodes_of(page)

    def ends(self, tree: Tree | None) -> None:
        """Check before LMDB looks for the first or last key. Raises PageError."""
        if tree is not None and tree.db.root != NO_PAGE:
            self._leaf(tree, None)
            self._leaf(tree, b"")

    def end(self, tree: Tree | None) -> None:
        """Check before LMDB appends. Of the last leaf's overflow pages, LMDB finds only those of its last entry. Raises PageError."""
        if tree is None or tree.db.root == NO_PAGE:
            return
        page, _, _ = self._leaf(tree, None, runs=False)
        last = nodes_of(page) - 1
        flags, size, at = data_at(page, last)
        if flags & BIG:
            self.check_run(tree, key_at(page, last), page_number(page, at)[0], size)

    def below(self, tree: Tree, end: bytes) -> None:
        """Check before LMDB reads all entries below the key `end`, and the next. Raises PageError."""
        if tree.db.root == NO_PAGE:
            return
        _, _, high = self._leaf(tree, b"")
        while high is not None and high <= end:
            _, _, high = self._leaf(tree, high)
        if high is not None:
            self._leaf(tree, high)

    def last_key(self, tree: Tree) -> bytes:
        """Return the highest key; b"" in an empty tree. Raises PageError."""
        if tree.db.root == NO_PAGE:
            return b""
        page, _, _ = self._leaf(tree, None)
        return key_at(page, nodes_of(page) - 1)

    def span(self, tree: Tree | None, first: bytes, leaves: int) -> bytes | None:
        """Check up to `leaves` (2 or more) leaves before LMDB reads from `first` on. Raises PageError.

        With overflow pages it is 2 at a time: a leaf then has a page of its own on the disk for each large record.
        Returns the key, above `first`, before which the read must stop (the cursor may reach it); None: no limit.
        """
        if tree is None or tree.db.root == NO_PAGE:
            return None
        if tree.db.depth <= 1:
            self.sound(tree, tree.db.root, 1, b"", None)
            return None
        stop, _ = self._span(tree, tree.db.root, 1, b"", None, first, 2 if tree.db.overflows else leaves)
        return stop

    def upcoming(self, tree: Tree | None, first: bytes, size: int) -> None:
        """Have the disk read long data from the key `first` on, at least `size` bytes. Raises PageError.

        Short data came with the check of their leaf.
        """
        if not has_long_data(tree):
            return
        left = 3 * size // (2 * self.page_size) + 1  # the last pages of data are not full
        key: bytes | None = first
        while key is not None and left > 0:
            page, _, key = self._leaf(tree, key)
            for pgno, pages in runs_of(page, search(page, first), self.page_size, self._pages, left):
                self._expect(pgno, pages)
                left -= pages

    def long_data(self, tree: Tree | None, keys: list[bytes], size: int) -> None:
        """Have the disk read the long data of these keys, up to about `size` bytes. Raises PageError."""
        if not has_long_data(tree):
            return
        left = size // self.page_size + 1
        for key in keys:
            page, _, _ = self._leaf(tree, key)
            for pgno, pages in runs_of(page, search(page, key), self.page_size, self._pages, 1):
                self._expect(pgno, pages)
                left -= pages
            if left <= 0:
                return

    def _span(
        self, tree: Tree, pgno: int, level: int, low: bytes, high: bytes | None, first: bytes, left: int
    ) -> tuple[bytes | None, int]:
        """Check `left` leaves below a branch.

        Returns the first key of the last checked leaf, if there were that many, and the remaining number.
        """
        page = self.sound(tree, pgno, level, low, high)
        count = nodes_of(page)
        start = search(page, first)
        if level + 1 >= min(tree.db.depth, DEPTH_MAX):
            end, kind = min(count, start + left), _KINDS[tree.key_size]
            index = next_unknown(page, start, end, self._known, kind)
            self.expect(child_at(page, each) for each in range(index, end))
            while index < end:
                self._child(tree, page, index, level, low, high)
                index = next_unknown(page, index + 1, end, self._known, kind)
            left -= end - start
            return (None if left else key_at(page, end - 1) if end > 1 else low), left
        for index in range(start, count):
            below = key_at(page, index) if index else low
            above = key_at(page, index + 1) if index + 1 < count else high
            stop, left = self._span(tree, child_at(page, index), level + 1, below, above, first, left)
            if not left:
                return stop, 0
        return None, left

    def _child(self, tree: Tree, page: Buffer, index: int, level: int, low: bytes, high: bytes | None) -> Buffer:
        """Return the checked child of a branch's node."""
        below = key_at(page, index) if index else low
        above = key_at(page, index + 1) if index + 1 < nodes_of(page) else high
        return self.sound(tree, child_at(page, index), level + 1, below, above)

    def around(self, tree: Tree | None, key: bytes) -> tuple[bytes, bytes | None]:
        """Check before LMDB removes `key`, which may merge pages with their neighbours. Raises PageError.

        Returns the keys that bound the checked range.
        """
        if tree is None or tree.db.root == NO_PAGE:
            return b"", None
        pgno, low, high = tree.db.root, b"", None
        depth = min(tree.db.depth, DEPTH_MAX)
        for level in range(1, depth):
            page = self.sound(tree, pgno, level, low, high)
            count = nodes_of(page)
            index = search(page, key)
            for each in range(max(index - 1, 0), min(index + 2, count)):
                self._lowest(tree, page, each, level, low, high)
            if index + 1 < count:
                above: bytes | None = key_at(page, index + 1)
            else:
                above = high
            low, high = key_at(page, index) if index else low, above
            pgno = child_at(page, index)
        self.sound(tree, pgno, depth, low, high)
        return low, high

    def _lowest(self, tree: Tree, page: Buffer, index: int, level: int, low: bytes, high: bytes | None) -> None:
        """Check a child, its first child, and so on."""
        depth = min(tree.db.depth, DEPTH_MAX)
        below, above = low, high
        while level < depth:
            if index + 1 < nodes_of(page):
                above = key_at(page, index + 1)
            below = key_at(page, index) if index else below
            child = self.sound(tree, child_at(page, index), level + 1, below, above)
            page, index, level = child, 0, level + 1

    def front(self, tree: Tree | None, entries: int, end: bytes) -> None:
        """Check before LMDB removes the first `entries` entries, all below the key `end`. Raises PageError."""
        if tree is None or tree.db.root == NO_PAGE:
            return
        low, high = self.around(tree, b"")
        while high is not None and high <= end and entries > 0:
            page, low, _ = self._leaf(tree, low)
            entries -= nodes_of(page)
            low, high = self.around(tree, high)

    def all(self, tree: Tree, *, leaves: bool = True) -> int:
        """Check before LMDB reads all of a tree, or (without `leaves`) frees it; return the number of entries.

        Raises PageError.
        """
        return sum(nodes_of(page) for page, _, _ in self.walk(tree, leaves=leaves or tree.db.overflows > 0))

    def walk(
        self,
        tree: Tree,
        on_damage: Callable[[PageError], None] | None = None,
        *,
        leaves: bool = True,
        runs: bool = True,
    ) -> Iterator[tuple[Buffer, bytes, bytes | None]]:
        """Yield every sound leaf of a tree in order, with the keys that bound it.

        Without `leaves` nothing is yielded and only the branches are checked. Without `runs` a leaf is sound whatever
        its overflow pages are: otherwise one damaged run hides all entries of its leaf. Damage is passed to `on_damage`
        and skipped, or raised.
        """

        def below(
            pgno: int, level: int, low: bytes, high: bytes | None
        ) -> Iterator[tuple[Buffer, bytes, bytes | None]]:
            if level > DEPTH_MAX:
                raise PageError(tree.name, pgno, "it is too deep", low, high)
            page = self.sound(tree, pgno, level, low, high, runs=runs)
            if level >= tree.db.depth:
                yield page, low, high
                return
            if not leaves and level + 1 >= tree.db.depth:
                return
            count = nodes_of(page)
            for index in range(count):
                above = key_at(page, index + 1) if index + 1 < count else high
                lower = key_at(page, index) if index else low
                try:
                    yield from below(child_at(page, index), level + 1, lower, above)
                except PageError as error:
                    if on_damage is None:
                        raise
                    on_damage(error)

        if tree.db.root == NO_PAGE:
            return
        try:
            if not 0 < tree.db.depth <= DEPTH_MAX or not 2 <= tree.db.root <= tree.last_pgno:
                raise PageError(tree.name, tree.db.root, "its root is nowhere")
            yield from below(tree.db.root, 1, b"", None)
        except PageError as error:
            if on_damage is None:
                raise
            on_damage(error)
