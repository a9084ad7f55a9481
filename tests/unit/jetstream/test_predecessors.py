"""What former sources of an origin copied is not stored again, unless the origin was set back since."""

from __future__ import annotations

import pytest

from eyot_daemon.jetstream.sourcing.positions import Position
from eyot_daemon.jetstream.sourcing.resume_point import Predecessors
from eyot_wire.jetstream.copied_run import CopiedMessage

CREATED = "2026-11-22T08:00:00Z"
#: It had copied up to 4, stored at 40 there; 2 and 3 are remembered.
BEFORE = Position(4, CREATED, 40, 10, 40, ((2, 20), (3, 30)))


def batch(*times: int) -> list[CopiedMessage]:
    return [CopiedMessage(seq, ts_ns, b"r.t%d" % (seq % 2), b"", b"") for seq, ts_ns in enumerate(times, 1)]


def left(stored: dict[int, int], *times: int, ended: int = 9) -> list[int]:
    """Sequences that are new of a batch with these times; `stored`: what the origin says of the messages asked for."""
    former = Predecessors([(BEFORE, [b"r.>"])])
    assert former.seqs == [4, 2, 3]
    return [each.origin_seq for each in former.without(batch(*times), CREATED, stored, ended)]


def test_what_was_copied_is_left_out() -> None:
    assert left({4: 40, 3: 30, 2: 20}, 10, 20, 30, 40, 50) == [5]


def test_what_is_gone_there_is_no_evidence() -> None:
    assert left({4: 0, 3: 0, 2: 0}, 10, 20, 30, 40, 50) == [5]


@pytest.mark.parametrize("stored", [{4: 44, 3: 43, 2: 42}, {4: 0, 3: 43, 2: 42}, {4: 0, 3: 0, 2: 42}])
def test_an_origin_that_was_set_back_is_known_by_any_message(stored: dict[int, int]) -> None:
    """It gave the sequences to other messages; the last ones of those were purged."""
    assert left(stored, 41, 42, 43, 44, 50) == [1, 2, 3, 4, 5]


def test_an_origin_that_ended_before() -> None:
    assert left({4: 0, 3: 0, 2: 20}, 10, 20, 41, ended=3) == [3]
