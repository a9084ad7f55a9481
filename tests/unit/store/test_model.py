"""The store against a model of plain dicts: random operations, group commits of which some fail, crashes and restarts.

The model knows two states: what is committed, and that plus what is staged. The log's numbers must be those of the second,
what it reads must be committed and not staged for removal.
"""

import shutil
import tempfile
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any
from unittest.mock import patch

import lmdb
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from eyot_store import Log, Store, StoreError, Txn
from eyot_store.check.check import check
from eyot_store.log import reads as log_reads
from eyot_store.records.record import decode_body
from eyot_store.subjects.subjects import matcher
from eyot_wire.jetstream.packed_range import DIRECTORY_BYTES, unpack
from eyot_wire.native import StoredRun
from support.store.store import FAST, JOURNAL, open_inline
from support.store.stored_runs import written_of

SUBJECTS = [b"a", b"b", b"a.x", b"a.y", b"a.x.z"]
FILTERS = [(), (b"a",), (b"a.*",), (b"a.>", b"b"), (b">",), (b"none",), (b"a.x", b"a.y")]
NAMES = ["S", "T"]
Message = tuple[int, bytes, bytes, bytes]


class Stream:
    """A stream in the model."""

    def __init__(self, name: str, config: bytes, memory: bool) -> None:
        self.name = name
        self.config = config
        self.memory = memory
        self.alive = True
        self.messages: dict[int, Message] = {}
        self.last_seq = 0
        self.consumers: dict[str, tuple[bytes, bytes]] = {}
        self.positions: dict[bytes, bytes] = {}


Fixture = dict[int, Stream]  # by the log's id in the model
Effect = Callable[[Fixture], None]


class Pending:
    """A transaction and what it does in the model."""

    def __init__(self, txn: Txn) -> None:
        self.txn = txn
        self.effects: list[Effect] = []
        self.touched: set[int] = set()
        self.poisoned = False
        self.may_fail = False  # something it was staged upon has failed since
        self.result: list[StoreError | None] = []


