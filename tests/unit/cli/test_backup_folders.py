"""Backup and restore read and write the files of their folder alone: no symbolic link leads elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from eyot_cli.jetstream import backups
from eyot_cli.jetstream.backups import DATA, META, Folder
from eyot_cli.terminal.failure import Failure

CONFIG = b'{"config": {"name": "S"}, "state": {"messages": 1}}'
#: Options of both commands without any on the command line.
BACKUP = {"no_consumers": False, "check": False, "chunk_size": 1 << 17, "window_size": None, "shows": False}
RESTORE = {"file_of_config": None, "replicas": None, "shows": False}


class Target:
    """A server that answers as long as it is asked."""

    as_json = True

    def __init__(self) -> None:
        self.asked = 0

    def with_client(self, ask: Callable[[Any], Any]) -> dict[str, Any]:
        self.asked += 1
        return {"config": {"name": "S"}, "state": {"messages": 0, "consumer_count": 0}}


def run(command: click.Command, target: Target, *arguments: object, **options: object) -> None:
    callback: Any = command.callback
    callback.__wrapped__(target, *arguments, **options)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    path = tmp_path / "elsewhere"
    path.write_text("precious")
    return path


@pytest.mark.parametrize("name", [f"{DATA}.partial", f"{META}.partial", DATA, META])
def test_a_backup_does_not_write_through_a_link(name: str, tmp_path: Path, elsewhere: Path) -> None:
    folder = tmp_path / "backup"
    folder.mkdir()
    (folder / name).symlink_to(elsewhere)
    target = Target()
    if name.endswith(".partial"):
        run(backups.backup, target, "S", folder, **BACKUP)
        assert sorted(path.name for path in folder.iterdir()) == [META, DATA]
    else:
        with pytest.raises(Failure, match="already holds a backup"):
            run(backups.backup, target, "S", folder, **BACKUP)
    assert elsewhere.read_text() == "precious"


def test_a_dangling_link_is_something(tmp_path: Path) -> None:
    folder = tmp_path / "backup"
    folder.mkdir()
    (folder / DATA).symlink_to(tmp_path / "nowhere")
    with pytest.raises(Failure, match="already holds a backup"):
        run(backups.backup, Target(), "S", folder, **BACKUP)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("name", [META, DATA])
def test_a_restore_does_not_read_through_a_link(name: str, tmp_path: Path) -> None:
    folder, other = tmp_path / "backup", tmp_path / "other"
    folder.mkdir()
    for each in (META, DATA):
        (folder / each).write_bytes(CONFIG)
    other.write_bytes(CONFIG)
    (folder / name).unlink()
    (folder / name).symlink_to(other)
    target = Target()
    with pytest.raises(Failure, match="symbolic link"):
        run(backups.restore, target, folder, **RESTORE)
    assert not target.asked
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(Failure, match="not a regular file"):
        run(backups.restore, target, folder, **RESTORE)


def test_the_folder_itself_is_no_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(Failure):
        run(backups.backup, Target(), "S", tmp_path / "link", **BACKUP)
    assert not list((tmp_path / "real").iterdir())
    with pytest.raises(NotADirectoryError), Folder(tmp_path / "link"):
        pass
