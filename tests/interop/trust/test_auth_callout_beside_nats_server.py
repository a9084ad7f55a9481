"""Auth callout beside nats-server 2.14: the users that it decides on, the service's requests, and which answers are accepted."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nats
import nats.errors
import pytest
from nats.aio.client import Client

from support.links.leaf_pair import server
from support.trust.claims import ALPHA, BETA, OPERATOR, OTHER, SIGNING, SYSTEM, USER, Key, creds, operator_conf

KINDS = ["eyotd", "2.14.6"]
WAIT_S = 30.0
ISSUER = Key("A", 50)
STRANGER = Key("A", 51)

#: (the question's claims) -> the answer as a token, None for silence
Decide = Callable[[dict[str, Any]], str | None]


def payload(token: str) -> dict[str, Any]:
    middle = token.split(".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
    return claims


def answer(question: dict[str, Any], granted: str | None, signer: Key = ISSUER, error: str = "") -> str:
    """The answer to a question: a user's token, or an error."""
    claims = {"type": "authorization_response"} | ({"error": error} if error else {"jwt": granted})
    asked = question["nats"]
    return signer.sign(asked["user_nkey"], claims, aud=asked["server_id"]["id"])


def user(question: dict[str, Any], signer: Key = ISSUER, aud: str = "", **nats_part: Any) -> str:
    body = {"type": "user", "subs": -1, "data": -1, "payload": -1} | nats_part
    more = {"aud": aud} if aud else {}
    return signer.sign(question["nats"]["user_nkey"], body, name="granted", **more)


class Service:
    """The service: answers what is decided, and keeps the questions."""

    def __init__(self, client: Client, decide: Decide) -> None:
        self.questions: list[dict[str, Any]] = []
        self._client, self._decide = client, decide

    async def start(self) -> None:
        async def asked(msg: Any) -> None:
            question = payload(msg.data.decode())
            self.questions.append(question)
            said = self._decide(question)
            if said is not None:
                await msg.respond(said.encode())

        await self._client.subscribe("$SYS.REQ.USER.AUTH", cb=asked)
        await self._client.flush()


async def who(url: str, **how: Any) -> str:
    """As whom one is let in (`user@account`), "" if not at all."""
    try:
        client = await nats.connect(url, allow_reconnect=False, connect_timeout=WAIT_S, **how)
    except (nats.errors.Error, OSError):
        return ""
    try:
        data = json.loads((await client.request("$SYS.REQ.USER.INFO", timeout=WAIT_S)).data)["data"]
        return f"{data['user']}@{data['account']}"
    except nats.errors.Error:
        return ""
    finally:
        await client.close()


CONFIG = f"""
server_name: s
system_account: SYS
no_auth_user: %NOBODY%
accounts {{
  AUTH {{ users: [{{user: auth, password: auth}}, {{user: clerk, password: clerk}}] }}
  APP {{ users: [{{user: app, password: app}}] }}
  SAFE {{ users: [{{user: safe, password: safe}}] }}
  SYS {{ users: [{{user: sys, password: sys}}] }}
}}
authorization {{ timeout: 3, auth_callout {{ issuer: {ISSUER.public}, account: AUTH, auth_users: [auth, sys] %ALLOWED% }} }}
"""


def by_password(question: dict[str, Any]) -> str | None:
    options = question["nats"]["connect_opts"]
    if options.get("pass", "") in ("wrong", ""):
        return answer(question, None, error="no")
    granted = {
        "homeless": lambda: user(question),
        "stranger": lambda: user(question, STRANGER, "APP"),
        "borrowed": lambda: user(question, aud="APP", issuer_account=STRANGER.public),
        "elsewhen": lambda: user(question, aud="APP", times=[{"start": "00:00:00", "end": "00:00:00"}]),
        "lost": lambda: user(question, aud="APP", times_location="Nowhere/Here"),
        "misprinted": lambda: user(question, aud="APP", pub={"allow": ["a b"]}),
        "proxied": lambda: user(question, aud="APP", proxy_required=True),
        "old": lambda: ISSUER.sign(question["nats"]["user_nkey"], {"type": "user"}, aud="APP", exp=1),
    }
    return answer(question, granted.get(options.get("user", ""), lambda: user(question, aud="APP"))())


