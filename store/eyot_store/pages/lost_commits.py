"""What a data file still shows of commits that no meta page leads to: how far each stream had come.

A store that goes back by a commit must not give the sequences of that commit again. Its pages are still in the file,
also where the page with a stream's counters is the damaged one: records bear the checksum of their stream and sequence.
Both searches read the whole file, and both may find what was staged and never committed: then sequences are left out,
which costs nothing.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from eyot_store.errors import StoreError
from eyot_store.native import check_page, data_at, is_branch, key_at, nodes_of
from eyot_store.page_check import SUBTREE, Buffer
from eyot_store.pages.errors import PageError
from eyot_store.pages.layout import EMPTY, NO_PAGE, SEQUENCE_KEY, Tree
from eyot_store.pages.pages import Pages
from eyot_store.records.record import Counters, seq_of, unseal
from eyot_store.records.record_owners import RecordOwners

_COUNTERS = b":counters"
_decode_counters = msgspec.msgpack.Decoder(Counters).decode
#: More messages than one commit holds. A record further above a stream's end has its checksum by chance.
_COMMIT_MAX = 1 << 24


def raise_to(last_seqs: dict[int, int], others: Mapping[int, int]) -> None:
    """Raise each stream's last sequence to the one in `others`."""
    for number, last_seq in others.items():
        last_seqs[number] = max(last_seqs.get(number, 0), last_seq)


def counted_anywhere(data: Path) -> dict[int, int]:
    """Return each stream's highest last sequence in any readable counters of the file."""
    out: dict[int, int] = {}
    with data.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as view:
        at = view.find(_COUNTERS)
        while at >= 0:
            start, end = at - 15, at + len(_COUNTERS)
            key = view[max(start, 0) : end]
            size = int.from_bytes(view[max(start - 8, 0) : max(start - 6, 0)], sys.byteorder)
            with suppress(StoreError, msgspec.MsgspecError, ValueError):
                counters = _decode_counters(unseal(key, view[end : end + size], "counters"))
                raise_to(out, {int(key[7:15], 16): counters.last_seq})
            at = view.find(_COUNTERS, at + 1)
    return out


def stored_anywhere(pages: Pages, last_seqs: Mapping[int, int]) -> dict[int, int]:
    """Return the highest sequence of these streams on any sound leaf of the file, where it is above `last_seqs`.

    A leaf is a stream's where one of its records is whole for that stream.
    """
    out: dict[int, int] = {}
    last_pgno = pages.file_size() // pages.page_size - 1
    anywhere = Tree("file", EMPTY, SEQUENCE_KEY, last_pgno)
    owners = RecordOwners(last_seqs)
    lowest = min(last_seqs.values(), default=NO_PAGE)
    for pgno in range(2, last_pgno + 1):
        try:
            page = pages.read(pgno)
            if check_page(page, pgno, last_pgno, SEQUENCE_KEY) < 0 or is_branch(page):
                continue
        except PageError:
            continue
        above: list[int] = []  # descending, since keys ascend
        for index in range(nodes_of(page) - 1, -1, -1):
            key = key_at(page, index)
            if seq_of(key) <= lowest:
                break
            if data_at(page, index)[0] & SUBTREE:
                continue
            above.append(seq_of(key))
            number = _owner(owners, pages, anywhere, page, index)
            if number is not None:
                reached = (seq for seq in above if 0 < seq - last_seqs[number] < _COMMIT_MAX)
                raise_to(out, {number: next(reached, 0)})
                break
    return {number: seq for number, seq in out.items() if seq}


def _owner(owners: RecordOwners, pages: Pages, tree: Tree, page: Buffer, index: int) -> int | None:
    try:
        return owners.owner(key_at(page, index), pages.data(tree, page, index))
    except PageError:
        return None  # its overflow pages are damaged, but its sequence is known
