"""The local page in Debian's Chromium: what it shows, asks for and refuses, by keyboard, in the dark and on a phone."""

from __future__ import annotations

import asyncio
import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.js.api import ExternalStream, StreamConfig, StreamSource

from support.devices.chromium import Chromium
from support.links.leaf_pair import HUB, LEAF, LeafPair, eventually

#: `SCREENSHOTS=folder` keeps pictures of the page for the documentation.
SCREENSHOTS = os.environ.get("SCREENSHOTS", "")
WAIT_S = 60.0
#: Names that would be elements, if they were not text; a stream's may not hold `>` or `/`.
PEER = "<img/src=x/onerror=alert(1)>"
STREAM = "<iframe&lt;LOCAL"
LIMIT_BYTES = 100_000
STATE = "document.getElementById('state')"


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[LeafPair]:
    config = LEAF.replace("leaf-server", '"<b>leaf</b>\u202e"') + "eyot { http { page: true } }\n"
    hub_config = HUB.replace("hub-server", f'"{PEER}"')
    with LeafPair("eyotd", "eyotd", tmp_path, hub_config=hub_config, leaf_config=config) as servers:
        yield servers


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chromium]:
    with Chromium(tmp_path / "browser") as chromium:
        chromium.size(1200, 900)
        yield chromium


async def published(leaf: Client, subject: str, count: int) -> None:
    for _ in range(count):
        await leaf.jetstream(timeout=WAIT_S).publish(subject, bytes(100))


async def copied(hub: Client, leaf: Client) -> None:
    names = ("READINGS", "EVENTS")
    for name in names:
        await leaf.jetstream(timeout=WAIT_S).add_stream(name=name, subjects=[f"{name.lower()}.>"])
    asked = json.dumps({"name": STREAM, "subjects": ["local"]}).encode()
    answer = json.loads((await leaf.request(f"$JS.API.STREAM.CREATE.{STREAM}", asked, timeout=WAIT_S)).data)
    assert "error" not in answer, answer
    sources = [StreamSource(name=name, external=ExternalStream(api="$JS.leaf.API", deliver="")) for name in names]
    await hub.jetstream(timeout=WAIT_S).add_stream(StreamConfig(name="FLEET", sources=sources))
    await published(leaf, "readings.a", 200)
    await published(leaf, "events.a", 30)


def kept(browser: Chromium, name: str) -> None:
    if SCREENSHOTS:
        browser.screenshot(Path(SCREENSHOTS) / f"{name}.png")


def opened(browser: Chromium, pair: LeafPair, state: str) -> str:
    address = f"http://127.0.0.1:{pair.leaf.monitor_port}"
    browser.open(f"{address}/eyot/page")
    browser.until(f"{STATE}.dataset.state === '{state}'")
    return address


def contrast(browser: Chromium) -> float:
    """Of the state line: WCAG's ratio of text to ground."""
    colours: list[list[float]] = browser.value(
        f"[getComputedStyle({STATE}).color, getComputedStyle({STATE}).backgroundColor].map(c => c.match(/[\\d.]+/g).map(Number))"
    )

    def luminance(colour: list[float]) -> float:
        parts = [each / 255 for each in colour[:3]]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    first, second = sorted(map(luminance, colours))
    return (second + 0.05) / (first + 0.05)


def test_online_and_offline(pair: LeafPair, browser: Chromium) -> None:
    pair.play(copied)
    address = opened(browser, pair, "synced")
    assert browser.value(f"{STATE}.textContent") == f"Synced: {PEER} has everything"
    browser.until("document.querySelectorAll('#streams svg').length === 2")
    # What peers name is text.
    assert browser.value("document.getElementById('name').textContent") == "<b>leaf</b>\\u202e"
    assert STREAM in browser.value("[...document.querySelectorAll('#streams h3')].map(h => h.textContent)")
    assert browser.value("document.querySelectorAll('b, i, img, iframe').length") == 0
    _has_text_alternatives(browser)
    _keyboard(browser)
    pair.hub.kill()
    asyncio.run(_behind(pair))
    browser.value("poll()")
    browser.until(f"{STATE}.textContent.startsWith('Not synced: ')")
    assert "1 stream behind" in browser.value(f"{STATE}.textContent")
    browser.until("document.getElementById('live').textContent.startsWith('Not synced: ')")
    # The link is found down once its first attempt has failed; a downstream may be found earlier.
    found = "[...document.querySelectorAll('#doctor li')].map(item => item.textContent)"
    counted = "/^[1-9][0-9]* failure/.test(document.getElementById('doctor-sum').textContent)"
    browser.until(f"{counted} && {found}.some(text => /^failure link .+Remedy: ./s.test(text))")
    assert browser.value("document.getElementById('problems').innerText.includes('Remedy: ')")
    kept(browser, "page-links")
    _light_dark_phone(browser)
    assert browser.complaints == []
    assert browser.requests
    assert [each for each in browser.requests if not each.startswith((f"{address}/eyot/", "data:"))] == []
    pair.leaf.kill()
    browser.value("poll()")
    browser.until(f"{STATE}.textContent.startsWith('Cannot tell: the daemon has not answered since ')")


