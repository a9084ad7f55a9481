"""Payloads of packed replies, with any content of their records."""

from __future__ import annotations

import struct
from collections.abc import Sequence


def pack(items: Sequence[tuple[int, bytes]]) -> bytes:
    """(sequence, record) each."""
    count = len(items)
    keys = struct.pack(f">{count}Q", *(seq for seq, _ in items))
    lengths = struct.pack(f"<{count}I", *(len(record) for _, record in items))
    return keys + lengths + b"".join(record for _, record in items)
