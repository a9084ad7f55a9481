"""What an operator sees first on the local page: under load, offline, with a full disk and with an expired certificate.

`SCREENSHOTS=folder` keeps the pictures of the documentation, each also in the dark and on a phone.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client
from nats.js.api import ExternalStream, StreamConfig, StreamSource
from nats.js.errors import APIError

from eyot_daemon.monitor.page.history import FILE_NAME, History, Sample, write_file
from support.devices.chromium import Chromium
from support.links.leaf_pair import HUB, LEAF, LeafPair
from support.store.bad_disk import FullDiskEyotd, disk_library
from support.trust.certificates import Authority

SCREENSHOTS = os.environ.get("SCREENSHOTS", "")
WAIT_S = 60.0
PAGE = "eyot { http { page: true } }\n"
DEVICE = LEAF.replace("leaf-server", "gateway-7")
STATE = "document.getElementById('state')"
#: Outages of the made-up day before: minutes ago that they began, and how long they lasted.
OUTAGES = ((1130, 250), (530, 100))


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chromium]:
    with Chromium(tmp_path / "browser") as chromium:
        chromium.size(1085, 900)
        yield chromium


def with_a_day_before(store: Path) -> None:
    """Write a history with two outages, as a device has it after a day."""
    history, now = History(), int(time.time()) // 60
    backlog = 0
    for ago in range(1439, 1, -1):
        is_linked = not any(began - lasted < ago <= began for began, lasted in OUTAGES)
        backlog = max(backlog - 400, 0) if is_linked else backlog + 20
        oldest = 60.0 * backlog / 20 if backlog else None
        samples = [
            Sample("ACC", name, 1000, backlog // of, oldest, False) for name, of in (("READINGS", 1), ("ALARMS", 30))
        ]
        history.add(now - ago, samples, linked=is_linked)
    store.mkdir(parents=True, exist_ok=True)
    write_file(store / FILE_NAME, history.take_unwritten())


async def gathered(hub: Client, leaf: Client) -> None:
    names = ("READINGS", "ALARMS")
    for name in names:
        await leaf.jetstream(timeout=WAIT_S).add_stream(name=name, subjects=[f"{name.lower()}.>"])
    sources = [StreamSource(name=name, external=ExternalStream(api="$JS.leaf.API", deliver="")) for name in names]
    await hub.jetstream(timeout=WAIT_S).add_stream(StreamConfig(name="FLEET", sources=sources))
    for name in names:
        for _ in range(30):
            await leaf.jetstream(timeout=WAIT_S).publish(f"{name.lower()}.a", bytes(100))


def seen(browser: Chromium, port: int, name: str, words: str) -> None:
    """Open the page, wait for its first line, and keep pictures of it: as it opens, in the dark, and on a phone."""
    browser.open(f"http://127.0.0.1:{port}/eyot/page")
    browser.until(f"{STATE}.textContent.startsWith({words!r})", WAIT_S)
    for suffix, scheme, size in (
        ("", "light", (1085, 900)),
        ("-dark", "dark", (1085, 900)),
        ("-phone", "dark", (375, 800)),
    ):
        browser.colours(scheme)
        browser.size(*size)
        assert browser.value("document.documentElement.scrollWidth <= innerWidth"), "nothing is cut off at the side"
        # The first line and the first remedy stand on the first screen, also of a phone.
        assert browser.value(f"{STATE}.getBoundingClientRect().bottom <= innerHeight")
        if SCREENSHOTS:
            browser.screenshot(Path(SCREENSHOTS) / f"{name}{suffix}.png")
    assert browser.complaints == []


def remedies(browser: Chromium) -> str:
    return str(browser.value("document.getElementById('problems').innerText"))


def test_under_load(tmp_path: Path, browser: Chromium) -> None:
    config = DEVICE + "eyot { http { page: true }, sync { streams { READINGS: { bandwidth: 1K } } } }\n"
    with_a_day_before(tmp_path / "leaf/store/eyot")
    with LeafPair("eyotd", "eyotd", tmp_path, leaf_config=config, hub_config=HUB.replace("hub-server", "hub")) as pair:
        pair.play(gathered)
        pair.play(behind)
        seen(browser, pair.leaf.monitor_port, "page-load", "1 stream behind")
        browser.until("document.querySelectorAll('#streams svg').length === 2", WAIT_S)
        assert "limited to 1000 bytes per second" in browser.value("document.getElementById('streams').innerText")


async def behind(_hub: Client, leaf: Client) -> None:
    """More than the rate lets through while the test looks."""
    for _ in range(200):
        await leaf.jetstream(timeout=WAIT_S).publish("readings.a", bytes(1000))


def test_offline(tmp_path: Path, browser: Chromium) -> None:
    with_a_day_before(tmp_path / "leaf/store/eyot")
    with LeafPair(
        "eyotd", "eyotd", tmp_path, leaf_config=DEVICE + PAGE, hub_config=HUB.replace("hub-server", "hub")
    ) as pair:
        pair.play(gathered)
        pair.hub.kill()
        asyncio.run(published(pair.leaf.client_url("acc"), "readings.a", 100))
        both = "document.getElementById('problems').innerText.match(/Connection refused/g)?.length === 2"
        browser.open(f"http://127.0.0.1:{pair.leaf.monitor_port}/eyot/page")
        browser.until(both, WAIT_S)
        seen(browser, pair.leaf.monitor_port, "page-offline", "Not synced: ")
        assert "Remedy: nothing listens" in remedies(browser)


async def published(url: str, subject: str, count: int) -> None:
    client = await nats.connect(url)
    for _ in range(count):
        await client.jetstream(timeout=WAIT_S).publish(subject, bytes(100))
    await client.close()


def test_an_expired_certificate(tmp_path: Path, browser: Chromium) -> None:
    certificate, key = Authority(tmp_path / "certs").issue("gateway-7", seconds=-3600)
    config = DEVICE + PAGE + f'websocket {{ port: -1, tls {{ cert_file: "{certificate}", key_file: "{key}" }} }}\n'
    with LeafPair("eyotd", "eyotd", tmp_path, leaf_config=config, hub_config=HUB.replace("hub-server", "hub")) as pair:
        pair.play(gathered)
        seen(browser, pair.leaf.monitor_port, "page-certificate", "Synced: hub has everything; 1 certificate not valid")
        assert "has expired: it was valid until" in remedies(browser)
        assert "Remedy: replace the file" in remedies(browser)


def test_a_full_disk(tmp_path: Path, browser: Chromium) -> None:
    FullDiskEyotd.library = disk_library(tmp_path)
    config = (
        'server_name: gateway-7\njetstream { store_dir: "%WORKDIR%/small/js", max_buffered_size: 4M, domain: leaf }\n'
        + PAGE
    )
    with FullDiskEyotd(config, tmp_path / "device") as device:
        asyncio.run(filled(device))
        seen(browser, device.monitor_port, "page-full-disk", "Cannot store messages: ")
        assert "Remedy: free space on the disk" in remedies(browser)


async def filled(device: FullDiskEyotd) -> None:
    """Publish until the store refuses, and the page knows."""
    client = await nats.connect(device.client_url())
    jetstream = client.jetstream(timeout=WAIT_S)
    await jetstream.add_stream(name="READINGS", subjects=["readings.>"])
    device.fill()
    with suppress(APIError):
        while True:
            await jetstream.publish("readings.a", bytes(200_000))
    await client.close()
