"""Stored messages as a consumer's first deliveries, with everything needed to write their frames."""

from __future__ import annotations

from msgspec import Struct

from eyot_wire.native import StoredRun


class FirstDeliveries(Struct, frozen=True):
    """First deliveries of the messages of `run` from index `start` to before `stop`.

    `prefix`: start of the acknowledgement subjects, `$JS.ACK.<stream>.<consumer>.`; `cseq`: consumer sequence of the
    first message; `pending`: the number of pending messages before the first one is delivered, itself included.
    """

    run: StoredRun
    start: int
    stop: int
    prefix: bytes
    cseq: int
    pending: int

    def __len__(self) -> int:
        return self.stop - self.start

    def write_lmsgs(self, subject: bytes, size_max: int, chunk_bytes: int) -> list[tuple[bytes, int, int]]:
        """Return the frames for a leaf link: see `StoredRun.write_lmsgs`."""
        return self.run.write_lmsgs(
            self.start, self.stop, subject, self.prefix, self.cseq, self.pending, size_max, chunk_bytes
        )

    def header_holds(self, text: bytes) -> bool:
        """Return whether the header of any message contains `text`."""
        return self.run.header_holds(self.start, self.stop, text)

    def one_by_one(self) -> list[tuple[bytes, bytes, bytes]]:
        """Return reply, header and payload of each message as it leaves over a leaf link."""
        return [
            (
                b"%b1.%d.%d.%d.%d@%b" % (self.prefix, seq, self.cseq + at, ts_ns, self.pending - at - 1, subject),
                header,
                payload,
            )
            for at, (seq, ts_ns, subject, header, payload) in enumerate(self.run.opened(self.start, self.stop))
        ]
