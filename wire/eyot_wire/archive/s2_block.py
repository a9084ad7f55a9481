"""One compressed block of S2 (Snappy with repeated offsets): the plain twin of the decoder.

    block    = uvarint with the decoded length, then elements
    element  = literal, or a copy of earlier output; the low two bits of the first byte distinguish them:
               0  literal; upper six bits: length - 1, or 60..63: the length follows in 1..4 bytes
               1  copy: 3 bits length - 4, offset of 11 bits; offset 0 repeats the last offset, and lengths 5, 6, 7 then mean
                  that 1, 2, 3 bytes with the rest of the length follow
               2  copy: 6 bits length - 1, offset of 16 bits
               3  copy: 6 bits length - 1, offset of 32 bits

Source: the Snappy format description and the S2 package's (github.com/klauspost/compress/s2).
"""

_REPEAT_BASE = {5: 4, 6: 1 << 8, 7: 1 << 16}


def decode_block(block: bytes, length_max: int) -> bytes:
    """Decode `block`.

    Raises ValueError for a corrupt block, and for one that decodes to more than `length_max` bytes.
    """
    try:
        return _decode(block, length_max)
    except IndexError:
        raise ValueError("s2: corrupt input") from None


def _decode(block: bytes, length_max: int) -> bytes:
    length, at = _uvarint(block)
    if length > length_max:
        raise ValueError("s2: decoded block is too large")
    out = bytearray()
    offset = 1
    end = len(block)
    while at < end:
        tag = block[at]
        kind, upper = tag & 3, tag >> 2
        at += 1
        if kind == 0:
            size, at = _literal(block, at, upper)
            if at + size > end:
                raise ValueError("s2: corrupt input")
            out += block[at : at + size]
            at += size
            if len(out) > length:
                raise ValueError("s2: corrupt input")
            continue
        if kind == 1:
            size = upper & 7
            short = (tag & 0xE0) << 3 | block[at]
            at += 1
            if short:
                offset = short
            elif size >= 5:
                more = size - 4
                base = _REPEAT_BASE[size]
                size = int.from_bytes(_exactly(block, at, more), "little") + base
                at += more
            size += 4
        else:
            width = 2 if kind == 2 else 4
            offset = int.from_bytes(_exactly(block, at, width), "little")
            at += width
            size = upper + 1
        if not 0 < offset <= len(out) or len(out) + size > length:
            raise ValueError("s2: corrupt input")
        _copy(out, offset, size)
    if len(out) != length:
        raise ValueError("s2: corrupt input")
    return bytes(out)


def _copy(out: bytearray, offset: int, size: int) -> None:
    """Append `size` bytes from `offset` bytes back; source and target may overlap."""
    while size > 0:
        piece = bytes(out[-offset:][:size])
        out += piece
        size -= len(piece)
        offset += len(piece)  # the pattern has grown: the next step copies twice as much


def _literal(block: bytes, at: int, upper: int) -> tuple[int, int]:
    if upper < 60:
        return upper + 1, at
    width = upper - 59
    return int.from_bytes(_exactly(block, at, width), "little") + 1, at + width


def _exactly(block: bytes, at: int, width: int) -> bytes:
    piece = block[at : at + width]
    if len(piece) != width:
        raise ValueError("s2: corrupt input")
    return piece


def _uvarint(block: bytes) -> tuple[int, int]:
    value = shift = 0
    for at in range(5):
        byte = block[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7
    raise ValueError("s2: corrupt input")
