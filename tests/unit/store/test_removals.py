"""Removals of many messages beside staged ones: exactly those that are meant go, and every counter is right at once."""

from pathlib import Path

import pytest

from eyot_store import Log, StoreError
from eyot_store.subjects.eviction import remove_oldest
from support.store.store import fill, make_log, open_inline

Subjects = dict[bytes, tuple[int, int, int]]


def counters(log: Log) -> tuple[int, int, int, Subjects]:
    """Messages, bytes, the first sequence, and messages, first and last sequence of each subject."""
    state = log.state
    totals = dict(log.subject_totals())
    subjects = {each: (count, log.first_seq_for(each), log.last_seq_for(each)) for each, count in totals.items()}
    return state.messages, state.bytes, state.first_seq, subjects


def counts_are(log: Log, seqs: list[int]) -> None:
    """Odd sequences are on subject a, even ones on b; these are committed and live."""
    of = {
        (): seqs,
        (b"*",): seqs,
        (b"a",): [seq for seq in seqs if seq % 2],
        (b"b", b"c"): [s for s in seqs if not s % 2],
    }
    for filters, wanted in of.items():
        expected = [sum(seq >= first for seq in wanted) for first in range(15)]
        assert [log.count(first, filters) for first in range(15)] == expected, filters


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("below", [3, 9, 11, 12])
def test_a_purge_beside_staged_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: int, fails: bool
) -> None:
    """Of ten committed messages and three staged ones, of which the second is removed again, as is the very first; then all fail or none."""
    store = open_inline(tmp_path)
    log = make_log(store)
    for seq in range(1, 11):
        fill(store, log, 1, subject=b"a" if seq % 2 else b"b", payload=b"x" * seq)
    size = log.message_bytes(b"a", b"", b"")
    assert log.subject_count(b"a") == 5
    if below in (3, 11):
        log.index.track()
    staged, removal, purge = store.begin(), store.begin(), store.begin()
    for number in (11, 12, 13):
        log.append(staged, b"a" if number % 2 else b"b", b"", b"x" * number, number)
    assert log.remove(removal, 12)
    assert log.remove(removal, 1)
    gone = log.purge(purge, below_seq=below)
    results: list[StoreError | None] = []
    left = [seq for seq in (*range(2, 12), 13) if seq >= below]

    def expected(seqs: list[int]) -> tuple[int, int, int, Subjects]:
        of = {b"a": [seq for seq in seqs if seq % 2], b"b": [seq for seq in seqs if not seq % 2]}
        subjects = {each: (len(some), some[0], some[-1]) for each, some in of.items() if some}
        return len(seqs), sum(size + seq for seq in seqs), seqs[0], subjects

    assert gone == 11 - len(left)
    assert counters(log) == expected(left)
    committed = [seq for seq in left if seq <= 10]
    assert [seq for seq in range(14) if log.get(seq) is not None] == committed
    counts_are(log, committed)
    for txn in (staged, removal, purge):
        store.submit(txn, results.append)
    with monkeypatch.context() as disk:
        if fails:
            left = list(range(1, 11))
            disk.setattr(store._committer, "commit", lambda group: [StoreError("full", "as expected")] * len(group))
        store.commit_now()
    assert [error is None for error in results] == [not fails] * 3
    assert counters(log) == expected(left)
    assert log.state.last_ts_ns == (10 if fails else 13)
    assert [seq for seq in range(14) if log.get(seq) is not None] == left
    counts_are(log, left)
    assert (log.view.hidden, log.view.hidden_ranges, log.view.parts) == ({}, [], [])
    store.close()
    store = open_inline(tmp_path)
    assert counters(store.streams()[0]) == expected(left)
    store.crash()


def test_a_sequence_that_is_given_again_has_the_new_time(tmp_path: Path) -> None:
    """Also where the stream is empty, so that it is the first."""
    store = open_inline(tmp_path)
    log = make_log(store)
    for ts_ns in (7, 8):
        txn = store.begin()
        assert log.append(txn, b"a", b"", b"", ts_ns) == 1
        assert (log.state.first_seq, log.state.first_ts_ns) == (1, ts_ns)
        store.abort(txn)
        assert (log.state.first_seq, log.state.first_ts_ns, log.state.last_ts_ns) == (0, 0, 0)
    store.close()


