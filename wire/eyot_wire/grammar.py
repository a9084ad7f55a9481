"""The shared part of the client and leaf grammars: operations, their arguments, and refusals.

A `Grammar` defines which operations one side may send. It reads control lines as strictly as nats-server does (any
case, any white space, limits, error words). The scanners read the usual spellings of the usual operations themselves
and call the grammar for all others.

As in nats-server, LF ends a control line, a CR before it is dropped, and CRLF must follow a payload.
"""

import re
from collections.abc import Callable
from typing import Final

from eyot_wire.frames import MAX_CONTROL_LINE, MAX_PAYLOAD, UNKNOWN_OPERATION, FrameLine, Op, ProtocolError

# The longest size that nats-server reads, in digits.
SIZE_DIGITS_MAX: Final = 9

Handler = Callable[[bytes, bytes], FrameLine | Op]


class Verb:
    """One operation: what follows its word, and the function that reads its arguments.

    `ends`: "space": white space must follow (PUB); "open": arguments may follow at once (INFO{…}); "bare": the rest of
    the line is ignored (PING).
    """

    __slots__ = ("ends", "handler", "word")

    def __init__(self, word: bytes, ends: str, handler: Handler) -> None:
        self.word = word
        self.ends = ends
        self.handler = handler


class Grammar:
    """The operations that one side of a connection may send.

    `make`: builds an operation from a control line and the kept bytes. `quick`: reads the usual spelling of the usual
    operations; None for anything else. `message`: the operation of a payload: "PUB", "MSG" or "LMSG" (and the forms
    with headers). `keep_end`: the kept bytes include the payload's CRLF.
    """

    def __init__(
        self,
        verbs: list[Verb],
        make: Callable[[FrameLine, bytes], Op],
        quick: Callable[[bytes], FrameLine | Op | None],
        *,
        message: str,
        keep_end: bool,
    ) -> None:
        self.make = make
        self.quick = quick
        self.message = message
        self.keep_end = keep_end
        self._verbs = verbs
        self._words = re.compile(b"|".join(re.escape(verb.word) for verb in verbs), re.IGNORECASE).match
        self._handlers = {verb.word: verb for verb in verbs}

    def parse(self, text: bytes, max_control_line: int, max_payload: int) -> FrameLine | Op:
        """Read a control line, LF included, in any spelling. Raises ProtocolError."""
        found = self._words(text)
        if found is None:
            raise ProtocolError(UNKNOWN_OPERATION, f"unknown operation {text[:32]!r}")
        verb = self._handlers[found[0].upper()]
        if verb.ends == "bare":
            return verb.handler(b"", text)
        rest = text[len(verb.word) : -2 if text.endswith(b"\r\n") else -1]
        argument = rest.lstrip(b" \t")
        if verb.ends == "space" and len(argument) == len(rest):
            raise ProtocolError(UNKNOWN_OPERATION, f"unknown operation {text[:32]!r}")
        if len(argument) > max_control_line:
            raise ProtocolError(MAX_CONTROL_LINE, f"control line of {len(argument)} bytes")
        parsed = verb.handler(argument, text)
        if isinstance(parsed, FrameLine) and parsed.total > max_payload:
            raise ProtocolError(MAX_PAYLOAD, f"maximum payload exceeded: {parsed.total} vs {max_payload}")
        return parsed

    def check_start(self, start: bytes, max_control_line: int) -> bytes:
        """Return the part of an incomplete line to keep: all of it, or less where white space repeats.

        Raises ProtocolError when the line cannot become valid, or is too long already.
        """
        if len(start) > max_control_line:
            start = self._shortened(start, max_control_line)
        first = start[:8].upper()
        for verb in self._verbs:
            word = verb.word
            if first.startswith(word):
                if verb.ends != "space" or len(start) == len(word) or start[len(word)] in b" \t":
                    return start
            elif word.startswith(first):
                return start
        raise ProtocolError(UNKNOWN_OPERATION, f"unknown operation {start[:32]!r}")

    def _shortened(self, start: bytes, max_control_line: int) -> bytes:
        # Only arguments count towards the limit: text before them, and ignored text, is not kept.
        found = self._words(start)
        if found is None:
            return start
        if self._handlers[found[0].upper()].ends == "bare":
            return found[0]
        argument = start[found.end() :].lstrip(b" \t")
        length = len(argument) - argument.endswith(b"\r")
        if length > max_control_line:
            raise ProtocolError(MAX_CONTROL_LINE, f"control line of more than {length} bytes")
        return start if len(argument) == len(start) - found.end() else found[0] + b" " + argument


def no_end(total: int) -> ProtocolError:
    """Return the error for a payload of `total` bytes without CRLF."""
    return ProtocolError(UNKNOWN_OPERATION, f"no CRLF after a payload of {total} bytes")


def split_arguments(argument: bytes) -> list[bytes]:
    """Split the arguments of a message's control line at runs of spaces and tabs."""
    if 9 in argument:
        argument = argument.replace(b"\t", b" ")
    parts = argument.split(b" ")
    return [part for part in parts if part] if b"" in parts else parts


def split_interest(argument: bytes) -> list[bytes]:
    """Split the arguments of a subscription's control line; here a stray CR separates, too."""
    return split_arguments(argument.replace(b"\r", b" ") if 13 in argument else argument)


# Remembered sizes at the end of a line, CRLF included: to parse one costs seven times a lookup.
_SIZES_MAX: Final = 2048
_sizes: dict[bytes, int] = {}


def last_size(text: bytes) -> int:
    r"""Return the size in the last word of a control line, `128\r\n`; -1 if there is none."""
    size = _sizes.get(text)
    if size is None:
        size = parse_size(text[:-2]) if text.endswith(b"\r\n") else -1
        if len(_sizes) >= _SIZES_MAX:
            _sizes.clear()
        _sizes[text] = size
    return size


def parse_size(text: bytes) -> int:
    """Return a size of a control line; -1 for other text and for more than nine digits."""
    return int(text) if bytes.isdigit(text) and len(text) <= SIZE_DIGITS_MAX else -1


def bad_arguments(operation: str, argument: bytes) -> ProtocolError:
    """Return the error for arguments that nats-server cannot read: it closes without a word."""
    return ProtocolError("", f"{operation} parse error: {argument[:64]!r}")


def check_sizes(operation: str, argument: bytes, header_size: int, total: int) -> None:
    """Check 0 <= header_size <= total. Raises ProtocolError."""
    if header_size < 0 or total < 0 or header_size > total:
        raise bad_arguments(operation, argument)
