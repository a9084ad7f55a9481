"""What `jsck` asks for before a backup: every record of the stream read, which holds each against its checksum."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from eyot_store.errors import StoreError

if TYPE_CHECKING:
    from eyot_daemon.jetstream.stream.stream import Stream

SLICE_MESSAGES = 1024
SLICE_BYTES = 512 << 10


def check_messages(stream: "Stream", done: Callable[[str], None]) -> None:
    """Look at all messages, a slice a turn; `done` gets what is to be said against them, or nothing."""
    timers = stream.broker.timers
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
