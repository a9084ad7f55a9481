"""The scanning loop of the client and leaf protocols, in plain Python.

`_frame_scanner.pyx` is the compiled twin, byte for byte. This module runs without a compiler, and tests compare both.

One call scans one read. A frame costs one search for LF, one lookup of the control line in a memo, and one slice; a
repeated line is not parsed again. The scanner keeps the start of an incomplete line, which is short. It gathers an
incomplete payload in a bytearray that grows in place, so that a payload in a thousand pieces is copied twice in all.
"""

from typing import Final

from eyot_wire.frames import FrameLine, Op, ProtocolError, Pub, Publishes
from eyot_wire.grammar import Grammar, no_end

# Control lines remembered per connection, and the longest remembered: about 400 bytes each, so 200 KB for the busiest
# connection.
REMEMBERED_LINES_MAX: Final = 512
REMEMBERED_LENGTH_MAX: Final = 512

# Prefixes of acknowledgement and inbox subjects, which do not repeat.
_ONE_TIME: Final = (b"$JS.", b"_INB")

_LF: Final = b"\n"


class FrameScanner:
    """Bytes in, operations out, by a grammar. With `batches`, consecutive publishes become one `Publishes`."""

    def __init__(self, grammar: Grammar, *, batches: bool = False, max_control_line: int, max_payload: int) -> None:
        self._grammar = grammar
        self._after = 2 if grammar.keep_end else 0  # bytes kept after the payload: its CRLF
        self._batches = batches
        self._max_control_line = max_control_line
        self._max_payload = max_payload
        self._memo: dict[bytes, FrameLine] = {}
        self._rest = b""  # start of an incomplete control line
        self._line: FrameLine | None = None  # control line whose payload is incomplete
        self._gathered = bytearray()
        self._missing = 0  # bytes of the payload and its CRLF still to come
        self._failed: tuple[str, str] | None = None

    @property
    def max_control_line(self) -> int:
        """Longest argument text of one operation, bytes."""
        return self._max_control_line

    @max_control_line.setter
    def max_control_line(self, limit: int) -> None:
        self._max_control_line = limit
        self._memo.clear()

    @property
    def max_payload(self) -> int:
        """Largest sum of header and payload, bytes."""
        return self._max_payload

    @max_payload.setter
    def max_payload(self, limit: int) -> None:
        self._max_payload = limit
        self._memo.clear()

    @property
    def pending(self) -> int:
        """Bytes kept of an incomplete frame."""
        line = self._line
        return len(self._rest) if line is None else line.length + line.total + 2 - self._missing

    def feed(self, data: bytes | bytearray | memoryview) -> list[Op]:
        """Return the operations that `data` completes.

        Raises ProtocolError when the bytes break the protocol; `error.ops` are the operations before the offence. Every
        later call raises again.

        `Publishes` of a memoryview refer to its memory. The caller finishes with them before it reuses the buffer, or
        calls `detach`.
        """
        if self._failed is not None:
            raise ProtocolError(*self._failed)
        ops: list[Op] = []
        try:
            start = self._finish_payload(data, ops) if self._line is not None else 0
            if start < len(data):
                self._scan(bytes(data), start, ops)
        except ProtocolError as error:
            error.ops = _gathered(ops) if self._batches else ops
            self._failed = (error.text, error.detail)
            self._rest, self._line, self._gathered = b"", None, bytearray()
            raise
        return _gathered(ops) if self._batches else ops

    def _scan(self, data: bytes, at: int, ops: list[Op]) -> None:
        if self._rest:
            # Only without an incomplete payload, so that `data` is still untouched.
            data = self._rest + data
            self._rest = b""
        size = len(data)
        find = data.find
        known = self._memo.get
        append = ops.append
        make = self._grammar.make
        after = self._after
        guess = 0  # length of the next line, if the last two had the same length
        while at < size:
            # A remembered line ends in its only LF: if the guessed bytes are one, no search is needed.
            line = known(data[at : at + guess]) if guess else None
            if line is None:
                lf = find(_LF, at) + 1
                if not lf:
                    self._rest = self._grammar.check_start(data[at:], self._max_control_line)
                    return
                text = data[at:lf]
                line = known(text)
                if line is None:
                    op = self._parse(text)
                    if not isinstance(op, FrameLine):
                        append(op)
                        at = lf
                        continue
                    line = op
                    guess = 0
                else:
                    guess = line.length
            end = at + line.length + line.total
            if end + 2 > size:
                self._begin_payload(line, data, at, end)
                return
            if data[end] != 13 or data[end + 1] != 10:
                raise no_end(line.total)
            kept = data[at + line.skip : end + after]
            append(make(line, line.prefix + kept if line.prefix else kept))
            at = end + 2

    # payloads in pieces

    def _begin_payload(self, line: FrameLine, data: bytes, at: int, end: int) -> None:
        self._line = line
        self._missing = end + 2 - len(data)
        self._gathered = bytearray(line.prefix)
        self._gathered += memoryview(data)[at + line.skip :]

    def _finish_payload(self, data: bytes | bytearray | memoryview, ops: list[Op]) -> int:
        """Append what the incomplete payload needs; return the number of bytes used."""
        take = min(self._missing, len(data))
        self._gathered += memoryview(data)[:take]
        self._missing -= take
        if not self._missing:
            line, gathered = self._line, self._gathered
            assert line is not None
            self._line, self._gathered = None, bytearray()
            if gathered[-2:] != b"\r\n":
                raise no_end(line.total)
            if not self._after:
                del gathered[-2:]
            ops.append(self._grammar.make(line, bytes(gathered)))
        return take

    # control lines

    def _parse(self, text: bytes) -> FrameLine | Op:
        """Parse a control line, LF included; remember it if it may repeat."""
        op = self._grammar.quick(text) if len(text) <= self._max_control_line else None
        if op is None or (type(op) is FrameLine and op.total > self._max_payload):
            return self._grammar.parse(text, self._max_control_line, self._max_payload)
        # Lines with a reply, and lines to a reply subject, rarely repeat: they would evict the others.
        if (
            type(op) is FrameLine
            and not op.reply
            and len(text) <= REMEMBERED_LENGTH_MAX
            and op.subject[:4] not in _ONE_TIME
        ):
            if len(self._memo) >= REMEMBERED_LINES_MAX:
                self._memo.clear()
            self._memo[text] = op
        return op


def _gathered(ops: list[Op]) -> list[Op]:
    """Return the operations with consecutive publishes combined into `Publishes`."""
    found: list[Op] = []
    row: list[Pub] = []
    for op in ops:
        if type(op) is Pub:
            if not row:
                row = []
                found.append(Publishes(row))
            row.append(op)
        else:
            row = []
            found.append(op)
    return found
