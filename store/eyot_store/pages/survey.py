"""A survey of a data file, made without LMDB before LMDB opens it: which snapshot is usable, and which trees are damaged.

It reads both meta pages, the list of free pages, the shared databases, and each stream's branches (which name every
leaf): about a hundredth of the file. Leaves are checked when they are first read, or at once in a small file.
"""

from __future__ import annotations

from struct import Struct

from eyot_store.errors import StoreError
from eyot_store.native import COMPILED, child_at, data_at, is_branch, key_at, mark_children, nodes_of
from eyot_store.page_check import ANY_KEY, BIG, SUBTREE, WORD, Buffer
from eyot_store.pages.errors import PageError
from eyot_store.pages.layout import NO_PAGE, SEQUENCE_KEY, Meta, Tree, db_of, tree_name
from eyot_store.pages.pages import Pages
from eyot_wire.quantities import counted

MESSAGES = b"stream:"
DELETED_STREAMS = b"trash:"
"""Before the number of a deleted stream whose messages are still there."""
STREAMS = b"streams"
SHARED = (STREAMS, b"consumers", b"consumer_states", b"positions")
INDEX = b"subjects"
LEAVES_MAX = 16_384 if COMPILED else 2_048
"""Largest file, in pages, that is checked as a whole when it is opened: some 30 ms."""
_TOGETHER = 1024
"""Pages that the disk is asked for at once, some more with the leaves of one branch."""

_numbers = Struct("=Q" if WORD == 8 else "=I")
_word = _numbers.unpack_from


class Survey:
    """The survey of one snapshot.

    `streams`: damaged streams, by the number in their database's name; `shared`: other damaged databases; `free`:
    why the list of free pages cannot be trusted.
    """

    def __init__(self, meta: Meta) -> None:
        self.meta = meta
        self.values: dict[bytes, bytes] = {}  # entries of the main database other than databases
        self.trees: dict[bytes, Tree] = {}
        self.main: PageError | None = None
        self.shared: dict[bytes, PageError] = {}
        self.streams: dict[int, PageError] = {}
        self.free = ""
        self.free_pages = bytearray(0)  # by page: 1 if the list of free pages names it; empty if the list is damaged

    @property
    def stored(self) -> set[int]:
        """The streams that have messages or had some, but for deleted ones: each must have an entry."""
        return {number for name in self.trees if (number := stream_number(name))} - set(
            map(deleted_number, self.values)
        )

    @property
    def is_usable(self) -> bool:
        """Return whether the shared databases are sound, except for replaceable ones."""
        return self.main is None and not any(name in self.shared for name in SHARED)


def stream_number(name: bytes) -> int:
    """Return the stream whose messages a database holds; 0: none."""
    return _number_after(MESSAGES, name)


def deleted_number(name: bytes) -> int:
    """Return the deleted stream that a key marks; 0: none."""
    return _number_after(DELETED_STREAMS, name)


def _number_after(prefix: bytes, name: bytes) -> int:
    try:
        return int(name[len(prefix) :], 16) if name.startswith(prefix) else 0
    except ValueError:
        return 0


def survey(pages: Pages, meta: Meta, *, leaves: bool | None = None) -> Survey:
    """Survey a snapshot. `leaves`: check every page; None: only in a small file."""
    return _Surveyor(pages, meta, meta.last_pgno <= LEAVES_MAX if leaves is None else leaves).run()


