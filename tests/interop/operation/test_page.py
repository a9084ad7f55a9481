"""The local page's JSON of a real device and hub: online, offline, with a full disk, over a restart and a reload."""

from __future__ import annotations

import asyncio
import io
import json
import signal
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.js.api import ExternalStream, StreamConfig, StreamSource
from nats.js.errors import APIError

from support.links.leaf_pair import LEAF, LeafPair, eventually
from support.servers.server_process import ServerProcess
from support.store.bad_disk import FullDiskEyotd, SmallDiskEyotd, disk_library

PAGE = "eyot { http { page: true } }\n"
WAIT_S = 60.0


def fetched(server: ServerProcess, path: str, host: str = "") -> tuple[int, bytes]:
    request = urllib.request.Request(
        f"http://{server.host}:{server.monitor_port}{path}", headers={"Host": host} if host else {}
    )
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def page(server: ServerProcess) -> Any:
    return json.loads(fetched(server, "/eyot/page.json")[1])


def says(server: ServerProcess, state: str, words: str) -> Callable[[], bool]:
    def check() -> bool:
        headline = page(server)["headline"]
        return bool(headline["state"] == state and words in headline["text"])

    return check


async def copied(hub: Client, leaf: Client) -> None:
    """A stream of the device that the hub sources, with messages."""
    await leaf.jetstream(timeout=WAIT_S).add_stream(name="R", subjects=["r.>"])
    source = StreamSource(name="R", external=ExternalStream(api="$JS.leaf.API", deliver=""))
    await hub.jetstream(timeout=WAIT_S).add_stream(StreamConfig(name="ALL", sources=[source]))
    for _ in range(20):
        await leaf.jetstream(timeout=WAIT_S).publish("r.a", b"x")


def test_online_offline_restart_and_reload(tmp_path: Path) -> None:
    with LeafPair("eyotd", "eyotd", tmp_path, leaf_config=LEAF + PAGE) as pair:
        device = pair.leaf
        assert page(device)["headline"]["state"] == "unread"

        async def online(hub: Client, leaf: Client) -> None:
            await copied(hub, leaf)
            await eventually(says(device, "synced", "Synced: hub-server has everything"), WAIT_S)
            pair.hub.kill()
            await leaf.jetstream(timeout=WAIT_S).publish("r.a", b"x")
            await eventually(says(device, "behind", "Not synced: "), WAIT_S)
            await eventually(lambda: refused_with_remedy(device), WAIT_S)

        pair.play(online)
        now = page(device)
        assert "1 stream behind" in now["headline"]["text"]
        assert now["status"]["streams"][0]["messages"] == now["sync"]["out"][0]["backlog"] + 20 == 21
        assert now["warnings"], "the link that closed"
        _restart_keeps_the_history(device)
        _reload_ends_the_page(device)


def refused_with_remedy(device: ServerProcess) -> bool:
    return any(each["what"].startswith("link ") and each["remedy"] for each in page(device)["problems"])


def _restart_keeps_the_history(device: ServerProcess) -> None:
    device.stop()
    device.start()
    asyncio.run(eventually(lambda: "R" in streams_of_the_day(device), WAIT_S))
    before = streams_of_the_day(device)
    device.stop()
    (device.workdir / "store" / "eyot" / "page-history").write_bytes(b"damaged")
    device.start()
    asyncio.run(eventually(lambda: streams_of_the_day(device) == before, WAIT_S))
    device.wait_log("is damaged and begins again", WAIT_S)


def streams_of_the_day(server: ServerProcess) -> list[str]:
    return [each["name"] for each in json.loads(fetched(server, "/eyot/history.json")[1])["streams"]]


def _reload_ends_the_page(device: ServerProcess) -> None:
    text = device.config_path.read_text()
    device.config_path.write_text(text.replace("page: true", "page: false"))
    device.signal(signal.SIGHUP)
    asyncio.run(eventually(lambda: fetched(device, "/eyot/page")[0] == 404, WAIT_S))
    device.config_path.write_text(text)
    device.signal(signal.SIGHUP)
    asyncio.run(eventually(lambda: fetched(device, "/eyot/page")[0] == 200, WAIT_S))


