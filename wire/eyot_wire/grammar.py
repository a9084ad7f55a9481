"""What the client and leaf protocols have in common as grammars: operations, their arguments, and refusals.

A `Grammar` says which operations one side may send and reads control lines with all the care nats-server takes (any
case, any white space, limits, its error words). The scanners read the usual spellings of the usual operations by
themselves and come here for the rest.

Like nats-server, LF ends a control line, a CR before it is dropped, and a payload must be followed by CRLF.
"""

import re
from collections.abc import Callable
from typing import Final

from eyot_wire.frames import MAX_CONTROL_LINE, MAX_PAYLOAD, UNKNOWN_OPERATION, FrameLine, Op, ProtocolError

# Longest size nats-server reads, in digits.
SIZE_DIGITS_MAX: Final = 9

Handler = Callable[[bytes, bytes], FrameLine | Op]


class Verb:
    """One operation: how its word ends and what reads its arguments.

    `ends`: "space", white space must follow (PUB); "open", arguments may follow at once (INFO{…}); "bare", whatever
    follows is ignored (PING).
    """

    __slots__ = ("ends", "handler", "word")

    def __init__(self, word: bytes, ends: str, handler: Handler) -> None:
        self.word = word
        self.ends = ends
        self.handler = handler


class Grammar:
    """What one side of a connection may send.

    `make`      turns a control line and the bytes it kept into an operation.
    `quick`     reads the usual spelling of the usual operations; None for anything else.
    `message`   what a payload belongs to: "PUB", "MSG" or "LMSG" (and their forms with headers).
    `keep_end`  the kept bytes include the payload's CRLF.
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
        """Read a control line, LF included, in whatever spelling. ProtocolError: it breaks the protocol or a limit."""
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
        """What to keep of an incomplete line: all of it, or less where white space goes on and on.

        ProtocolError: it cannot become a valid line, or is too long already.
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
        # Only arguments count against the limit, so that what stands before them must not be kept; nor what is ignored.
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
    """The error for a payload of `total` bytes that no CRLF follows."""
    return ProtocolError(UNKNOWN_OPERATION, f"no CRLF after a payload of {total} bytes")


def split_arguments(argument: bytes) -> list[bytes]:
    """The arguments of a message's control line: separated by runs of spaces and tabs, and by nothing else."""
    if 9 in argument:
        argument = argument.replace(b"\t", b" ")
    parts = argument.split(b" ")
    return [part for part in parts if part] if b"" in parts else parts


def split_interest(argument: bytes) -> list[bytes]:
    """The arguments of a subscription's control line, where a stray CR separates too."""
    return split_arguments(argument.replace(b"\r", b" ") if 13 in argument else argument)


# Sizes at the end of a line, CRLF included: parsing one costs seven times a lookup.
_SIZES_MAX: Final = 2048
_sizes: dict[bytes, int] = {}


def last_size(text: bytes) -> int:
    """The size in the last word of a control line, `128\\r\\n`; -1 when it is none."""
    size = _sizes.get(text)
    if size is None:
        size = parse_size(text[:-2]) if text.endswith(b"\r\n") else -1
        if len(_sizes) >= _SIZES_MAX:
            _sizes.clear()
        _sizes[text] = size
    return size


def parse_size(text: bytes) -> int:
    """A size of a control line; -1 when it is no number or longer than nine digits."""
    return int(text) if text.isdigit() and len(text) <= SIZE_DIGITS_MAX else -1


def bad_arguments(operation: str, argument: bytes) -> ProtocolError:
    """The error for arguments nats-server cannot read: it closes without a word."""
    return ProtocolError("", f"{operation} parse error: {argument[:64]!r}")


def check_sizes(operation: str, argument: bytes, header_size: int, total: int) -> None:
    """ProtocolError unless 0 <= header_size <= total."""
    if header_size < 0 or total < 0 or header_size > total:
        raise bad_arguments(operation, argument)
