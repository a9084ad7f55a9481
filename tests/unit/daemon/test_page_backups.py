"""Backups of the local page: one download for each order, by the session that ordered it, within a time, whole or not at all."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from eyot_daemon.monitor.page.backup_download import TICKET_S
from eyot_serving.http_messages import HttpRequest, HttpResponse, PeerAddress
from support.devices.page_access import FAR, LOCAL, Page, Pulled

ORDER = {"account": "A", "stream": "S/../\u202e"}


@pytest.fixture
def page(tmp_path: Path) -> Page:
    return Page(tmp_path)


def ticket_of(told: dict[str, str]) -> str:
    path, _, ticket = told["download"].partition("?ticket=")
    assert path == "backup", "relative to the page, which may be below a base path"
    return ticket


def fetch(page: Page, ticket: str, peer: PeerAddress = LOCAL, method: str = "GET") -> HttpResponse:
    headers = {"cookie": f"eyot_session={page.cookie}"}
    return page.access.backup(
        HttpRequest(method, "/eyot/backup", {"ticket": ticket}, "device:8222", headers, b"", peer)
    )


async def body(answer: HttpResponse) -> bytes:
    assert answer.stream is not None
    async with answer.stream() as parts:
        return b"".join([part async for part in parts])


async def test_an_order_is_downloaded_once_as_the_folder_of_a_backup(page: Page) -> None:
    await page.login()
    status, told = await page.post("/eyot/actions/backup", ORDER)
    assert status == 200
    assert page.asked == [("A", ORDER["stream"])]
    assert page.backup is not None
    answer = fetch(page, ticket_of(told))
    assert answer.content_type == "application/zip"
    disposition = dict(answer.headers)["Content-Disposition"]
    name = disposition.removeprefix('attachment; filename="').removesuffix('.zip"')
    assert name.replace("-", "").replace("_", "").replace(".", "").isalnum(), name
    with zipfile.ZipFile(io.BytesIO(await body(answer))) as archive:
        assert archive.testzip() is None
        assert {each: archive.read(each) for each in archive.namelist()} == {
            f"{name}/stream.tar.s2": b"firstsecond", f"{name}/backup.json": b"{}"
        }  # fmt: skip
    assert fetch(page, ticket_of(told)).status == 404, "a ticket is for one use"


async def test_who_may_not_download(page: Page) -> None:
    assert (await page.post("/eyot/actions/backup", ORDER))[0] == 401
    await page.login()
    _, told = await page.post("/eyot/actions/backup", ORDER)
    ticket = ticket_of(told)
    assert fetch(page, ticket, FAR).status == 401
    assert (await page.post("/eyot/actions/backup", ORDER, FAR))[0] == 403
    assert fetch(page, ticket, method="HEAD").status == 405
    assert fetch(page, "").status == fetch(page, "é").status == 404
    own = page.cookie
    page.cookie = ""
    assert fetch(page, ticket).status == 401
    await page.login("root")
    assert fetch(page, ticket).status == 404, "the same user in another session"
    page.cookie = own
    assert fetch(page, ticket).status == 200


async def test_a_session_that_ended_downloads_nothing(page: Page, tmp_path: Path) -> None:
    await page.login()
    _, told = await page.post("/eyot/actions/backup", ORDER)
    page.broker.options = page.options(tmp_path, "eyot { http { page: true } }")
    assert fetch(page, ticket_of(told)).status == 401


async def test_a_backup_that_nobody_fetches_ends(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    due: list[Any] = []
    monkeypatch.setattr(page.broker.timers, "call_later", lambda delay, run: due.append((delay, run)))
    await page.login()
    _, told = await page.post("/eyot/actions/backup", ORDER)
    ((delay, run),) = due
    assert delay == TICKET_S
    run()
    assert page.backup is not None
    assert page.backup.stopped == "the browser did not fetch it"
    assert fetch(page, ticket_of(told)).status == 404


async def test_a_backup_that_fails_breaks_the_download(page: Page) -> None:
    page.backup = Pulled([b"first"], "stream closed")
    await page.login()
    _, told = await page.post("/eyot/actions/backup", ORDER)
    with pytest.raises(trio.BrokenResourceError):
        await body(fetch(page, ticket_of(told)))


async def test_a_browser_that_goes_ends_the_backup(page: Page) -> None:
    await page.login()
    _, told = await page.post("/eyot/actions/backup", ORDER)
    answer = fetch(page, ticket_of(told))
    assert answer.stream is not None
    async with answer.stream() as parts:
        async for part in parts:
            assert part
            break
    assert page.backup is not None
    assert page.backup.stopped == "the browser has gone"


async def test_what_is_not_backed_up_says_why(page: Page) -> None:
    await page.login()
    page.problem = "there is no such stream"
    assert await page.post("/eyot/actions/backup", ORDER) == (409, {"error": "there is no such stream"})
    assert (await page.post("/eyot/actions/backup", {"stream": "S"}))[0] == 400


async def test_a_browser_that_goes_before_the_backup_begins(page: Page) -> None:
    await page.login()
    page.backup, late = None, Pulled([])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(page.post, "/eyot/actions/backup", ORDER)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    page.begun(late, "")
    assert late.stopped == "the browser has gone"
