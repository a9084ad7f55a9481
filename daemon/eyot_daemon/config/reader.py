"""Typed access to one map of a parsed configuration.

A `Block` returns the values of a `ConfMap` by key (any case, any of several names), checks their types and records the
requested keys. `finish()` refuses all other keys. Every error is a ConfError at the value's position. All blocks of one
configuration share a `Reading`: warnings, notes, and positions for later checks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from datetime import datetime

from eyot_daemon.config.profile import STANDARD
from eyot_wire.conf import ConfEntry, ConfError, ConfMap, ConfValue, Position
from eyot_wire.digits import is_digits
from eyot_wire.go.duration import parse_duration_ns

PORT_MAX = 65_535
# More digits are beyond every size, leading zeros or not: `int` itself refuses more than 4,300.
_SIZE_DIGITS_MAX = 100


class Reading:
    """Shared by all blocks of one configuration. `places[name]`: position of an option, for later checks.

    `warnings` are errors for `-t`, as in nats-server. `notes` report where Eyot differs from nats-server and which blocks
    have no effect, and are only shown. `profile`: the defaults of options that bound memory.
    """

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.notes: list[str] = []
        self.plaintext_passwords = False
        self.profile = STANDARD
        self.places: dict[str, tuple[Position, str]] = {}

    def warn(self, position: Position, key: str, message: str) -> None:
        self.warnings.append(f'{position}: key "{key}": {message}')

    def note(self, entry: ConfEntry, message: str) -> None:
        self.notes.append(f'{entry.value.position}: key "{entry.key}": {message}')

    def note_replaced(self, conf_map: ConfMap) -> None:
        """Note the blocks of a map that have no effect because a later one of the same key replaces them."""
        for entry in conf_map.replaced:
            last = conf_map.entry(entry.key)
            assert last is not None, "what replaces an entry has its key"
            self.note_replaced_by(last, entry)

    def note_replaced_by(self, last: ConfEntry, entry: ConfEntry) -> None:
        """Note, once, that `last` replaces a block as a whole, if the block has keys that `last` lacks."""
        if not isinstance(entry.value.value, ConfMap) or entry.used_as_variable:
            return
        lost = ", ".join(_keys_without(entry.value.value, last.value.value))
        text = f"replaces the block at {entry.position} as a whole, so these keys of it have no effect: {lost}"
        note = f'{last.position}: key "{last.key}": {text}'
        if lost and note not in self.notes:
            self.notes.append(note)

    def error(self, place: str, message: str, *others: str) -> ConfError:
        """Return a ConfError at the first recorded position of `place` and `others`, options that contradict each other.

        Without one (set by a flag) it names only the option.
        """
        place = next((each for each in (place, *others) if each in self.places), place)
        position, key = self.places.get(place, (Position("command line", 0, 0), place))
        return ConfError(message, position, key)


def _keys_without(block: ConfMap, later: object) -> Iterator[str]:
    """Yield the keys of a block that a later one lacks, those of nested blocks with their path."""
    entries = {entry.key.lower(): entry.value.value for entry in later} if isinstance(later, ConfMap) else {}
    for entry in block:
        value, name = entry.value.value, entry.key.lower()
        if name not in entries:
            yield entry.key
        elif isinstance(value, ConfMap):
            yield from (f"{entry.key}.{key}" for key in _keys_without(value, entries[name]))


def type_name(value: object) -> str:
    """Return a value's type name for errors."""
    if isinstance(value, bool):
        return "a boolean"
    names = {int: "an integer", float: "a decimal number", str: "a string", tuple: "an array", ConfMap: "a map"}
    return "a time" if isinstance(value, datetime) else names.get(type(value), type(value).__name__)


