"""Pull requests that wait together, each bounded by bytes, written one by one and by runs: what comes is the same."""

from pathlib import Path

import pytest

from support.jetstream.consumers import ClientBox, ConsumerFixture


def read_with_bounds(path: Path, *, clients: bool, ack_policy: str) -> list[tuple[object, ...]]:
    """As the hub's reader asks: two requests open, each for so many bytes, another one for each that ended."""
    fixture = ConsumerFixture(path, clients=clients)
    fixture.create(subjects=["s.>"])
    for number in range(40):
        fixture.fill(25, b"s.%d" % number, size=10 + number)
    fixture.add(ack_policy=ack_policy, max_ack_pending=-1)
    box = fixture.listen(b"pull.*")
    asked = told = 0
    while len(box.messages) < 1000:
        ended = sum(not got.reply for got in box.got[told:]) if asked else 2
        told = len(box.got)
        for _ in range(ended):
            asked += 1
            body = b'{"batch":1000,"max_bytes":9000,"expires":5000000000}'
            fixture.account.publish(
                b"$JS.API.CONSUMER.MSG.NEXT.S.C", b"pull.%d" % asked, b"", body, origin=fixture.client
            )
        fixture.commit()
        fixture.run_on()
        assert asked < 60
    if clients:
        assert isinstance(box, ClientBox)
        assert box.written > 900
    assert box.seqs == list(range(1, 1001))
    assert [ack.pending for ack in box.acks] == list(range(999, -1, -1))
    return [
        (got.subject, got.reply.rpartition(b".")[0].split(b".")[:7], got.header)
        if got.reply
        else (got.subject, got.header)
        for got in box.got
    ]


@pytest.mark.parametrize("ack_policy", ["none", "explicit"])
def test_requests_of_one_reader_with_bounds(tmp_path: Path, ack_policy: str) -> None:
    """What comes, and when a request ends, does not depend on how it is written."""
    one_by_one = read_with_bounds(tmp_path / "a", clients=False, ack_policy=ack_policy)
    assert read_with_bounds(tmp_path / "b", clients=True, ack_policy=ack_policy) == one_by_one
    assert len(one_by_one) > 1003
