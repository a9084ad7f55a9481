"""Checks whether the origin is still the one that was copied.

An origin that was set back (its disk restored from a backup) gives sequences again. Once it has grown past the mirror's
or source's position, its last sequence reveals nothing. The stored time of the last copied message does: the same
message has the same time. Eyot answers it along with the consumer (`stored_times.py`); from a nats-server the message
itself is requested, if it is small. The last one may have been purged there, so Eyot is asked for some earlier ones as
well. Removed messages (limits, a purge, a work queue) and unreadable ones are no evidence: the position then counts by
sequence alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from eyot_sync.sourcing import stored_times
from eyot_sync.sourcing.origin import Origin
from eyot_sync.sourcing.origin_answers import StoredAnswer
from eyot_wire.go.time import rfc3339_to_ns
from eyot_wire.jetstream.requests import MsgGetRequest
from eyot_wire.jetstream.struct import InvalidJson, decode, encode

#: A larger message is not requested: on a slow link it would delay replication.
ASKED_BYTES_MAX = 8 << 10


class OriginPosition(NamedTuple):
    """A message of the origin: its sequence, its time there (ns; 0: unknown), the bytes of header and payload (0: unknown)."""

    seq: int = 0
    ts_ns: int = 0
    size: int = 0


#: The number of earlier messages whose times are remembered.
CHECKPOINTS_MAX = 3


class OriginCheck:
    """The evidence of one consumer request.

    `pending`: an answer is awaited. `refuted`: the origin was set back. `stored`: known times of messages there, by
    sequence. `checkpoints`: sequences and times of messages before the last copied one.
    """

    def __init__(
        self, reached: OriginPosition, others: Sequence[int] = (), checkpoints: Sequence[tuple[int, int]] = ()
    ) -> None:
        self.reached = reached
        self.others = others
        self.checkpoints = [each for each in checkpoints if each[0] < reached.seq]
        self.stored: dict[int, int] = {}
        self.pending = self._provable or bool(others)
        self.refuted = False

    @property
    def _provable(self) -> bool:
        return bool(self.reached.seq and (self.reached.ts_ns or self.checkpoints))

    @property
    def metadata(self) -> dict[str, str]:
        """Return the questions to add to the consumer request."""
        own = (self.reached.seq, *(seq for seq, _ in self.checkpoints)) if self._provable else ()
        asked = stored_times.question((*own, *self.others))
        return {stored_times.KEY: asked} if asked else {}

    def heard(self, metadata: Mapping[str, str]) -> bool:
        """Process the origin's answer with the consumer; return False if the message itself must still be requested."""
        told = stored_times.read(metadata.get(stored_times.KEY, ""))
        if told is not None:
            self.stored = told
            for seq, ts_ns in ((self.reached.seq, self.reached.ts_ns), *self.checkpoints):
                self._compare(ts_ns, told.get(seq, 0))
        askable = self.reached.seq and self.reached.ts_ns and 0 < self.reached.size <= ASKED_BYTES_MAX
        self.pending = self.pending and told is None and bool(askable)
        return not self.pending

    def request(self, origin: Origin) -> tuple[bytes, bytes]:
        """(subject, body) of the request for the message itself."""
        body = encode(MsgGetRequest(seq=self.reached.seq, no_hdr=True))
        return f"{origin.api}.STREAM.MSG.GET.{origin.stream}".encode(), body

    def message(self, payload: bytes) -> None:
        """Process the answer with the message."""
        self.pending = False
        try:
            answer = decode(payload, StoredAnswer, strict=False)
            if answer.message is not None and answer.message.seq == self.reached.seq:
                self._compare(self.reached.ts_ns, rfc3339_to_ns(answer.message.time))
        except (InvalidJson, ValueError):
            return  # no evidence

    def _compare(self, ts_ns: int, reported_ns: int) -> None:
        self.refuted = self.refuted or (ts_ns != 0 and reported_ns != 0 and reported_ns != ts_ns)
