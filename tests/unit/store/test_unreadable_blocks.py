"""A disk that does not give some blocks of the store's files: what the start and `eyot-check` say, and what a repair keeps."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from eyot_store.journal.journal import BLOCK
from support.store.bad_disk import compiled
from support.store.store import JOURNAL, fill, make_log, open_inline

FRAMES = 16


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled("unreadable.c", tmp_path_factory.mktemp("disk"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store whose journal holds 16 frames of one message each, which LMDB does not have."""
    store = open_inline(tmp_path / "eyot", JOURNAL)
    log = make_log(store)
    fill(store, log, 1)
    store.close()
    store = open_inline(tmp_path / "eyot", JOURNAL)
    for number in range(FRAMES):
        fill(store, store.streams()[0], 1, payload=b"%02d" % number * 400)
        store.commit_now()
    store.crash()
    return tmp_path / "eyot"


def check(path: Path, library: Path, unreadable: str, *arguments: str) -> tuple[int, str]:
    """Run `eyot-check` on such a disk; its exit status and what it prints."""
    words = [sys.executable, "-m", "eyot_store.check.main", *arguments, str(path)]
    disk = {"LD_PRELOAD": str(library), "EYOT_UNREADABLE": unreadable}
    done = subprocess.run(words, env=os.environ | disk, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_an_unreadable_block_of_the_journal_costs_its_frames_alone(path: Path, library: Path) -> None:
    segment = next(each for each in sorted((path / "journal").iterdir()) if b"10" * 400 in each.read_bytes())
    at = segment.read_bytes().index(b"10" * 400) // BLOCK * BLOCK
    order = f"{segment.name}:{at}:{at + 1}"
    code, out = check(path, library, order)
    assert code == 1
    assert f"{segment} cannot be read: Input/output error; eyot-check --repair takes over what can be read" in out
    code, out = check(path, library, order, "--repair")
    assert code == 0, out
    assert "journal: frame" in out
    store = open_inline(path, JOURNAL)
    (log,) = store.streams()
    held = [each.payload for each in log.read(2, max_messages=99, max_bytes=1 << 20).messages]
    lost = [number for number in range(FRAMES) if b"%02d" % number * 400 not in held]
    assert lost == list(range(lost[0], lost[-1] + 1))
    assert 10 in lost
    assert len(lost) <= BLOCK // 800 + 2
    store.close()


@pytest.mark.parametrize("file", ["journal.high", "positions.spare"])
def test_unreadable_notes_cost_nothing_that_the_journal_holds(path: Path, library: Path, file: str) -> None:
    code, out = check(path, library, f"{file}:0:4096", "--repair")
    assert code == 0, out
    store = open_inline(path, JOURNAL)
    (log,) = store.streams()
    assert log.state.messages == FRAMES + 1
    store.close()
