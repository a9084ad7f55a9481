"""The lanes of a link's output: what is put in comes out in order, or is counted as dropped or as lost."""

from __future__ import annotations

from itertools import count
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eyot_sync.leaf import outbox as module
from eyot_sync.leaf.interest import LeafInterest
from eyot_sync.leaf.outbox import LeafOutbox

LANE_BYTES = 400
CONTROL_BYTES = 200
LIMITS = {"URGENT_BYTES_MAX": LANE_BYTES, "CONTROL_BYTES_MAX": CONTROL_BYTES, "_INTEREST_KEYS_PER_SLICE": 3}


def make() -> LeafOutbox:
    return LeafOutbox(LeafInterest(), LANE_BYTES)


class Books:
    """An outbox, and what must come of each frame: `<lane><number>.....\\n`."""

    def __init__(self) -> None:
        self.outbox = make()
        self.numbers = count()
        self.put = self.taken = 0
        self.waiting: dict[str, list[bytes]] = {}
        self.control_waits: list[bytes] = []
        self.interest_waits = 0

    def control(self, sizes: list[int]) -> None:
        for size in sizes:
            frame = b"P%s\n" % (b"." * size)
            if not self.control_waits or sum(map(len, self.control_waits)) + len(frame) <= CONTROL_BYTES:
                self.control_waits.append(frame)
            self.outbox.put_control(frame)

    def interest(self, sizes: list[int]) -> None:
        self.outbox.put_interest(b"".join(b"LS+ i%d\r\n" % next(self.numbers) for _ in sizes))
        self.interest_waits += len(sizes)

    def subscribe(self, sizes: list[int]) -> None:
        for _ in sizes:
            self.outbox.interest.add(b"s%d" % next(self.numbers))
        self.interest_waits += len(sizes)

    def frames(self, lane: str, sizes: list[int]) -> list[bytes]:
        self.put += len(sizes)
        return [b"%s%05d%s\n" % (lane.encode(), next(self.numbers), b"." * size) for size in sizes]

    def fitted(self, lane: str, frames: list[bytes]) -> None:
        self.waiting.setdefault(lane, []).extend(frames)

    def message(self, sizes: list[int]) -> None:
        for frame in self.frames("m", sizes):
            if self.outbox.put_message(frame):
                self.fitted("m", [frame])

    def run(self, sizes: list[int]) -> None:
        frames = self.frames("m", [sizes[0]] * len(sizes))
        self.fitted("m", frames[: self.outbox.put_run(b"m", [frame[1:] for frame in frames])])

    def urgent(self, sizes: list[int]) -> None:
        for frame in self.frames("u", sizes):
            if self.outbox.put_urgent(frame):
                self.fitted("u", [frame])

    def delivery(self, sizes: list[int]) -> None:
        for frame in self.frames("a", sizes):
            if self.outbox.put_delivery(b"A", b"a", frame, 5):
                self.fitted("a", [frame])

    def deliveries(self, sizes: list[int]) -> None:
        frames = self.frames("b", sizes)
        self.fitted("b", frames[: self.outbox.put_deliveries(b"B", b"b", frames, 7)])

    def chunks(self, sizes: list[int]) -> None:
        frames = self.frames("c", sizes)
        pairs = [frames[at : at + 2] for at in range(0, len(frames), 2)]
        fitting, _ = self.outbox.put_chunks(b"C", b"c", [(b"".join(pair), len(pair), 1) for pair in pairs], 5)
        self.fitted("c", frames[:fitting])

    def take(self, sizes: list[int]) -> None:
        taken = b"".join(self.outbox.take(max(1, sum(sizes)), handshake_done=True)).splitlines(keepends=True)
        first, self.control_waits = self.control_waits, []
        assert taken[: len(first)] == first, "what answers the peer leaves at once"
        told = sum(line.startswith(b"LS+ ") for line in taken)
        self.interest_waits -= told
        taken = taken[len(first) + told :]
        self.taken += len(taken)
        if self.interest_waits:
            assert told
            assert not taken, "messages wait for all interest"
            return
        assert taken or not any(self.waiting.values()), "one message leaves, however large"
        for frame in taken:
            assert self.waiting[chr(frame[0])].pop(0) == frame

    def check(self) -> None:
        waiting = [frame for frames in self.waiting.values() for frame in frames]
        assert self.outbox.waiting_bytes == sum(map(len, waiting))
        assert self.outbox.has_messages == bool(waiting)
        assert self.outbox.has_control == bool(self.control_waits)
        assert bool(self.outbox) == bool(waiting or self.control_waits or self.interest_waits)


STEPS = ["message", "run", "urgent", "delivery", "deliveries", "chunks", "control", "interest", "subscribe"] + 3 * [
    "take"
]


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(STEPS), st.lists(st.integers(0, 150), min_size=1, max_size=6)), max_size=25
    )
)
def test_each_message_leaves_in_order_or_is_counted(steps: list[tuple[str, list[int]]]) -> None:
    with patch.multiple(module, **LIMITS):
        books = Books()
        for step, sizes in steps:
            getattr(books, step)(sizes)
            books.check()
        outbox = books.outbox
        left = sum(map(len, books.waiting.values()))
        outbox.drop_messages()
        assert outbox.lost_msgs == left
        assert books.put == books.taken + outbox.dropped_msgs + outbox.lost_msgs
        assert not outbox.has_messages
        assert outbox.waiting_bytes == 0
        books.waiting.clear()
        books.control_waits = list(outbox._control)  # too much of it is dropped with the messages
        while outbox:
            books.take([50])
        books.message([10])
        books.take([50])
        books.check()


def test_messages_wait_for_the_handshake_and_for_interest() -> None:
    outbox = make()
    outbox.put_urgent(b"urgent\n")
    outbox.put_message(b"message\n")
    outbox.put_control(b"PING\r\n")
    assert outbox.take(1000, handshake_done=False) == [b"PING\r\n"]
    outbox.awaits_interest = True
    outbox.put_interest(b"LS+ a\r\nLS+ b\r\n")
    assert outbox.take(7, handshake_done=True) == [b"LS+ a\r\n"]
    assert outbox.take(7, handshake_done=True) == [b"LS+ b\r\n"]
    assert outbox.take(1000, handshake_done=True) == []
    outbox.awaits_interest = False
    assert outbox.take(1000, handshake_done=True) == [b"urgent\n", b"message\n"]


@pytest.mark.parametrize(("unread", "kept"), [(1, True), (3, False)])
def test_a_last_error_leaves_unless_the_peer_has_not_read_for_long(
    monkeypatch: pytest.MonkeyPatch, unread: int, kept: bool
) -> None:
    monkeypatch.setattr(module, "CONTROL_BYTES_MAX", 24)
    outbox = make()
    for _ in range(unread):
        outbox.put_control(b"PONG\r\n")
    outbox.drop_messages()
    outbox.put_control(b"-ERR\r\n")
    assert outbox.take(100, handshake_done=True) == [b"PONG\r\n"] * (unread if kept else 0) + [b"-ERR\r\n"]


def test_answers_that_nobody_reads_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONTROL_BYTES_MAX", 14)
    outbox = make()
    for _ in range(5):
        outbox.put_control(b"PONG\r\n")
    assert outbox.dropped_control == 3
    assert outbox.take(100, handshake_done=True) == [b"PONG\r\n"] * 2
    outbox.put_control(b"x" * 50)
    assert outbox.take(100, handshake_done=True) == [b"x" * 50]
