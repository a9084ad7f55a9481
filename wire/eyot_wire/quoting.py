"""Text that somebody else chose, made fit to be shown: in quotes as Go's `%q` prints it, how nats-server shows subjects, queues and
subscription ids in errors (Go's package strconv), or as it is but for what would not be seen, or would do something.

Names of clients, leaf nodes, users and streams come from peers. What shows them, the log or a terminal, passes them through
`printable` at its own border, once: a line feed would begin a line that nobody wrote, an escape would steer the terminal.
"""

from __future__ import annotations

_SHORT = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}


def quoted(text: bytes) -> str:
    """`text` in double quotes. What cannot be printed is escaped, and so is every byte that is not UTF-8."""
    if text.isascii() and (plain := text.decode()).isprintable() and '"' not in plain and "\\" not in plain:
        return f'"{plain}"'
    return f'"{"".join(map(_shown, text.decode("utf-8", "surrogateescape")))}"'


def printable(text: str) -> str:
    """`text` with everything escaped that cannot be printed: controls, line ends, marks of direction, bytes that are not UTF-8."""
    return text if text.isprintable() else "".join(char if char.isprintable() else _shown(char) for char in text)


def _shown(char: str) -> str:
    code = ord(char)
    if code in _SHORT:
        return _SHORT[code]
    if char.isprintable():
        return char
    if code < 0x80 or 0xDC80 <= code <= 0xDCFF:  # the latter stands for a byte that is not UTF-8
        return f"\\x{code & 0xFF:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
