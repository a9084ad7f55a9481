"""Logins at the fleet's page: who is let in, over which connections, within which bounds, and what the audit stream says."""

from __future__ import annotations

from pathlib import Path

import pytest

from eyot_fleet.errors import ConfigError
from eyot_fleet.web import access
from eyot_fleet.web_options import NatsOptions, OidcOptions, WebOptions, role_of
from eyot_serving.sessions import ADDRESS_FAILURES_MAX, WINDOW_S
from support.devices.fleet_browser import FAR, FAR_TLS, Browser
from support.devices.fleet_page import OPTIONS, replaced

READS = (
    "/api/devices",
    "/api/devices/a",
    "/api/devices/a/desired",
    "/api/names",
    "/api/groups",
    "/api/groups/a",
    "/api/rollouts",
    "/api/events",
    "/api/audit",
)


@pytest.fixture
def browser() -> Browser:
    return Browser()


async def test_nobody_reads_anything_before_the_login(browser: Browser) -> None:
    for path in READS:
        assert await browser.get(path) == (401, {"error": "log in first"})
    status, told = await browser.get("/api/session")
    assert (status, told["user"], told["token"], told["nats"]) == (200, None, "", True)


@pytest.mark.parametrize(
    ("user", "actions"), [("viewer", []), ("operator", ["ask", "connect", "label", "configure", "rollout", "forget"])]
)
async def test_a_login_gives_a_session_with_a_role(browser: Browser, user: str, actions: list[str]) -> None:
    status, told = await browser.login(user)
    assert (status, told["user"], told["role"], told["actions"]) == (200, user, user, actions)
    (cookie,) = browser.header("Set-Cookie")
    assert cookie.startswith("eyot_fleet=")
    assert "; HttpOnly; SameSite=Strict; Max-Age=28800" in cookie
    assert "Secure" not in cookie
    assert (await browser.get("/api/session"))[1]["user"] == user
    assert (await browser.get("/api/devices"))[0] == 200
    (line,) = browser.backend.lines
    assert (line.actor, line.role, line.action, line.outcome, line.address) == (
        user,
        user,
        "login",
        "done",
        "127.0.0.1",
    )


async def test_under_https_the_cookie_is_bound_to_the_host_and_secure() -> None:
    browser = Browser(replaced(OPTIONS, url="https://fleet.example", proxies=("10.0.0.9",)), FAR)
    await browser.login()
    (cookie,) = browser.header("Set-Cookie")
    assert cookie.startswith("__Host-eyot_fleet=")
    assert cookie.endswith("; Secure")
    await browser.get("/")
    assert browser.header("Strict-Transport-Security")


async def test_a_wrong_password_is_refused_limited_and_noted(browser: Browser) -> None:
    for _ in range(ADDRESS_FAILURES_MAX):
        status, told = await browser.login("operator", "wrong")
        assert (status, told) == (401, {"error": "the name or the password is wrong, or the user has no role here"})
    status, told = await browser.login("operator")
    assert status == 429
    assert browser.header("Retry-After") == ["60"]
    assert [line.outcome for line in browser.backend.lines] == ["refused"] * ADDRESS_FAILURES_MAX
    browser.now_s += WINDOW_S
    assert (await browser.login("operator"))[0] == 200


async def test_while_the_hub_is_away_no_login_is_counted_as_wrong(browser: Browser) -> None:
    browser.users.away = True
    for _ in range(2 * ADDRESS_FAILURES_MAX):
        assert (await browser.login())[0] == 503
    browser.users.away = False
    browser.backend.audit_error = "the hub cannot store it"
    assert (await browser.login())[0] == 200


async def test_passwords_are_accepted_over_encrypted_or_local_connections_only() -> None:
    browser = Browser(peer=FAR)
    assert (await browser.login())[0] == 403
    assert (await browser.get("/api/session"))[1]["insecure"] is True
    browser.peer = FAR_TLS
    assert (await browser.login())[0] == 200


async def test_behind_a_proxy_the_browsers_address_counts() -> None:
    options = replaced(OPTIONS, url="https://fleet.example", proxies=("10.0.0.9", "10.0.0.8"))
    browser = Browser(options, FAR)
    for number in range(ADDRESS_FAILURES_MAX + 1):
        body = {"user": "operator", "password": "x"}
        forged = f"6.6.6.{number}, 192.0.2.7, 10.0.0.8"
        status, _ = await browser.post("/api/login", body, x_forwarded_for=forged)
    assert status == 429
    assert {line.address for line in browser.backend.lines} == {"192.0.2.7"}
    assert (await browser.post("/api/login", body, x_forwarded_for="192.0.2.8"))[0] == 401