def test_who_may_ask_and_what_the_bundle_holds(tmp_path: Path) -> None:
    with LeafPair("eyotd", "eyotd", tmp_path, leaf_config=LEAF + PAGE) as pair:
        for host in ("evil.example", "localhost.evil.example", "evil.example:8222", "["):
            for path in ("/eyot/page", "/eyot/page.json", "/eyot/support-bundle"):
                assert fetched(pair.leaf, path, host)[0] == 421
        for host in ("localhost:8222", "127.0.0.1", "[::1]:1"):
            assert fetched(pair.leaf, "/eyot/page", host)[0] == 200
        status, packed = fetched(pair.leaf, "/eyot/support-bundle")
    assert status == 200
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        files = {name.partition("/")[2]: archive.extractfile(name) for name in archive.getnames()}
        texts = {name: file.read().decode() for name, file in files.items() if file is not None}
    assert set(texts) == {
        "page.json", "history.json", "healthz.json", "leafz.json", "jsz.json", "configuration.json", "log.txt"
    }  # fmt: skip
    configuration = json.loads(texts["configuration.json"])
    assert configuration["server_name"] == "leaf-server"
    assert configuration["accounts"]["OTHER"]["users"] == [{"user": "[REDACTED]", "password": "[REDACTED]"}]
    assert all("acc:acc@" not in text and "other:other" not in text for text in texts.values())
    assert json.loads(texts["healthz.json"])


def posted(server: ServerProcess, path: str, body: object, **headers: str) -> tuple[int, Any, str]:
    """Status, JSON and cookie of a POST, as the page sends it."""
    sent = {"Content-Type": "application/json"} | {name.replace("_", "-"): value for name, value in headers.items()}
    address = f"http://{server.host}:{server.monitor_port}{path}"
    request = urllib.request.Request(address, json.dumps(body).encode(), sent, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            cookie = answer.headers.get("Set-Cookie", "").partition(";")[0]
            return answer.status, json.loads(answer.read()), cookie
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read()), ""


def test_a_user_reconnects_a_link_and_forgets_a_source(tmp_path: Path) -> None:
    users = "eyot { http { page: true, users: [acc] } }\n"
    with LeafPair("eyotd", "eyotd", tmp_path, leaf_config=LEAF + users) as pair:
        device = pair.leaf
        assert fetched(device, "/eyot/support-bundle")[0] == 403
        assert posted(device, "/eyot/login", {"user": "acc", "password": "wrong"})[0] == 401
        _, told, cookie = posted(device, "/eyot/login", {"user": "acc", "password": "acc"})
        headers = {"Cookie": cookie, "X_Eyot_Token": told["token"]}

        async def act(hub: Client, leaf: Client) -> None:
            await copied(hub, leaf)
            await eventually(says(device, "synced", "Synced: hub-server has everything"), WAIT_S)
            (link,) = (each for each in page(device)["status"]["links"] if each["account"] == "ACC")
            order = {"link": link["name"]}
            assert posted(device, "/eyot/actions/reconnect", order)[0] == 401
            assert posted(device, "/eyot/actions/reconnect", order, **headers)[0] == 200
            await eventually(lambda: _connected_again(device, link), WAIT_S)
            gone = {"account": "ACC", "stream": "R", "server": "hub-server", "kind": "source", "target": "ALL"}
            pair.hub.kill()
            await eventually(lambda: _forgets(device, gone, headers), WAIT_S)
            assert page(device)["sync"]["out"] == []
            assert posted(device, "/eyot/actions/forget", gone, **headers)[0] == 404

        pair.play(act)
        log = device.log()
        assert 'Page: login of "acc" from 127.0.0.1 failed' in log
        assert 'Page: "acc" from 127.0.0.1 forgets "source" "ALL" of "ACC" "R" at "hub-server"' in log