class Block:
    """One map and its requested keys (`asked`)."""

    def __init__(self, conf_map: ConfMap, reading: Reading) -> None:
        self.reading = reading
        self.position = conf_map.position
        self._map = conf_map
        self._entries: dict[str, ConfEntry] = {}
        for entry in conf_map:  # a later spelling of a key wins, and has the later place
            self._entries.pop(entry.key.lower(), None)
            self._entries[entry.key.lower()] = entry
        reading.note_replaced(conf_map)
        self._read: set[str] = set()
        self.asked: set[str] = set()

    def entry(self, *keys: str) -> ConfEntry | None:
        """Return the entry under any of these (lower-case) names; of several, the last."""
        self.asked.update(keys)
        present = [name for name in keys if name in self._entries]
        if not present:
            return None
        self._read.update(present)
        if len(present) > 1:
            order = list(self._entries)
            present.sort(key=order.index)
        last = self._entries[present[-1]]
        if len(present) > 1 or len(self._entries) < len(self._map):
            for other in self._map:
                if other is not last and other.key.lower() in present:
                    self.reading.note_replaced_by(last, other)
        return last

    def ignore(self, *keys: str) -> None:
        """Accept keys without meaning for this server, whatever their values."""
        self._read.update(keys)

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def remember(self, place: str, *keys: str) -> None:
        """Keep the place of an option for a later check."""
        entry = self.entry(*keys)
        if entry is not None:
            self.reading.places[place] = (entry.value.position, entry.key)

    def finish(self, of_eyot: Callable[[], Collection[str]] = tuple) -> None:
        """Refuse the first key that was never requested, unless it served as a variable.

        `of_eyot`: at the top, the keys that belong in the block `eyot`.
        """
        for name, entry in self._entries.items():
            if name not in self._read and not entry.used_as_variable:
                meant = ", which belongs in eyot { }" if name in of_eyot() else self._meant(name)
                raise ConfError(f'unknown field "{entry.key}"{meant}', entry.position, entry.key)

    def _meant(self, name: str) -> str:
        """Return a suggestion for an unknown key, if a similar one is known."""
        from difflib import get_close_matches  # imported only after a mistake

        like = get_close_matches(name, sorted(self.asked), n=1, cutoff=0.7)
        return f', did you mean "{like[0]}"?' if like else ""

    def error(self, message: str, *keys: str) -> ConfError:
        """Return a ConfError at the first of these keys that is present, else at the block, naming the missing key."""
        entry = self.entry(*keys)
        if entry is None:
            return ConfError(message, self.position, *keys[:1])
        return ConfError(message, entry.value.position, entry.key)

    # typed values; each returns the default if the key is absent

    def boolean(self, *keys: str, default: bool = False) -> bool:
        entry = self.entry(*keys)
        return default if entry is None else expect_boolean(entry.value, entry.key)

    def string(self, *keys: str, default: str = "") -> str:
        entry = self.entry(*keys)
        return default if entry is None else expect_string(entry.value, entry.key)

    def subject(self, *keys: str) -> bytes:
        return self.string(*keys).encode()

    def integer(self, *keys: str, default: int, minimum: int | None = None, maximum: int | None = None) -> int:
        entry = self.entry(*keys)
        return default if entry is None else expect_integer(entry.value, entry.key, minimum, maximum)

    def integer_or_default(self, *keys: str, default: int, maximum: int | None = None) -> int:
        """Return an integer that is not negative; 0 means the default, as in nats-server."""
        return self.integer(*keys, default=default, minimum=0, maximum=maximum) or default

    def port(self, *keys: str, default: int) -> int:
        return self.integer(*keys, default=default, minimum=-1, maximum=PORT_MAX)

    def seconds(self, *keys: str, default: float, minimum: float = 0.0, maximum: float | None = None) -> float:
        """Return a duration: a Go duration string, or a bare number of seconds (with a warning, as in nats-server)."""
        entry = self.entry(*keys)
        if entry is None:
            return default
        value = entry.value.value
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            duration_s = float(value)
            self.reading.warn(entry.value.position, entry.key, f"{entry.key} should be converted to a duration")
        elif isinstance(value, str):
            duration_s = expect_duration(entry.value, entry.key)
        else:
            raise wrong_type("a duration", entry.value, entry.key)
        return check_range(duration_s, entry, minimum, maximum)

    def seconds_or_default(self, *keys: str, default: float) -> float:
        """Return a duration; 0 means the default, as in nats-server."""
        return self.seconds(*keys, default=default) or default

    def timeout(self, *keys: str, default: float) -> float:
        """Return a timeout: seconds as a number (nats-server's usual form here, no warning) or a Go duration string.

        0 means the default, as in nats-server.
        """
        entry = self.entry(*keys)
        if entry is None:
            return default
        value = entry.value.value
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return check_range(float(value), entry, 0.0, None) or default
        return check_range(expect_duration(entry.value, entry.key), entry, 0.0, None) or default

    def size(self, *keys: str, default: int) -> int:
        """Return a JetStream size: an integer, or a string ending in K, M, G or T (powers of 1024); `-1`: unlimited."""
        entry = self.entry(*keys)
        return default if entry is None else expect_size(entry.value, entry.key)

    def choice(self, *keys: str, allowed: tuple[str, ...], default: str = "") -> str:
        """One of some words, in any case."""
        entry = self.entry(*keys)
        if entry is None:
            return default
        word = expect_string(entry.value, entry.key).lower()
        if word not in allowed:
            raise ConfError(f"expected one of {', '.join(allowed)}", entry.value.position, entry.key)
        return word

    def strings(self, *keys: str) -> tuple[str, ...]:
        """One string or an array of strings."""
        entry = self.entry(*keys)
        if entry is None:
            return ()
        if isinstance(entry.value.value, str):
            return (entry.value.value,)
        return tuple(expect_string(element, entry.key) for element in expect_array(entry.value, entry.key))

    def pairs(self, *keys: str) -> tuple[tuple[str, str], ...]:
        """Return a map of strings to strings, in order."""
        block = self.block(*keys)
        if block is None:
            return ()
        return tuple((entry.key, expect_string(entry.value, entry.key)) for entry in block.all())

    def block(self, *keys: str) -> Block | None:
        """Return a nested map."""
        entry = self.entry(*keys)
        return None if entry is None else self.nested(entry.value, entry.key)

    def blocks(self, *keys: str) -> tuple[Block, ...]:
        """Return an array of maps."""
        entry = self.entry(*keys)
        if entry is None:
            return ()
        return tuple(self.nested(element, entry.key) for element in expect_array(entry.value, entry.key))

    def nested(self, value: ConfValue, key: str) -> Block:
        if not isinstance(value.value, ConfMap):
            raise wrong_type("a map", value, key)
        return Block(value.value, self.reading)

    def all(self) -> Iterator[ConfEntry]:
        """Yield all entries of a map whose keys are names, which have a case; counts them as requested."""
        for entry in self._map:
            self._read.add(entry.key.lower())
            yield entry