async def test_an_unknown_proxy_is_not_believed(browser: Browser) -> None:
    await browser.post("/api/login", {"user": "operator", "password": "x"}, x_forwarded_for="192.0.2.7")
    assert browser.backend.lines[0].address == "127.0.0.1"


async def test_a_session_ends_when_it_is_idle_and_after_its_time(browser: Browser) -> None:
    await browser.login()
    browser.now_s += access.IDLE_S - 1
    assert (await browser.get("/api/devices"))[0] == 200
    browser.now_s += access.IDLE_S
    assert (await browser.get("/api/devices"))[0] == 401
    await browser.login()
    for _ in range(int(access.SESSION_S / 600)):
        last = (await browser.get("/api/devices"))[0]
        browser.now_s += 600
    assert last == 200
    assert (await browser.get("/api/devices"))[0] == 401
    assert len(browser.site.access) == 0


async def test_a_forged_cookie_and_the_cookie_without_the_token_do_nothing(browser: Browser) -> None:
    await browser.login()
    order = {"device": "a", "labels": []}
    assert (await browser.post("/api/actions/label", order, x_eyot_token="forged"))[0] == 401
    assert (await browser.post("/api/actions/label", order, x_eyot_token=""))[0] == 401
    for forged in ("x" * 43, "", 'a"b', browser.cookies["eyot_fleet"][:-1]):
        browser.cookies["eyot_fleet"] = forged
        assert (await browser.get("/api/devices"))[0] == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"sec_fetch_site": "cross-site"},
        {"content_type": "text/plain"},
        {"content_type": "application/x-www-form-urlencoded"},
        {"origin": "null"},
        {"origin": "http://["},
    ],
)
async def test_another_site_can_neither_log_in_nor_act_nor_read(browser: Browser, headers: dict[str, str]) -> None:
    assert (await browser.post("/api/login", {"user": "operator", "password": "operator"}, **headers))[0] == 403
    await browser.login()
    for path in ("/api/logout", "/api/actions/label"):
        assert (await browser.post(path, {}, **headers))[0] == 403
    if "sec_fetch_site" in headers:
        assert (await browser.get("/api/devices", **headers))[0] == 403
    assert (await browser.get("/api/session"))[1]["user"] == "operator"


async def test_a_foreign_name_for_this_machine_gets_nothing(browser: Browser) -> None:
    for path in ("/", "/api/session", "/login/oidc"):
        assert (await browser.get(path, host="evil.example"))[0] == 421
    named = Browser(replaced(OPTIONS, hosts=("fleet.example",)))
    assert (await named.get("/", host="fleet.example:8300"))[0] == 200


async def test_logout_ends_the_session_and_its_cookie(browser: Browser) -> None:
    await browser.login()
    cookie = browser.cookies["eyot_fleet"]
    status, told = await browser.post("/api/logout", {})
    assert (status, told["user"]) == (200, None)
    assert "Max-Age=0" in browser.header("Set-Cookie")[0]
    browser.cookies["eyot_fleet"] = cookie
    assert (await browser.get("/api/devices"))[0] == 401
    assert [line.action for line in browser.backend.lines] == ["login", "logout"]


async def test_a_login_replaces_the_browsers_session(browser: Browser) -> None:
    await browser.login()
    before = browser.cookies["eyot_fleet"]
    await browser.login("viewer")
    assert browser.cookies["eyot_fleet"] != before
    assert len(browser.site.access) == 1


async def test_sessions_are_bounded_and_one_user_cannot_end_those_of_others(browser: Browser) -> None:
    await browser.login("viewer")
    viewer = browser.cookies.pop("eyot_fleet")
    for _ in range(access.SESSIONS_MAX + 5):
        await browser.login("operator")
        browser.cookies.clear()
    assert len(browser.site.access) == access.USER_SESSIONS_MAX + 1
    browser.cookies["eyot_fleet"] = viewer
    assert (await browser.get("/api/devices"))[0] == 200


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"user":1,"password":"x"}', b'{"user":"a","password":"b","c":1}', b"\xff"]
)
async def test_a_body_that_is_no_login_is_refused(browser: Browser, body: bytes) -> None:
    assert (await browser.ask("POST", "/api/login", body, content_type="application/json"))[0] == 400


