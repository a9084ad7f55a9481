"""Both twins of the compiled modules side by side, and their scanners' results in a form that can be compared."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from eyot_wire import (
    _fan_out,
    _frame_scanner,
    _out_buffer,
    _stored_run,
    fan_out,
    frame_scanner,
    frames,
    out_buffer,
    stored_run,
)
from eyot_wire.frames import ProtocolError, Pub
from eyot_wire.grammar import Grammar
from eyot_wire.leaf_scanner import FROM_LEAF
from eyot_wire.scanner import FROM_CLIENT, FROM_SERVER

__all__ = ["FAN_OUTS", "GRAMMARS", "SCANNERS", "STORED_RUNS", "assert_same", "meaning", "outcome"]

GRAMMARS: dict[str, Grammar] = {"PUB": FROM_CLIENT, "MSG": FROM_SERVER, "LMSG": FROM_LEAF}
SCANNERS: tuple[type, type] = (frame_scanner.FrameScanner, _frame_scanner.FrameScanner)
FAN_OUTS = tuple(
    SimpleNamespace(**{**vars(buffers), **vars(one)})
    for one, buffers in ((fan_out, out_buffer), (_fan_out, _out_buffer))
)
STORED_RUNS: tuple[type, type] = (stored_run.StoredRun, _stored_run.StoredRun)
_ROWS = (frames.Publishes, _frame_scanner.Publishes)


def meaning(op: Any) -> list[object]:
    """What an operation says, a row of publishes taken apart."""
    if isinstance(op, Pub):
        return [("PUB", op.subject, op.reply, op.header, op.payload, op.tail, op.size)]
    if not isinstance(op, _ROWS):
        return [op]
    found: list[object] = []
    tails = op.tails(0, len(op))
    for index, tail in enumerate(tails):
        line = op.line(index)
        assert op.run(index) >= 1
        found.append(("PUB", line.subject, line.reply, *op.content(index), tail, line.total))
    return found


def outcome(
    twin: type, message: str, pieces: Iterable[bytes], *, batches: bool, max_control_line: int, max_payload: int
) -> list[object]:
    """Everything there is to see of a scanner that is fed `pieces`, in a buffer that is used again for each."""
    scanner = twin(GRAMMARS[message], batches=batches, max_control_line=max_control_line, max_payload=max_payload)
    seen: list[object] = []
    for piece in pieces:
        buffer = bytearray(piece)
        try:
            ops = scanner.feed(memoryview(buffer))
        except ProtocolError as error:
            seen += [said for op in error.ops for said in meaning(op)]
            seen.append((error.text, error.detail, error.close))
        else:
            seen += [said for op in ops for said in meaning(op)]
            del ops
        buffer[:] = b"\xaa" * len(buffer)
        seen.append(scanner.pending)
    return seen


def assert_same(message: str, pieces: list[bytes], max_control_line: int = 4096, max_payload: int = 1 << 20) -> None:
    """Both twins' scanners see the same in `pieces`."""
    for batches in (False, True) if message == "PUB" else (False,):
        plain, compiled = (
            outcome(twin, message, pieces, batches=batches, max_control_line=max_control_line, max_payload=max_payload)
            for twin in SCANNERS
        )
        assert compiled == plain
