"""Packet identifiers on flash: a change that is refused leaves what was there."""

from __future__ import annotations

from pathlib import Path

import pytest

from eyot_daemon.mqtt.packet_ids import StoredPacketIds
from eyot_daemon.mqtt.session_record import HELD
from support.jetstream.fixture import Fixture


@pytest.mark.parametrize("before", [None, b"first"])
@pytest.mark.parametrize("change", ["put", "remove"])
def test_a_refused_change_is_undone(tmp_path: Path, before: bytes | None, change: str) -> None:
    fixture = Fixture(tmp_path)
    fixture.create()
    ids = StoredPacketIds(fixture.stream().log)
    if before is not None:
        ids.put(HELD, "session", 7, before)
    changed = ids.put(HELD, "session", 7, b"second") if change == "put" else ids.remove(HELD, "session", 7)
    assert ids.get(HELD, "session", 7) == (b"second" if change == "put" else None)
    changed.undo()
    assert ids.get(HELD, "session", 7) == before
    assert ids.of(HELD, "session") == ({} if before is None else {7: before})
