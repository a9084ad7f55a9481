"""Login and actions of the local page: who is let in, over which connections, within which bounds, and what is logged."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from eyot_daemon.leaf.remotes import LeafRemotes
from eyot_daemon.router.broker import Broker
from eyot_serving.http_messages import HttpRequest, PeerAddress
from eyot_serving.sessions import (
    ADDRESS_FAILURES_MAX,
    FAILURES_MAX,
    IDLE_S,
    SESSION_S,
    SESSIONS_MAX,
    WINDOW_S,
    Attempts,
    Sessions,
)
from eyot_wire.conf import ConfError
from eyot_wire.jetstream.forget_downstream import ForgetRequest
from support.devices.page_access import CONFIG, FAR, FAR_TLS, HASH, LOCAL, SOCKET, Page, set_cookie

ORDER = {"account": "A", "stream": "S", "server": "hub", "kind": "source", "target": "ALL"}


@pytest.fixture
def page(tmp_path: Path) -> Page:
    return Page(tmp_path)


class Lines(logging.Handler):
    """The lines of a log."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def lines() -> Iterator[Callable[[], list[str]]]:
    log, handler = logging.getLogger("eyot.monitor"), Lines()
    level = log.level
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    yield lambda: handler.lines
    log.removeHandler(handler)
    log.setLevel(level)


async def test_a_user_logs_in_acts_and_logs_out(page: Page, lines: Callable[[], list[str]]) -> None:
    assert (await page.post("/eyot/actions/reconnect", {"link": "x"}))[0] == 401
    status, told = await page.login()
    assert (status, told["user"]) == (200, "root")
    assert set_cookie(page.answer).endswith("; Path=/; HttpOnly; SameSite=Strict; Max-Age=28800")
    assert await page.post("/eyot/actions/reconnect", {"link": "x\n"}) == (200, {"done": "Connecting x\n."})
    page.problem = "no"
    assert await page.post("/eyot/actions/reconnect", {"link": "y"}) == (409, {"error": "no"})
    assert await page.post("/eyot/actions/forget", ORDER) == (200, {"done": "Forgotten."})
    assert page.asked == ["x\n", "y", ("A", "S", ForgetRequest(server="hub", kind="source", target="ALL"))]
    assert (await page.post("/eyot/logout", {}))[1]["user"] is None
    assert set_cookie(page.answer).startswith("eyot_session=; ")
    assert (await page.post("/eyot/actions/reconnect", {"link": "x"}))[0] == 401
    assert lines() == [
        'Page: "root" logged in from 127.0.0.1',
        'Page: "root" from 127.0.0.1 reconnects link "x\\n"',
        'Page: "root" from 127.0.0.1 reconnects link "y": refused: no',
        'Page: "root" from 127.0.0.1 forgets "source" "ALL" of "A" "S" at "hub"',
        'Page: "root" from 127.0.0.1 logged out',
    ]


@pytest.mark.parametrize(
    ("counts", "status"), [((0, 1, ""), 409), ((0, 0, ""), 404), ((0, 0, "disk full"), 503)], ids=["reads", "none", "store"]
)  # fmt: skip
async def test_what_is_not_forgotten_says_why(page: Page, counts: tuple[int, int, str], status: int) -> None:
    await page.login()
    page.counts = counts
    found, told = await page.post("/eyot/actions/forget", ORDER)
    assert found == status
    assert told["error"]
    assert (await page.post("/eyot/actions/forget", ORDER | {"server": ""}))[0] == 404
    assert (await page.post("/eyot/actions/forget", {"stream": "S"}))[0] == 400


@pytest.mark.parametrize(
    ("user", "password"),
    [("root", "wrong"), ("root", ""), ("other", "secret"), ("", ""), ("", "secret"), ("nobody", "secret"), ("sensor", "secret"), pytest.param("crypt", HASH, id="crypt-its own hash")],
)  # fmt: skip
async def test_who_is_not_let_in(page: Page, user: str, password: str) -> None:
    async with trio.open_nursery() as nursery:
        answers: list[tuple[int, Any]] = []

        async def attempt() -> None:
            answers.append(await page.login(user, password))

        nursery.start_soon(attempt)
        await trio.testing.wait_all_tasks_blocked()
        for check in page.waiting:
            check()
    assert answers == [(401, {"error": "the name or the password is wrong"})]
    assert (await page.post("/eyot/session", {}))[1]["user"] is None


