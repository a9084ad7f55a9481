"""Power cuts at every write and flush of a small workload (see `support/store/power_cuts.py`, which can do this for hours)."""

import random
from pathlib import Path

import pytest

from eyot_store.records import store_cipher
from eyot_store.subjects import batch_index, index_writer
from support.store.power_cuts import WRITE, build_capture, check_states, record
from support.store.power_workload import KINDS

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The workload sets them; they are put back."""
    monkeypatch.setattr(index_writer, "INDEX_EVERY", index_writer.INDEX_EVERY)
    monkeypatch.setattr(batch_index, "INDEX_EVERY", batch_index.INDEX_EVERY)
    monkeypatch.setattr(batch_index, "RUN_MIN", batch_index.RUN_MIN)
    monkeypatch.setattr(store_cipher, "_SCRYPT_LOG2_N", store_cipher._SCRYPT_LOG2_N)


@pytest.mark.parametrize("kind", KINDS)
def test_a_power_cut_leaves_what_was_acknowledged(tmp_path: Path, kind: str) -> None:
    recording = record(build_capture(tmp_path), tmp_path / "play", kind, txns=24, seed=5)
    assert any(event.kind == WRITE and event.path.startswith("journal/") for event in recording.events) == (
        kind != "lmdb"
    )
    assert check_states(recording, tmp_path, random.Random(5), torn_max=3, part=0.25) > 150


def test_the_judge_notices_a_missing_flush(tmp_path: Path) -> None:
    recording = record(build_capture(tmp_path), tmp_path / "play", "journal", txns=6, seed=5)
    unflushed = [event._replace(durable=False) for event in recording.events]
    with pytest.raises(AssertionError, match="not what was there after any"):
        check_states(recording._replace(events=unflushed), tmp_path, random.Random(5), torn_max=1)
