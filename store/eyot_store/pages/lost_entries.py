"""Searches a data file for streams' entries that the damaged database `streams` no longer leads to.

A stream's messages are of no use without its entry, which has name, account and configuration. The entry is mostly
still in the file: in the damaged page itself, which is only unsound elsewhere, or in a page that is free by now. Its
checksum covers its stream's number, so that it is recognized wherever it lies. A page that is free may hold an entry
from before the configuration was changed.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from eyot_store.errors import StoreError
from eyot_store.page_check import BIG, HEADER_SIZE, WORD
from eyot_store.pages.pages import Pages
from eyot_store.records.record import pack_u64, unseal

#: Of a node: the size of its data in two halves, its flags, the size of its key.
_NODE_HEAD = 8


class LostEntry(NamedTuple):
    """An entry of the database `streams`, as it was stored, and the page where it was found."""

    key: bytes
    sealed: bytes
    pgno: int


def entries_anywhere(data: Path, pages: Pages, streams: Iterable[int], first: int) -> list[LostEntry]:
    """Return an entry for each of `streams` for which the file has a whole one, by stream; in page `first` if there is one."""
    out = []
    with data.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as view:
        for number in sorted(streams):
            found = _of_stream(view, pages, pack_u64(number))
            if found:
                out.append(next((each for each in found if each.pgno == first), found[-1]))
    return out


def _of_stream(view: mmap.mmap, pages: Pages, key: bytes) -> list[LostEntry]:
    out = []
    at = view.find(key)
    while at >= 0:
        if at >= _NODE_HEAD + HEADER_SIZE:
            sealed = _data(view, pages, at)
            with suppress(StoreError):
                unseal(key, sealed, "entry")
                out.append(LostEntry(key, sealed, at // pages.page_size))
        at = view.find(key, at + 1)
    return out


def _data(view: mmap.mmap, pages: Pages, at: int) -> bytes:
    """Return the data of the node whose key of eight bytes is at `at`, if that is a node."""
    low, high, flags, key_size = (
        int.from_bytes(view[place : place + 2], sys.byteorder) for place in range(at - _NODE_HEAD, at, 2)
    )
    size = low | high << 16
    start = at + 8
    if key_size != 8 or flags not in (0, BIG):
        return b""
    if flags & BIG:
        return pages.run(int.from_bytes(view[start : start + WORD], sys.byteorder), size)
    return view[start : start + size] if size <= pages.page_size else b""