async def test_a_bcrypt_password_is_checked_in_the_background(page: Page) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(page.login, "crypt", "hashed")
        await trio.testing.wait_all_tasks_blocked()
        (check,) = page.waiting
        check()
    assert (await page.post("/eyot/session", {}))[1]["user"] == "crypt"


async def test_passwords_need_a_connection_that_nobody_overhears(page: Page) -> None:
    assert (await page.login(peer=FAR))[0] == 403
    assert (await page.post("/eyot/session", {}, FAR))[1] | {"user": None} == {
        "user": None, "offered": True, "secure": False, "bundle": "never", "token": None
    }  # fmt: skip
    assert (await page.login(peer=FAR_TLS))[0] == 200
    assert set_cookie(page.answer).endswith("; Secure")
    assert (await page.post("/eyot/actions/reconnect", {"link": "x"}, FAR))[0] == 403
    assert (await page.login(peer=SOCKET))[0] == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://device:8222"}, 200), ({"origin": "http://device:1"}, 403), ({"origin": "null"}, 403), ({"origin": "http://["}, 403),
        ({"sec_fetch_site": "same-site"}, 403), ({"sec_fetch_site": "cross-site"}, 403), ({"content_type": "text/plain"}, 403),
        ({"x_eyot_token": "x"}, 401), ({"x_eyot_token": ""}, 401), ({"x_eyot_token": "é"}, 401), ({"cookie": "eyot_session=x"}, 401), ({"cookie": ""}, 401),
    ],
)  # fmt: skip
async def test_other_sites_cannot_act(page: Page, headers: dict[str, str], status: int) -> None:
    await page.login()
    sent: Any = headers
    assert (await page.post("/eyot/actions/reconnect", {"link": "x"}, **sent))[0] == status
    assert len(page.asked) == (status == 200)


async def test_a_read_of_the_address_does_nothing(page: Page) -> None:
    request = HttpRequest("GET", "/eyot/logout", {}, "device:8222", {}, b"", LOCAL)
    answer = await page.access.answer("/eyot/logout", request)
    assert (answer.status, dict(answer.headers)["Allow"]) == (405, "POST")


@pytest.mark.parametrize("change", ["password: changed", "users: [crypt]", "page: true }"])
async def test_a_reload_ends_the_sessions_of_those_it_shuts_out(page: Page, tmp_path: Path, change: str) -> None:
    await page.login()
    assert (await page.post("/eyot/session", {}))[1]["user"] == "root"
    before = {"password: changed": "password: secret", "users: [crypt]": "users: [root, crypt, sensor]"}
    old = before.get(change, "page: true, users: [root, crypt, sensor] }")
    self_changed = page.options(tmp_path, CONFIG.replace(old, change, 1))
    page.broker.options = self_changed
    assert (await page.post("/eyot/session", {}))[1]["user"] is None
    page.broker.options = page.options(tmp_path, CONFIG)
    assert (await page.post("/eyot/session", {}))[1]["user"] is None


async def test_failed_logins_are_limited_and_logged_escaped(page: Page, lines: Callable[[], list[str]]) -> None:
    for _ in range(ADDRESS_FAILURES_MAX):
        assert (await page.login("x\n\x1b[31m\u202e" + "y" * 100, "wrong"))[0] == 401
    assert (await page.login())[0] == 429
    assert int(dict(page.answer.headers)["Retry-After"]) == WINDOW_S
    assert (await page.login(peer=FAR_TLS))[0] == 200
    failed = [line for line in lines() if "failed" in line]
    assert len(failed) == ADDRESS_FAILURES_MAX
    assert all(line.isascii() and line.isprintable() and len(line) < 150 for line in failed)


