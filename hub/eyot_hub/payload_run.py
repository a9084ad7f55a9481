"""The work on every byte of a batch of payloads, in plain Python.

Payloads come as Arrow has them: the bytes of all, one after the other, and where each begins (and the last one ends).
`native.py` chooses between this and the compiled twin.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

#: Kinds of values that a JsonScanner reads.
TEXT: Final = 0
DOUBLE: Final = 1
INTEGER: Final = 2
BOOLEAN: Final = 3

Offsets = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]
Slots = npt.NDArray[np.int64]


def hash_payloads(offsets: Offsets, data: Bytes, found: npt.NDArray[np.uint64]) -> None:
    """Set `found` to 64 bits of BLAKE2b of each payload."""
    digest, whole, at = hashlib.blake2b, data.tobytes(), offsets.tolist()
    digests = [digest(whole[begin:end], digest_size=8).digest() for begin, end in pairwise(at)]
    found[:] = np.frombuffer(b"".join(digests), "<u8")


class JsonScanner:
    """Reads fields of plain JSON without making objects of them.

    Payloads that are not plain are left to the decoder, which decides on them: those with escapes or repetitions in
    declared fields, with numbers of many digits, of another type, or of no JSON. The plain twin leaves all.
    """

    def __init__(self, paths: Sequence[tuple[bytes, ...]], kinds: Sequence[int]) -> None:
        """Create a scanner of the fields with these paths and kinds."""
        self._fields = list(zip(paths, kinds, strict=True))

    def scan(self, offsets: Offsets, data: Bytes, slots: Slots, present: Bytes, odd: Bytes) -> None:
        """Set row by row what each field has: `slots[field, row]` where `present[field, row]`; mark the rows left as `odd`.

        A slot is an integer, the bits of a double, 0 or 1, or of a text its place in the payload (upper half) and its size.
        All rows of `present` and `odd` are 0 at first.
        """
        odd[:] = 1


def copy_texts(slots: Slots, begins: Offsets, data: Bytes, offsets: Offsets, texts: Bytes) -> None:
    """Copy the text that each row's slot names from `data`, where payloads begin at `begins`, to `offsets` in `texts`."""
    for row, slot in enumerate(slots.tolist()):
        size = int(offsets[row + 1] - offsets[row])
        at = int(begins[row]) + (slot >> 32)
        texts[offsets[row] : offsets[row] + size] = data[at : at + size]