class _Surveyor:
    def __init__(self, pages: Pages, meta: Meta, leaves: bool) -> None:
        self._pages = pages
        self._meta = meta
        self._leaves = leaves
        self._out = Survey(meta)
        self._seen = bytearray(0)
        self._twice: set[int] = set()

    def run(self) -> Survey:
        out, meta = self._out, self._meta
        try:
            if meta.last_pgno >= 1 << 40 or meta.last_pgno * meta.page_size > 4 * self._pages.file_size() + (1 << 30):
                raise PageError("main database", meta.last_pgno, "the file is nowhere near that long")
            self._seen = bytearray(meta.last_pgno + 1)
            for page in self._whole(meta.main_tree):
                self._main_leaf(page)
        except PageError as error:
            out.main = error
            return out
        for name, tree in out.trees.items():
            if not stream_number(name):
                try:
                    for _ in self._whole(tree):
                        pass
                except PageError as error:
                    out.shared[name] = error
        streams = [(number, tree) for name, tree in out.trees.items() if (number := stream_number(name))]
        for first in range(0, len(streams), _TOGETHER):
            self._streams(streams[first : first + _TOGETHER])
        self._shared_pages()
        out.free = self._free_list()
        return out

    def _main_leaf(self, page: Buffer) -> None:
        for index in range(nodes_of(page)):
            name = key_at(page, index)
            flags, _, at = data_at(page, index)
            if flags & SUBTREE:
                key_size = SEQUENCE_KEY if stream_number(name) else ANY_KEY
                self._out.trees[name] = Tree(tree_name(name), db_of(page, at), key_size, self._meta.last_pgno)
            else:
                self._out.values[name] = self._pages.data(self._meta.main_tree, page, index)

    def _whole(self, tree: Tree) -> list[Buffer]:
        """Return all leaves of a tree that is checked completely; their number must equal its counter."""
        self._mark_root(tree)
        self._mark_branches(tree)
        found, entries = [], 0
        for page, _, _ in self._pages.walk(tree):
            found.append(page)
            entries += nodes_of(page)
            self._mark_runs(tree, page)
        if entries != tree.db.entries:
            raise PageError(
                tree.name, tree.db.root, f"it holds {counted(entries, 'record')} and counts {tree.db.entries:,}"
            )
        return found

    def _streams(self, streams: list[tuple[int, Tree]]) -> None:
        """Survey some streams, step by step: the disk reads what a step needs for all of them together."""
        self._pages.expect(tree.db.root for _, tree in streams)
        damaged = self._out.streams
        for step in (self._branches_of_stream, self._leaves_of_stream):
            for number, tree in streams:
                if number not in damaged:
                    try:
                        step(tree)
                    except PageError as error:
                        damaged[number] = error

    def _branches_of_stream(self, tree: Tree) -> None:
        self._mark_root(tree)
        self._mark_branches(tree, whole=self._leaves)

    def _leaves_of_stream(self, tree: Tree) -> None:
        if self._leaves:
            self._whole_stream(tree)
        else:
            self._pages.ends(tree)

    def _whole_stream(self, tree: Tree) -> None:
        entries = 0
        for page, _, _ in self._pages.walk(tree):
            entries += nodes_of(page)
            if tree.db.overflows:
                self._mark_runs(tree, page)
        if entries != tree.db.entries:
            raise PageError(
                tree.name, tree.db.root, f"it holds {counted(entries, 'message')} and counts {tree.db.entries:,}"
            )

    # -- which page belongs to which tree ----------------------------------------------------------------------------------

    def _mark_root(self, tree: Tree) -> None:
        root = tree.db.root
        if root == NO_PAGE:
            if tree.db.entries or tree.db.depth:
                raise PageError(tree.name, root, "it has no root")
            return
        if not 2 <= root <= tree.last_pgno:
            raise PageError(tree.name, root, "its root is nowhere")
        if self._seen[root]:
            self._twice.add(root)
        self._seen[root] = 1

    def _mark_branches(self, tree: Tree, *, whole: bool = True) -> None:
        """Check all branches; the disk then reads the leaves that come next: the first and the last one, or (`whole`) as many as it may."""
        level: list[tuple[int, bytes, bytes | None]] = [(tree.db.root, b"", None)] if tree.db.root != NO_PAGE else []
        below: list[tuple[int, bytes, bytes | None]]
        leaves: list[int] = []
        for depth in range(1, tree.db.depth):
            below = []
            for place, (pgno, low, high) in enumerate(level):
                if place % _TOGETHER == 0:
                    self._pages.expect(expected for expected, _, _ in level[place : place + _TOGETHER])
                page = self._pages.sound(tree, pgno, depth, low, high)
                twice = mark_children(page, self._seen)
                if twice:
                    self._twice.add(twice)
                count = nodes_of(page)
                if depth + 1 < tree.db.depth:
                    below += [
                        (
                            child_at(page, index),
                            key_at(page, index) if index else low,
                            key_at(page, index + 1) if index + 1 < count else high,
                        )
                        for index in range(count)
                    ]
                elif whole and len(leaves) < _TOGETHER:
                    leaves += [child_at(page, index) for index in range(count)]
                elif not whole:
                    leaves += [child_at(page, 0)] if place == 0 else []
                    leaves += [child_at(page, count - 1)] if place == len(level) - 1 else []
            level = below
        self._pages.expect(leaves)

    def _mark_runs(self, tree: Tree, page: Buffer) -> None:
        for index in range(nodes_of(page)):
            flags, size, at = data_at(page, index)
            if flags & BIG:
                first = _word(page, at)[0]
                for pgno in range(first, first + self._pages.check_run(tree, key_at(page, index), first, size)):
                    if self._seen[pgno]:
                        self._twice.add(pgno)
                    self._seen[pgno] = 1

    def _shared_pages(self) -> None:
        """Find pages that two trees, or two places of one tree, refer to: their owner is unknown."""
        if not self._twice:
            return
        out = self._out
        for name, tree in out.trees.items():
            for pgno, low, high in self._pages_of(tree):
                if pgno in self._twice:
                    error = PageError(tree.name, pgno, "another place leads to it, too", low, high)
                    number = stream_number(name)
                    if number:
                        out.streams.setdefault(number, error)
                    else:
                        out.shared.setdefault(name, error)
        for pgno, _, _ in self._pages_of(self._meta.main_tree):
            if pgno in self._twice:
                out.main = PageError("main database", pgno, "another place leads to it, too")

    def _pages_of(self, tree: Tree) -> list[tuple[int, bytes, bytes | None]]:
        found: list[tuple[int, bytes, bytes | None]] = []
        todo: list[tuple[int, int, bytes, bytes | None]] = []
        if tree.db.root != NO_PAGE:
            todo.append((tree.db.root, 1, b"", None))
        while todo:
            pgno, level, low, high = todo.pop()
            found.append((pgno, low, high))
            if level >= tree.db.depth:
                continue
            try:
                page = self._pages.sound(tree, pgno, level, low, high)
            except PageError:
                continue
            if not is_branch(page):
                continue
            count = nodes_of(page)
            for index in range(count):
                above = key_at(page, index + 1) if index + 1 < count else high
                todo.append((child_at(page, index), level + 1, key_at(page, index) if index else low, above))
        return found

    # -- free pages
    # --------------------------------------------------------------------------------------------------------

    def _free_list(self) -> str:
        tree, last_pgno = self._meta.free_tree, self._meta.last_pgno
        try:
            self._mark_root(tree)
            self._mark_branches(tree)
            free = bytearray(last_pgno + 1)
            entries = 0
            for page, _, _ in self._pages.walk(tree):
                entries += nodes_of(page)
                self._mark_runs(tree, page)
                for index in range(nodes_of(page)):
                    self._free_record(tree, page, index, free)
            if entries != tree.db.entries:
                return f"it holds {counted(entries, 'record')} and counts {tree.db.entries:,}"
        except PageError as error:
            return f"page {error.pgno}: {error.why}"
        except StoreError as error:
            return error.message
        both = int.from_bytes(free, "little") & int.from_bytes(self._seen, "little")
        if both:
            return f"page {((both & -both).bit_length() - 1) // 8} is in use"
        self._out.free_pages = free
        return ""

    def _free_record(self, tree: Tree, page: Buffer, index: int, free: bytearray) -> None:
        txnid = _word(key_at(page, index))[0]
        data = self._pages.data(tree, page, index)
        count = _word(data)[0] if len(data) >= WORD else -1
        if not 0 < txnid <= self._meta.txnid or len(data) != WORD * (count + 1):
            raise StoreError("corrupt", f"entry {txnid} does not fit")
        before = self._meta.last_pgno + 1
        for (pgno,) in _numbers.iter_unpack(data[WORD:]):
            if not 2 <= pgno < before or free[pgno]:
                raise StoreError("corrupt", f"entry {txnid} lists a page that cannot be free")
            free[pgno] = 1
            before = pgno
