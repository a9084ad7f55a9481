"""What fails with a failed transaction, and what its streams go back to."""

from pathlib import Path
from typing import Any

import lmdb
import pytest

from eyot_store import Log, Store, StoreError
from eyot_store.added import Added
from eyot_store.failure_propagation import FailurePropagation
from eyot_store.txn import LogPart, Op, Txn
from support.store.store import commit, fill, make_log, open_inline


def operation(op: Op, epoch: int) -> Txn:
    """A transaction on stream 1 with one operation, staged when the loop knew of `epoch` failures."""
    txn = Txn()
    part = txn.parts[1] = LogPart(txn, None, epoch, Added(0, 0))  # type: ignore[arg-type]
    part.push(op, None)
    return txn


APPEND, PURGE, REMOVE, CREATE = Op.APPEND, Op.PURGE, Op.REMOVE, Op.CREATE


@pytest.mark.parametrize(
    ("failed", "inherits", "does_not"),
    [
        ([], [], [(APPEND, 0), (PURGE, 0)]),
        ([(APPEND, 0)], [(APPEND, 0), (Op.POSITION, 0), (Op.DELETE, 0)], [(APPEND, 1), (PURGE, 0), (REMOVE, 0)]),
        ([(REMOVE, 1)], [(PURGE, 1), (PURGE, 0)], [(APPEND, 1), (PURGE, 2), (REMOVE, 1)]),
        ([(CREATE, 0)], [(APPEND, 0), (PURGE, 0), (REMOVE, 0), (Op.CONSUMER, 0)], [(REMOVE, 1)]),
        ([(Op.CONSUMER, 0)], [], [(APPEND, 0)]),
        ([(APPEND, 0), (Op.CONSUMER, 1)], [(APPEND, 0)], [(APPEND, 1)]),
        # Of the same epoch everything counts, of an older one nothing any more.
        ([(APPEND, 0), (REMOVE, 0)], [(APPEND, 0), (PURGE, 0)], [(REMOVE, 0)]),
        ([(APPEND, 0), (REMOVE, 1)], [(PURGE, 1)], [(APPEND, 1)]),
        ([(REMOVE, 1), (APPEND, 0)], [(PURGE, 1)], [(APPEND, 1)]),
    ],
)
def test_what_fails_with_what_failed_before(
    failed: list[tuple[Op, int]], inherits: list[tuple[Op, int]], does_not: list[tuple[Op, int]]
) -> None:
    error = StoreError("full", "no room")
    for each, expected in [*((each, error) for each in inherits), *((each, None) for each in does_not)]:
        failures = FailurePropagation()
        for one in failed:
            failures.fail(operation(*one), error)
        assert failures.inherited(operation(*each)) is expected, each
        other = operation(*each)
        other.parts = {2: other.parts[1]}
        assert failures.inherited(other) is None
        failures.forget(1)
        assert failures.inherited(operation(*each)) is None


def test_what_inherits_a_failure_passes_it_on_to_all_its_streams() -> None:
    failures, error = FailurePropagation(), StoreError("full", "no room")
    failures.fail(operation(APPEND, 0), error)
    both, other = operation(APPEND, 0), operation(APPEND, 0)
    other.parts = {2: other.parts[1]}
    both.parts |= other.parts
    assert failures.inherited(other) is None
    assert failures.inherited(both) is failures.inherited(other) is error


@pytest.mark.parametrize("reason", ["io", "full"])
def test_a_failing_disk_is_not_tried_once_for_each_transaction(reason: Any) -> None:
    """On a full one each is tried alone; what depends on one that has failed fails with it."""
    failures, tried = FailurePropagation(), list[Txn]()
    group = [operation(REMOVE, 0), *(operation(APPEND, 0) for _ in range(3))]
    group[3].parts = {2: group[3].parts[1]}
    inherited, error = StoreError("full", "inherited"), StoreError(reason, "failed")

    def alone(txn: Txn) -> StoreError | None:
        tried.append(txn)
        return failures.inherited(txn) or (error if txn is group[1] else None)

    found = failures.results_after(error, group, [inherited, None, None, None], alone)
    assert found == [inherited, error, error, error if reason == "io" else None]
    assert tried == ([] if reason == "io" else group[1:])
    assert failures.inherited(operation(APPEND, 0)) is error
    refused = operation(APPEND, 5)
    refused.refuse(inherited)
    assert failures.inherited(refused) is failures.inherited(operation(APPEND, 5)) is inherited


def all_fail(store: Store, during: pytest.MonkeyPatch) -> None:
    """From now on each transaction fails."""
    during.setattr(store._committer, "commit", lambda group: [StoreError("full", "as expected")] * len(group))


@pytest.mark.parametrize(
    ("fails", "left"), [("nothing", "new"), ("creation", ""), ("deletion", "old"), ("deletion and creation", "old")]
)
def test_a_deletion_frees_the_name_at_once_and_gives_it_back_if_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str, left: str
) -> None:
    store = open_inline(tmp_path)
    old = make_log(store)
    fill(store, old, 3)
    deletion, creation = store.begin(), store.begin()
    old.delete(deletion)
    assert store.stream("A", "S") is None
    store.submit(deletion)
    if fails == "creation":
        store.commit_now()
    logs: dict[str, Log | None] = {"": None, "old": old}
    if fails != "deletion":
        logs["new"] = store.create_stream(creation, "A", "S", b"{}", 2)
        assert store.stream("A", "S") is logs["new"]
        made, gone = store.begin(), store.begin()
        store.create_stream(made, "A", "T", b"{}", 2).delete(gone)
        for txn in (creation, made, gone):
            store.submit(txn)
    with monkeypatch.context() as during:
        if fails == "deletion and creation":  # which fails because the deletion does
            attempt = store._committer._attempt  # type: ignore[attr-defined]

            def attempted(txns: list[Txn]) -> None:
                if deletion in txns:
                    raise lmdb.DiskError("No space left on device")
                attempt(txns)

            during.setattr(store._committer, "_attempt", attempted)
        elif fails != "nothing":
            all_fail(store, during)
        store.commit_now()
    assert store.stream("A", "S") is logs[left]
    assert store.streams() == [each for each in [logs[left]] if each is not None]
    assert fails == "deletion" or logs["new"].void == ("creation" in fails)  # type: ignore[union-attr]
    if left:
        found = logs[left]
        assert found is not None
        fill(store, found, 1)
        txn = store.begin()
        found.delete(txn)
        again = store.create_stream(txn, "A", "S", b"{}", 3)
        assert commit(store, txn) is None
        assert store.stream("A", "S") is again
    store.close()


def test_a_configuration_that_is_not_written_gives_way_to_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_inline(tmp_path)
    log = make_log(store)
    for number in (1, 2):
        with monkeypatch.context() as during:
            txns = [store.begin(), store.begin()]
            for txn, config in zip(txns, (b"%d" % number, b"other"), strict=True):
                log.set_config(txn, config)
                assert log.config == config
            for each in txns:
                store.submit(each)
                store.commit_now()
                all_fail(store, during)
        assert log.config == b"%d" % number
    with monkeypatch.context() as during:
        all_fail(store, during)
        txns = [store.begin(), store.begin()]
        for txn, config in zip(txns, (b"3", b"4"), strict=True):
            log.set_config(txn, config)
        store.submit(txns[0])
        store.commit_now()
    assert log.config == b"4"
    store.abort(txns[1])
    assert log.config == b"2"
    store.close()
    store = open_inline(tmp_path)
    assert store.streams()[0].config == b"2"
    store.crash()
