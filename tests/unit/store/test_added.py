"""What a transaction adds to a log, read only when somebody asks: the same answers as a table of all messages."""

from __future__ import annotations

import gc
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from eyot_store.added import Added, Records
from eyot_store.native import count_bytes, encode_run
from eyot_store.records.record import salt_of
from eyot_wire.frames import Published

COST, HEADER_COST = 30, 4
TIME_NS = 1_800_000_000_000_000_000


def runs_of(rng: Random) -> list[tuple[int, list[Published]]]:
    """Draw runs of messages, and the sequence of each one's first."""
    seq, runs = rng.choice([1, 200, 1 << 40]), []
    for _ in range(rng.randrange(6)):
        messages = [
            Published(rng.choice([b"a", b"b.c", b"s" * 300]), b"", rng.choice([b"", b"NATS/1.0\r\n\r\n"]), b"x" * size)
            for size in rng.choices(range(300), k=rng.choice([1, 1, 2, 9]))
        ]
        runs.append((seq, messages))
        seq += len(messages) + rng.choice([0, 0, 3])
    return runs


@settings(max_examples=200)
@given(st.integers(0, 2**48))
def test_it_answers_as_a_table_of_all_messages_does(seed: int) -> None:
    rng = Random(seed)
    added = Added(COST, HEADER_COST)
    table: dict[int, tuple[int, bytes, int]] = {}
    records: Records = []
    for seq, messages in runs_of(rng):
        if rng.random() < 0.3:
            records = []  # a removal in between begins another list
        begin = len(records)
        encode_run(messages, seq, TIME_NS, salt_of(1), COST, HEADER_COST, records)
        added.came(records, begin)
        for at, message in enumerate(messages, seq):
            size = len(message.subject) + len(message.header) + len(message.payload) + COST
            table[at] = (at, message.subject, size + (HEADER_COST if message.header else 0))
        assert len(added) == len(table)
        for asked in rng.choices(range(seq + 20), k=3) if seq < 1000 else [seq - 1, seq, seq + 9]:
            if rng.random() < 0.5:
                assert added.get(asked) == table.get(asked)
                assert (asked in added) is (asked in table)
                assert list(added.since(asked)) == [table[seq] for seq in sorted(table) if seq >= asked]
    assert None not in added
    assert list(added) == [table[seq] for seq in sorted(table)]


def test_records_and_messages_are_no_work_for_the_collector() -> None:
    """They come by the hundred thousand, and the collector would look at each."""
    records: Records = []
    encode_run([Published(b"a", b"", b"", b"x")] * 10, 1, TIME_NS, salt_of(1), COST, HEADER_COST, records)
    assert [gc.is_tracked(record) for record in records] == [False] * 10
    weighed = count_bytes(records, salt_of(1), None, COST, HEADER_COST)
    assert [gc.is_tracked(each) for each in weighed] == [False] * 10
