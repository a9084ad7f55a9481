"""HighwayHash with 64 bits, the keyed checksum of nats-server's stores: the plain twin.

Source: Alakuijala, Cox, Wassenberg, "Fast keyed hash/pseudo-random function using SIMD multiply and permute". The state
is four registers of four 64-bit lanes; each update mixes in a packet of 32 bytes.
"""

import struct

_M64 = (1 << 64) - 1
_M32 = (1 << 32) - 1
_MUL0 = (0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0, 0x13198A2E03707344, 0x243F6A8885A308D3)
_MUL1 = (0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C, 0xBE5466CF34E90C6C, 0x452821E638D01377)
_lanes = struct.Struct("<4Q").unpack_from
_PACKET = 32


class HighwayHash64:
    """A hash function with a key of 32 bytes. `digest` hashes one message and may be called repeatedly."""

    __slots__ = ("_mul0", "_mul1", "_v0", "_v1")

    def __init__(self, key: bytes) -> None:
        if len(key) != _PACKET:
            raise ValueError("the key must have 32 bytes")
        words = _lanes(key)
        self._v0 = [mul ^ word for mul, word in zip(_MUL0, words, strict=True)]
        self._v1 = [mul ^ _swap(word) for mul, word in zip(_MUL1, words, strict=True)]
        self._mul0, self._mul1 = list(_MUL0), list(_MUL1)

    def behind(self, data: bytes) -> "HighwayHash64":
        """Return the hash function of messages that begin with `data` (whole packets of 32 bytes).

        Its `digest` receives only what follows `data`. Raises ValueError unless `data` is whole packets.
        """
        if len(data) % _PACKET:
            raise ValueError("only whole packets can be followed by others")
        further = HighwayHash64.__new__(HighwayHash64)
        state = further._v0, further._v1, further._mul0, further._mul1 = self._state()
        for at in range(0, len(data), _PACKET):
            _update(state, _lanes(data, at))
        return further

    def _state(self) -> "_State":
        return self._v0[:], self._v1[:], self._mul0[:], self._mul1[:]

    def digest(self, data: bytes) -> bytes:
        """Return the hash of `data`: eight bytes, little-endian."""
        state = self._state()
        rest = len(data) % _PACKET
        whole = len(data) - rest
        for at in range(0, whole, _PACKET):
            _update(state, _lanes(data, at))
        if rest:
            _remainder(state, bytes(data[whole:]))
        v0, v1, mul0, mul1 = state
        for _ in range(4):
            _update(state, (_swap(v0[2]), _swap(v0[3]), _swap(v0[0]), _swap(v0[1])))
        result: int = (v0[0] + v1[0] + mul0[0] + mul1[0]) & _M64
        return result.to_bytes(8, "little")


_State = tuple[list[int], list[int], list[int], list[int]]


def _swap(word: int) -> int:
    return word >> 32 | (word & _M32) << 32


def _update(state: _State, lanes: tuple[int, ...]) -> None:
    v0, v1, mul0, mul1 = state
    for i in range(4):
        v1[i] = (v1[i] + mul0[i] + lanes[i]) & _M64
        mul0[i] ^= (v1[i] & _M32) * (v0[i] >> 32)
        v0[i] = (v0[i] + mul1[i]) & _M64
        mul1[i] ^= (v0[i] & _M32) * (v1[i] >> 32)
    for i in (0, 2):
        _zipper(v1[i + 1], v1[i], v0, i)
    for i in (0, 2):
        _zipper(v0[i + 1], v0[i], v1, i)


def _zipper(high: int, low: int, into: list[int], at: int) -> None:
    """Add the interleaved bytes of `high` and `low` to two lanes."""
    first = (
        (low & 0xFF000000 | high & 0xFF00000000) >> 24
        | (low & 0xFF0000000000 | high & 0xFF000000000000) >> 16
        | low & 0xFF0000
        | (low & 0xFF00) << 32
        | (high & 0xFF00000000000000) >> 8
        | (low & 0xFF) << 56
    )
    second = (
        (high & 0xFF000000 | low & 0xFF00000000) >> 24
        | high & 0xFF0000
        | (high & 0xFF0000000000) >> 16
        | (high & 0xFF00) << 24
        | (low & 0xFF000000000000) >> 8
        | (high & 0xFF) << 48
        | low & 0xFF00000000000000
    )
    into[at] = (into[at] + first) & _M64
    into[at + 1] = (into[at + 1] + second) & _M64


def _remainder(state: _State, rest: bytes) -> None:
    """Mix in the last 1 to 31 bytes."""
    v0, v1, _, _ = state
    size = len(rest)
    for i in range(4):
        v0[i] = (v0[i] + (size << 32) + size) & _M64
        v1[i] = _rotate(v1[i] & _M32, size) | _rotate(v1[i] >> 32, size) << 32
    whole, odd = size & ~3, size & 3
    packet = bytearray(_PACKET)
    packet[:whole] = rest[:whole]
    if size & 16:
        packet[28:] = rest[-4:]
    elif odd:
        packet[16] = rest[whole]
        packet[17] = rest[whole + (odd >> 1)]
        packet[18] = rest[-1]
    _update(state, _lanes(packet))


def _rotate(word: int, by: int) -> int:
    return (word << by | word >> (32 - by)) & _M32
