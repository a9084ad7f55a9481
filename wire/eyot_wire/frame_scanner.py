"""The scanning loop that the client and leaf protocols share, in plain Python.

`_frame_scanner.pyx` does the same, byte for byte, on the raw buffer; this one runs where nothing was compiled, and is what the
compiled one is tested against.

One call scans one whole read. Per frame it does one search for LF, one lookup of the control line in a memo and one
slice; a line seen before is not parsed again. What is left of an incomplete line is kept (it is short), an incomplete
payload is gathered in a bytearray that grows in place, so that a payload arriving in a thousand pieces is copied twice
in all and never once per piece.
"""

from typing import Final

from eyot_wire.frames import FrameLine, Op, ProtocolError, Pub, Publishes
from eyot_wire.grammar import Grammar, no_end

# Control lines remembered per connection, none that is longer: about 400 bytes each, so 200 KB for the busiest connection.
REMEMBERED_LINES_MAX: Final = 512
REMEMBERED_LENGTH_MAX: Final = 512

# How the subjects of acknowledgements and answers begin.
_ONE_TIME: Final = (b"$JS.", b"_INB")

_LF: Final = b"\n"


class FrameScanner:
    """Bytes in, operations out; the grammar says which. With `batches`, publishes in a row come as one `Publishes`."""

    def __init__(self, grammar: Grammar, *, batches: bool = False, max_control_line: int, max_payload: int) -> None:
        self._grammar = grammar
        self._after = 2 if grammar.keep_end else 0  # bytes kept after the payload: its CRLF
        self._batches = batches
        self._max_control_line = max_control_line
        self._max_payload = max_payload
        self._memo: dict[bytes, FrameLine] = {}
        self._rest = b""  # incomplete control line
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
        """Largest header and payload together, bytes."""
        return self._max_payload

    @max_payload.setter
    def max_payload(self, limit: int) -> None:
        self._max_payload = limit
        self._memo.clear()

    @property
    def pending(self) -> int:
        """Bytes received of a frame that is not complete yet, and kept."""
        line = self._line
        return len(self._rest) if line is None else line.length + line.total + 2 - self._missing

    def feed(self, data: bytes | bytearray | memoryview) -> list[Op]:
        """The operations that `data` completes.

        ProtocolError: the bytes break the protocol; `error.ops` are the operations before the offence. After that every
        further feed raises.

        `Publishes` made from a memoryview show its bytes as they are when looked at: who reuses the buffer has done with
        them first, or `detach`es them.
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
            # Only without an incomplete payload, so that nothing of `data` is taken yet.
            data = self._rest + data
            self._rest = b""
        size = len(data)
        find = data.find
        known = self._memo.get
        append = ops.append
        make = self._grammar.make
        after = self._after
        guess = 0  # length of the next line, when the last two were equally long
        while at < size:
            # A remembered line ends in its only LF: when the guessed bytes are one, there is no need to search.
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
        """Take what the pending payload still needs; the number of bytes taken."""
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
        """Parse a control line, LF included; remember it when it may well come again."""
        op = self._grammar.quick(text) if len(text) <= self._max_control_line else None
        if op is None or (type(op) is FrameLine and op.total > self._max_payload):
            return self._grammar.parse(text, self._max_control_line, self._max_payload)
        # Lines with a reply are nearly always unique, and so are those to a reply: they would only push out others.
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
    """The same with publishes in a row put together."""
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