def wrong_type(expected: str, value: ConfValue, key: str) -> ConfError:
    return ConfError(f"expected {expected}, but got {type_name(value.value)}", value.position, key)


def check_range(duration_s: float, entry: ConfEntry, minimum: float, maximum: float | None) -> float:
    if duration_s < minimum or (maximum is not None and duration_s > maximum):
        limit = f"at least {minimum:g}s" if duration_s < minimum else f"at most {maximum:g}s"
        raise ConfError(f"must be {limit}", entry.value.position, entry.key)
    return duration_s


def expect_boolean(value: ConfValue, key: str) -> bool:
    if not isinstance(value.value, bool):
        raise wrong_type("a boolean", value, key)
    return value.value


def expect_string(value: ConfValue, key: str) -> str:
    if not isinstance(value.value, str):
        hint = "" if isinstance(value.value, (tuple, ConfMap)) else " (quote it)"
        raise ConfError(f"expected a string, but got {type_name(value.value)}{hint}", value.position, key)
    return value.value


def expect_integer(value: ConfValue, key: str, minimum: int | None = None, maximum: int | None = None) -> int:
    number = value.value
    if not isinstance(number, int) or isinstance(number, bool):
        raise wrong_type("an integer", value, key)
    if minimum is not None and number < minimum:
        raise ConfError(f"must be at least {minimum}", value.position, key)
    if maximum is not None and number > maximum:
        raise ConfError(f"must be at most {maximum}", value.position, key)
    return number


def expect_array(value: ConfValue, key: str) -> tuple[ConfValue, ...]:
    if not isinstance(value.value, tuple):
        raise wrong_type("an array", value, key)
    return value.value


def expect_duration(value: ConfValue, key: str) -> float:
    try:
        return parse_duration_ns(expect_string(value, key)) / 1e9
    except ValueError as error:
        raise ConfError(f"error parsing {key}: {error}", value.position, key) from None


def expect_size(value: ConfValue, key: str) -> int:
    if isinstance(value.value, int) and not isinstance(value.value, bool):
        number = value.value
    elif isinstance(value.value, str):
        digits, factor = _split_size(value.value)
        if not is_digits(digits.removeprefix("-")):
            raise ConfError("expected a size: digits, and K, M, G or T", value.position, key)
        if len(digits) > _SIZE_DIGITS_MAX:
            raise ConfError("this size is out of range", value.position, key)
        number = int(digits) * factor
    else:
        raise wrong_type("a size", value, key)
    if not -1 <= number <= 2**63 - 1:
        raise ConfError("this size is out of range", value.position, key)
    return number


def _split_size(text: str) -> tuple[str, int]:
    powers = {"k": 1, "m": 2, "g": 3, "t": 4}
    bare = text.strip()
    power = powers.get(bare[-1:].lower(), 0)
    return (bare[:-1] if power else bare), 1024**power
