"""Power cuts at every write and flush of an MQTT client's day: all places agree, and nothing acknowledged is missing."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from eyot_store.records import store_cipher
from eyot_store.subjects import batch_index, index_writer
from support.mqtt.power_workload import check_agreement
from support.store.power_cuts import build_capture, check_states, record

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The workload sets them; they are put back."""
    monkeypatch.setattr(index_writer, "INDEX_EVERY", index_writer.INDEX_EVERY)
    monkeypatch.setattr(batch_index, "INDEX_EVERY", batch_index.INDEX_EVERY)
    monkeypatch.setattr(batch_index, "RUN_MIN", batch_index.RUN_MIN)
    monkeypatch.setattr(store_cipher, "_SCRYPT_LOG2_N", store_cipher._SCRYPT_LOG2_N)


@pytest.mark.parametrize("kind", ["journal", "lmdb"])
def test_a_power_cut_leaves_a_state_in_which_all_places_agree(tmp_path: Path, kind: str) -> None:
    recording = record(
        build_capture(tmp_path), tmp_path / "play", kind, txns=40, seed=3, workload="mqtt/power_workload.py"
    )
    assert len(recording.snapshots) > 20
    for found in recording.snapshots:
        check_agreement(found)
    assert any(found["$MQTT_sess"]["positions"] for found in recording.snapshots)
    assert check_states(recording, tmp_path, random.Random(5), torn_max=3, part=0.25) > 100