async def _behind(pair: LeafPair) -> None:
    leaf = await nats.connect(pair.leaf.client_url("acc"))
    await published(leaf, "readings.a", 100)
    await leaf.close()


def _has_text_alternatives(browser: Chromium) -> None:
    """Charts, tables and meters have names, as the browser gives them to a screen reader."""
    nodes: list[dict[str, Any]] = browser.command("Accessibility.getFullAXTree")["nodes"]
    named: dict[str, list[str]] = {}
    for node in nodes:
        if not node.get("ignored"):
            named.setdefault(node["role"]["value"], []).append(node.get("name", {}).get("value", ""))
    assert {"banner", "main", "contentinfo", "status"} <= set(named)
    assert any("READINGS: Backlog over the last day" in name for name in named["image"] + named.get("img", []))
    for role in ("image", "table", "meter", "radio", "link", "columnheader"):
        assert named[role], role
        assert all(named[role]), role
    assert browser.value("document.documentElement.lang") == "en"


def _keyboard(browser: Chromium) -> None:
    """Tab goes from the top to the bundle in the order of the page; an arrow changes the chart."""
    browser.value("document.activeElement.blur()")
    seen = []
    while "support-bundle" not in (seen or [""])[-1]:
        browser.press("Tab")
        seen.append(
            browser.value(
                "document.activeElement.getAttribute('href') || document.activeElement.id || document.activeElement.name || document.activeElement.getAttribute('aria-labelledby')"
            )
        )
        assert len(seen) < 20, seen
        if seen[-1] == "series":
            browser.press("ArrowRight")
            browser.until(
                "document.querySelector('#streams figcaption').textContent.startsWith('Oldest unconfirmed message')"
            )
            assert browser.value("document.activeElement.value") == "oldest_s"
    assert seen == ["#main", "series", "links-head", "support-bundle"]
    browser.value("document.querySelector('input[value=backlog]').click()")


def _light_dark_phone(browser: Chromium) -> None:
    grounds = []
    for scheme in ("light", "dark"):
        browser.colours(scheme)
        grounds.append(browser.value("getComputedStyle(document.body).backgroundColor"))
        assert contrast(browser) >= 4.5
    assert grounds[0] != grounds[1]
    browser.size(375, 800)
    assert browser.value("document.documentElement.scrollWidth <= innerWidth"), "a phone does not scroll sideways"
    kept(browser, "page-phone")


