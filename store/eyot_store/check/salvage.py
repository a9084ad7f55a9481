"""What can still be read of damaged streams.

Of the old pages only checksummed data is trusted: a record counts when its checksum fits its stream and sequence, even
in a page that is damaged elsewhere.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from operator import itemgetter

from eyot_store.native import key_at, nodes_of
from eyot_store.page_check import BIG, HEADER_SIZE, WORD, Buffer
from eyot_store.pages.errors import PageError
from eyot_store.pages.layout import Tree
from eyot_store.pages.pages import Pages
from eyot_store.records.record import Counters, is_whole, pack_u64, salt_of, seq_of
from eyot_store.records.record_owners import RecordOwners
from eyot_wire.quantities import counted

_ORDER = sys.byteorder
_ABOVE_ALL = b"\xff" * 9
_BRANCH, _LEAF, _OVERFLOW = 1, 2, 4  # flags of a page
Entries = dict[bytes, bytes]
Spans = list[tuple[bytes, bytes]]
"""Keys from the first of a pair to below the second."""


class Salvage:
    """The readable records of one stream."""

    def __init__(self, pages: Pages, tree: Tree, stream_id: int) -> None:
        #: Whether the whole file was searched for this stream.
        self._whole_file = False
        self._unled: list[int] = []  # sequences in pages that nothing leads to
        #: Pages that were searched for one damage, and how deep: what looks like a way to them is found in many places.
        self._searched: dict[int, int] = {}
        self._pages = pages
        self._tree = tree
        self._salt = salt_of(stream_id)
        self._found: Entries = {}
        self._damages: list[PageError] = []
        #: Spans of sequences that `lost` found missing.
        self.gone: list[tuple[int, int]] = []

    def read_tree(self) -> None:
        """Read what the stream's pages lead to, and whole records in the damaged ones."""
        for page, _, _ in self._pages.walk(self._tree, self._damages.append, runs=False):
            for index, at in enumerate(_node_offsets(page, HEADER_SIZE, HEADER_SIZE + 2 * nodes_of(page))):
                key = key_at(page, index)
                try:
                    self._found[key] = self._pages.data(self._tree, page, index)
                except PageError as error:
                    self._damages.append(error)
                    self._take(page, at, [(key, key + b"\0")])
        for damage in self._damages:
            self._searched = {}
            self._raw(damage.pgno, [(damage.low, damage.high or _ABOVE_ALL)], 3)

    def missing_from(self, floor: int) -> Spans:
        """Return the keys that the damaged parts held, without those of sequences below `floor`."""
        lowest = pack_u64(floor)
        return _merged([(max(damage.low, lowest), damage.high or _ABOVE_ALL) for damage in self._damages])

    def take_unled(self, records: Entries) -> None:
        """Add records that were found in the whole file."""
        self._whole_file = True
        self._unled = sorted(seq_of(key) for key in records.keys() - self._found.keys())
        self._found = {**records, **self._found}

    def entries(self) -> Entries:
        """Return keys and records, ascending."""
        return dict(sorted(self._found.items()))

    def lost(self, counters: Counters, error: PageError) -> list[str]:
        """Describe the recovered and the lost sequences; those below the counters' floor do not count.

        The counters' messages are negative where the number is not known.
        """
        out = []
        if self._unled:
            out.append(f"sequences {_shown(_spans(self._unled))} are recovered from pages that nothing leads to")
        expected = counters.messages
        live = sum(1 for key in self._found if seq_of(key) >= counters.floor)
        if (self._whole_file and live == expected) or (not self._damages and live >= expected >= 0):
            return out  # every message is there; the other sequences held none
        if self._whole_file and expected >= 0:
            more = f"{counted(live - expected, 'message')} more than counted: removed ones are back"
            out.append(f"gone: {counted(expected - live, 'message')}" if live < expected else more)
        return out + self._lost_spans(counters, error)

    def _lost_spans(self, counters: Counters, error: PageError) -> list[str]:
        """Describe the sequences without a message in the damaged parts."""
        end, first = counters.last_seq + 1, max(counters.floor, 1)
        seqs = sorted(seq_of(key) for key in self._found)
        spans: list[tuple[int, int]] = []
        for damage in self._damages:
            low = max(_first_at(damage.low), first)
            high = min(_first_at(damage.high), end) if damage.high is not None else end
            spans += _gaps(seqs[bisect_left(seqs, low) : bisect_left(seqs, high)], low, high)
        out = []
        if spans:
            self.gone = sorted(spans)
            out.append(f"sequences {_shown(self.gone)} are lost, as far as they held messages")
        if not self._damages:
            missing = _gaps(seqs[bisect_left(seqs, first) :], first, end)
            self.gone = missing
            out.append(f"{error.why}: of the sequences without a message, {_shown(missing)}, some are lost")
        return out

    def _raw(self, pgno: int, spans: Spans, depth: int) -> None:
        """Take whole records of a damaged page, and of the pages that it seems to lead to."""
        if self._searched.get(pgno, -1) >= depth:
            return
        self._searched[pgno] = depth
        try:
            page = self._pages.read(pgno)
        except PageError:
            return
        for at in _anywhere(page):
            keyed = int.from_bytes(page[at + 6 : at + 8], _ORDER)
            if keyed == 8:
                self._take(page, at, spans)
            if depth and keyed in (0, 8) and page[at + 4 : at + 6] == b"\0\0":
                child = int.from_bytes(page[at : at + 4], _ORDER)
                if 2 <= child <= self._tree.last_pgno and child != pgno and self._leads_to(child):
                    self._raw(child, spans, depth - 1)

    def _take(self, page: Buffer, at: int, spans: Spans) -> None:
        found = _record_at(self._pages, page, at)
        if found is None or found[0] in self._found or not _in_spans(found[0], spans):
            return
        key, record = found
        if is_whole(self._salt, key, record):
            self._found[key] = record

    def _leads_to(self, child: int) -> bool:
        """Return whether it is a page of a tree, by its own word."""
        try:
            page = self._pages.read(child)
        except PageError:
            return False
        flags = int.from_bytes(page[WORD + 2 : WORD + 4], _ORDER)
        return flags in (1, 2) and int.from_bytes(page[:WORD], _ORDER) == child


