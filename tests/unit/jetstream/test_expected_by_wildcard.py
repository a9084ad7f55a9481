"""Messages that expect one to be the last on a filter with wildcards: the same verdicts, and one look at all subjects a turn."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from eyot_store.log.subjects import SubjectIndex
from eyot_wire.subject import matches
from support.jetstream.consumers import ConsumerFixture

FILTERS = ["s.>", "s.a.*", "s.*.1", "s.b.2", "s.none.*"]
SUBJECTS = [f"s.{letter}.{number}" for letter in "abc" for number in range(4)]


def expecting(subject_filter: str, seq: int) -> dict[str, str]:
    return {
        "Nats-Expected-Last-Subject-Sequence": str(seq),
        "Nats-Expected-Last-Subject-Sequence-Subject": subject_filter,
    }


@pytest.mark.parametrize("limits", [{}, {"max_msgs": 7}, {"max_msgs_per_subject": 1}], ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_bursts_of_expectations(tmp_path: Path, seed: int, limits: dict[str, int]) -> None:
    rng, fixture = Random(seed), ConsumerFixture(tmp_path / "store")
    fixture.create(allow_rollup_hdrs=True, **limits)
    for _ in range(40):
        log = fixture.stream().log
        held = [(message.seq, message.subject) for message in log.read(1, max_messages=999, max_bytes=1 << 20).messages]
        next_seq, asked = log.state.last_seq + 1, []
        for _ in range(rng.randrange(1, 6)):
            subject, subject_filter = rng.choice(SUBJECTS).encode(), rng.choice(FILTERS)
            last = max((seq for seq, each in held if matches(subject_filter.encode(), each)), default=0)
            wanted = rng.choice([last, last, max(last - 1, 0), last + 1])
            header = expecting(subject_filter, wanted)
            rollup = rng.choice([None, None, None, "sub", "all"])
            if rollup:
                header["Nats-Rollup"] = rollup
            asked.append((fixture.publish(subject, b"x", header), wanted == last, next_seq))
            if wanted == last:
                if rollup:
                    held = [each for each in held if rollup == "sub" and each[1] != subject]
                held.append((next_seq, subject))
                next_seq += 1
            elif rng.random() < 0.2:
                fixture.request("STREAM.MSG.DELETE.S", {"seq": rng.randrange(1, next_seq + 1)})
                break
        fixture.commit()
        for reply, is_stored, seq in asked:
            answer = json.loads(fixture.answer(reply) or b"{}")
            assert answer.get("seq") == (seq if is_stored else 0), answer


def test_a_burst_looks_at_all_subjects_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message took 0.8 s with a million subjects, and nobody else was served in a burst of them."""
    fixture = ConsumerFixture(tmp_path / "store")
    fixture.create()
    for subject in SUBJECTS:
        fixture.publish(subject.encode())
    fixture.commit()
    looks: list[bytes] = []
    newest_seq, last_seq_for = SubjectIndex.newest_seq, SubjectIndex.last_seq_for
    monkeypatch.setattr(SubjectIndex, "newest_seq", lambda *given: looks.append(given[1]) or newest_seq(*given))
    monkeypatch.setattr(SubjectIndex, "last_seq_for", lambda *given: looks.append(given[1]) or last_seq_for(*given))
    count = len(SUBJECTS)
    replies = [fixture.publish(b"s.a.1", b"", expecting("s.>", count + number)) for number in range(50)]
    fixture.commit()
    assert [json.loads(fixture.answer(reply) or b"{}")["seq"] for reply in replies] == list(
        range(count + 1, count + 51)
    )
    assert looks == [b"s.>"]
