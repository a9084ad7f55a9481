"""A release that finds the store of a newer one: it changes nothing, says what to do, and the newer release has every message."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import lmdb
import nats
import pytest
from nats.js.api import StreamConfig

from eyot_store.environment import FORMAT_KEY, FORMATS
from support.servers.eyotd import Eyotd

MESSAGES = 20
#: What a process leaves that has the store open, beside what it stores.
LOCKS = {"lock.mdb", "store.lock"}


def written_as(folder: Path, number: bytes) -> bytes:
    """Have the store's format be another; return what it was."""
    with lmdb.open(str(folder), max_dbs=16, map_size=1 << 30) as env, env.begin(write=True) as txn:
        before = txn.get(FORMAT_KEY)
        assert before is not None
        txn.put(FORMAT_KEY, number)
        return bytes(before)


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in LOCKS
    }


async def publish(server: Eyotd) -> None:
    client = await nats.connect(server.client_url())
    jetstream = client.jetstream()
    await jetstream.add_stream(StreamConfig(name="READINGS", subjects=["readings.>"]))
    for number in range(MESSAGES):
        await jetstream.publish("readings.a", b"%d" % number)
    await client.close()


async def stored(server: Eyotd) -> list[bytes]:
    client = await nats.connect(server.client_url())
    jetstream = client.jetstream()
    found = [(await jetstream.get_msg("READINGS", seq)).data or b"" for seq in range(1, MESSAGES + 1)]
    await client.close()
    return found


@pytest.mark.parametrize("ended", ["stopped", "killed"])
def test_the_store_of_a_newer_release_waits_for_it(tmp_path: Path, ended: str) -> None:
    """Killed: messages are in the journal alone."""
    server = Eyotd('jetstream { store_dir: "%WORKDIR%/js" }\n', tmp_path)
    server.start()
    asyncio.run(publish(server))
    if ended == "killed":
        server.kill()
    else:
        server.stop()
    folder = tmp_path / "js" / "eyot"
    ours = written_as(folder, b"%d" % (FORMATS[-1] + 1))
    newer = files_of(folder)
    for _ in range(2):
        done = subprocess.run(server.command(), capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 78  # systemd does not try again
        assert "a newer release wrote the store" in done.stderr
        assert "install that release again, or restore a backup" in done.stderr
    assert files_of(folder) == newer
    written_as(folder, ours)
    with server:
        assert asyncio.run(stored(server)) == [b"%d" % number for number in range(MESSAGES)]
