"""A stream against a model of it: every answer holds, through crashes at any moment.

The model records each answer. Messages without an answer at a crash may be stored or not, but only as a whole turn and in
the order of turns.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from support.jetstream.fixture import Fixture

Held = dict[int, tuple[bytes, bytes]]


class StreamModel(RuleBasedStateMachine):
    """`held` is what the stream must hold by its answers; `ids` what it must know as duplicates."""

    ids = Bundle("ids")

    @initialize(max_msgs=st.sampled_from([-1, 3, 10]), per_subject=st.sampled_from([-1, 1, 2]), new=st.booleans())
    def start(self, max_msgs: int, per_subject: int, new: bool) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.fixture = Fixture(Path(self.directory.name))
        self.discard_new = new
        self.max_msgs = max_msgs
        self.per_subject = per_subject
        discard = "new" if new else "old"
        self.fixture.create(max_msgs=max_msgs, max_msgs_per_subject=per_subject, discard=discard)
        self.held: Held = {}
        self.last_seq = 0
        self.known: dict[str, int] = {}
        self.under_way: list[tuple[bytes, bytes, bytes, str]] = []
        self.number = 0

    def teardown(self) -> None:
        self.fixture.js.stop()
        self.fixture.store.close()
        self.directory.cleanup()

    @rule(target=ids, number=st.integers(0, 5))
    def some_id(self, number: int) -> str:
        return f"id{number}"

    @rule(subject=st.sampled_from([b"s.a", b"s.b", b"s.c"]))
    def publish(self, subject: bytes) -> None:
        self._publish(subject, "")

    @rule(subject=st.sampled_from([b"s.a", b"s.b"]), msg_id=ids)
    def publish_with_id(self, subject: bytes, msg_id: str) -> None:
        self._publish(subject, msg_id)

    def _publish(self, subject: bytes, msg_id: str) -> None:
        self.number += 1
        payload = b"%d" % self.number
        reply = self.fixture.publish(subject, payload, {"Nats-Msg-Id": msg_id} if msg_id else b"")
        self.under_way.append((reply, subject, payload, msg_id))

    @rule()
    def end_turn(self) -> None:
        self.fixture.broker.flush()

    @rule()
    def commit(self) -> None:
        self.fixture.commit()
        for reply, subject, payload, msg_id in self.under_way:
            answer = json.loads(self.fixture.answer(reply) or b"{}")
            self._promised(answer, subject, payload, msg_id)
        self.under_way.clear()

    def _promised(self, answer: dict[str, object], subject: bytes, payload: bytes, msg_id: str) -> None:
        assert answer, "every publisher is answered"
        if msg_id in self.known:
            assert answer == {"stream": "S", "seq": self.known[msg_id], "duplicate": True}
            return
        if self._full(subject):
            assert answer["seq"] == 0
            return
        self.last_seq += 1
        assert answer == {"stream": "S", "seq": self.last_seq}
        self.held[self.last_seq] = (subject, payload)
        if msg_id:
            self.known[msg_id] = self.last_seq
        self._trim(subject)

    def _of(self, subject: bytes) -> list[int]:
        return [seq for seq, (each, _) in self.held.items() if each == subject]

    def _full(self, subject: bytes) -> bool:
        replaces = 0 < self.per_subject <= len(self._of(subject))
        return self.discard_new and 0 < self.max_msgs <= len(self.held) and not replaces

    def _trim(self, subject: bytes) -> None:
        while 0 < self.per_subject < len(self._of(subject)):
            del self.held[self._of(subject)[0]]
        while 0 < self.max_msgs < len(self.held):
            del self.held[min(self.held)]

    @rule(share=st.floats(0, 1))
    def purge(self, share: float) -> None:
        self.commit()
        below = int(share * (self.last_seq + 1)) + 1
        answer = self.fixture.request("STREAM.PURGE.S", {"seq": below})
        gone = [seq for seq in self.held if seq < below]
        assert answer["purged"] == len(gone)
        for seq in gone:
            del self.held[seq]
        self.last_seq = max(self.last_seq, below - 1)

    @rule(share=st.floats(0, 1))
    def delete(self, share: float) -> None:
        self.commit()
        seq = int(share * self.last_seq) + 1
        answer = self.fixture.request("STREAM.MSG.DELETE.S", {"seq": seq})
        assert ("success" in answer) == (self.held.pop(seq, None) is not None)

    @rule()
    def restart(self) -> None:
        self.commit()
        self.fixture = self.fixture.restart()
        self._forget_removed_ids()

    @rule()
    def crash(self) -> None:
        """What was not committed was not answered either, and is gone (nothing is committed behind our back)."""
        for reply, _, _, msg_id in self.under_way:
            answer = self.fixture.answer(reply)
            assert answer is None or b'"seq":0' in answer or (b'"duplicate"' in answer and msg_id in self.known)
        self.under_way.clear()
        self.fixture = self.fixture.crash()
        self._forget_removed_ids()

    def _forget_removed_ids(self) -> None:
        """The window is read back from the log: what is no longer there is no longer known."""
        self.known = {msg_id: seq for msg_id, seq in self.known.items() if seq in self.held}

    @invariant()
    def what_was_promised_is_there(self) -> None:
        if not self.under_way:
            log = self.fixture.stream().log
            read = log.read(1, max_messages=1000, max_bytes=1 << 20)
            assert {message.seq: (message.subject, message.payload) for message in read.messages} == self.held
            state = log.state
            assert (state.messages, state.last_seq) == (len(self.held), self.last_seq)
            assert state.first_seq == min(self.held, default=self.last_seq + 1 if self.last_seq else 0)
            assert dict(log.subject_totals(b">")) == {
                subject: len(self._of(subject)) for subject, _ in self.held.values()
            }


StreamModel.TestCase.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
TestStreamModel = StreamModel.TestCase