async def test_methods_and_addresses_that_do_not_exist(browser: Browser) -> None:
    await browser.login()
    assert (await browser.ask("PUT", "/api/devices"))[0] == 405
    assert (await browser.get("/api/nothing"))[0] == 404
    assert (await browser.post("/api/nothing", {}))[0] == 404
    assert (await browser.get("/../site.py"))[0] == 404
    assert (await browser.get("/login/oidc"))[0] == 404
    assert (await browser.get("/login/callback"))[0] == 404
    assert (await browser.post("/api/actions/nothing", {}))[0] == 404


async def test_the_page_asks_nobody_else_and_is_small(browser: Browser) -> None:
    total = 0
    for path in (
        "/",
        "/fleet.css",
        "/main.js",
        "/text.js",
        "/service.js",
        "/list.js",
        "/device.js",
        "/orders.js",
        "/records.js",
        "/chart.js",
        "/bulk.js",
        "/groups.js",
        "/rollouts.js",
    ):
        status, body = await browser.get(path)
        assert status == 200
        total += len(body)
        (policy,) = browser.header("Content-Security-Policy")
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert b"//" not in body.replace(b"http://www.w3.org/2000/svg", b"") or path.endswith(".js")
        (tag,) = browser.header("ETag")
        assert (await browser.get(path, if_none_match=tag)) == (304, b"")
        packed = (await browser.get(path, accept_encoding="gzip, br"))[1]
        assert len(packed) < len(body)
        assert browser.header("Content-Encoding") == ["gzip"]
    assert total < 150_000


def test_roles_go_by_names_and_the_higher_one_counts() -> None:
    assert role_of(("a",), ("a", "b"), ("b",)) == "viewer"
    assert role_of(("b",), ("a", "b"), ("b",)) == "operator"
    assert role_of(("c", "b"), (), ("b",)) == "operator"
    assert role_of(("c",), ("*",), ("b",)) == "viewer"
    assert role_of(("c",), ("a",), ("b",)) == ""
    assert role_of(("",), ("",), ("",)) == ""


OIDC = OidcOptions(issuer="https://login.example", client_id="eyot", viewers=("*",))
NATS = NatsOptions(viewers=("a",))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (WebOptions(), "nobody could log in"),
        (WebOptions(nats=NatsOptions()), "name viewers or operators"),
        (WebOptions(nats=NATS, listen="nowhere"), "expected HOST:PORT"),
        (WebOptions(nats=NATS, listen="a:99999"), "expected HOST:PORT"),
        (WebOptions(nats=NATS, cert="c.pem"), "go together"),
        (WebOptions(nats=NATS, actions=("ask", "reboot")), "'reboot' is none of"),
        (WebOptions(nats=NATS, url="https://fleet.example/page"), "has no path"),
        (WebOptions(nats=NATS, url="http://fleet.example"), "use https"),
        (WebOptions(nats=NATS, url="fleet.example"), "expected https"),
        (WebOptions(nats=NATS, url="https://user@fleet.example"), "expected https"),
        (WebOptions(oidc=OIDC), "web.url is needed"),
        (WebOptions(oidc=replaced(OIDC, issuer="http://login.example"), url="https://f.example"), "use https"),
        (WebOptions(oidc=replaced(OIDC, viewers=()), url="https://f.example"), "name viewers or operators"),
        (WebOptions(oidc=replaced(OIDC, scopes=("profile",)), url="https://f.example"), "must have openid"),
        (WebOptions(oidc=replaced(OIDC, client_secret_file="/nowhere/s"), url="https://f.example"), "No such file"),
    ],
)
def test_a_mistake_in_the_configuration_is_named(options: WebOptions, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        options.check()


def test_an_empty_secret_is_a_mistake_and_a_good_configuration_passes(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("\n")
    options = WebOptions(oidc=replaced(OIDC, client_secret_file=str(file)), url="https://fleet.example")
    with pytest.raises(ConfigError, match="the file is empty"):
        options.check()
    file.write_text("secret\n")
    options.check()