def test_a_user_logs_in_and_acts_by_keyboard(tmp_path: Path, browser: Chromium) -> None:
    config = LEAF + "eyot { http { page: true, users: [acc] } }\n"
    with LeafPair("eyotd", "eyotd", tmp_path, leaf_config=config) as pair:
        pair.play(copied)
        address = opened(browser, pair, "synced")
        browser.until("!document.getElementById('login').hidden")
        assert browser.value("document.getElementById('bundle-link').hidden")
        browser.value("document.getElementById('login-user').focus()")
        _log_in(browser, "wrong")
        browser.until("document.getElementById('outcome').textContent.startsWith('Refused: the name or the password')")
        browser.value("document.getElementById('login-user').select()")
        _log_in(browser, "acc")
        browser.until("!document.getElementById('orders').hidden")
        browser.until("document.activeElement.textContent === 'Log out'")
        assert "eyot_session" not in browser.value("document.cookie")
        browser.until("document.getElementById('reconnect-link').options.length === 2")
        kept(browser, "page-actions")
        _tab_to(browser, "Reconnect now")
        browser.press("Enter")
        browser.until("document.getElementById('outcome').textContent.startsWith('Connecting SYS@')")
        assert browser.value("document.activeElement.textContent") == "Reconnect now"
        browser.value("poll()")
        options = "document.getElementById('forget-which').options"
        browser.until(f"{options}.length === 2")
        assert "READINGS to FLEET at hub-server" in browser.value(
            f"[...{options}].map(each => each.textContent).join()"
        )
        assert not browser.value("document.getElementById('forget').checkValidity()"), "it needs a confirmation"
        _has_labels(browser)
        browser.command("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
        browser.value("document.getElementById('bundle-button').focus()")
        browser.press("Enter")
        browser.until("document.getElementById('outcome').textContent === 'The support bundle is downloaded.'")
        asyncio.run(eventually(lambda: any(tmp_path.glob("eyot-support-leaf-server-*.tar.gz")), WAIT_S))
        streams = "document.getElementById('backup-stream')"
        browser.value(f"{streams}.selectedIndex = [...{streams}.options].findIndex(o => o.text.startsWith('READINGS'))")
        browser.value("document.querySelector('#backup button').focus()")
        browser.press("Enter")
        browser.until("document.getElementById('outcome').textContent === 'The backup of READINGS is downloaded.'")
        asyncio.run(eventually(lambda: any(tmp_path.glob("eyot-backup-leaf-server-READINGS-*.zip")), WAIT_S))
        with zipfile.ZipFile(*tmp_path.glob("eyot-backup-*.zip")) as archive:
            assert [each.rpartition("/")[2] for each in archive.namelist()] == ["stream.tar.s2", "backup.json"]
        # A new tab has the cookie, and is not logged in; a reload of this one is.
        browser.open(f"{address}/eyot/page?again")
        browser.until("!document.getElementById('orders').hidden")
        browser.value("sessionStorage.clear()")
        browser.open(f"{address}/eyot/page")
        browser.until("!document.getElementById('login').hidden")
        assert [each for each in browser.complaints if " 401 " not in each] == []
        assert 'Page: "acc" from 127.0.0.1 backs up "ACC" "READINGS"' in pair.leaf.log()
        assert 'Page: "acc" from 127.0.0.1 reconnects link' in pair.leaf.log()


def _log_in(browser: Chromium, password: str) -> None:
    """Type the name and the password into the focused form, and send it with Enter."""
    browser.type("acc")
    browser.press("Tab")
    browser.type(password)
    browser.press("Enter")


def _tab_to(browser: Chromium, words: str) -> None:
    for _ in range(10):
        browser.press("Tab")
        if browser.value("document.activeElement.textContent") == words:
            return
    raise AssertionError(f"Tab does not reach {words}")


def _has_labels(browser: Chromium) -> None:
    """Everything that can be operated has a name for a screen reader."""
    nodes: list[dict[str, Any]] = browser.command("Accessibility.getFullAXTree")["nodes"]
    operated = [
        each
        for each in nodes
        if not each.get("ignored") and each["role"]["value"] in ("button", "combobox", "checkbox", "textbox")
    ]
    assert len(operated) >= 6
    assert all(each["name"]["value"] for each in operated), operated


def test_the_policy_holds_without_the_pages_care(pair: LeafPair, browser: Chromium) -> None:
    """Were markup of a peer's ever to get into the page, the policy still refuses handlers, scripts and other origins."""
    opened(browser, pair, "unread")
    browser.value("window.ran = 0")
    browser.value("document.body.insertAdjacentHTML('beforeend', '<img src=data: onerror=\"ran = 1\">')")
    browser.value("const s = document.createElement('script'); s.textContent = 'ran = 2'; document.body.append(s)")
    assert browser.value("ran") == 0
    assert browser.value("fetch('http://127.0.0.1:1/').then(() => 'sent', () => 'refused')") == "refused"
    assert any("Content Security Policy" in each for each in browser.complaints)


def test_it_is_small(pair: LeafPair) -> None:
    html = (Path(__file__).parents[2] / "daemon/eyot_daemon/monitor/page/page.html").read_text()
    assert len(html.encode()) < LIMIT_BYTES
    assert "innerHTML" not in html
    assert "http://" not in html.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in html