REFUSED = ("homeless", "stranger", "borrowed", "elsewhen", "lost", "misprinted", "proxied", "old")
ATTEMPTS: dict[str, dict[str, Any]] = {
    name: {"user": name, "password": name} for name in ("app", "safe", "clerk", "auth", "sys", "guest", *REFUSED)
} | {
    "wrong": {"user": "app", "password": "wrong"},
    "wrong auth": {"user": "auth", "password": "wrong"},
    "wrong safe": {"user": "safe", "password": "wrong"},
    "nobody": {},
    "token": {"token": "t"},
}


def configured(kind: str, folder: Path, nobody: str, allowed: str) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Who is let in as whom, and what the service was told of those it was asked about."""
    allowed_accounts = f", allowed_accounts: [{allowed}]" if allowed else ""
    config = CONFIG.replace("%NOBODY%", nobody).replace("%ALLOWED%", allowed_accounts)
    process = server(kind, config, folder)
    process.start()

    async def run() -> tuple[dict[str, str], list[dict[str, Any]]]:
        url = process.client_url()
        client = await nats.connect(url, user="auth", password="auth")
        service = Service(client, by_password)
        await service.start()
        found = {name: await who(url, **how) for name, how in ATTEMPTS.items()}
        await client.close()
        return found, [told(question) for question in service.questions]

    try:
        return asyncio.run(run())
    finally:
        process.kill()


def told(question: dict[str, Any]) -> dict[str, Any]:
    """What a question says of the connection, without what differs by chance."""
    asked = question["nats"]
    assert question["iss"] == asked["server_id"]["id"]
    assert (question["aud"], question["sub"]) == ("nats-authorization-request", ISSUER.public)
    info = {key: value for key, value in asked["client_info"].items() if key != "id"}
    options = {key: value for key, value in asked["connect_opts"].items() if key not in ("lang", "version")}
    return {"info": info, "options": options}


@pytest.mark.parametrize(("nobody", "allowed"), [("app", ""), ("auth", ""), ("safe", "APP"), ("app", "APP, AUTH")])
def test_a_configured_callout(nobody: str, allowed: str, tmp_path: Path) -> None:
    ours, theirs = (configured(kind, tmp_path / kind, nobody, allowed) for kind in ("eyotd", "2.14.6"))
    assert ours == theirs
    found, questions = ours
    assert (found["app"], found["guest"], found["auth"]) == ("granted@APP", "granted@APP", "auth@AUTH")
    assert found["safe"] == ("safe@SAFE" if allowed else "granted@APP")
    assert {found[name] for name in (*REFUSED, "wrong", "wrong auth")} == {""}
    assert not any(one["options"].get("user") == "auth" for one in questions)


def play(kind: str, folder: Path, config: str, decide: Decide, scenario: Callable[[str, Service, Path], Any]) -> None:
    """A server in operator mode, and the service of ALPHA."""
    process = server(kind, config, folder)
    process.start()

    async def run() -> None:
        path = folder / "service.creds"
        path.write_text(creds(ALPHA.user(OTHER), OTHER))
        client = await nats.connect(process.client_url(), user_credentials=str(path), allow_reconnect=False)
        service = Service(client, decide)
        await service.start()
        try:
            await scenario(process.client_url(), service, folder)
        finally:
            await client.close()

    try:
        asyncio.run(run())
    finally:
        process.kill()


@pytest.mark.parametrize("kind", KINDS)
def test_an_accounts_own_callout(kind: str, tmp_path: Path) -> None:
    """Operator mode: the account's token says who the service's users are, and where it may put others."""
    template = {"subs": -1, "data": -1, "payload": -1}
    scope = {"kind": "user_scope", "key": SIGNING.public, "role": "r", "template": template}
    config = operator_conf(
        OPERATOR.account(ALPHA, authorization={"auth_users": [OTHER.public], "allowed_accounts": [BETA.public]}),
        OPERATOR.account(BETA, signing_keys=[scope]),
        OPERATOR.account(STRANGER),
    )

    def decide(question: dict[str, Any]) -> str | None:
        name, subject = question["nats"]["connect_opts"].get("name", ""), question["nats"]["user_nkey"]
        for_beta = {"type": "user", "issuer_account": BETA.public}
        granted: dict[str, Callable[[], str]] = {
            "alpha": lambda: answer(question, user(question, ALPHA), ALPHA),
            "beta": lambda: answer(question, user(question, BETA), ALPHA),
            "scoped": lambda: answer(question, SIGNING.sign(subject, for_beta, name="granted"), ALPHA),
            "unscoped": lambda: answer(question, user(question, SIGNING, issuer_account=BETA.public), ALPHA),
            "stranger": lambda: answer(question, user(question, STRANGER), ALPHA),
            "signed by another": lambda: answer(question, user(question, ALPHA), BETA),
            "for another": lambda: answer(question, user(question, BETA, issuer_account=ALPHA.public), ALPHA),
        }
        return granted[name]() if name in granted else answer(question, None, ALPHA, error="no")

    async def scenario(url: str, service: Service, folder: Path) -> None:
        path = folder / "sentinel.creds"
        path.write_text(creds(ALPHA.user(USER, pub={"deny": [">"]}, sub={"deny": [">"]}), USER))
        found = {}
        for name in ("alpha", "beta", "scoped", "unscoped", "stranger", "signed by another", "for another", "no"):
            found[name] = await who(url, user_credentials=str(path), name=name)
        expected = {"alpha": ALPHA, "beta": BETA, "scoped": BETA}
        assert found == {name: f"granted@{expected[name].public}" if name in expected else "" for name in found}
        question = service.questions[0]
        assert question["sub"] == ALPHA.public
        assert payload(question["nats"]["connect_opts"]["jwt"])["sub"] == USER.public
        count = len(service.questions)
        assert await who(url, user_credentials=str(folder / "service.creds")) == f"{OTHER.public}@{ALPHA.public}"
        assert len(service.questions) == count, "the service's own users are not asked about"
        beta = folder / "beta.creds"
        beta.write_text(creds(BETA.user(USER), USER))
        assert await who(url, user_credentials=str(beta)) == f"{USER.public}@{BETA.public}"
        assert len(service.questions) == count, "another account asks nobody"

    play(kind, tmp_path, config, decide, scenario)


@pytest.mark.parametrize("kind", KINDS)
def test_nobody_but_the_server_asks(kind: str, tmp_path: Path) -> None:
    """In the service's account, `$SYS.REQ.USER.AUTH` cannot be published to, whoever one is."""
    process = server(kind, CONFIG.replace("%NOBODY%", "app").replace("%ALLOWED%", ""), tmp_path)
    process.start()

    async def run() -> None:
        said: list[str] = []

        async def heard(error: Exception) -> None:
            said.append(str(error))

        client = await nats.connect(process.client_url(), user="auth", password="auth", error_cb=heard)
        await client.publish("$SYS.REQ.USER.AUTH", b"")
        async with asyncio.timeout(WAIT_S):
            while not said:  # its callback runs when it can
                await asyncio.sleep(0.01)
        assert "permissions violation" in said[0].lower()
        await client.close()

    try:
        asyncio.run(run())
    finally:
        process.kill()


