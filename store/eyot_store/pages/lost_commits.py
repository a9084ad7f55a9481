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
from zlib import crc32

import msgspec

from eyot_store.errors import StoreError
from eyot_store.native import check_page, data_at, is_branch, key_at, nodes_of
from eyot_store.page_check import SUBTREE
from eyot_store.pages.errors import PageError
from eyot_store.pages.layout import EMPTY, NO_PAGE, SEQUENCE_KEY, Tree
from eyot_store.pages.pages import Pages
from eyot_store.records.record import CRC_RESIDUE, Counters, salt_of, seq_of, unseal

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
    """Return the highest sequence of any whole record of these streams on any sound leaf of the file, where it is above `last_seqs`."""
    out: dict[int, int] = {}
    last_pgno = pages.file_size() // pages.page_size - 1
    anywhere = Tree("file", EMPTY, SEQUENCE_KEY, last_pgno)
    owners = _Owners(last_seqs)
    lowest = min(last_seqs.values(), default=NO_PAGE)
    for pgno in range(2, last_pgno + 1):
        with suppress(PageError):
            page = pages.read(pgno)
            if check_page(page, pgno, last_pgno, SEQUENCE_KEY) < 0 or is_branch(page):
                continue
            # Keys ascend: the last record that is whole says it for the page.
            for index in range(nodes_of(page) - 1, -1, -1):
                key = key_at(page, index)
                if seq_of(key) <= lowest:
                    break
                if data_at(page, index)[0] & SUBTREE:
                    continue
                number = owners.owner(key, pages.data(anywhere, page, index))
                if number is not None:
                    if 0 < seq_of(key) - last_seqs[number] < _COMMIT_MAX:
                        raise_to(out, {number: seq_of(key)})
                    break
    return out


class _Owners:
    """Tells the stream of a record by its checksum, in one pass for all streams.

    CRC-32 is linear: what a stream's salt does to the checksum depends on the length of what follows alone. So for each
    length there is a table from that difference to the stream.
    """

    def __init__(self, streams: Mapping[int, int]) -> None:
        self._salts = {number: salt_of(number) for number in streams}
        self._by_length: dict[int, dict[int, int]] = {}

    def owner(self, key: bytes, value: bytes) -> int | None:
        """Return the stream for which the record under `key` is whole; None: none of these."""
        length = len(key) + len(value)
        table = self._by_length.get(length)
        if table is None:
            zeros = bytes(length)
            plain = crc32(zeros)
            table = self._by_length[length] = {
                crc32(zeros, salt) ^ plain: number for number, salt in self._salts.items()
            }
        return table.get(crc32(value, crc32(key)) ^ CRC_RESIDUE)
