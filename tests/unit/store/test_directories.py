"""Directories that are made for a store are there after a power cut: each is flushed into the one above it."""

import os
from pathlib import Path

import pytest

from eyot_store.directories import make_directories
from support.store.store import open_inline


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    paths: list[str] = []
    fsync = os.fsync

    def noted(fd: int) -> None:
        paths.append(os.readlink(f"/proc/self/fd/{fd}"))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noted)
    return paths


def test_every_directory_above_one_that_was_made(tmp_path: Path, flushed: list[str]) -> None:
    make_directories(tmp_path / "a" / "b" / "c", 0o750)
    assert flushed == [str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")]
    assert (tmp_path / "a" / "b" / "c").stat().st_mode & 0o777 == 0o750
    flushed.clear()
    make_directories(tmp_path / "a" / "b" / "c", 0o750)
    assert flushed == []


def test_a_store_does_so(tmp_path: Path, flushed: list[str]) -> None:
    open_inline(tmp_path / "a" / "store").close()
    assert str(tmp_path) in flushed
    assert str(tmp_path / "a") in flushed
