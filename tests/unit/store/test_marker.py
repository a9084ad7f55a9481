"""A bit that a full disk cannot keep from being turned."""

from __future__ import annotations

from pathlib import Path

import pytest

from eyot_store.journal.marker import Marker


def test_it_is_off_until_it_is_turned_on_and_stays_as_it_was_left(tmp_path: Path) -> None:
    assert not Marker(tmp_path, "doubted").is_on
    assert Marker(tmp_path, "doubted").turn(on=True)
    assert Marker(tmp_path, "doubted").is_on
    assert Marker(tmp_path, "doubted").turn(on=True)
    assert Marker(tmp_path, "doubted").turn(on=False)
    assert not Marker(tmp_path, "doubted").is_on
    assert len(list(tmp_path.iterdir())) == 1


def test_turning_it_makes_no_new_file(tmp_path: Path) -> None:
    marker = Marker(tmp_path, "doubted")
    (before,) = (each.stat().st_ino for each in tmp_path.iterdir())
    assert marker.turn(on=True)
    (after,) = (each.stat().st_ino for each in tmp_path.iterdir())
    assert after == before


def test_a_directory_that_cannot_be_changed_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = Marker(tmp_path, "doubted")

    def refused(path: Path, target: Path) -> Path:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "rename", refused)
    assert not marker.turn(on=True)
    assert not marker.is_on
