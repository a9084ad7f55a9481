"""Maps, arrays, includes and variables of the configuration grammar.

A text is a map without its braces (or with them: JSON). `include FILE` inserts the keys of FILE, parsed on its own,
into the enclosing map. `include conf.d/*.conf` inserts those of every matching file in the order of the names; no match
is no error. `$name` refers to a key declared earlier, innermost map first, else to an environment variable, whose text
is parsed as a value. The parser refuses nesting beyond a limit, and circles of includes and of environment variables.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from glob import escape, glob
from pathlib import Path

from eyot_wire.conf.errors import ConfError, ConfFileError, ConfSyntaxError, Position
from eyot_wire.conf.lexer import Lexer
from eyot_wire.conf.scalars import parse_scalar
from eyot_wire.conf.values import ConfEntry, ConfMap, ConfValue

DEPTH_MAX = 60  # nested maps, arrays and includes together; protects the stack from a hostile file
_BCRYPT_PREFIX = "$2a$"
_ParseNested = Callable[[str], ConfValue]


def parse_file(path: str | Path, env: Mapping[str, str] | None = None, without: Path | None = None) -> ConfMap:
    """Parse a configuration file and its includes but `without`; `env` replaces the process's environment.

    Raises ConfError, also for files that cannot be read or are not UTF-8.
    """
    left_out = None if without is None else without.resolve()
    return _parse_path(Path(path), Position(str(path), 0, 0), os.environ if env is None else env, (), 0, left_out)


def parse_text(
    text: str, name: str = "-", env: Mapping[str, str] | None = None, directory: str | Path = "."
) -> ConfMap:
    """Parse configuration text; `name` appears in errors, includes are relative to `directory`. Raises ConfError."""
    return _Parser(text, name, Path(directory), os.environ if env is None else env, ()).parse()


def _parse_path(
    path: Path,
    asked_at: Position,
    env: Mapping[str, str],
    including: tuple[Path, ...],
    depth: int,
    without: Path | None,
) -> ConfMap:
    key = "include" if including else ""
    resolved = path.resolve()
    if resolved in including:
        raise ConfError(f"'{path}' includes itself", asked_at, key)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ConfFileError(f"cannot read '{path}': {error.strerror}", asked_at, key) from error
    except UnicodeDecodeError as error:
        raise ConfError(f"'{path}' is not UTF-8 text", asked_at, key) from error
    return _Parser(text, str(path), path.parent, env, (*including, resolved), depth, without=without).parse()


def _named(directory: Path, name: str) -> list[Path]:
    """Return the files of an include, ordered by name: one, or all matches of a pattern (an extension of Eyot)."""
    path = directory / name
    if not any(sign in name for sign in "*?[") or path.exists():
        return [path]
    return [Path(found) for found in sorted(glob(str(Path(escape(str(directory))) / name)))]


class _Parser:
    """Parser of one text. `maps` are the maps that enclose the present place, outermost first."""

    def __init__(
        self,
        text: str,
        name: str,
        directory: Path,
        env: Mapping[str, str],
        including: tuple[Path, ...],
        depth: int = 0,
        env_names: tuple[str, ...] = (),
        without: Path | None = None,
    ) -> None:
        self._lexer = Lexer(text, name)
        self._directory = directory
        self._env = env
        self._including = including
        self._env_names = env_names
        self._maps: list[ConfMap] = []
        self._depth = depth
        #: a file that is not included, resolved
        self._without = without

    def parse(self) -> ConfMap:
        top = ConfMap(self._lexer.position())
        self._lexer.skip_between_entries()
        if self._lexer.peek() == "{":
            opened = self._lexer.position()
            self._lexer.take("{")
            self._entries(top, opened)
        self._entries(top, None)
        return top

    def parse_value(self, key: str) -> ConfValue:
        """Parse the whole text as one value (of an environment variable); an empty text is the empty string."""
        self._lexer.skip_between_elements()
        if not self._lexer.peek():
            return ConfValue("", self._lexer.position(0))
        value = self._value(key)
        self._lexer.skip_between_elements()
        if self._lexer.peek():
            raise self._lexer.error(f"unexpected {self._lexer.describe_next()} after the value", key)
        return value

    def _entries(self, into: ConfMap, opened: Position | None) -> None:
        """Parse entries up to the closing brace (`opened`: where it was opened) or, at the top, to the end of the text."""
        lexer = self._lexer
        self._maps.append(into)
        while True:
            lexer.skip_between_entries()
            if not lexer.peek():
                if opened is not None:
                    raise ConfSyntaxError("this '{' is never closed", opened)
                break
            if lexer.peek() == "}":
                if opened is None:
                    raise lexer.error("unexpected '}'")
                lexer.take("}")
                break
            self._entry(into)
        self._maps.pop()

    def _entry(self, into: ConfMap) -> None:
        lexer = self._lexer
        position = lexer.position()
        key, quoted = lexer.key()
        lexer.skip_spaces()
        if not quoted and key.lower() == "include" and lexer.peek() not in (":", "="):
            self._include(into)
            return
        if not (lexer.take(":") or lexer.take("=")):
            # Without a separator a map, array or block may open on a later line.
            offset = lexer.offset
            lexer.skip_between_elements()
            if lexer.peek() not in ("{", "[", "("):
                lexer.offset = offset
        lexer.skip_spaces()
        if not lexer.peek() or lexer.at_newline():
            raise ConfSyntaxError("expected a value, but the line ends", lexer.position(), key)
        value = self._value(key)
        into.set(ConfEntry(key, value, position))
        self._end_of_entry(key)

    def _end_of_entry(self, key: str) -> None:
        lexer = self._lexer
        lexer.skip_spaces()
        if lexer.skip_comment() or lexer.at_newline() or lexer.peek() in ("", ",", ";", "}"):
            return
        expected = "a new line, ',' or '}'" if len(self._maps) > 1 else "a new line, ',' or ';'"
        raise lexer.error(f"expected {expected} after the value, but got {lexer.describe_next()}", key)

    def _value(self, key: str) -> ConfValue:
        try:
            return self._read_value(key)
        except ConfError as error:
            raise _with_key(error, key) from None

    def _read_value(self, key: str) -> ConfValue:
        lexer = self._lexer
        position = lexer.position()
        match lexer.peek():
            case "{":
                return self._nested(self._map, key)
            case "[":
                return self._nested(self._array, key)
            case "(":
                return ConfValue(lexer.block(), position)
            case "'" | '"':
                return ConfValue(lexer.quoted(), position)
        word, escaped = lexer.word()
        if escaped:
            return ConfValue(word, position)
        if word.startswith("$") and not word.startswith(_BCRYPT_PREFIX):
            return self._variable(word[1:], key, position)
        try:
            return ConfValue(parse_scalar(word), position)
        except ValueError as error:
            raise ConfError(str(error), position, key) from None

    def _nested(self, parse: _ParseNested, key: str) -> ConfValue:
        if self._depth >= DEPTH_MAX:
            raise self._lexer.error(f"nested deeper than {DEPTH_MAX} levels", key)
        self._depth += 1
        try:
            return parse(key)
        finally:
            self._depth -= 1

    def _map(self, key: str) -> ConfValue:
        opened = self._lexer.position()
        self._lexer.take("{")
        nested = ConfMap(opened)
        self._entries(nested, opened)
        return ConfValue(nested, opened)

    def _array(self, key: str) -> ConfValue:
        lexer = self._lexer
        opened = lexer.position()
        lexer.take("[")
        elements: list[ConfValue] = []
        while True:
            lexer.skip_between_elements()
            if lexer.take("]"):
                return ConfValue(tuple(elements), opened)
            if not lexer.peek():
                raise ConfSyntaxError("this '[' is never closed", opened, key)
            elements.append(self._value(key))
            self._end_of_element(key)

    def _end_of_element(self, key: str) -> None:
        """Consume what follows an element: `,`, a newline, or the closing bracket; a comma may follow the newline."""
        lexer = self._lexer
        lexer.skip_spaces()
        on_own_line = lexer.skip_comment() or lexer.at_newline()
        lexer.skip_between_elements()
        if lexer.take(",") or on_own_line or lexer.peek() in ("]", ""):
            return
        raise lexer.error(f"expected ',' or ']' in the array, but got {lexer.describe_next()}", key)

    def _include(self, into: ConfMap) -> None:
        position = self._lexer.position()
        name = self._lexer.path()
        self._end_of_entry("include")
        if self._depth >= DEPTH_MAX:
            raise ConfError(f"nested deeper than {DEPTH_MAX} levels", position, "include")
        for path in _named(self._directory, name):
            if self._without is not None and path.resolve() == self._without:
                continue
            into.update(_parse_path(path, position, self._env, self._including, self._depth + 1, self._without))

    def _variable(self, name: str, key: str, position: Position) -> ConfValue:
        for enclosing in reversed(self._maps):
            entry = enclosing.entry(name)
            if entry is not None:
                entry.used_as_variable = True
                return ConfValue(entry.value.value, position)
        text = self._env.get(name)
        if text is None:
            raise ConfError(f"variable reference for '{name}' can not be found", position, key)
        if name in self._env_names:
            raise ConfError(f"the environment variable '{name}' refers to itself", position, key)
        if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
            raise ConfError(f"the environment variable '{name}' is not UTF-8", position, key)
        parser = _Parser(text, "-", self._directory, self._env, self._including, self._depth, (*self._env_names, name))
        try:
            return ConfValue(parser.parse_value(key).value, position)
        except ConfError:
            # The message leaves the text out: it may be a secret.
            raise ConfError(
                f"the environment variable '{name}' could not be parsed as a value", position, key
            ) from None


def _with_key(error: ConfError, key: str) -> ConfError:
    return error if error.key else type(error)(error.message, error.position, key)
