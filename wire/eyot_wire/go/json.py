"""A JSON reader with the rules and error words of Go's encoding/json, for text that the fast reader refused.

`values(data)` yields consecutive values, as Go's Decoder reads a stream. Offsets in the words count bytes and include
the offending byte, as in nats-server 2.14.
"""

import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

Kind = Literal["object", "array", "string", "number", "bool", "null"]

_SPACE = re.compile(rb"[ \t\r\n]*")
_STRING = re.compile(rb'"((?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*)"')
_PLAIN = re.compile(rb'(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_ESCAPE = re.compile(r"\\(?:u([dD][89abAB]..)\\u([dD][c-fC-F]..)|u(....)|(.))")
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_WORDS = {b"t": b"true", b"f": b"false", b"n": b"null"}
_HEX = re.compile(rb"[0-9a-fA-F]*")
#: Go stops at 10,000. The values are processed recursively, so the limit here protects the stack.
_DEPTH_MAX = 200


class Node(NamedTuple):
    """One JSON value.

    `value`: a list of (name, Node) for an object, a list of Node for an array, the text of a string, the digits of a
    number, True or False. `raw`: the bytes of the value.
    """

    kind: Kind
    value: Any
    raw: bytes


class SyntaxFault(ValueError):
    """Text that is not JSON; str() gives Go's words."""


def values(data: bytes, *, one: bool = False) -> Iterator[Node]:
    """Yield the values of `data` in order. Raises SyntaxFault, with `one` also when a second value follows."""
    reader = _Reader(data)
    while reader.space():
        node = reader.value("looking for beginning of value")
        if one and reader.space():
            raise reader.fault("after top-level value")
        yield node


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.depth = 0

    def space(self) -> bytes:
        """Skip white space and return the next character, or nothing at the end."""
        found = _SPACE.match(self.data, self.at)
        assert found is not None
        self.at = found.end()
        return self.data[self.at : self.at + 1]

    def fault(self, where: str, at: int | None = None) -> SyntaxFault:
        at = self.at if at is None else at
        if at >= len(self.data):
            return SyntaxFault("unexpected EOF")
        letter = _letter(self.data[at : at + 4])
        size = len(letter.encode("utf-8", "surrogateescape"))
        return SyntaxFault(f"invalid character '{_shown(letter)}' {where} at offset {at + size}")

    def value(self, where: str) -> Node:
        first, start = self.space(), self.at
        match first:
            case b"{" | b"[":
                self.depth += 1
                if self.depth > _DEPTH_MAX:
                    raise SyntaxFault("exceeded max depth")
                value: Any = self._object() if first == b"{" else self._array()
                self.depth -= 1
                return Node("object" if first == b"{" else "array", value, self.data[start : self.at])
            case b'"':
                return Node("string", self.string(), self.data[start : self.at])
            case b"t" | b"f" | b"n":
                return self._word(_WORDS[first], start)
            case _ if first and first in b"-0123456789":
                return self._number(start)
            case _:
                raise self.fault(where)

    def string(self) -> str:
        found = _STRING.match(self.data, self.at)
        if found is None:
            plain = _PLAIN.match(self.data, self.at + 1)
            assert plain is not None
            raise self._bad_string(plain.end())
        self.at = found.end()
        text = found[1].decode("utf-8", "replace")
        return _ESCAPE.sub(_unescaped, text) if "\\" in text else text

    def _bad_string(self, at: int) -> SyntaxFault:
        if self.data[at : at + 1] != b"\\":
            return self.fault("in string", at)
        wide = self.data[at + 1 : at + 2] == b"u"
        sequence = self.data[at : at + (6 if wide else 2)]
        if len(sequence) < (6 if wide else 2) and _HEX.fullmatch(sequence[2:]):
            return SyntaxFault("unexpected EOF")
        end = at + len(sequence)
        text = sequence.decode("utf-8", "replace")
        if "`" in text or "�" in text or not text.isprintable() or " " in text:
            return SyntaxFault(f'invalid escape sequence "{_inside(sequence)}" in string at offset {end}')
        return SyntaxFault(f"invalid escape sequence `{text}` in string at offset {end}")

    def _object(self) -> list[tuple[str, Node]]:
        members: list[tuple[str, Node]] = []
        self.at += 1
        if self.space() == b"}":
            self.at += 1
            return members
        while True:
            if self.space() != b'"':
                raise self.fault("looking for beginning of object key string")
            name = self.string()
            if self.space() != b":":
                raise self.fault("after object key")
            self.at += 1
            members.append((name, self.value("looking for beginning of value")))
            if self._ends(b"}", "after object key:value pair"):
                return members

    def _array(self) -> list[Node]:
        items: list[Node] = []
        self.at += 1
        if self.space() == b"]":
            self.at += 1
            return items
        while True:
            items.append(self.value("looking for beginning of value"))
            if self._ends(b"]", "after array element"):
                return items

    def _ends(self, end: bytes, where: str) -> bool:
        mark = self.space()
        if mark not in (b",", end) or not mark:
            raise self.fault(where)
        self.at += 1
        return mark == end

    def _word(self, word: bytes, start: int) -> Node:
        for at, expected in enumerate(word):
            if self.data[start + at : start + at + 1] != bytes([expected]):
                raise self.fault(f"in literal {word.decode()} (expecting {chr(expected)!r})", start + at)
        self.at = start + len(word)
        if word == b"null":
            return Node("null", None, word)
        return Node("bool", word == b"true", word)

    def _number(self, start: int) -> Node:
        found = _NUMBER.match(self.data, start)
        if found is None:
            raise self.fault("in numeric literal", start + 1)
        self.at = found.end()
        rest = self.data[self.at : self.at + 1]
        number = found[0].lower()
        if (rest == b"." and b"." not in number and b"e" not in number) or (
            rest and rest in b"eE" and b"e" not in number
        ):
            at = self.at + 1
            if rest != b"." and self.data[at : at + 1] in (b"+", b"-"):
                at += 1
            raise self.fault("in numeric literal", at)
        return Node("number", found[0].decode(), found[0])


def _letter(data: bytes) -> str:
    """Return the first character; a byte that is not UTF-8 as a surrogate."""
    for size in range(1, len(data) + 1):
        try:
            return data[:size].decode()
        except UnicodeDecodeError:
            continue
    return data[:1].decode("utf-8", "surrogateescape")


def _shown(letter: str) -> str:
    """Return a character as Go quotes it."""
    code = ord(letter)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if letter in "'\\":
        return "\\" + letter
    if letter == " " or (letter.isprintable() and not letter.isspace()):
        return letter
    named = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r"}.get(code)
    wide = f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return named or (f"\\x{code:02x}" if code < 0x80 else wide)


def _inside(data: bytes) -> str:
    """Return text as Go shows it between quotes."""
    letters = data.decode("utf-8", "surrogateescape")
    return "".join('\\"' if letter == '"' else "'" if letter == "'" else _shown(letter) for letter in letters)


def _unescaped(found: re.Match[str]) -> str:
    high, low, one, letter = found.groups()
    if high:
        return chr(0x10000 + ((int(high, 16) & 0x3FF) << 10) + (int(low, 16) & 0x3FF))
    if one:
        code = int(one, 16)
        return "�" if 0xD800 <= code < 0xE000 else chr(code)
    return _ESCAPED.get(letter, letter)
