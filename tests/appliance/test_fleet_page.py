"""The fleet's page in Debian's Chromium: ten thousand devices by mouse and keyboard, live, on a phone, in the dark, and logins."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eyot_fleet.desired import Group
from eyot_fleet.device_record import Alert, DeviceRecord, UpgradeRecord
from eyot_fleet.rollout import HALTED, OpenedRing, Ring, Rollout
from eyot_fleet.web import access
from eyot_fleet.web.backend import Freshness
from eyot_fleet.web_options import OidcOptions
from support.devices.chromium import Chromium
from support.devices.fleet_devices import MARKUP
from support.devices.fleet_page import OPTIONS, FleetPage, replaced
from support.trust.oidc_provider import OidcProvider

#: `SCREENSHOTS=folder` keeps pictures of the page for the documentation.
SCREENSHOTS = os.environ.get("SCREENSHOTS", "")
DEVICES = 10_000
ODD = "<img/src=x/onerror=alert(1)>\u202e"
#: What the page shows: a sign that turns the direction of writing is escaped.
SHOWN = ODD.replace("\u202e", "\\u202e")
FOUND = "document.getElementById('found').textContent"
STATE = "document.getElementById('state')"
ROWS = "document.querySelectorAll('#rows tr')"
#: whether the rows are sorted by backlog, the largest first
BY_BACKLOG = (
    f"[...{ROWS}].map(row => parseInt(row.children[2].firstChild.data.replace(/,/g, '')))"
    ".every((one, place, all) => !place || all[place - 1] >= one)"
)


@pytest.fixture
def page() -> Iterator[FleetPage]:
    with FleetPage(1000) as page:
        yield page


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chromium]:
    with Chromium(tmp_path / "browser") as chromium:
        chromium.size(1280, 800)
        yield chromium


def focus(browser: Chromium, element: str) -> None:
    browser.value(f"document.getElementById('{element}').focus()")


def click(browser: Chromium, selector: str) -> None:
    """A real click at the middle of an element, or of its first line."""
    place = browser.value(
        f"(() => {{ const node = document.querySelector({json.dumps(selector)}); node.scrollIntoView({{block: 'center'}});"
        "const box = node.getClientRects()[0]; return [box.x + box.width / 2, box.y + box.height / 2]; })()"
    )
    for kind in ("mousePressed", "mouseReleased"):
        browser.command("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)


def log_in(browser: Chromium, page: FleetPage, user: str = "operator") -> None:
    """By keyboard alone: the first field has the focus."""
    if browser.value("location.href === 'about:blank'"):
        browser.open(page.url)
    browser.until("document.activeElement.id === 'login-user'")
    browser.type(user)
    browser.press("Tab")
    browser.type(user)
    browser.press("Enter")
    browser.until("!document.getElementById('logout').hidden")


def kept(browser: Chromium, name: str) -> None:
    if SCREENSHOTS:
        browser.screenshot(Path(SCREENSHOTS) / f"{name}.png")


def is_clean(browser: Chromium, page: FleetPage) -> None:
    """Nothing violates the policy, and nothing is asked of anybody else."""
    assert browser.complaints == []
    assert [each for each in browser.requests if not each.startswith((page.url, "data:"))] == []


@pytest.fixture
def large_page() -> Iterator[FleetPage]:
    with FleetPage(DEVICES) as page:
        yield page


def test_ten_thousand_devices_are_searched_filtered_sorted_and_paged(large_page: FleetPage, browser: Chromium) -> None:
    page = large_page
    log_in(browser, page)
    browser.until(f"{ROWS}.length === 50 && {FOUND}.startsWith('10,000 devices')")
    browser.until(f"{STATE}.textContent === '47 of 10,000 devices need attention.'")
    kept(browser, "fleet-list")
    focus(browser, "text")
    browser.type("site:north 0.9.3")
    browser.until(f"{FOUND}.startsWith('1,000 of 10,000 devices')")
    browser.until("document.getElementById('spoken').textContent === '1,000 of 10,000 devices'")
    click(browser, "#states [data-state=behind]")
    browser.until(f"/^5\\d of 10,000 devices/.test({FOUND})")
    assert browser.value("document.activeElement.dataset.state") == "behind"
    click(browser, "#heads [data-sort=backlog]")
    browser.until("document.querySelector('#heads [aria-sort=descending] button').dataset.sort === 'backlog'")
    browser.until(f"{ROWS}.length === 50 && {BY_BACKLOG}")
    click(browser, "#next-page")
    browser.until("document.getElementById('place').textContent.startsWith('51–')")
    assert browser.value("document.getElementById('next-page').getAttribute('aria-disabled')") == "true"
    # What is seen is in the address: it can be passed on, and the way back leads there.
    address = browser.value("location.href")
    click(browser, "#rows a")
    browser.until("!document.getElementById('device-view').hidden")
    browser.value("history.back()")
    browser.until("document.getElementById('place').textContent.startsWith('51–')")
    assert browser.value("location.href") == address
    browser.command("Page.navigate", url="about:blank")
    browser.open(address)
    browser.until(
        f"/^5\\d of 10,000 devices/.test({FOUND}) && document.getElementById('text').value === 'site:north 0.9.3'"
    )
    is_clean(browser, page)


def test_a_label_and_an_alert_are_filters_that_can_be_taken_off(page: FleetPage, browser: Chromium) -> None:
    log_in(browser, page)
    focus(browser, "label")
    browser.type("Kind:Camera")
    browser.press("Enter")
    browser.until(f"{FOUND}.startsWith('250 of 1,000 devices')")
    browser.value(
        "(() => { const alert = document.getElementById('alert'); alert.value = '*'; alert.dispatchEvent(new Event('change')); })()"
    )
    browser.until("document.querySelectorAll('#chosen button').length === 2")
    browser.until(f"[...{ROWS}].every(row => row.children[7].textContent)")
    click(browser, "#chosen button")
    browser.until("document.querySelectorAll('#chosen button').length === 1")
    assert browser.value("document.activeElement.id") == "text"
    is_clean(browser, page)


def test_what_is_seen_changes_as_it_happens_and_the_focus_stays(page: FleetPage, browser: Chromium) -> None:
    log_in(browser, page, "viewer")
    browser.value("location.hash = '#/?sort=name&size=25'")
    browser.until(f"{ROWS}.length === 25")
    name = browser.value("document.querySelector('#rows a').textContent")
    browser.value("document.querySelector('#rows a').focus()")
    browser.value("window.seen = document.querySelector('#rows tr')")
    page.put(
        name, backlog=123_456, synced=False, alerts=(Alert(kind="x", severity="critical", text=MARKUP[0], since=0.0),)
    )
    browser.until(
        "window.seen.children[2].textContent.startsWith('123,456') && window.seen.children[1].textContent === 'failing'"
    )
    browser.until(f"/^\\d+ of 1,000 devices need attention/.test({STATE}.textContent)")
    assert browser.value("document.activeElement.textContent") == name
    assert browser.value("document.querySelectorAll('img, b i').length") == 0
    page.put(name, backlog=0, synced=True, alerts=(), linked=True, heard_at=time.time() - 600)
    browser.until("window.seen.children[1].textContent === 'silent'")
    assert browser.value("window.seen.children[5].textContent") == "up when last heard"
    assert browser.value("window.seen.querySelector('.good')") is None
    # Another order follows within seconds, and the focus goes along.
    browser.value("location.hash = '#/?sort=backlog&descending=true&size=25'")
    browser.until(f"{ROWS}.length === 25 && {BY_BACKLOG}")
    last = browser.value("[...document.querySelectorAll('#rows a')].pop().textContent")
    browser.value("[...document.querySelectorAll('#rows a')].pop().focus()")
    page.put(last, backlog=9_000_000, synced=False)
    browser.until(f"document.querySelector('#rows a').textContent === {json.dumps(last)}")
    assert browser.value("document.activeElement.textContent") == last
    is_clean(browser, page)


def test_text_of_devices_is_never_markup(page: FleetPage, browser: Chromium) -> None:
    record = DeviceRecord(
        name=ODD, labels=MARKUP, version=ODD, domain=ODD, heard_at=time.time(), linked=False, link_error=ODD, store_error=ODD,
        alerts=(Alert(kind=ODD, severity="critical", text=ODD, remedy=ODD, since=0.0),), never_arrived=1,
    )  # fmt: skip
    page.do(page.backend.index.put, record, time.time())
    log_in(browser, page)
    focus(browser, "text")
    browser.type("<img/src")
    browser.until(f"{FOUND}.startsWith('1 of 1,001')")
    assert browser.value("document.querySelector('#rows a').textContent") == SHOWN
    assert browser.value("document.querySelector('#rows .label').textContent") == MARKUP[0]
    click(browser, "#rows a")
    browser.until("document.querySelectorAll('#device-alerts li').length === 1")
    assert browser.value("document.getElementById('device-head').textContent") == SHOWN
    assert (
        browser.value(
            "document.querySelectorAll('main img, main iframe, main script, main b i, main a[href^=javascript]').length"
        )
        == 0
    )
    assert browser.value("window.hit === undefined")
    is_clean(browser, page)


def test_an_operator_acts_on_a_device_and_sees_it_in_the_audit(page: FleetPage, browser: Chromium) -> None:
    log_in(browser, page)
    browser.value("location.hash = '#/device/pump-00012'")
    browser.until(
        "document.querySelectorAll('#day svg .off').length > 0 && document.querySelectorAll('#streams tr').length === 2"
    )
    assert "largest" in browser.value("document.querySelector('#day svg').getAttribute('aria-label')")
    browser.until("document.activeElement.id === 'device-head'")
    kept(browser, "fleet-device")
    focus(browser, "label-text")
    browser.type("spare")
    browser.press("Enter")
    browser.until("document.getElementById('outcome').textContent === 'The labels are set.'")
    browser.until("[...document.querySelectorAll('#device-labels li')].some(node => node.textContent === 'spare')")
    browser.until("document.querySelectorAll('#device-audit tr').length === 2")
    click(browser, "[data-report=doctor]")
    browser.until("document.getElementById('outcome').textContent === 'Not done: the hub cannot be reached'")
    focus(browser, "configure-text")
    browser.value("document.getElementById('configure-text').value = '{\"ring\": 1}'")
    click(browser, "#order-configure button")
    browser.until("document.getElementById('configure-state').textContent.startsWith('Revision 2')")
    # Somebody else was faster.
    page.backend.documents["pump-00012"] = replaced(page.backend.documents["pump-00012"], revision=7)
    browser.value("document.getElementById('configure-text').value = '{\"ring\": 2}'")
    click(browser, "#order-configure button")
    browser.until("document.getElementById('outcome').textContent.includes('somebody else')")
    assert page.backend.documents["pump-00012"].settings == {"ring": 1}
    click(browser, "#nav [data-view=audit]")
    browser.until("document.querySelectorAll('#audit tr').length === 9")
    assert browser.value("document.querySelector('#audit tr').children[6].textContent") == "refused"
    kept(browser, "fleet-audit")
    assert {line.actor for line in page.backend.lines} == {"operator"}


def with_groups(page: FleetPage) -> None:
    """Groups and a halted rollout, with text that would be markup."""
    labels = {"pumps": ("kind:pump",), "north": ("site:north",), "everybody": (), "nobody": ("site:moon",)}
    settings = {"sync": {"streams": {ODD: {"priority": 2}}}}
    page.backend.stored_groups.update(
        {name: (Group(labels=each, settings=settings), 1) for name, each in labels.items()}
    )
    now = page.backend.now()
    opened = OpenedRing(at=now - 3600, reached_at=now - 1800)
    rings = (Ring(group="north", wait_s=3600.0), Ring(group="everybody", wait_s=86400.0 * 3))
    page.backend.stored_rollouts["june"] = Rollout(
        version="0.9.5", rings=rings, state=HALTED, opened=(opened,), reason=f"ring north: {ODD}", started_at=now - 3600
    )
    page.put("pump-00000", upgrade=UpgradeRecord(to="0.9.5", outcome="returned", reason=ODD, heard_at=now - 60))


def test_a_group_is_found_by_its_worst_state_and_acted_on_as_one(page: FleetPage, browser: Chromium) -> None:
    with_groups(page)
    log_in(browser, page)
    focus(browser, "nav")
    click(browser, "#nav [data-view=groups]")
    browser.until("document.querySelectorAll('#groups tr').length === 4")
    assert browser.value("document.querySelector('#groups tr:last-child').textContent").startswith("nobody")
    click(browser, "#groups a[href='#/group/north']")
    browser.until(
        "document.activeElement.id === 'group-head' && document.querySelectorAll('#group-facts dd').length > 5"
    )
    browser.until("document.getElementById('group-labels').value === 'site:north'")
    assert SHOWN in browser.value("document.querySelector('#group-facts pre').textContent")
    click(browser, "#group-act")
    browser.until("document.getElementById('bulk-count').textContent === '200 devices are chosen.'")
    browser.until(f"{ROWS}.length === 50 && [...document.querySelectorAll('.choose')].every(box => box.checked)")
    click(browser, ".choose")
    browser.until("document.getElementById('bulk-count').textContent === '199 devices are chosen.'")
    left_out = browser.value("document.querySelector('.choose').getAttribute('aria-label')").removeprefix("Choose ")
    browser.value("document.getElementById('bulk-action').value = 'relabel'")
    browser.value("document.getElementById('bulk-action').dispatchEvent(new Event('change'))")
    browser.value("window.confirm = () => true")
    focus(browser, "bulk-add")
    browser.type("checked")
    browser.press("Enter")
    browser.until("document.getElementById('bulk-outcome').textContent === '199 done, 0 not done.'")
    assert browser.value("document.querySelectorAll('#bulk-results tr').length") == 199
    labelled = {record.name for record in page.backend.index if "checked" in record.labels}
    assert len(labelled) == 199
    assert left_out not in labelled
    assert {line.action for line in page.backend.lines if line.device} == {"relabel"}
    assert len([line for line in page.backend.lines if line.outcome == "done" and line.device]) == 199
    is_clean(browser, page)


def test_a_rollout_is_resumed_and_rolled_back(page: FleetPage, browser: Chromium) -> None:
    with_groups(page)
    log_in(browser, page)
    click(browser, "#nav [data-view=rollouts]")
    browser.until("document.querySelectorAll('#rollouts tbody tr').length === 2")
    assert "1 " not in browser.value("document.getElementById('rollouts-told').textContent")
    assert f"went back: {SHOWN}" in browser.value("document.querySelector('#rollouts tbody').textContent")
    browser.value("window.prompt = (words) => words.includes('which version') ? '0.9.4' : 'because'")
    click(browser, "[data-do=resume]")
    browser.until("document.querySelector('[data-do=halt]') !== null")
    click(browser, "[data-do=back]")
    browser.until("document.getElementById('rollouts-outcome').textContent === 'The rollout is rolled back.'")
    found = page.backend.stored_rollouts["june"]
    assert (found.state, found.back_to, found.reason, found.by) == ("rolled back", "0.9.4", "because", "operator")
    is_clean(browser, page)


def test_a_viewer_is_offered_nothing_to_do(page: FleetPage, browser: Chromium) -> None:
    log_in(browser, page, "viewer")
    browser.value("location.hash = '#/device/pump-00012'")
    browser.until("document.querySelectorAll('#day svg').length === 2")
    assert browser.value("document.getElementById('orders').hidden && document.getElementById('tokens-link').hidden")
    with_groups(page)
    for view, offered in (("groups", "group-new"), ("group/north", "order-group"), ("rollouts", "rollout-new")):
        browser.value(f"location.hash = '#/{view}'")
        browser.until("document.querySelectorAll('main section:not([hidden]) :is(tbody tr, dd)').length > 0")
        assert browser.value(f"document.getElementById('{offered}').hidden")
    assert (
        browser.value(
            "document.querySelectorAll('#rollouts button').length + document.querySelectorAll('.choose').length"
        )
        == 0
    )
    assert browser.value("document.getElementById('bulk').hidden && document.getElementById('group-act').hidden")
    browser.value("location.hash = '#/tokens'")
    browser.until(f"{ROWS}.length === 50")
    is_clean(browser, page)


def test_a_session_that_ends_in_the_middle_leads_to_the_login_and_back(page: FleetPage, browser: Chromium) -> None:
    log_in(browser, page)
    browser.value("location.hash = '#/device/pump-00012'")
    browser.until("document.querySelectorAll('#day svg').length === 2")
    page.later_s = access.SESSION_S
    browser.until("document.getElementById('login-told').textContent === 'Your session has ended: log in again.'")
    assert browser.value(f"{ROWS}.length") == 0
    log_in(browser, page)
    browser.until(
        "!document.getElementById('device-view').hidden && document.querySelectorAll('#day svg').length === 2"
    )
    click(browser, "#logout button")
    browser.until("document.activeElement.id === 'login-user'")
    assert browser.value("document.body.innerText.includes('pump-')") is False


def test_a_wrong_password_is_told_and_the_password_is_gone(page: FleetPage, browser: Chromium) -> None:
    browser.open(page.url)
    browser.until("document.activeElement.id === 'login-user'")
    browser.type("operator")
    browser.press("Tab")
    browser.type("wrong")
    browser.press("Enter")
    browser.until(
        "document.getElementById('login-told').textContent.startsWith('Not logged in: the name or the password')"
    )
    assert browser.value("document.getElementById('login-password').value") == ""
    assert browser.value("document.activeElement.id") == "login-password"


def test_a_credentials_file_logs_in(page: FleetPage, browser: Chromium, tmp_path: Path) -> None:
    browser.open(page.url)
    for text, told in (("nonsense", "Not logged in: that is no credentials file of a user."), ("creds of ada", "")):
        browser.until("document.getElementById('creds-file').offsetParent !== null")
        (tmp_path / "user.creds").write_text(text)
        root = browser.command("DOM.getDocument")["root"]["nodeId"]
        node = browser.command("DOM.querySelector", nodeId=root, selector="#creds-file")["nodeId"]
        browser.command("DOM.setFileInputFiles", nodeId=node, files=[str(tmp_path / "user.creds")])
        click(browser, "#login-creds button")
        browser.until(f"document.getElementById('login-told').textContent === {json.dumps(told)}")
    browser.until("document.getElementById('who').textContent === 'ada (UADA), operator'")
    assert all("401" in each for each in browser.complaints)  # the browser tells of the refused login


def test_the_page_says_how_old_its_figures_are(tmp_path: Path, browser: Chromium) -> None:
    with FleetPage(100) as page:
        log_in(browser, page)
        browser.until(f"{STATE}.dataset.state !== 'quiet'")
        page.backend.hub = Freshness(connected=False, since=time.time() - 240, error="connection refused")
        browser.until(f"{STATE}.textContent.startsWith('The service has lost the hub 4\\u00a0min ago')")
        assert browser.value(f"{STATE}.dataset.state") == "bad"
        kept(browser, "fleet-hub-away")
        page.backend.hub = Freshness(connected=True, since=time.time())
        browser.until(f"{STATE}.textContent.includes('100 devices')")
    browser.until(f"{STATE}.textContent.startsWith('Cannot tell: the service has not answered since')")
    assert browser.value(f"{ROWS}.length") == 50


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_nothing_is_cut_off_and_all_is_legible(page: FleetPage, browser: Chromium, scheme: str) -> None:
    browser.colours(scheme)
    with_groups(page)
    log_in(browser, page)
    browser.value("document.getElementById('bulk').open = true")
    for width in (360, 1280):
        browser.size(width, 844)
        for view in ("#/", "#/device/pump-00016", "#/audit", "#/groups", "#/group/north", "#/rollouts"):
            browser.value(f"location.hash = '{view}'")
            browser.until("document.querySelectorAll('main section:not([hidden]) :is(tbody tr, dd)').length > 0")
            if view in ("#/", "#/device/pump-00016"):
                browser.until(f"{ROWS}.length === 50 || document.querySelectorAll('#device-alerts li').length === 1")
            assert browser.value("document.documentElement.scrollWidth") <= width
            assert _illegible(browser) == []
            assert _cut_choices(browser) == []
            kept(
                browser,
                f"fleet-{'phone' if width == 360 else 'desktop'}-{scheme}-{view.strip('#/').partition('/')[0] or 'list'}",
            )
    _has_names(browser)


def _illegible(browser: Chromium) -> list[str]:
    """Texts whose contrast to their ground is below 4.5 (WCAG AA)."""
    found: list[str] = browser.value(
        """(() => {
        const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
        const light = (colour) => { const [r, g, b] = numbers(colour).slice(0, 3).map((each) => { const part = each / 255;
            return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
        const ground = (node) => { for (; node; node = node.parentElement) { const colour = getComputedStyle(node).backgroundColor;
            const parts = numbers(colour); if (parts.length < 4 || parts[3] === 1) return colour; } return 'rgb(255, 255, 255)'; };
        const bad = [];
        for (const node of document.querySelectorAll('body *')) {
            const own = [...node.childNodes].some((each) => each.nodeType === 3 && each.data.trim());
            if (!own || !node.checkVisibility() || node.closest('.hidden, .skip, svg, noscript, [aria-disabled=true], option')) continue;
            const [one, two] = [light(getComputedStyle(node).color), light(ground(node))].sort((a, b) => b - a);
            if ((one + 0.05) / (two + 0.05) < 4.5) bad.push(node.tagName + ' ' + node.className + ' ' + node.textContent.slice(0, 30));
        }
        return bad; })()"""
    )
    return found


def _cut_choices(browser: Chromium) -> list[str]:
    """Lists whose chosen word has no room beside the arrow, which takes 20 pixels."""
    found: list[str] = browser.value(
        """(() => {
        const canvas = document.createElement('canvas').getContext('2d'), bad = [];
        for (const node of document.querySelectorAll('select')) {
            if (!node.checkVisibility() || !node.selectedOptions.length) continue;
            const style = getComputedStyle(node), words = node.selectedOptions[0].textContent;
            canvas.font = style.font;
            const room = node.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) - 20;
            if (canvas.measureText(words).width > room) bad.push(node.id + ': ' + words);
        }
        return bad; })()"""
    )
    return found


def _has_names(browser: Chromium) -> None:
    """Whatever can be operated has a name for screen readers, and every view a heading."""
    tree = browser.command("Accessibility.getFullAXTree")["nodes"]
    roles = {"button", "link", "textbox", "searchbox", "combobox", "listbox", "image", "table"}
    unnamed = [
        node for node in tree if not node["ignored"] and _said(node, "role") in roles and not _said(node, "name")
    ]
    assert unnamed == []
    assert any(_said(node, "role") == "heading" for node in tree)


def _said(node: dict[str, Any], what: str) -> str:
    return str(node.get(what, {}).get("value", ""))


def test_login_at_an_openid_provider(tmp_path: Path, browser: Chromium) -> None:
    users = {"ada": ["fleet-operators"], "bob": ["fleet-viewers"], "eve": []}
    with OidcProvider(users) as provider:
        secret = tmp_path / "secret"
        secret.write_text("client's secret\n")
        oidc = OidcOptions(
            issuer=provider.issuer,
            client_id="eyot",
            client_secret_file=str(secret),
            viewers=("fleet-viewers",),
            operators=("fleet-operators",),
        )
        with FleetPage(100, _with_oidc(oidc)) as page:
            browser.open(f"{page.url}/#/device/pump-00012")
            _at_provider(browser, "ada")
            browser.until("document.getElementById('who').textContent === 'ada, operator'")
            assert page.backend.lines[-1].method == "oidc"
            click(browser, "#logout button")
            _at_provider(browser, "eve")
            browser.until("document.getElementById('login-told').textContent.includes('have no role here')")
            _at_provider(browser, "bob")
            browser.until("document.getElementById('who').textContent === 'bob, viewer'")
            assert browser.value("document.cookie") == ""
            cookies = browser.command("Network.getCookies")["cookies"]
            assert {(each["httpOnly"], each["sameSite"]) for each in cookies if each["name"] == "eyot_fleet"} == {
                (True, "Strict")
            }


def _with_oidc(oidc: OidcOptions) -> Any:
    port = 0
    import socket

    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    return replaced(OPTIONS, listen=f"127.0.0.1:{port}", url=f"http://127.0.0.1:{port}", oidc=oidc)


def _at_provider(browser: Chromium, user: str) -> None:
    browser.until("document.getElementById('oidc-link').offsetParent !== null")
    click(browser, "#oidc-link")
    browser.until("document.querySelector('input[name=sub]') !== null")
    browser.value(f"document.querySelector('input[name=sub]').value = '{user}'")
    browser.value("document.querySelector('input[name=sub]').form.requestSubmit()")
    browser.until("document.getElementById('state') !== null && location.pathname === '/'")