def read_whole_file(
    pages: Pages, last_pgno: int, free: bytearray, salvaged: Mapping[int, Salvage], floors: Mapping[int, int]
) -> None:
    """Search every page that may be a leaf for records of damaged streams; one pass for all of them.

    `free`: by page, 1 if it is free; empty if that is not known. `floors`: sequences that streams do not look for are below.
    """
    spans = {each: wanted for each, one in salvaged.items() if (wanted := one.missing_from(floors[each]))}
    found: dict[int, Entries] = {each: {} for each in spans}
    owners = RecordOwners(spans)
    for key, record in _records_of_file(pages, last_pgno, free) if spans else ():
        owner = owners.owner(key, record)
        if owner is not None and _in_spans(key, spans[owner]):
            found[owner].setdefault(key, record)
    for each, records in found.items():
        salvaged[each].take_unled(records)


def _records_of_file(pages: Pages, last_pgno: int, free: bytearray) -> Iterator[tuple[bytes, bytes]]:
    """Yield what looks like a record with its key, of all pages that are not known to hold none."""
    pgno = 2
    while pgno <= last_pgno:
        further = 1
        if not (free and free[pgno]):
            try:
                page = pages.read(pgno)
            except PageError:
                page = b""
            number, flags = int.from_bytes(page[:WORD], _ORDER), int.from_bytes(page[WORD + 2 : WORD + 4], _ORDER)
            if number == pgno and flags == _OVERFLOW:
                run = int.from_bytes(page[WORD + 4 : WORD + 8], _ORDER)
                further = run if 0 < run <= last_pgno + 1 - pgno else 1
            elif not (number == pgno and flags == _BRANCH):
                for at in _places(page, pgno):
                    if (record := _record_at(pages, page, at)) is not None:
                        yield record
        pgno += further


