"""NATS' client for Rust (async-nats) sees the same on eyotd and on a real nats-server 2.14.

The chapters are in clients/rust.py; each runs in a process of its own.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.servers.eyotd import Eyotd
from support.servers.newer_nats_server import NewerNatsServer
from support.servers.server_process import ServerProcess

CONFIG = 'jetstream { store_dir: "%WORKDIR%/js", domain: isle }'
CLIENT = Path(__file__).parents[1] / "clients" / "rust.py"
CHAPTERS = ["core", "stream", "pulls", "groups", "pushes", "buckets", "objects", "counters"]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    """Of its own for each chapter: what one left half done must not be in its way when it runs again."""
    with Eyotd(CONFIG, tmp_path / "eyotd") as ours, NewerNatsServer(CONFIG, tmp_path / "nats-server") as theirs:
        yield ours, theirs


#: A panic of async-nats 0.49 itself (jetstream/consumer/push.rs): its ordered consumer polls a future that is through.
PANIC = "`async fn` resumed after completion"
#: On a busy machine it panics several times in a row.
TURNS_MAX = 20


def told(server: ServerProcess, chapter: str, turn: int = 0) -> list[str]:
    command = [sys.executable, str(CLIENT), f"{server.host}:{server.client_port}", chapter]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    if PANIC in done.stderr and turn < TURNS_MAX:
        server.stop()
        shutil.rmtree(server.workdir / "js")  # what it left half done must not be in its way
        server.start()
        return told(server, chapter, turn + 1)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_chapter(servers: tuple[ServerProcess, ServerProcess], chapter: str) -> None:
    ours, theirs = (told(server, chapter) for server in servers)
    assert ours == theirs
    assert len(ours) > 1
