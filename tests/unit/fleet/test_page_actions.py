"""Actions of the fleet's page: who may, what the audit stream says before and after, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from eyot_fleet.web import actions, ask
from eyot_fleet.web.backend import Desired
from eyot_fleet.web.orders import BULK_MAX, FORMS
from eyot_fleet.web_options import TrustOptions
from support.devices.fleet_browser import Browser
from support.devices.fleet_devices import MARKUP, fleet
from support.devices.fleet_page import OPTIONS, replaced

NAME = "pump-00000"
#: Answers as `eyot fleet` would; what it was called with goes to a file.
TOOL = """#!/bin/sh
printf '%s\\n' "$*" >>"$0.calls"
case "$*" in
  *tokens*) echo '[{"id": "T", "names": "<b>pump-*</b>", "left": 3, "valid_until": 9e9}, {"id": "U", "names": "old", "left": 3, "valid_until": 1},
    {"id": "V", "names": "used", "left": 0, "valid_until": 9e9}]' ;;
  *revoke*pump-00001*) echo 'eyot: no server takes it' >&2; exit 1 ;;
  *) echo '{}' ;;
esac
"""
TOKEN = "A" + "B" * 55


@pytest.fixture
async def browser(tmp_path: Path) -> Browser:
    tool = tmp_path / "eyot"
    tool.write_text(TOOL)
    tool.chmod(0o755)
    browser = Browser(
        replaced(OPTIONS, trust=TrustOptions(account="DEVICES", command=(str(tool), "-s", "hub", "fleet")))
    )
    for record in fleet(4, browser.backend.now()):
        browser.backend.index.put(record, browser.backend.now())
    await browser.login()
    browser.backend.lines.clear()
    return browser


def calls(tmp_path: Path) -> list[str]:
    file = tmp_path / "eyot.calls"
    return file.read_text().splitlines() if file.exists() else []


def audit(browser: Browser) -> list[tuple[str, str, str]]:
    return [(line.action, line.device, line.outcome) for line in browser.backend.lines]


async def test_labels_are_set_with_a_line_before_and_after(browser: Browser) -> None:
    labels = [MARKUP[0], "site:north", "site:north"]
    assert (await browser.post("/api/actions/label", {"device": NAME, "labels": labels, "revision": 0}))[0] == 200
    record = browser.backend.index.get(NAME)
    assert record is not None
    assert {MARKUP[0], "site:north", "ring:0"} <= set(record.labels)
    first, second = browser.backend.lines
    assert (first.outcome, second.outcome) == ("begun", "done")
    assert first.id == second.id != ""
    assert (first.actor, first.role, first.method, first.address) == ("operator", "operator", "nats", "127.0.0.1")
    assert "site:north" in first.detail


async def test_nothing_is_done_without_a_line_in_the_audit_stream(browser: Browser, tmp_path: Path) -> None:
    browser.backend.audit_error = "no answer"
    before = browser.backend.index.get(NAME)
    for name, order in (
        ("label", {"device": NAME, "labels": [], "revision": 0}),
        ("revoke", {"device": NAME, "sure": NAME}),
    ):
        status, told = await browser.post(f"/api/actions/{name}", order)
        assert status == 503
        assert "audit" in told["error"]
    assert browser.backend.index.get(NAME) == before
    assert calls(tmp_path) == []


async def test_a_viewer_may_do_nothing_and_trying_is_noted(browser: Browser, tmp_path: Path) -> None:
    await browser.login("viewer")
    browser.backend.lines.clear()
    for name in FORMS:
        assert await browser.post(f"/api/actions/{name}", {}) == (403, {"error": "your role does not allow this"})
    bulk = {"devices": [NAME], "do": "relabel", "add": ["x"]}
    assert (await browser.post("/api/actions/bulk", bulk))[0] == 403
    assert {outcome for _, _, outcome in audit(browser)} == {"refused"}
    assert len(browser.backend.lines) == len(FORMS) + 1
    assert calls(tmp_path) == []


async def test_an_operator_may_do_what_the_configuration_offers() -> None:
    browser = Browser(replaced(OPTIONS, actions=("ask",)))
    _, told = await browser.login()
    assert told["actions"] == ["ask"]
    assert (await browser.post("/api/actions/label", {"device": NAME, "labels": [], "revision": 0}))[0] == 403
    assert (await browser.post("/api/actions/revoke", {"device": NAME, "sure": NAME}))[0] == 403


async def test_a_desired_document_is_set_only_as_it_was_seen(browser: Browser) -> None:
    order = {"device": NAME, "settings": {"sync": {}}, "revision": 0}
    assert (await browser.post("/api/actions/configure", order))[0] == 200
    assert await browser.get(f"/api/devices/{NAME}/desired") == (
        200,
        {"labels": [], "settings": {"sync": {}}, "applies": {"sync": {}}, "revision": 1},
    )
    status, told = await browser.post("/api/actions/configure", order | {"settings": {"sync": {"a": 1}}})
    assert (status, "somebody else" in told["error"]) == (409, True)
    assert browser.backend.documents[NAME] == Desired(
        labels=(), settings={"sync": {}}, applies={"sync": {}}, revision=1
    )
    assert audit(browser)[-1] == ("configure", NAME, "refused")


@pytest.mark.parametrize(
    ("name", "order", "status"),
    [
        ("label", {"device": "nobody", "labels": [], "revision": 0}, 400),
        ("label", {"device": NAME, "labels": ["a b"], "revision": 0}, 400),
        ("label", {"device": NAME, "labels": ["line\nend"], "revision": 0}, 400),
        ("label", {"device": NAME, "labels": ["\u202eevil"], "revision": 0}, 400),
        ("label", {"device": NAME, "labels": ["UPPER"], "revision": 0}, 400),
        ("label", {"device": NAME, "labels": ["x" * 65], "revision": 0}, 400),
        ("label", {"device": NAME, "labels": [f"l{n}" for n in range(33)], "revision": 0}, 400),
        ("label", {"device": NAME, "labels": [""], "revision": 0}, 400),
        ("label", {"device": NAME}, 400),
        ("label", {"device": NAME, "labels": [], "more": 1, "revision": 0}, 400),
        ("configure", {"device": NAME, "settings": {"a": "x" * 40_000}, "revision": 0}, 400),
        ("configure", {"device": NAME, "settings": [], "revision": 0}, 400),
        ("ask", {"device": NAME, "report": "shell"}, 400),
        ("revoke", {"device": NAME, "sure": "pump-0000"}, 400),
        ("withdraw", {"token": "--help"}, 502),
        ("withdraw", {"token": TOKEN + "C"}, 502),
    ],
)
async def test_an_order_that_cannot_be_meant_is_refused(
    browser: Browser, tmp_path: Path, name: str, order: dict[str, Any], status: int
) -> None:
    before = browser.backend.index.get(NAME)
    assert (await browser.post(f"/api/actions/{name}", order))[0] == status
    assert browser.backend.index.get(NAME) == before
    assert browser.backend.documents == {}
    assert calls(tmp_path) == []


async def test_revocations_and_tokens_go_to_the_operators_tool(browser: Browser, tmp_path: Path) -> None:
    assert (await browser.post("/api/actions/revoke", {"device": NAME, "sure": NAME}))[0] == 200
    assert (await browser.post("/api/actions/withdraw", {"token": TOKEN}))[0] == 200
    status, told = await browser.post("/api/actions/tokens", {})
    assert (status, told["done"][0]["names"]) == (200, "<b>pump-*</b>")
    assert len(told["done"]) == 1
    assert calls(tmp_path) == [
        f"-s hub fleet revoke --json -a DEVICES {NAME}",
        f"-s hub fleet withdraw --json -a DEVICES {TOKEN}",
        "-s hub fleet tokens --json -a DEVICES",
    ]
    status, told = await browser.post("/api/actions/revoke", {"device": "pump-00001", "sure": "pump-00001"})
    assert status == 400
    browser.backend.index.put(replaced(browser.backend.index.get(NAME), name="pump-00001"), 0.0)
    status, told = await browser.post("/api/actions/revoke", {"device": "pump-00001", "sure": "pump-00001"})
    assert (status, told) == (502, {"error": "eyot: no server takes it"})
    assert audit(browser)[-1] == ("revoke", "pump-00001", "failed")


async def test_a_tool_that_is_missing_or_hangs_is_told(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from eyot_fleet.web import trust_commands

    (tmp_path / "eyot").write_text("#!/bin/sh\nexec sleep 1000\n")
    monkeypatch.setattr(trust_commands, "WITHIN_S", 0.2)
    status, told = await browser.post("/api/actions/revoke", {"device": NAME, "sure": NAME})
    assert (status, "look whether it was done" in told["error"]) == (502, True)
    (tmp_path / "eyot").unlink()
    status, told = await browser.post("/api/actions/revoke", {"device": NAME, "sure": NAME})
    assert (status, "No such file" in told["error"]) == (502, True)


async def test_while_the_hub_is_away_a_device_cannot_be_asked(browser: Browser) -> None:
    status, told = await browser.post("/api/actions/ask", {"device": NAME, "report": "status"})
    assert (status, told) == (502, {"error": "the hub cannot be reached"})
    assert audit(browser) == [("ask", NAME, "begun"), ("ask", NAME, "failed")]


async def test_actions_at_the_same_time_are_bounded(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    hold, statuses = trio.Event(), []

    async def waits(*arguments: object) -> list[object]:
        await hold.wait()
        return []

    monkeypatch.setattr(actions, "ask", waits)
    monkeypatch.setattr(browser.backend, "connection", lambda: None)

    async def one() -> None:
        statuses.append((await browser.post("/api/actions/ask", {"device": NAME, "report": "sync"}))[0])

    async with trio.open_nursery() as nursery:
        for _ in range(actions.SESSION_AT_ONCE + 2):
            nursery.start_soon(one)
        await trio.testing.wait_all_tasks_blocked()
        assert statuses == [429, 429]
        hold.set()
    assert statuses == [429, 429] + [200] * actions.SESSION_AT_ONCE
    assert (await browser.post("/api/actions/ask", {"device": NAME, "report": "sync"}))[0] == 200


async def test_an_action_ends_also_when_the_browser_goes(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    began = trio.Event()

    async def waits(*arguments: object) -> list[object]:
        began.set()
        await trio.sleep(0.05)
        return []

    monkeypatch.setattr(actions, "ask", waits)
    monkeypatch.setattr(browser.backend, "connection", lambda: None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(browser.post, "/api/actions/ask", {"device": NAME, "report": "sync"})
        await began.wait()
        nursery.cancel_scope.cancel()
    assert audit(browser) == [("ask", NAME, "begun"), ("ask", NAME, "done")]


async def test_the_audit_stream_is_read_by_pages_and_devices(browser: Browser) -> None:
    await browser.post("/api/actions/label", {"device": NAME, "labels": [], "revision": 0})
    await browser.post("/api/actions/label", {"device": "pump-00004", "labels": [], "revision": 0})
    status, told = await browser.get("/api/audit?count=10")
    assert (status, [line["outcome"] for line in told["lines"]]) == (200, ["done", "begun"])
    assert (await browser.get("/api/audit?device=nobody"))[1] == {"lines": []}
    for count in ("0", "501", "x", "-1", "99999999999999999999"):
        assert (await browser.get(f"/api/audit?count={count}"))[0] == 400


def test_what_may_be_asked_is_what_the_page_offers() -> None:
    page = (Path(ask.__file__).parent / "page" / "index.html").read_text()
    assert [report for report in ask.REPORTS if f'data-report="{report}"' in page] == list(ask.REPORTS)


async def test_several_devices_get_an_order_each_with_its_own_lines(browser: Browser) -> None:
    names = [f"pump-{number:05}" for number in (0,)] + ["gateway-00001", "nobody"]
    order = {"devices": names, "do": "relabel", "add": ["spare"], "remove": ["none"]}
    status, told = await browser.post("/api/actions/bulk", order)
    assert status == 200
    assert [(each["device"], each["outcome"]) for each in told["done"]] == [
        (names[0], "done"),
        (names[1], "done"),
        ("nobody", "refused"),
    ]
    for name in names[:2]:
        record = browser.backend.index.get(name)
        assert record is not None
        assert "spare" in record.labels
        assert [line for line in audit(browser) if line[1] == name] == [
            ("relabel", name, "begun"),
            ("relabel", name, "done"),
        ]
    assert "+spare -none" in browser.backend.lines[0].detail
    status, told = await browser.post("/api/actions/bulk", {"devices": names[:1], "do": "ask", "report": "sync"})
    assert told["done"][0]["outcome"] == "failed"  # the hub is away: this device's failure is not the order's
    browser.backend.audit_error = "full"
    before = browser.backend.documents.copy()
    status, told = await browser.post("/api/actions/bulk", order | {"add": ["other"]})
    assert {each["outcome"] for each in told["done"]} == {"failed", "refused"}
    assert browser.backend.documents == before


@pytest.mark.parametrize(
    "order",
    [
        {"devices": [], "do": "connect"},
        {"devices": [NAME, NAME], "do": "connect"},
        {"devices": [f"pump-{number:05}" for number in range(BULK_MAX + 1)], "do": "connect"},
        {"devices": [NAME], "do": "revoke"},
        {"devices": [NAME], "do": "ask", "report": "secrets"},
        {"devices": [NAME], "do": "relabel"},
        {"devices": [NAME], "do": "relabel", "add": ["a b"]},
        {"devices": NAME, "do": "connect"},
    ],
)
async def test_a_bulk_order_that_cannot_be_meant_is_refused_whole(browser: Browser, order: dict[str, Any]) -> None:
    assert (await browser.post("/api/actions/bulk", order))[0] == 400
    assert browser.backend.lines == []


async def test_one_bulk_order_of_a_user_at_a_time(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go = trio.Event(), trio.Event()

    async def slow(*_: object) -> list[str]:
        begun.set()
        await go.wait()
        return ["hub"]

    monkeypatch.setattr(actions, "connect", slow)
    monkeypatch.setattr(type(browser.backend), "connection", lambda _: None)
    order = {"devices": [NAME], "do": "connect"}
    answers = []

    async def first() -> None:
        answers.append(await browser.post("/api/actions/bulk", order))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(first)
        await begun.wait()
        assert (await browser.post("/api/actions/bulk", order))[0] == 429
        go.set()
    assert answers[0][0] == 200
    assert (await browser.post("/api/actions/bulk", order))[0] == 200


async def test_groups_are_made_counted_changed_and_removed(browser: Browser) -> None:
    order = {"group": "pumps", "labels": ["kind:pump"], "priority": 3, "settings": {"sync": {}}, "revision": 0}
    assert (await browser.post("/api/actions/group", order))[0] == 200
    assert (await browser.post("/api/actions/group", order))[0] == 409  # somebody was first
    assert (await browser.post("/api/actions/group", order | {"group": "a b"}))[0] == 409
    assert (await browser.post("/api/actions/group", order | {"labels": ["<b>"], "revision": 1}))[0] == 409
    assert (await browser.post("/api/actions/group", order | {"settings": {"http": {}}, "revision": 1}))[0] == 409
    _, told = await browser.get("/api/groups")
    [group] = told["groups"]
    assert (group["name"], group["devices"], group["priority"]) == ("pumps", 1, 3)
    assert await browser.get("/api/names?labels=kind:pump") == (200, {"names": [NAME], "total": 1})
    assert (await browser.get("/api/groups/pumps"))[1]["revision"] == 1
    assert (await browser.post("/api/actions/group", order | {"revision": 1, "remove": True}))[0] == 200
    assert (await browser.get("/api/groups"))[1]["groups"] == []
    assert audit(browser)[-1] == ("group", "pumps", "done")


async def test_a_rollout_is_started_and_steered(browser: Browser) -> None:
    order: dict[str, Any] = {"rollout": "june", "do": "start", "version": "2.0", "reason": "<b>try</b>"}
    assert (await browser.post("/api/actions/rollout", order))[0] == 409  # it has no rings
    rings = [{"group": "all", "wait_s": 60.0}]
    assert (await browser.post("/api/actions/rollout", order | {"rings": rings}))[0] == 200
    assert (await browser.post("/api/actions/rollout", {"rollout": "june", "do": "halt"}))[0] == 200
    assert (await browser.post("/api/actions/rollout", {"rollout": "june", "do": "back"}))[
        0
    ] == 409  # to which version?
    assert (await browser.post("/api/actions/rollout", {"rollout": "june", "do": "back", "version": "1.0"}))[0] == 200
    assert (await browser.post("/api/actions/rollout", {"rollout": "june", "do": "fly"}))[0] == 400
    [row] = (await browser.get("/api/rollouts"))[1]["rollouts"]
    assert (row["name"], row["rollout"]["state"], row["rollout"]["back_to"]) == ("june", "rolled back", "1.0")
    assert row["rings"][0]["devices"] == 0
    assert row["rings"][0]["is_known"] is False
    assert {line.device for line in browser.backend.lines} == {"june"}


async def test_a_device_is_forgotten_by_name_and_with_a_reason(browser: Browser) -> None:
    order = {"device": NAME, "sure": NAME, "reason": "scrapped"}
    assert (await browser.post("/api/actions/forget", order | {"sure": ""}))[0] == 400
    assert (await browser.post("/api/actions/forget", order | {"reason": " "}))[0] == 400
    record = browser.backend.index.get(NAME)
    assert record is not None
    browser.backend.index.put(replaced(record, linked=True), browser.backend.now())
    status, told = await browser.post("/api/actions/forget", order)
    assert (status, "is linked" in told["error"]) == (409, True)
    browser.backend.index.put(replaced(record, linked=False), browser.backend.now())
    assert (await browser.post("/api/actions/forget", order))[0] == 200
    assert browser.backend.index.get(NAME) is None
    assert audit(browser)[-1] == ("forget", NAME, "done")