class StoreMachine(RuleBasedStateMachine):
    options = FAST

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp(prefix="eyot-model-"))
        self.store = self.open()
        self.committed: Fixture = {}
        self.logs: dict[int, Log] = {}
        self.next_key = 1
        self.pending: list[Pending] = []
        self.current: Pending | None = None
        self.clock = 1 << 33

    def open(self) -> Store:
        store = open_inline(self.path, self.options)
        self.poison(store._committer)
        return store

    def poison(self, committer: Any) -> None:
        attempt = committer._attempt

        def failing_attempt(txns: list[Txn]) -> None:
            if any(pending.poisoned and pending.txn in txns for pending in self.pending):
                raise lmdb.DiskError("No space left on device")
            attempt(txns)

        committer._attempt = failing_attempt
        if hasattr(committer, "_lmdb"):
            self.poison(committer._lmdb)

    def teardown(self) -> None:
        self.store.crash()
        problems = check(self.path).problems
        shutil.rmtree(self.path, ignore_errors=True)
        assert problems == []

    # -- model ---------------------------------------------------------------------------------------------------------

    def staged(self) -> Fixture:
        fixture = deepcopy(self.committed)
        for pending in [*self.pending, *([self.current] if self.current else [])]:
            for effect in pending.effects:
                effect(fixture)
        return fixture

    def act(self, key: int, effect: Effect) -> None:
        """Note what the current transaction does to a stream; nothing, if the stream's creation has failed by then."""
        assert self.current is not None

        def on_living(fixture: Fixture) -> None:
            if key in fixture:
                effect(fixture)

        self.current.effects.append(on_living)
        self.current.touched.add(key)

    def txn(self) -> Txn:
        if self.current is None:
            self.current = Pending(self.store.begin())
        return self.current.txn

    def alive(self) -> list[int]:
        return sorted(key for key, stream in self.staged().items() if stream.alive)

    def pick(self, data: st.DataObject) -> tuple[int, Log, Stream]:
        key = data.draw(st.sampled_from(self.alive()), label="stream")
        return key, self.logs[key], self.staged()[key]

    # -- rules ---------------------------------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        self.create("S", False)
        self.submit()
        self.commit()

    @rule(name=st.sampled_from(NAMES), memory=st.booleans())
    def create(self, name: str, memory: bool) -> None:
        if any(stream.alive and stream.name == name for stream in self.staged().values()):
            return
        txn = self.txn()
        key, self.next_key = self.next_key, self.next_key + 1
        self.logs[key] = self.store.create_stream(txn, "A", name, b"c%d" % key, key, memory=memory)

        def effect(fixture: Fixture) -> None:
            fixture[key] = Stream(name, b"c%d" % key, memory)

        assert self.current is not None
        self.current.effects.append(effect)
        self.current.touched.add(key)

    @precondition(lambda self: self.alive())
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        key, log, _ = self.pick(data)
        if data.draw(st.integers(0, 3), label="really") or (self.current and key in self.current.touched):
            return
        log.delete(self.txn())

        def effect(fixture: Fixture) -> None:
            fixture[key].alive = False

        self.act(key, effect)

    @precondition(lambda self: self.alive())
    @rule(
        data=st.data(),
        messages=st.lists(
            st.tuples(st.sampled_from(SUBJECTS), st.binary(max_size=3), st.binary(max_size=20)), min_size=1, max_size=6
        ),
        gap=st.sampled_from([0, 0, 0, 1, 5]),
    )
    def append(self, data: st.DataObject, messages: list[tuple[bytes, bytes, bytes]], gap: int) -> None:
        key, log, stream = self.pick(data)
        txn = self.txn()
        last_seq = stream.last_seq
        for subject, header, payload in messages:
            self.clock += 1
            ts_ns = self.clock
            given = last_seq + 1 + gap if gap else None
            seq = log.append(txn, subject, header, payload, ts_ns, given)
            assert seq == (given or last_seq + 1)
            last_seq = seq
            self.act(key, self._append(key, seq, (ts_ns, subject, header, payload)))

    @staticmethod
    def _append(key: int, seq: int, message: tuple[int, bytes, bytes, bytes]) -> Effect:
        def effect(fixture: Fixture) -> None:
            fixture[key].messages[seq] = message
            fixture[key].last_seq = max(fixture[key].last_seq, seq)

        return effect

    @precondition(lambda self: self.alive())
    @rule(
        data=st.data(),
        messages=st.lists(
            st.tuples(st.sampled_from(SUBJECTS), st.just(b"r"), st.sampled_from([b"", b"h"]), st.binary(max_size=20)),
            min_size=1,
            max_size=4,
        ),
    )
    def append_all(self, data: st.DataObject, messages: list[tuple[bytes, bytes, bytes, bytes]]) -> None:
        key, log, stream = self.pick(data)
        begun, self.clock = self.clock + 1, self.clock + len(messages)
        first = log.append_all(self.txn(), messages, begun)
        assert first == stream.last_seq + 1
        for index, (subject, _, header, payload) in enumerate(messages):
            self.act(key, self._append(key, first + index, (begun + index, subject, header, payload)))

    @precondition(lambda self: self.alive())
    @rule(data=st.data(), ahead=st.integers(0, 4))
    def skip(self, data: st.DataObject, ahead: int) -> None:
        key, log, stream = self.pick(data)
        seq = stream.last_seq + ahead
        log.skip_to(self.txn(), seq)

        def effect(fixture: Fixture) -> None:
            fixture[key].last_seq = max(fixture[key].last_seq, seq)

        if ahead:
            self.act(key, effect)

    def _removal(self, key: int, seqs: set[int]) -> None:
        def effect(fixture: Fixture) -> None:
            for seq in seqs:
                fixture[key].messages.pop(seq, None)

        self.act(key, effect)

    @precondition(lambda self: self.alive())
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        key, log, stream = self.pick(data)
        seq = data.draw(st.integers(0, stream.last_seq + 1), label="seq")
        txn = self.txn()
        assert log.remove(txn, seq) == (seq in stream.messages)
        if seq in stream.messages:
            self._removal(key, {seq})

    @precondition(lambda self: self.alive())
    @rule(data=st.data(), count=st.integers(1, 3))
    def remove_oldest(self, data: st.DataObject, count: int) -> None:
        key, log, stream = self.pick(data)
        txn = self.txn()
        for seq in sorted(stream.messages)[:count]:
            assert log.state.first_seq == seq
            assert log.remove(txn, seq)
            self._removal(key, {seq})

    @precondition(lambda self: self.alive())
    @rule(data=st.data(), count=st.integers(1, 9), excess=st.integers(0, 60))
    def remove_first(self, data: st.DataObject, count: int, excess: int) -> None:
        """The oldest messages in runs, so many or until they have so many bytes."""
        key, log, stream = self.pick(data)
        txn = self.txn()
        removed: list[int] = []
        wanted, freed = sorted(stream.messages)[:count], 0
        while len(removed) < len(wanted) and not 0 < excess <= freed:
            run = log.remove_first(txn, count - len(removed), "max_msgs", max(0, excess - freed))
            assert run == wanted[len(removed) : len(removed) + len(run)]
            assert run
            sizes = [log.message_bytes(*stream.messages[seq][1:]) for seq in run]
            assert not excess or sum(sizes[:-1]) < excess - freed
            freed += sum(sizes)
            removed += run
            self._removal(key, set(run))

    @precondition(lambda self: self.alive())
    @rule(data=st.data(), subject=st.sampled_from(SUBJECTS))
    def remove_oldest_of_subject(self, data: st.DataObject, subject: bytes) -> None:
        key, log, stream = self.pick(data)
        seqs = [seq for seq in sorted(stream.messages) if stream.messages[seq][1] == subject]
        assert log.first_seq_for(subject) == (seqs[0] if seqs else 0)
        if seqs:
            assert log.remove(self.txn(), seqs[0])
            self._removal(key, {seqs[0]})

    @precondition(lambda self: self.alive())
    @rule(
        data=st.data(), filter_=st.sampled_from([b"", b">", b"a", b"a.*", b"none"]), keep=st.sampled_from([0, 0, 1, 3])
    )
    def purge(self, data: st.DataObject, filter_: bytes, keep: int) -> None:
        key, log, stream = self.pick(data)
        below = data.draw(
            st.sampled_from([0, 0, stream.last_seq // 2, stream.last_seq, stream.last_seq + 9]), label="below"
        )
        match = matcher((filter_,)) if filter_ else None
        matching = [s for s in sorted(stream.messages) if match is None or match(stream.messages[s][1])]
        below_seqs = [s for s in matching if not below or s < below]
        if filter_ in (b"", b">"):
            gone = [s for s in below_seqs if s in matching[: max(len(matching) - keep, 0)]]
        else:
            gone = below_seqs[: max(len(below_seqs) - keep, 0)]
        assert log.purge(self.txn(), below, filter_, keep) == len(gone)
        if gone and filter_ in (b"", b">"):
            # The range covers also what a removal before it gives back by failing.
            last = min(below - 1 if below else stream.last_seq, matching[-keep] - 1 if keep else stream.last_seq)
            self._removal(key, {*gone, *range(min(last, log.committed_seq) + 1)})
        elif gone:
            self._removal(key, set(gone))

    @precondition(lambda self: self.alive())
    @rule(data=st.data(), what=st.sampled_from(["put", "state", "gone", "config", "position", "unposition"]))
    def other(self, data: st.DataObject, what: str) -> None:
        key, log, stream = self.pick(data)
        name = data.draw(st.sampled_from(["c1", "c2"]), label="name")
        value = data.draw(st.binary(max_size=8), label="value")
        txn = self.txn()
        if what == "put":
            log.put_consumer(txn, name, value, b"s" + value)
            self.act(key, lambda fixture: fixture[key].consumers.__setitem__(name, (value, b"s" + value)))
        elif what == "state" and name in stream.consumers:
            log.put_consumer_state(txn, name, value)

            def effect(fixture: Fixture) -> None:
                if name in fixture[key].consumers:
                    fixture[key].consumers[name] = (fixture[key].consumers[name][0], value)

            self.act(key, effect)
        elif what == "gone":
            log.delete_consumer(txn, name)
            self.act(key, lambda fixture: fixture[key].consumers.pop(name, None))  # type: ignore[arg-type, return-value]
        elif what == "config":
            log.set_config(txn, value)
            self.act(key, lambda fixture: setattr(fixture[key], "config", value))
        elif what == "position":
            log.put_position(txn, name.encode(), value)
            self.act(key, lambda fixture: fixture[key].positions.__setitem__(name.encode(), value))
        elif what == "unposition":
            log.delete_position(txn, name.encode())
            self.act(key, lambda fixture: fixture[key].positions.pop(name.encode(), None))  # type: ignore[arg-type, return-value]

    @precondition(lambda self: self.current is not None)
    @rule()
    def submit(self) -> None:
        pending, self.current = self.current, None
        assert pending is not None
        self.pending.append(pending)
        self.store.submit(pending.txn, pending.result.append)
        if pending.result:  # memory only: settled at once
            self._settled([pending])

    @precondition(lambda self: self.current is not None)
    @rule()
    def abort(self) -> None:
        assert self.current is not None
        self.store.abort(self.current.txn)
        self.current = None

    @rule()
    def commit(self) -> None:
        group = list(self.pending)
        self.store.commit_now()
        self._settled(group)

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def commit_with_failures(self, data: st.DataObject) -> None:
        group = list(self.pending)
        for pending in data.draw(st.lists(st.sampled_from(group), min_size=1, max_size=2), label="poisoned"):
            pending.poisoned = True
        self.store.commit_now()
        self._settled(group)

    def _settled(self, group: list[Pending]) -> None:
        failed: set[int] = set()
        for pending in group:
            self.pending.remove(pending)
            assert len(pending.result) == 1
            error = pending.result[0]
            if pending.poisoned:
                assert error is not None
            if error is None:
                for effect in pending.effects:
                    effect(self.committed)
            else:
                assert error.reason == "full"
                assert pending.poisoned or pending.may_fail or self._relies_on(pending, failed)
                failed |= pending.touched
        if self.current is not None and self._relies_on(self.current, failed):
            self.current.may_fail = True

    def _relies_on(self, pending: Pending, failed: set[int]) -> bool:
        """It works on a stream of a failed transaction, or on one whose predecessor's deletion has failed."""
        names = {self.logs[key].name for key in failed}
        return any(self.logs[key].name in names for key in pending.touched)

    @rule()
    def crash(self) -> None:
        self.store.crash()
        self._reopened()

    @rule()
    def close(self) -> None:
        if self.current is not None:
            self.abort()
        group = list(self.pending)
        self.store.close()
        self._settled(group)
        self._reopened()

    def _reopened(self) -> None:
        self.pending.clear()
        self.current = None
        self.store = self.open()
        assert not self.store.recounted
        logs = {log.name: log for log in self.store.streams()}
        self.committed = {k: s for k, s in self.committed.items() if s.alive and not s.memory}
        self.logs = {key: logs[stream.name] for key, stream in self.committed.items()}
        assert len(logs) == len(self.committed)

    @precondition(lambda self: self.alive())
    @rule(data=st.data())
    def track(self, data: st.DataObject) -> None:
        _, log, _ = self.pick(data)
        log.track()

    # -- what must hold ------------------------------------------------------------------------------------------------

    @invariant()
    def numbers_are_staged(self) -> None:
        staged = self.staged()
        alive = {stream.name: key for key, stream in staged.items() if stream.alive}
        assert {log.name: log for log in self.store.streams()} == {name: self.logs[key] for name, key in alive.items()}
        for key in alive.values():
            stream, log = staged[key], self.logs[key]
            state = log.state
            assert state.messages == len(stream.messages)
            assert state.bytes == sum(log.message_bytes(*message[1:]) for message in stream.messages.values())
            assert state.last_seq == stream.last_seq
            if stream.messages:
                assert state.first_seq == min(stream.messages)
                assert state.first_ts_ns == stream.messages[state.first_seq][0]
            else:
                assert state.first_seq == (stream.last_seq + 1 if stream.last_seq else 0)
            assert log.config == stream.config
            between = range(state.first_seq, state.last_seq + 1) if stream.messages else ()
            missing = set(between) - set(stream.messages)
            assert state.num_deleted == len(missing)
            assert log.deleted() == sorted(missing)

    @invariant()
    def reads_are_committed(self) -> None:
        staged = self.staged()
        for key, stream in staged.items():
            before = self.committed.get(key)
            if not stream.alive or before is None:
                continue
            log = self.logs[key]
            live = {seq: message for seq, message in before.messages.items() if seq in stream.messages}
            for seq in range(stream.last_seq + 2):
                message = log.get(seq)
                found = message and (message.ts_ns, message.subject, message.header, message.payload)
                assert found == live.get(seq)
            consumers = [(name, *before.consumers[name]) for name in sorted(before.consumers)]
            assert log.consumers() == consumers
            assert log.positions() == before.positions

    @precondition(lambda self: self.alive())
    @rule(
        data=st.data(),
        filters=st.sampled_from(FILTERS),
        limit=st.integers(1, 5),
        max_bytes=st.sampled_from([1, 20, 1 << 20]),
        steps=st.integers(0, 3),
    )
    def read(self, data: st.DataObject, filters: tuple[bytes, ...], limit: int, max_bytes: int, steps: int) -> None:
        key, log, stream = self.pick(data)
        before = self.committed.get(key)
        live = sorted(seq for seq in (before.messages if before else ()) if seq in stream.messages)
        match = matcher(filters)
        wanted = [s for s in live if match is None or match(stream.messages[s][1])]
        start = data.draw(st.integers(0, stream.last_seq + 1), label="from")
        seq, found = start, []
        while seq <= log.committed_seq:
            result = log.read(seq, max_messages=limit, max_bytes=max_bytes, filters=filters)
            assert len(result.messages) <= limit
            assert result.next_seq > seq
            found += [message.seq for message in result.messages]
            seq = result.next_seq
        assert found == [s for s in wanted if s >= start]
        with patch.multiple(log_reads, WALK_MAX=0, SCAN_MAX=2):  # what was walked is remembered
            counting = log.counting(start, filters)
            for _ in range(steps if counting is not None else 0):
                counting.step()
            assert log.count(start, filters) == len(found)
        assert self.copied(log, start, max_bytes, filters) == {s: stream.messages[s] for s in found}
        assert self.in_runs(log, start, limit, max_bytes, filters) == {s: stream.messages[s] for s in found}

    @staticmethod
    def in_runs(log: Log, seq: int, limit: int, max_bytes: int, filters: tuple[bytes, ...]) -> dict[int, Message]:
        """What runs of records bring, by the frames that are written of them."""
        found = {}
        while seq <= log.committed_seq:
            read = log.read_run(seq, max_messages=limit, max_bytes=max_bytes, filters=filters)
            if read is None:
                result = log.read(seq, max_messages=limit, max_bytes=max_bytes, filters=filters)
                found.update({m.seq: (m.ts_ns, m.subject, m.header, m.payload) for m in result.messages})
                seq = result.next_seq
                continue
            run, next_seq = read
            assert len(run) <= limit
            assert next_seq > seq
            assert all(seq <= at < next_seq for at in run.seqs())
            found.update(written_of(run))
            seq = next_seq
        return found

    @staticmethod
    def copied(log: Log, seq: int, max_bytes: int, filters: tuple[bytes, ...]) -> dict[int, Message]:
        """What readings of records bring, decoded."""
        found = {}
        while seq <= log.committed_seq:
            run = StoredRun(DIRECTORY_BYTES)
            begun = 0
            while seq <= log.committed_seq:  # until there is no room
                room = max(max_bytes - run.packed_size, 1)
                next_seq = log.reading(run, seq, up_to=log.committed_seq, max_bytes=room, filters=filters)()
                assert next_seq >= seq
                assert next_seq > seq or begun
                assert all(seq <= at < next_seq for at in run.seqs()[begun:])
                if next_seq == seq:
                    break
                seq, begun = next_seq, len(run)
            assert len(run) <= 1 or run.packed_size <= max_bytes
            for at, record in unpack(run.packed(), len(run)):
                message = decode_body(record)
                found[at] = (message.ts_ns, message.subject, message.header, message.payload)
        return found

    @precondition(lambda self: self.alive())
    @rule(data=st.data(), filter_=st.sampled_from([b"a", b"b", b"a.*", b">", b"none"]))
    def by_subject(self, data: st.DataObject, filter_: bytes) -> None:
        key, log, stream = self.pick(data)
        before = self.committed.get(key)
        live = sorted(seq for seq in (before.messages if before else ()) if seq in stream.messages)
        match = matcher((filter_,))
        wanted = [s for s in live if match is None or match(stream.messages[s][1])]
        last = log.last_for(filter_)
        assert (last.seq if last else 0) == max(wanted, default=0)
        start = data.draw(st.integers(0, stream.last_seq + 1), label="from")
        following = log.next_for(filter_, start)
        assert (following.seq if following else 0) == min((s for s in wanted if s >= start), default=0)
        totals: dict[bytes, int] = {}
        for _, subject, _, _ in stream.messages.values():
            if match is None or match(subject):
                totals[subject] = totals.get(subject, 0) + 1
        assert dict(log.subject_totals(filter_)) == totals
        for subject, total in totals.items():
            seqs = [s for s, message in stream.messages.items() if message[1] == subject]
            assert log.subject_count(subject) == total
            assert log.first_seq_for(subject) == min(seqs)
            assert log.last_seq_for(subject) == max(seqs)

    @precondition(lambda self: self.alive())
    @rule(data=st.data())
    def at_time(self, data: st.DataObject) -> None:
        key, log, stream = self.pick(data)
        before = self.committed.get(key)
        live = {s: m[0] for s, m in (before.messages if before else {}).items() if s in stream.messages}
        ts_ns = data.draw(st.integers((1 << 33) - 1, self.clock + 1), label="time")
        expected = min((s for s, at in live.items() if at >= ts_ns), default=log.committed_seq + 1)
        assert log.seq_at_time(ts_ns) == expected


TestStoreModel = StoreMachine.TestCase
TestStoreModel.settings = settings(
    max_examples=300, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


class JournalledStoreMachine(StoreMachine):
    """The same with a journal in front, so small that LMDB catches up every now and then."""

    options = JOURNAL


TestJournalledStoreModel = JournalledStoreMachine.TestCase
TestJournalledStoreModel.settings = TestStoreModel.settings