def test_a_deleted_account_takes_its_guests_along(tmp_path: Path) -> None:
    resolver = f'{{ type: full, dir: "{tmp_path / "jwt"}", allow_delete: true }}'
    config = operator_conf(
        OPERATOR.account(ALPHA, authorization={"auth_users": [OTHER.public], "allowed_accounts": ["*"]}),
        OPERATOR.account(BETA),
        resolver=resolver,
    )

    async def scenario(url: str, service: Service, folder: Path) -> None:
        path, admin_path = folder / "sentinel.creds", folder / "admin.creds"
        path.write_text(creds(ALPHA.user(USER), USER))
        admin_path.write_text(creds(SYSTEM.user(OTHER), OTHER))
        guest = await nats.connect(url, user_credentials=str(path), allow_reconnect=False)
        admin = await nats.connect(url, user_credentials=str(admin_path), allow_reconnect=False)
        delete = OPERATOR.sign(OPERATOR.public, {"type": "generic", "accounts": [BETA.public]})
        await admin.request("$SYS.REQ.CLAIMS.DELETE", delete.encode(), timeout=WAIT_S)
        deadline = time.monotonic() + WAIT_S
        while not guest.is_closed:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        assert "account authentication expired" in str(guest.last_error).lower()
        await admin.close()

    play("eyotd", tmp_path, config, lambda question: answer(question, user(question, BETA), ALPHA), scenario)
