"""The content of a run of stored messages, by the frames that are written of it."""

from __future__ import annotations

from eyot_wire.frames import Msg
from eyot_wire.jetstream.ack import decode_ack_reply
from eyot_wire.native import StoredRun
from eyot_wire.scanner import Scanner


def written_of(run: StoredRun) -> dict[int, tuple[int, bytes, bytes, bytes]]:
    """Time, subject, header and payload by sequence; the numbers that count upwards are looked at here."""
    out = bytearray()
    size = run.write_msgs(out, 0, len(run), b"3", b"$JS.ACK.S.c.", 5, 100)
    found = {}
    for number, op in enumerate(Scanner("client").feed(bytes(out))):
        assert isinstance(op, Msg)
        ack = decode_ack_reply(op.reply)
        assert ack is not None
        assert (op.sid, ack.stream, ack.consumer, ack.delivered) == (b"3", b"S", b"c", 1)
        assert (ack.consumer_seq, ack.pending) == (5 + number, 99 - number)
        found[ack.stream_seq] = (ack.ts_ns, op.subject, op.header, op.payload)
        size -= len(op.header) + len(op.payload)
    assert size == 0
    assert list(found) == run.seqs()
    return found
