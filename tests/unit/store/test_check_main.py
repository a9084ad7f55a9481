"""`eyot-check`: what it prints and its exit status."""

import json
import os
import shutil
from pathlib import Path

import pytest

from eyot_store.check.main import main
from eyot_store.errors import RESTORE
from support.store.store import JOURNAL, fill, make_log, open_inline


@pytest.fixture
def path(tmp_path: Path) -> Path:
    store = open_inline(tmp_path / "eyot", JOURNAL)
    log = make_log(store)
    fill(store, log, 3, payload=b"payload")
    store.close()
    store = open_inline(tmp_path / "eyot", JOURNAL)
    fill(store, store.streams()[0], 1)
    store.crash()
    return tmp_path


def test_a_sound_store(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(path)]) == 0
    out = capsys.readouterr().out
    assert "A/S: 3 messages, 114 bytes, sequences 1 to 3, 0 consumers" in out
    assert "1 group in the journal" in out
    assert out.endswith("nothing is wrong\n")
    assert main([str(path / "eyot"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["format"], report["journal_frames"], report["streams"][0]["messages"]) == (2, 1, 3)


def test_a_damaged_store_and_none(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = path / "eyot" / "data.mdb"
    data.write_bytes(data.read_bytes().replace(b"payload", b"payLoad", 1))
    assert main([str(path)]) == 1
    assert "damaged: stream A/S sequence" in capsys.readouterr().out
    assert main([str(path / "elsewhere")]) == 2
    assert "no store in" in capsys.readouterr().err


def test_what_was_written_anew_still_belongs_to_the_daemon(path: Path) -> None:
    daemon = 12345 if os.geteuid() == 0 else os.geteuid()
    store = path / "eyot"
    (store / "lock.mdb").unlink(missing_ok=True)
    for file in (store, *store.rglob("*")):
        os.chown(file, daemon, -1)
    assert main([str(path), "--compact", "--json"]) == 0
    assert {file.stat().st_uid for file in (store, *store.rglob("*"))} == {daemon}


def test_json_is_all_there_is_on_stdout(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(path), "--compact", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["problems"] == []
    assert "bytes before" in err
    assert main([str(path), "--key-file", str(path / "none")]) == 2
    assert capsys.readouterr().err == f"eyot-check: {path}/none: No such file or directory\n"


def test_what_cannot_be_checked_says_what_to_do(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each of these errors sent its reader to a repair that failed with the same error."""
    store = path / "eyot"
    assert main([str(path / "elsewhere")]) == 2
    assert "name the store_dir" in capsys.readouterr().err
    data = (store / "data.mdb").read_bytes()
    (store / "data.mdb").write_bytes(b"x" * 8192 + data[8192:])
    assert main([str(path)]) == 1
    assert RESTORE in capsys.readouterr().out
    (store / "data.mdb").unlink()
    for arguments in ([], ["--repair"], ["--compact"]):
        assert main([str(path), *arguments]) == 2
        assert f"remove {store / 'journal'} to start without it" in capsys.readouterr().err


def test_a_repair_goes_on_without_the_journal(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was in it is lost, and counted: the next message has a sequence that was never given out."""
    shutil.rmtree(path / "eyot" / "journal")
    assert main([str(path)]) == 1
    assert "damaged: the journal is missing" in capsys.readouterr().out
    assert main([str(path), "--repair"]) == 0
    out = capsys.readouterr().out
    assert "repaired: " in out
    assert "3 messages" in out
    store = open_inline(path / "eyot", JOURNAL)
    log = store.streams()[0]
    assert (log.state.messages, log.state.last_seq) == (3, 4)
    store.close()
