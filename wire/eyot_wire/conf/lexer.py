"""Characters of one configuration text: blanks, comments, keys, words, quoted strings, blocks.

The parser asks for the tokens that are allowed at the present place. The lexer consumes one or raises ConfSyntaxError
with its position. Line and column are computed from offsets only on demand.
"""

from __future__ import annotations

import re
from bisect import bisect_right

from eyot_wire.conf.errors import ConfSyntaxError, Position

_NEWLINES = "\r\n"
_SPACES = re.compile(r"[ \t]+")
_COMMENT = re.compile(r"(?:#|//)[^\r\n]*")
# Between two entries: blanks, newlines, comments, and separators that end a value.
_BETWEEN_ENTRIES = re.compile(r"(?:[ \t\r\n,;]+|(?:#|//)[^\r\n]*)+")
_BETWEEN_ELEMENTS = re.compile(r"(?:[ \t\r\n]+|(?:#|//)[^\r\n]*)+")
_BARE_KEY = re.compile(r"[^ \t\r\n\f\v:={}\"']+")
_BARE_WORD = re.compile(r"(?:[^\s,;\]}'\\]|\\.)*")
_BARE_PATH = re.compile(r"[^\s,;}'\"]+")
_DOUBLE_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_SINGLE_QUOTED = re.compile(r"'([^']*)'")
_BLOCK = re.compile(r"\([ \t]*\r?\n(.*?)(?<=\n)\)[ \t]*(?=[\r\n]|\Z)", re.DOTALL)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.?)", re.DOTALL)
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", '"': '"', "\\": "\\"}


class Lexer:
    """A cursor over one text. `file` is the name in error messages."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self.offset = 0
        self._line_starts: list[int] | None = None

    def position(self, offset: int | None = None) -> Position:
        """Return line and column (from 1, in characters) of an offset; by default the cursor's."""
        at = self.offset if offset is None else offset
        if self._line_starts is None:
            self._line_starts = [0, *(match.end() for match in re.finditer(r"\r\n|\n|\r", self.text))]
        line = bisect_right(self._line_starts, at)
        return Position(self.file, line, at - self._line_starts[line - 1] + 1)

    def error(self, message: str, key: str = "", offset: int | None = None) -> ConfSyntaxError:
        return ConfSyntaxError(message, self.position(offset), key)

    def peek(self) -> str:
        """Return the next character, "" at the end."""
        return self.text[self.offset : self.offset + 1]

    def describe_next(self) -> str:
        """Return the next character as error messages show it."""
        next_char = self.peek()
        if not next_char:
            return "the end of the file"
        return "a new line" if next_char in _NEWLINES else f"'{next_char}'"

    def take(self, char: str) -> bool:
        """Consume `char` if it is next; return whether it was."""
        if not self.text.startswith(char, self.offset):
            return False
        self.offset += len(char)
        return True

    def skip_spaces(self) -> None:
        """Skip spaces and tabs of this line."""
        self._match(_SPACES)

    def skip_between_entries(self) -> None:
        self._match(_BETWEEN_ENTRIES)

    def skip_between_elements(self) -> None:
        self._match(_BETWEEN_ELEMENTS)

    def skip_comment(self) -> bool:
        return self._match(_COMMENT) is not None

    def at_newline(self) -> bool:
        next_char = self.peek()
        return next_char != "" and next_char in _NEWLINES

    def key(self) -> tuple[str, bool]:
        """Consume a key; return it and whether it was quoted."""
        if self.peek() in ("'", '"') and self.peek():
            return self.quoted(), True
        if self.peek() in (":", "=") and self.peek():
            raise self.error(f"unexpected key separator {self.describe_next()}")
        matched = self._match(_BARE_KEY)
        if matched is None:
            raise self.error(f"expected a key, but got {self.describe_next()}")
        return matched[0], False

    def quoted(self) -> str:
        """Consume a '...' string (raw) or a "..." string (with escapes); both may span lines."""
        start = self.offset
        if matched := self._match(_SINGLE_QUOTED):
            return matched[1]
        if matched := self._match(_DOUBLE_QUOTED):
            return self._unescape(matched[1], start + 1)
        raise self.error("this string is never closed")

    def word(self) -> tuple[str, bool]:
        """Consume an unquoted value up to a blank, `,`, `;`, `]` or `}`; return it and whether it held escapes."""
        start = self.offset
        matched = self._match(_BARE_WORD)
        raw = matched[0] if matched else ""
        if not raw:
            raise self.error(f"expected a value, but got {self.describe_next()}")
        if self.peek() == "'":
            raise self.error("unexpected ' in an unquoted value")
        if "\\" not in raw:
            return raw, False
        return self._unescape(raw, start), True

    def path(self) -> str:
        """Consume the file name of an include."""
        if self.peek() in ("'", '"') and self.peek():
            return self.quoted()
        matched = self._match(_BARE_PATH)
        if matched is None:
            raise self.error(f"expected a file name, but got {self.describe_next()}", "include")
        return matched[0]

    def block(self) -> str:
        """Consume the lines between `(` and a `)` that stands alone at the start of a line; return them verbatim."""
        matched = self._match(_BLOCK)
        if matched is None:
            raise self.error("this block is never closed: ')' must stand alone on a line")
        return matched[1]

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        matched = pattern.match(self.text, self.offset)
        if matched is not None:
            self.offset = matched.end()
        return matched

    def _unescape(self, raw: str, start: int) -> str:
        def replace(matched: re.Match[str]) -> str:
            escape = matched[1]
            if escape in _ESCAPES:
                return _ESCAPES[escape]
            if len(escape) == 3:
                return chr(int(escape[1:], 16))
            at = start + matched.start()
            if escape == "x":
                raise self.error(r"expected two hexadecimal digits after '\x'", offset=at)
            raise self.error(
                rf"invalid escape character '{escape}'; only \xXX, \t, \n, \r, \" and \\ are allowed", offset=at
            )

        return _ESCAPE.sub(replace, raw)
