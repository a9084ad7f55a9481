"""Counters (ADR-49): subjects whose messages hold a running sum of any size.

A message with `Nats-Incr` is stored with the new sum as its payload, `{"val":"<sum>"}`. Where counters are sourced,
each origin's last sum is kept beside it (`Nats-Counter-Sources`), and the difference to the new sum is added: a later
message makes up for those that never arrived.
"""

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from eyot_daemon.jetstream.nats_headers import COUNTER_SOURCES, INCREMENT
from eyot_wire import headers
from eyot_wire.jetstream import stream_source
from eyot_wire.jetstream.error_codes import JSMessageCounterBrokenErr, JSMessageIncrMissingErr
from eyot_wire.jetstream.errors import ApiError, error
from eyot_wire.untrusted import decode_json

if TYPE_CHECKING:
    from eyot_store.log.log import Log

#: Subjects whose sums are remembered; those that are not yet on flash are never forgotten.
REMEMBERED_MAX = 4096

Sources = dict[str, dict[str, str]]


class _Payload(msgspec.Struct):
    val: str


#: Python writes no number of more than 4,300 digits; increments have at most 4,000 (`headers.py`).
SUM_DIGITS_MAX = 4200


class Sum(NamedTuple):
    """The sum of a subject, and the header and payload of the message that stores it."""

    value: int
    sources: bytes  # the value of Nats-Counter-Sources, b"": none
    header: bytes
    payload: bytes


class Counters:
    """The sums of one stream."""

    def __init__(self, log: "Log") -> None:
        self._log = log
        self._known: dict[bytes, tuple[int, int, bytes]] = {}  # subject -> sequence, sum, sources

    def added(self, subject: bytes, header: bytes, fields: dict[bytes, bytes], payload: bytes) -> Sum | ApiError:
        """Return the message to store for one that adds to `subject`. A message that names its origin was sourced."""
        increment = fields.get(INCREMENT)
        if not increment:
            return error(JSMessageIncrMissingErr)
        last = self._last(subject)
        if last is None:
            return error(JSMessageCounterBrokenErr)
        value, sums = last
        origin = fields.get(stream_source.HEADER)
        if origin is None:
            value += int(increment)
        else:
            difference = _copied(origin, payload, sums)
            if difference is None:
                return error(JSMessageCounterBrokenErr)
            value += difference
            header = _with_field(header, INCREMENT, b"%d" % difference)
        # What the stream knows of origins replaces what a publisher says of them.
        sources = _encoded(sums) if sums else fields.get(COUNTER_SOURCES, b"")
        if sums:
            header = _with_field(header, COUNTER_SOURCES, sources)
        return Sum(value, sources, header, b'{"val":"%d"}' % value)

    def stored(self, subject: bytes, seq: int, total: Sum) -> None:
        """`total` is staged as `seq`."""
        self._known[subject] = (seq, total.value, total.sources)
        if len(self._known) > REMEMBERED_MAX:
            committed = self._log.committed_seq
            self._known = {key: known for key, known in self._known.items() if known[0] > committed}

    def forget(self) -> None:
        """Something staged did not happen."""
        self._known.clear()

    def _last(self, subject: bytes) -> tuple[int, Sources] | None:
        """Sum of a subject, and the sums of its origins; None when its last message is no counter."""
        seq = self._log.last_seq_for(subject)
        if not seq:
            return 0, {}
        known = self._known.get(subject)
        try:
            if known is not None and known[0] == seq:
                _, value, sources = known
            else:
                message = self._log.get(seq)
                if message is None:
                    return None
                value = _sum_in(message.payload)
                sources = headers.get(message.header, COUNTER_SOURCES) or b""
            # The first message of a subject keeps what its publisher said of origins, which may be anything.
            return value, decode_json(sources, Sources) if sources not in (b"", b"null") else {}
        except ValueError:
            return None


def _sum_in(payload: bytes) -> int:
    """Return the sum in a payload. Raises ValueError (or msgspec.DecodeError) unless it is a counter of allowed length."""
    written = decode_json(payload, _Payload).val
    if len(written) > SUM_DIGITS_MAX:
        raise ValueError("more digits than a sum may have")
    return int(written)


def _copied(origin: bytes, payload: bytes, sums: Sources) -> int | None:
    """Return the increment of a sourced message, and update the sums of its origin; None: the message is of no counter."""
    source = stream_source.parse(origin)
    if source is None:
        return None
    try:
        total = _sum_in(payload)
    except ValueError:
        return None
    of_stream = sums.setdefault(source.name, {})
    try:
        before = int(of_stream.get(source.subject, "0"))
    except ValueError:
        before = 0  # a publisher's word: it must not stop the source
    of_stream[source.subject] = str(total)
    return total - before


def _encoded(sums: Sources) -> bytes:
    """Return the value of Nats-Counter-Sources."""
    ordered = {name: dict(sorted(of_stream.items())) for name, of_stream in sorted(sums.items())}
    return msgspec.json.encode(ordered)


def _with_field(header: bytes, name: bytes, value: bytes) -> bytes:
    """Return the block with `name` as `value`, where it stood if it was there."""
    have = headers.get(header, name)
    if have is None:
        return headers.add_field(header, name, value)
    return header if have == value else headers.replace(header, name, value)
