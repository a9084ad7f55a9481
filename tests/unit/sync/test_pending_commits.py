"""What is answered to an origin's flow control, and when: nothing before all that was received is on flash."""

from __future__ import annotations

import pytest

from eyot_sync.sourcing.actions import Answer
from eyot_sync.sourcing.origin_check import OriginPosition
from eyot_sync.sourcing.pending_commits import PendingCommits

ANSWERS = [Answer(b"$JS.FC.S.C.%d" % number, b"") for number in range(3)]


@pytest.fixture
def pending() -> PendingCommits:
    return PendingCommits(OriginPosition(10))


def test_an_answer_waits_for_what_was_delivered_before_it(pending: PendingCommits) -> None:
    pending.taken(OriginPosition(12), 1)
    pending.wait(2, ANSWERS[0])
    pending.wait(3, ANSWERS[1])
    assert pending.due() == []
    pending.committed(2, 2, current=True)
    assert pending.due() == [ANSWERS[0]]
    assert not pending.under_way
    pending.committed(3, 0, current=True)  # what came was old
    assert pending.due() == [ANSWERS[1]]
    assert pending.due() == []
    pending.committed(1, 0, current=True)
    pending.wait(3, ANSWERS[2])
    assert pending.due() == [ANSWERS[2]]


def test_an_answer_waits_for_batches_of_the_request_before(pending: PendingCommits) -> None:
    """The origin may forget what is answered: also what it sent for the request before, which is not on flash yet."""
    pending.taken(OriginPosition(12), 1)
    pending.taken(OriginPosition(14), 1)
    pending.committed(1, 0, current=True)
    pending.wait(4, ANSWERS[0])
    pending.forget()
    pending.wait(0, ANSWERS[1])
    pending.wait(1, ANSWERS[2])
    assert pending.due() == []  # the first is forgotten with its request
    assert pending.consumer_seq == 0
    pending.committed(1, 0, current=True)
    assert pending.flash.seq == 10  # no batch was among them
    pending.committed(2, 2, current=False)
    assert pending.due() == []
    pending.committed(0, 0, current=False)  # nothing new: no batch
    assert pending.due() == []
    pending.committed(4, 2, current=False)
    assert pending.due() == [ANSWERS[1], ANSWERS[2]]
    assert pending.flash.seq == 14


def test_a_refusal_goes_back_to_what_is_under_way(pending: PendingCommits) -> None:
    for seq in (12, 14):
        pending.taken(OriginPosition(seq, 100 * seq, 7), 1)
    assert pending.refused(0) == OriginPosition(12, 1200, 7)
    pending.taken(OriginPosition(14), 1)
    assert pending.refused(13) == OriginPosition(13)
    assert pending.under_way == 2
    pending.committed(1, 1, current=False)
    assert pending.committed_up_to(12) == OriginPosition(12, 1200, 7)
    assert pending.committed_up_to(10) == OriginPosition(10)
    pending.committed(2, 1, current=False)
    pending.taken(OriginPosition(20), 1)
    assert pending.refused(0) is None
    assert pending.flash.seq == 13


def test_a_failure_goes_back_to_what_is_on_flash(pending: PendingCommits) -> None:
    pending.taken(OriginPosition(12, 1200, 7), 1)
    pending.taken(OriginPosition(14, 1400, 9), 1)
    pending.committed(2, 2, current=True)
    assert pending.failed(12) == OriginPosition(12, 1200, 7)
    assert not pending.under_way
    pending.taken(OriginPosition(13, 1300, 5), 1)
    assert pending.failed(13) == OriginPosition(13, 1300, 5)  # that batch was committed, the next one failed
    assert pending.failed(3) == OriginPosition(3)
    pending.forget()
    pending.committed(2, 2, current=False)  # one that was given up
    pending.wait(0, ANSWERS[0])
    assert pending.due() == [ANSWERS[0]]
    assert pending.flash == OriginPosition(3)