@pytest.mark.parametrize("size", [1, 5000])
@pytest.mark.parametrize("tracked", [False, True])
@pytest.mark.parametrize("subject_filter", [b"a.*", b"*.1"])
def test_a_filtered_purge_in_slices(tmp_path: Path, size: int, tracked: bool, subject_filter: bytes) -> None:
    """Each slice removes what the filter matches, from 3 to 38, without what is staged for removal, and goes on behind it."""
    store = open_inline(tmp_path)
    log = make_log(store)
    for seq in range(1, 41):
        fill(store, log, 1, subject=b"%c.%d" % (b"aaab"[seq % 4], seq % 12), payload=b"x" * size)
    if tracked:
        log.index.track()
    wanted = {seq for seq in range(3, 39) if (seq % 4 != 3 if subject_filter == b"a.*" else seq % 12 == 1)} - {13}
    removal = store.begin()
    log.remove(removal, 13)
    first, purged = 3, 0
    while first <= 38:
        txn = store.begin()
        count, after = log.purge_some(txn, first, 38, subject_filter, 1)
        assert count <= 1
        assert after > first
        first, purged = after, purged + count
        store.submit(txn, lambda error: None)
    store.submit(removal, lambda error: None)
    store.commit_now()
    assert purged == len(wanted)
    assert set(log.view.live_seqs(1, 40)) == set(range(1, 41)) - wanted - {13}
    store.crash()


def test_a_sweep_in_slices(tmp_path: Path) -> None:
    """It returns what it removed, and goes on with the first that it did not."""
    store = open_inline(tmp_path)
    log = make_log(store)
    fill(store, log, 10)
    removal, txn = store.begin(), store.begin()
    log.remove(removal, 4)
    log.append(txn, b"s", b"", b"staged", 1)
    asked: list[int] = []

    def unwanted(seq: int, subject: bytes) -> bool:
        asked.append(seq)
        return seq % 2 == 0

    assert log.sweep(txn, 1, 99, unwanted, 2) == ([2, 6], 8)
    assert log.sweep(txn, 8, 9, unwanted, 2) == ([8], 10)
    assert log.sweep(txn, 10, 99, unwanted, 2) == ([10], 11)
    assert asked == [1, 2, 3, 5, 6, 7, 8, 8, 9, 10]
    store.crash()


@pytest.mark.parametrize("keep", [1, 2])
@pytest.mark.parametrize("at_most", [1, 3, 99])
@pytest.mark.parametrize("postpones", [False, True])
def test_only_the_newest_of_each_subject_stay(tmp_path: Path, keep: int, at_most: int, postpones: bool) -> None:
    """Of subjects with committed and with staged messages, in slices, unless none may be postponed."""
    store = open_inline(tmp_path)
    log = make_log(store)
    for seq in range(1, 19):
        fill(store, log, 1, subject=b"s.%d" % (seq % 6))
    removal, txn = store.begin(), store.begin()
    assert log.subject_count(b"s.4") == 3
    log.remove(removal, 4)
    for subject in (b"s.0", b"s.0", b"new", b"new", b"new", b"single"):
        log.append(txn, subject, b"", b"", 19)
    log.remove(txn, 21)
    of: dict[bytes, list[int]] = {b"new": [22, 23], b"single": [24]}
    for seq in (*range(1, 21),):
        if seq != 4:
            of.setdefault(b"s.0" if seq > 18 else b"s.%d" % (seq % 6), []).append(seq)
    assert dict(log.subject_totals()) == {subject: len(seqs) for subject, seqs in of.items()}
    left: set[bytes] = set(of)
    gone: list[int] = []
    while left:
        overdue = set[bytes]() if postpones else None
        some = remove_oldest(log, txn, sorted(left), keep, at_most, overdue)
        if postpones:
            assert 0 < len(some) <= at_most
        gone += some
        left = overdue or set()
    assert sorted(gone) == sorted(seq for seqs in of.values() for seq in seqs[:-keep])
    assert set(log.view.live_seqs_from(1)) == {seq for seqs in of.values() for seq in seqs[-keep:]}
    for each in (removal, txn):
        store.submit(each)
    store.commit_now()
    assert set(log.view.live_seqs_from(1)) == {seq for seqs in of.values() for seq in seqs[-keep:]}
    store.crash()
