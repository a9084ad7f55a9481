"""Text as Go's `%q` prints it: how nats-server shows subjects, queues and subscription ids in errors (Go's package strconv)."""

from __future__ import annotations

_SHORT = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}


def quoted(text: bytes) -> str:
    """`text` in double quotes. What cannot be printed is escaped, and so is every byte that is not UTF-8."""
    if text.isascii() and (plain := text.decode()).isprintable() and '"' not in plain and "\\" not in plain:
        return f'"{plain}"'
    return f'"{"".join(map(_shown, text.decode("utf-8", "surrogateescape")))}"'


def _shown(char: str) -> str:
    code = ord(char)
    if code in _SHORT:
        return _SHORT[code]
    if char.isprintable():
        return char
    if code < 0x80 or 0xDC80 <= code <= 0xDCFF:  # the latter stands for a byte that is not UTF-8
        return f"\\x{code & 0xFF:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
