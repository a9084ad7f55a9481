"""CRC-32C (Castagnoli), the checksum of S2 and Snappy frames: the plain twin."""

_POLYNOMIAL = 0x82F63B78


def _table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return tuple(table)


_TABLE = _table()


def crc32c(data: bytes | memoryview) -> int:
    """Return the CRC-32C of `data` as an integer of 32 bits."""
    table = _TABLE
    value = 0xFFFFFFFF
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ value >> 8
    return value ^ 0xFFFFFFFF
