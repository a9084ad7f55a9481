"""The check that `jsck` requests before a backup: read every record of the stream and verify its checksum."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from eyot_store.errors import StoreError

if TYPE_CHECKING:
    from eyot_daemon.jetstream.stream_core import StreamCore

SLICE_MESSAGES = 1024
SLICE_BYTES = 512 << 10


def check_messages(stream: "StreamCore", done: Callable[[str], None]) -> None:
    """Check all messages, a slice per turn; `done` receives the problem, or ""."""
    timers = stream.timers
    last = stream.log.committed_seq
    bad = 0

    def look(seq: int) -> None:
        nonlocal bad
        try:
            read = stream.log.read(seq, max_messages=SLICE_MESSAGES, max_bytes=SLICE_BYTES, up_to=last)
            seq = max(read.next_seq, seq + 1)
        except StoreError as failure:
            if failure.reason != "corrupt":
                done(f"snapshot check failed: {failure.message}")
                return
            bad += 1
            seq = failure.seq + 1
        if seq <= last:
            timers.call_later(0, lambda: look(seq))
        else:
            done(f"snapshot check detected {bad} bad messages" if bad else "")

    timers.call_later(0, lambda: look(1))
