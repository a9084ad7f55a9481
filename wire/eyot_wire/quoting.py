"""Escapes text of peers for display.

`quoted` prints as Go's `%q` does (package strconv): nats-server shows subjects, queues and subscription ids in errors
that way. `printable` escapes only characters that are invisible or control a terminal. Names of clients, leaf nodes,
users and streams come from peers. The log and the terminal pass them through `printable` at one place each: a line feed
would forge a log line, an escape sequence would control the terminal.
"""

from __future__ import annotations

_SHORT = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}


def quoted(text: bytes) -> str:
    """Return `text` in double quotes, with unprintable characters and bytes that are not UTF-8 escaped."""
    if text.isascii() and (plain := text.decode()).isprintable() and '"' not in plain and "\\" not in plain:
        return f'"{plain}"'
    return f'"{"".join(map(_shown, text.decode("utf-8", "surrogateescape")))}"'


def printable(text: str) -> str:
    """Return `text` with unprintable characters escaped: controls, line ends, direction marks, bytes that are not UTF-8."""
    return text if text.isprintable() else "".join(char if char.isprintable() else _shown(char) for char in text)


def _shown(char: str) -> str:
    code = ord(char)
    if code in _SHORT:
        return _SHORT[code]
    if char.isprintable():
        return char
    if code < 0x80 or 0xDC80 <= code <= 0xDCFF:  # the latter encodes a byte that is not UTF-8
        return f"\\x{code & 0xFF:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