def test_a_user_backs_a_stream_up_and_it_is_restored(tmp_path: Path) -> None:
    users = "eyot { http { page: true, users: [acc] } }\n"
    with LeafPair("eyotd", "eyotd", tmp_path, leaf_config=LEAF + users) as pair:
        device = pair.leaf
        _, told, cookie = posted(device, "/eyot/login", {"user": "acc", "password": "acc"})
        headers = {"Cookie": cookie, "X_Eyot_Token": told["token"]}

        async def act(hub: Client, leaf: Client) -> None:
            await copied(hub, leaf)
            order = {"account": "ACC", "stream": "R"}
            _, begun, _ = posted(device, "/eyot/actions/backup", order, **headers)
            status, refused, _ = posted(device, "/eyot/actions/backup", order, **headers)
            assert (status, "under way" in refused["error"]) == (409, True)
            (tmp_path / "backup.zip").write_bytes(downloaded(device, f"/eyot/{begun['download']}", cookie))
            await leaf.jetstream(timeout=WAIT_S).delete_stream("R")

        pair.play(act)
        with zipfile.ZipFile(tmp_path / "backup.zip") as archive:
            archive.extractall(tmp_path)
            folder = tmp_path / archive.namelist()[0].partition("/")[0]
        eyot = [Path(sys.executable).with_name("eyot"), "-s", device.client_url("acc"), "restore", folder]
        said = subprocess.run(eyot, capture_output=True, text=True, check=False)
        assert (said.returncode, said.stdout) == (0, "R: 20 messages, 0 consumers\n"), said.stderr
        assert "Backup of stream 'ACC > R' is complete" in device.log()


def downloaded(server: ServerProcess, path: str, cookie: str) -> bytes:
    request = urllib.request.Request(f"http://{server.host}:{server.monitor_port}{path}", headers={"Cookie": cookie})
    with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
        return bytes(answer.read())


def _connected_again(device: ServerProcess, before: Any) -> bool:
    (now,) = (each for each in page(device)["status"]["links"] if each["name"] == before["name"])
    return bool(now["state"] == "up" and now["since"] != before["since"])


def _forgets(device: ServerProcess, order: dict[str, str], headers: dict[str, str]) -> bool:
    """Whether the order is obeyed; while the source still replicates it is refused."""
    status, told, _ = posted(device, "/eyot/actions/forget", order, **headers)
    assert status in (200, 409), told
    return status == 200


@pytest.mark.parametrize("kind", [SmallDiskEyotd, FullDiskEyotd], ids=["a full disk", "a full quota"])
def test_a_full_disk(kind: type[SmallDiskEyotd], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    kind.library = disk_library(tmp_path_factory.mktemp("disk"))
    config = 'server_name: full\njetstream { store_dir: "%WORKDIR%/small/js", max_buffered_size: 4M }\n' + PAGE
    with kind(config, tmp_path) as device:
        now = asyncio.run(_fill(device))
        store = next(each for each in now["problems"] if each["what"] == "store")
        assert now["headline"]["text"].startswith(f"Cannot store messages: {store['error']}. Not synced")
        assert store["remedy"]
        device.make_room()
        asyncio.run(_stored_again(device))


async def _fill(device: SmallDiskEyotd) -> Any:
    """Publish until the page says that nothing can be stored; return what it says."""
    client = await nats.connect(device.client_url())
    js = client.jetstream(timeout=WAIT_S)
    await js.add_stream(name="S", subjects=["s"])
    device.fill()
    async with asyncio.timeout(WAIT_S):
        # A small commit may find room where a message did not, and then nothing fails for the moment: it goes on.
        while True:
            if not await stored(client, bytes(200_000)):
                now = await asyncio.to_thread(page, device)
                if now["headline"]["state"] == "failing" and "Cannot store" in now["headline"]["text"]:
                    break
    await client.close()
    return now


async def stored(client: Client, payload: bytes) -> bool:
    try:
        await client.jetstream(timeout=WAIT_S).publish("s", payload)
    except APIError:
        return False
    return True


async def _stored_again(device: SmallDiskEyotd) -> None:
    client = await nats.connect(device.client_url())
    async with asyncio.timeout(WAIT_S):
        while not await stored(client, b"x"):
            pass  # the store looks for room now and then
    await client.close()
    await eventually(says(device, "unread", "Not synced"), WAIT_S)