def _places(page: Buffer, pgno: int) -> Iterator[int] | list[int]:
    """Return where records may begin in a page that may be a leaf."""
    number, flags = int.from_bytes(page[:WORD], _ORDER), int.from_bytes(page[WORD + 2 : WORD + 4], _ORDER)
    lower = int.from_bytes(page[WORD + 4 : WORD + 6], _ORDER)
    if number == pgno and flags == _LEAF and HEADER_SIZE < lower <= len(page):
        return _node_offsets(page, HEADER_SIZE, lower)
    if page == bytes(len(page)):  # zeros: the file was cut here, and grew again
        return []
    return _ascending(page) or _anywhere(page)


def _record_at(pages: Pages, page: Buffer, at: int) -> tuple[bytes, bytes] | None:
    """Return key and value at an offset of a page that looks like an entry of a stream there."""
    flags = int.from_bytes(page[at + 4 : at + 6], _ORDER)
    key = bytes(page[at + 8 : at + 16])
    if flags not in (0, BIG) or len(key) < 8 or int.from_bytes(page[at + 6 : at + 8], _ORDER) != 8:
        return None
    size = int.from_bytes(page[at : at + 2], _ORDER) | int.from_bytes(page[at + 2 : at + 4], _ORDER) << 16
    if flags & BIG:
        record = pages.run(int.from_bytes(page[at + 16 : at + 16 + WORD], _ORDER), size)
    else:
        record = bytes(page[at + 16 : at + 16 + size])
    return (key, record) if len(record) == size else None


def _merged(spans: Spans) -> Spans:
    """Return the same keys in spans that ascend and are apart."""
    out: Spans = []
    for low, high in sorted(spans):
        if out and low <= out[-1][1]:
            out[-1] = out[-1][0], max(out[-1][1], high)
        elif low < high:
            out.append((low, high))
    return out


def _in_spans(key: bytes, spans: Spans) -> bool:
    """Return whether one of the spans holds the key; they ascend and are apart."""
    at = bisect_right(spans, key, key=itemgetter(0)) - 1
    return at >= 0 and key < spans[at][1]


def _anywhere(page: Buffer) -> Iterator[int]:
    """Yield every place where the entries of a page may begin."""
    return iter(range(HEADER_SIZE, len(page) - 7, 2))


def _node_offsets(page: Buffer, first: int, end: int) -> list[int]:
    """Return where the messages of a leaf begin, by its list of them at [first, end).

    A page that is searched without the list gives messages that were removed from it, too.
    """
    places = range(first, min(end, len(page)) - 1, 2)
    return [int.from_bytes(page[place : place + 2], _ORDER) for place in places]


def _ascending(page: Buffer) -> list[int]:
    """Return where the messages of a leaf begin whose header is damaged: its list, as far as the keys ascend."""
    out: list[int] = []
    before = b""
    for at in _node_offsets(page, HEADER_SIZE, len(page)):
        key = bytes(page[at + 8 : at + 16])
        if at <= HEADER_SIZE + 2 * len(out) or int.from_bytes(page[at + 6 : at + 8], _ORDER) != 8 or not before < key:
            break
        out.append(at)
        before = key
    return out


def _first_at(key: bytes) -> int:
    """Return the first sequence whose key is not below `key`, which may be shorter than a message's key, or longer."""
    return seq_of(key[:8].ljust(8, b"\0")) + (len(key) > 8)


def _gaps(seqs: list[int], first: int, end: int) -> list[tuple[int, int]]:
    """Return the spans of [first, end) that `seqs` leave open."""
    out = []
    at = first
    for seq in seqs:
        if seq > at:
            out.append((at, seq - 1))
        at = seq + 1
    if at < end:
        out.append((at, end - 1))
    return out


def _spans(seqs: list[int]) -> list[tuple[int, int]]:
    """Return the spans of sequences, which ascend."""
    out: list[tuple[int, int]] = []
    for seq in seqs:
        out[-1:] = [(out[-1][0], seq)] if out and out[-1][1] == seq - 1 else [*out[-1:], (seq, seq)]
    return out


def _shown(spans: list[tuple[int, int]]) -> str:
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in spans) or "none"
