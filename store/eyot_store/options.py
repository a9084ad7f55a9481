"""Settings for opening a store."""

from __future__ import annotations

import sys
from typing import Literal

import msgspec

from eyot_store.records.store_cipher import StoreKeys

_64_BIT = sys.maxsize > 1 << 32

MIB = 1 << 20


class StoreOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes in bytes. The defaults are meant for a gateway; only `committer` changes what is on disk, and can be changed at every start."""

    map_size: int = 8 * MIB
    """Size of a new data file, bytes. It grows by itself, an eighth at a time."""
    map_size_max: int = (1 << 40) if _64_BIT else 1024 * MIB
    """Largest size of the map, bytes; beyond that: StoreError("full"). The map's present size is reserved in the address space."""
    map_reserve: int = 4 * MIB
    """The end of the data file: allocated on the disk like the rest, but only removals, deletions, consumers' states and
    positions may use it, so that room can be made on a full disk."""
    max_streams: int = 4096
    """Streams on disk at a time (each is an LMDB database; a slot costs some 100 bytes)."""
    backlog_bytes_soft: int = 32 * MIB
    """Staged and not yet committed bytes above which `Store.congested` asks callers to hold back."""
    backlog_bytes_hard: int = 128 * MIB
    """Uncommitted bytes above which `Store.submit` refuses a transaction: StoreError("busy")."""
    backlog_txns_soft: int = 16384
    backlog_txns_hard: int = 65536
    committer: Literal["journal", "lmdb"] = "journal"
    """`journal`: one flush a group into a journal, LMDB brought up to date behind it. `lmdb`: LMDB alone."""
    journal_segment_bytes: int = 4 * MIB
    """A file of the journal; a multiple of 4 KiB. LMDB is brought up to date when one is full."""
    journal_segments: int = 4
    """How many files it may have: made when they are needed, allocated and written ahead."""
    keys: StoreKeys | None = None
    """Encrypt the store. A store that is not encrypted yet is rewritten when it is opened."""
    skip_unreadable: bool = False
    """Open a store whose journal the disk does not give in full: what is missing is counted as lost. For eyot-check --repair."""
    inline: bool = False
    """No committing thread: nothing is committed until `Store.commit_now()`. For deterministic simulation."""
    flush: bool = True
    """False gives up durability (no fdatasync). For simulation only, where a crash is of the process, not of the machine."""
