"""Positions that are durable on a full disk: a file of fixed size, written in place, in two copies."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from eyot_store.journal.spare_positions import FILE, SLOT_BYTES, SparePositions
from eyot_store.records.store_cipher import new_store_cipher


def opened(path: Path) -> SparePositions:
    return SparePositions(path, None, flush=False)


def test_a_position_is_there_when_the_store_is_opened_again(tmp_path: Path) -> None:
    spare = opened(tmp_path)
    assert spare.put(7, b"one", b"first")
    assert spare.put(7, b"two", b"second")
    assert spare.put(8, b"one", b"other")
    assert spare.put(7, b"one", b"changed")
    spare = opened(tmp_path)
    assert spare.of(7) == {b"one": b"changed", b"two": b"second"}
    assert spare.of(8) == {b"one": b"other"}
    assert spare.of(9) == {}
    spare.remove(7, b"two")
    spare.remove(7, b"none")
    spare.remove_stream(8)
    assert [opened(tmp_path).of(stream_id) for stream_id in (7, 8)] == [{b"one": b"changed"}, {}]


def test_the_file_has_its_size_from_the_beginning_and_keeps_it(tmp_path: Path) -> None:
    """What is written needs no space that the disk may not have: no hole is filled, nothing is appended."""
    spare = opened(tmp_path)
    before = os.stat(tmp_path / FILE)
    assert before.st_size == 2 * SLOT_BYTES
    assert before.st_mode & 0o777 == 0o600
    for number in range(20):
        assert spare.put(number, b"key", b"x" * 200)
    after = os.stat(tmp_path / FILE)
    assert (after.st_size, after.st_ino) == (before.st_size, before.st_ino)
    (tmp_path / FILE).write_bytes(b"short")
    opened(tmp_path)
    assert (tmp_path / FILE).stat().st_size == 2 * SLOT_BYTES
    (tmp_path / FILE).unlink()
    assert spare.put(1, b"key", b"new")
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("flush", [False, True])
def test_each_change_is_written_once_and_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush: bool) -> None:
    spare = SparePositions(tmp_path, None, flush=flush)
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", flushed.append)
    before = len(os.listdir("/proc/self/fd"))
    written = []
    for _ in range(2):
        assert spare.put(1, b"a", b"1")
        written.append((tmp_path / FILE).read_bytes())
    assert written[0] == written[1]
    assert len(flushed) == flush
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("kept", [0, 3, 40, SLOT_BYTES - 1])
def test_a_torn_write_leaves_the_copy_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    spare = opened(tmp_path)
    spare.put(1, b"a", b"1" * 4000)
    spare.put(1, b"b", b"2" * 3000)
    spare = opened(tmp_path)
    whole = os.pwrite
    with monkeypatch.context() as during:
        during.setattr(os, "pwrite", lambda fd, data, at: whole(fd, data[:kept], at))
        for _ in range(2):
            assert not spare.put(1, b"c", b"3" * 500)
    assert spare.of(1).keys() == {b"a", b"b"}
    assert opened(tmp_path).of(1).keys() >= {b"a", b"b"}
    assert spare.put(1, b"d", b"4")
    assert opened(tmp_path).of(1).keys() == {b"a", b"b", b"d"}


def test_what_does_not_fit_is_refused_and_the_rest_stays(tmp_path: Path) -> None:
    spare = opened(tmp_path)
    assert spare.put(1, b"a", b"1" * 4000)
    taken = [spare.put(1, b"b", b"2" * size) for size in range(4100, 4200)]
    accepted = taken.count(True)
    assert taken == [True] * accepted + [False] * (100 - accepted)
    assert spare.of(1) == opened(tmp_path).of(1) == {b"a": b"1" * 4000, b"b": b"2" * (4099 + accepted)}
    data = (tmp_path / FILE).read_bytes()
    sizes = [int.from_bytes(data[at : at + 4], "big") for at in (0, SLOT_BYTES)]
    assert sorted(sizes) == [SLOT_BYTES - 5, SLOT_BYTES - 4], "the whole room is used, and no more"
    assert len(data) == 2 * SLOT_BYTES


def test_an_io_error_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spare = opened(tmp_path)

    def fails(*_: Any) -> int:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as during:
        during.setattr(os, "pwrite", fails)
        assert not spare.put(1, b"a", b"1")
    assert spare.of(1) == opened(tmp_path).of(1) == {}


def test_an_encrypted_store_locks_it(tmp_path: Path) -> None:
    cipher = new_store_cipher("aes")
    assert SparePositions(tmp_path, cipher, flush=True).put(1, b"eyot.out.leaf", b"a subject")
    data = (tmp_path / FILE).read_bytes()
    assert b"leaf" not in data
    assert b"subject" not in data
    assert SparePositions(tmp_path, cipher.another(), flush=True).of(1) == {b"eyot.out.leaf": b"a subject"}
    other = SparePositions(tmp_path, new_store_cipher("aes"), flush=True)
    assert other.of(1) == {}, "of a data key that is not in use any more"
    assert other.put(1, b"b", b"2")
