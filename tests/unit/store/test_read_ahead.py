"""With a cold cache the disk is asked for many pages together, and not for one after the other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eyot_store import native
from eyot_store.page_check import BIG
from eyot_store.pages.layout import page_number
from eyot_store.pages.pages import Pages
from eyot_store.pages.survey import survey
from eyot_store.records.record import seq_of
from support.store.paged_store import PAGE, leaves_of, tree_of
from support.store.store import fill, make_log, open_inline


@pytest.fixture
def asked(monkeypatch) -> set[int]:
    """Pages that the disk was asked for ahead of a read."""
    pages: set[int] = set()

    def advise(fd: int, at: int, size: int, advice: int) -> None:
        assert advice == os.POSIX_FADV_WILLNEED
        pages.update(range(at // PAGE, (at + size) // PAGE))

    monkeypatch.setattr(os, "posix_fadvise", advise)
    return pages


@pytest.mark.parametrize("whole", [False, True])
def test_a_start_does_not_wait_for_each_stream_in_turn(
    tmp_path: Path, asked: set[int], monkeypatch, whole: bool
) -> None:
    def waits(streams: int) -> int:
        """Pages that the survey of so many streams reads without having asked for them."""
        path = tmp_path / str(streams)
        store = open_inline(path)
        for number in range(streams):
            fill(store, make_log(store, f"S{number}"), 300, payload=b"x" * 1000)
        store.close()
        asked.clear()
        waited = [0]
        pread = os.pread

        def read(fd: int, size: int, at: int) -> bytes:
            waited[0] += at // PAGE not in asked
            return pread(fd, size, at)

        with monkeypatch.context() as patch:
            patch.setattr(os, "pread", read)
            pages = Pages(path / "data.mdb")
            found = survey(pages, pages.metas()[0], leaves=whole)
            pages.close()
        assert len(found.trees) == streams + 5
        assert not found.streams
        return waited[0]

    assert waits(60) <= waits(15) + 2  # the main database may be one level deeper


@pytest.mark.parametrize("checked", [False, True], ids=["large file", "checked at the start"])
@pytest.mark.parametrize("packed", [False, True], ids=["messages", "run"])
@pytest.mark.parametrize("size", [1000, 3000, 4096, 12_000, 65_536, 300_000])
def test_large_messages_are_asked_for_before_they_are_read(
    tmp_path: Path, asked: set[int], monkeypatch, size: int, packed: bool, checked: bool
) -> None:
    if not checked:
        monkeypatch.setattr("eyot_store.pages.survey.LEAVES_MAX", 0)
    path, messages = tmp_path / "store", max(30, 1_500_000 // size)
    store = open_inline(path)
    logs = [make_log(store, name) for name in "STU"]
    for _ in range(messages // 10):
        for log in logs:  # in turn, so that no stream's pages follow each other for long
            fill(store, log, 10, payload=b"x" * size)
    store.close()
    data = _overflow_pages(path, 2)
    assert bool(data) is (size > 2000)
    asked.clear()
    store = open_inline(path)
    log = store.streams()[1]
    seq, last = 1, log.state.last_seq
    while seq <= last:
        if packed:
            read = log.read_run(seq, max_messages=40, max_bytes=200_000)
            assert read is not None
            seqs, seq = read[0].seqs(), read[1]
        else:
            result = log.read(seq, max_messages=40, max_bytes=200_000)
            seqs, seq = [message.seq for message in result.messages], result.next_seq
        assert seqs
        for each in seqs:
            assert data.get(each, set()) <= asked
    store.close()


@pytest.mark.parametrize("size", [200, 65_536])
def test_messages_here_and_there_are_asked_for_together(
    tmp_path: Path, asked: set[int], monkeypatch, size: int
) -> None:
    monkeypatch.setattr("eyot_store.pages.survey.LEAVES_MAX", 0)
    path, messages = tmp_path / "store", 3_000_000 // size
    store = open_inline(path)
    fill(store, make_log(store, "S"), messages, payload=b"x" * size)
    store.close()
    leaves, data = set(leaves_of(path, 1)), _overflow_pages(path, 1)
    asked.clear()
    store = open_inline(path)
    waited: list[int] = []
    pread = os.pread

    def read(fd: int, size: int, at: int) -> bytes:
        if at // PAGE in leaves and at // PAGE not in asked:
            waited.append(at // PAGE)
        return pread(fd, size, at)

    monkeypatch.setattr(os, "pread", read)
    seqs = list(range(1, messages, 7))
    found = store.streams()[0].view.records.get_many(seqs, 1 << 24).messages
    assert [message.seq for message in found] == seqs
    assert waited == []
    for seq in seqs:
        assert data.get(seq, set()) <= asked
    store.close()


def _overflow_pages(path: Path, stream_id: int) -> dict[int, set[int]]:
    """The overflow pages of each message, by sequence."""
    pages, tree = tree_of(path, stream_id)
    found = {}
    for page, _, _ in pages.walk(tree):
        for index in range(native.nodes_of(page)):
            flags, size, at = native.data_at(page, index)
            if flags & BIG:
                first = page_number(page, at)[0]
                found[seq_of(native.key_at(page, index))] = set(range(first, first + (15 + size) // PAGE + 1))
    pages.close()
    return found