async def test_who_gets_the_support_bundle(page: Page, tmp_path: Path) -> None:
    def status(peer: PeerAddress, method: str = "GET") -> int:
        asked = page.request("/eyot/support-bundle", {}, peer)
        refused = page.access.may_have_bundle(HttpRequest(method, asked.path, {}, asked.host, asked.headers, b"", peer))
        return 200 if refused is None else refused.status

    assert [status(each) for each in (SOCKET, LOCAL, FAR, FAR_TLS)] == [200, 403, 403, 403]
    assert [status(each, "POST") for each in (LOCAL, FAR, FAR_TLS)] == [401, 403, 401]
    await page.login()
    assert [status(each, "POST") for each in (LOCAL, FAR, FAR_TLS)] == [200, 403, 200]
    assert status(LOCAL) == 403, "a link of another site carries the cookie, and no token"
    page.broker.options = page.options(tmp_path, "eyot { http { page: true } }")
    assert [status(each) for each in (SOCKET, LOCAL, FAR, FAR_TLS)] == [200, 200, 403, 403]
    assert (await page.login())[0] == 403


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "::ffff:127.0.0.1"])
def test_addresses_of_this_machine(host: str) -> None:
    assert PeerAddress(host).is_local
    assert not PeerAddress("::ffff:10.0.0.1").is_local
    assert not PeerAddress("").is_local


def test_a_link_that_may_not_connect_says_why(tmp_path: Path) -> None:
    remotes = "leafnodes { remotes: [{ url: 'nats-leaf://h:1' }, { url: 'nats-leaf://h:2', disabled: true }] }"
    links = LeafRemotes(Broker(Page.options(tmp_path, remotes)).links)
    first, second = (each.state for each in links.supervisors)
    assert links.reconnect(first.name) == ""
    first.waiting = "outside its window"
    assert links.reconnect(first.name) == "a policy keeps the link down: outside its window"
    assert "disables" in links.reconnect(second.name)
    assert "no remote of this name" in links.reconnect("x")


def test_sessions_are_bounded_and_end() -> None:
    now = [0.0]
    sessions = Sessions(lambda: now[0])
    secrets = [sessions.begin("u", "p") for _ in range(SESSIONS_MAX + 1)]
    assert len(sessions) == SESSIONS_MAX
    assert sessions.find(*secrets[0]) is None
    assert sessions.find(secrets[1][0], secrets[2][1]) is None, "the token of another session"
    kept = sessions.find(*secrets[1])
    assert kept is not None
    now[0] = IDLE_S - 1
    sessions.used(kept)
    now[0] = IDLE_S
    assert sessions.find(*secrets[1]) is kept
    assert sessions.find(*secrets[2]) is None
    sessions.used(kept)
    while now[0] < SESSION_S - 1:
        now[0] = min(now[0] + IDLE_S - 1, SESSION_S - 1)
        assert sessions.find(*secrets[1]) is kept
        sessions.used(kept)
    now[0] = SESSION_S
    assert sessions.find(*secrets[1]) is None
    assert "p" not in repr(kept).partition("u")[2]


def test_attempts_are_limited_for_one_address_and_for_all() -> None:
    now = [0.0]
    attempts = Attempts(lambda: now[0])
    first = attempts.begin("a")
    assert first is not None
    for _ in range(ADDRESS_FAILURES_MAX - 1):
        attempts.begin("a")
    assert attempts.begin("a") is None
    attempts.succeeded(first)
    assert attempts.begin("a") is not None
    for number in range(FAILURES_MAX - ADDRESS_FAILURES_MAX):
        assert attempts.begin(f"b{number}") is not None
    assert attempts.begin("c") is None
    now[0] = WINDOW_S
    assert attempts.begin("a") is not None


@pytest.mark.parametrize(
    "text",
    [
        "eyot { http { users: [root] } }",
        'eyot { http { users: [""] } }',
        "eyot { http { users: [UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4] } }\n"
        "authorization { users: [{ nkey: UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4 }] }",
    ],
    ids=["unknown", "empty", "nkey"],
)
def test_users_without_a_password_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(
        ConfError, match=r"eyotd.conf:1:\d+: key \"users\": .*no user of this configuration with a password"
    ):
        Page.options(tmp_path, text)
