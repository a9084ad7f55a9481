"""Converts the header blocks of a read to Arrow columns: a map of all headers, and header lines for lookups by name.

The blocks are copied into one contiguous text. Its line feeds and colons, found with numpy, give begin and end of all
names and values at once. A block that violates ADR-4, a repeated name, or text that is not UTF-8 sends the whole read
through the plain parser, which is slower and gives the same result.

Repeated values of one name are joined with ", " (RFC 9110, section 5.3). A malformed block is kept whole under the name
"", so that nothing is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eyot_hub.frame_columns import Ints, Rows, slices
from eyot_wire import headers as wire_headers

MAP_TYPE: Final = pa.map_(pa.string(), pa.string())

_LF: Final = np.uint8(10)
_COLON: Final = np.uint8(58)
_BLANKS: Final = np.frombuffer(b" \t", dtype=np.uint8)


@dataclass(slots=True)
class HeaderLines:
    """All header lines of a read: row, name and value of each."""

    row: Ints
    names: pa.StringArray
    values: pa.StringArray


def header_lines(data: pa.Buffer, rows: Rows) -> HeaderLines | None:
    """Return the header lines of all rows, in order; None when no row has a header."""
    if not len(rows) or not (rows.header_end > rows.header_start).any():
        return None
    blocks = slices(data, rows.header_start, rows.header_end)
    try:
        lines = _lines(blocks)
    except pa.ArrowInvalid:
        lines = None
    return lines if lines is not None else _lines_one_by_one(blocks)


def header_map(lines: HeaderLines, headed: npt.NDArray[np.bool_]) -> pa.MapArray:
    """Return a map of name to value for each row; null for rows that are not `headed`."""
    counts = np.bincount(lines.row, minlength=len(headed))
    if np.max(counts, initial=0) > 1:
        code = lines.names.dictionary_encode()
        keys = lines.row * max(len(code.dictionary), 1) + code.indices.to_numpy()
        if len(np.unique(keys)) < len(keys):
            return _merged_map(lines, headed)
    offsets = np.zeros(len(headed) + 1, dtype=np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pa.MapArray.from_arrays(pa.array(offsets), lines.names, lines.values, type=MAP_TYPE, mask=pa.array(~headed))


def _lines(blocks: pa.BinaryArray) -> HeaderLines | None:
    """Parse all blocks at once; None unless all of them have the usual form. Raises ArrowInvalid for text that is not UTF-8."""
    offsets = np.frombuffer(blocks.buffers()[1], dtype=np.int32)[: len(blocks) + 1].astype(np.int64)
    text = blocks.buffers()[2]
    octets = np.frombuffer(text, dtype=np.uint8)[: offsets[-1]]
    ends = offsets[1:][offsets[1:] > offsets[:-1]]
    if (octets[ends - 1] != _LF).any():
        return None
    feeds = np.flatnonzero(octets == _LF)
    begin = np.concatenate((np.zeros(1, dtype=np.int64), feeds[:-1] + 1))
    row = np.searchsorted(offsets, begin, side="right") - 1
    keep = (begin != offsets[row]) & (feeds - begin > 1)
    begin, end, row = begin[keep], feeds[keep] - 1, row[keep]
    colons = np.flatnonzero(octets == _COLON)
    following = np.searchsorted(colons, begin)
    if not len(begin):
        return HeaderLines(row, pa.array([], pa.string()), pa.array([], pa.string()))
    if following[-1] >= len(colons) or (octets[end] != 13).any():
        return None
    colon = colons[following]
    if (colon >= end).any() or (colon == begin).any():
        return None
    value = colon + 1
    value = value + np.isin(octets[value], _BLANKS)
    value = np.minimum(value, end)
    values = slices(text, value, end).cast(pa.string())
    if np.isin(octets[value], _BLANKS).any() or np.isin(octets[end - 1], _BLANKS).any():
        values = pc.ascii_trim(values, " \t")
    return HeaderLines(row, slices(text, begin, colon).cast(pa.string()), values)


def _lines_one_by_one(blocks: pa.BinaryArray) -> HeaderLines:
    row: list[int] = []
    names: list[str] = []
    values: list[str] = []
    for index, block in enumerate(blocks.to_pylist()):
        try:
            fields = list(wire_headers.parse(block))
        except wire_headers.HeaderError:
            fields = [(b"", block)]
        for name, value in fields:
            row.append(index)
            names.append(name.decode("utf-8", "replace"))
            values.append(value.decode("utf-8", "replace"))
    return HeaderLines(np.array(row, dtype=np.int64), pa.array(names, pa.string()), pa.array(values, pa.string()))


def _merged_map(lines: HeaderLines, headed: npt.NDArray[np.bool_]) -> pa.MapArray:
    merged: list[dict[str, str] | None] = [{} if has else None for has in headed.tolist()]
    for row, name, value in zip(lines.row.tolist(), lines.names.to_pylist(), lines.values.to_pylist(), strict=True):
        fields = merged[row]
        assert fields is not None
        fields[name] = f"{fields[name]}, {value}" if name in fields else value
    pairs: list[Any] = [None if fields is None else list(fields.items()) for fields in merged]
    return pa.array(pairs, type=MAP_TYPE)
