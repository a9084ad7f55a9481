"""Power cuts at every write and flush of a small workload (see `support/power_cuts.py`, which can do this for hours)."""

import random
from pathlib import Path

import pytest

from support.power_cuts import WRITE, Recording, build_capture, judge, record


@pytest.mark.parametrize("committer", ["journal", "lmdb"])
def test_a_power_cut_leaves_what_was_acknowledged(tmp_path: Path, committer: str) -> None:
    recording = record(build_capture(tmp_path), tmp_path / "play", committer, txns=24, seed=5)
    assert any(event.kind == WRITE and event.path.startswith("journal/") for event in recording.events) == (
        committer == "journal"
    )
    assert judge(recording, tmp_path, random.Random(5), torn_max=3, part=0.35) > 200


def test_the_judge_notices_a_missing_flush(tmp_path: Path) -> None:
    recording = record(build_capture(tmp_path), tmp_path / "play", "journal", txns=6, seed=5)
    unflushed = [event._replace(durable=False) for event in recording.events]
    with pytest.raises(AssertionError, match="not what was there after any"):
        judge(Recording(unflushed, recording.snapshots), tmp_path, random.Random(5), torn_max=1)
