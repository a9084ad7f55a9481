"""Operator mode beside nats-server 2.14: the same configuration, tokens and clients, the same findings."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import nats
import nats.js.errors
import pytest
from nats.aio.client import Client

from support.links.leaf_pair import server
from support.servers.server_process import ServerProcess
from support.trust.claims import ALPHA, BETA, OPERATOR, OTHER, SIGNING, SYSTEM, USER, Key, creds, operator_conf

KINDS = ["eyotd", "2.14.6"]
WAIT_S = 30.0


class Door:
    """A server, and clients that come with tokens."""

    def __init__(self, process: ServerProcess, workdir: Path) -> None:
        self.process = process
        self._workdir = workdir
        self._clients: list[Client] = []
        self.said: dict[int, list[str]] = {}

    async def enter(self, token: str, key: Key = USER) -> Client:
        """A client that is in; nats.errors.Error if it is not let in."""
        path = self._workdir / f"{len(self._clients)}.creds"
        path.write_text(creds(token, key))
        said: list[str] = []

        async def heard(error: Exception) -> None:
            said.append(str(error))

        client = await nats.connect(
            self.process.client_url(), user_credentials=str(path), allow_reconnect=False, error_cb=heard
        )
        self._clients.append(client)
        self.said[id(client)] = said
        return client

    async def is_in(self, token: str, key: Key = USER) -> bool:
        try:
            await self.enter(token, key)
        except (nats.errors.Error, OSError):
            return False
        return True

    async def first_error(self, client: Client) -> str:
        """What the client was told first, in lower case: its callback runs when it can."""
        async with asyncio.timeout(WAIT_S):
            while not self.said[id(client)]:
                await asyncio.sleep(0.01)
        return self.said[id(client)][0].lower()

    async def thrown_out(self, client: Client) -> str:
        """What the client was told when it was closed, in lower case."""
        async with asyncio.timeout(WAIT_S):
            while not client.is_closed:
                await asyncio.sleep(0.02)
        return str(client.last_error).lower()

    async def system(self) -> Client:
        return await self.enter(SYSTEM.user(OTHER), OTHER)

    async def close(self) -> None:
        for client in self._clients:
            await client.close()


def play(kind: str, tmp_path: Path, config: str, scenario: Callable[[Door], Awaitable[Any]]) -> Any:
    """What the scenario finds at a server of this kind."""
    process = server(kind, config, tmp_path / kind)
    process.start()

    async def run() -> Any:
        door = Door(process, tmp_path / kind)
        try:
            return await scenario(door)
        finally:
            await door.close()

    try:
        return asyncio.run(run())
    finally:
        process.kill()


async def ask(client: Client, subject: str, payload: str = "") -> Any:
    """One request; the answer's JSON without what differs by server."""
    answer = json.loads((await client.request(subject, payload.encode(), timeout=WAIT_S)).data)
    answer.pop("server", None)
    return answer


@pytest.mark.parametrize("kind", KINDS)
def test_who_gets_in(kind: str, tmp_path: Path) -> None:
    now = int(time.time())
    scope = {
        "kind": "user_scope",
        "key": SIGNING.public,
        "role": "r",
        "template": {"subs": -1, "data": -1, "payload": 16},
    }
    config = operator_conf(
        OPERATOR.account(ALPHA, signing_keys=[scope], revocations={OTHER.public: now}),
        OPERATOR.account(BETA, exp=now - 5),
    )

    async def scenario(door: Door) -> None:
        assert await door.is_in(ALPHA.user(USER))
        assert await door.is_in(ALPHA.user(USER, src=["127.0.0.0/8"], sub={"allow": ["_INBOX.>", "a b"]}))
        assert await door.is_in(SIGNING.user(USER, scoped=True, issuer_account=ALPHA.public))
        assert await door.is_in(ALPHA.user(USER, bearer_token=True), OTHER)
        for token in (
            ALPHA.user(USER, src=["10.0.0.0/8"]),
            ALPHA.user(USER, src=["127.0.0.1"]),
            ALPHA.user(USER, src=["127.0.0.0/8", "127.0.0.1"]),
            ALPHA.user(USER, times_location="Nowhere/Here"),
            ALPHA.user(USER, times=[{"start": "", "end": "23:59:59"}, {"start": "00:00:00", "end": "23:59:59"}]),
            ALPHA.user(USER, pub={"allow": ["a b"]}),
            ALPHA.user(USER, sub={"allow": ["a b c"]}),
            ALPHA.user(USER, sub={"deny": ["a..b"]}),
            ALPHA.user(USER, claims={"exp": now - 1}),
            SIGNING.user(USER, issuer_account=ALPHA.public),
            BETA.user(USER),
        ):
            assert not await door.is_in(token)
        assert not await door.is_in(ALPHA.user(OTHER, claims={"iat": now - 1}), OTHER)
        scoped = await door.enter(SIGNING.user(USER, scoped=True, issuer_account=ALPHA.public))
        await scoped.publish("a", bytes(17))
        assert "maximum payload violation" in await door.thrown_out(scoped)

    play(kind, tmp_path, config, scenario)


@pytest.mark.parametrize("kind", KINDS)
def test_who_loses_a_queue_is_told_which(kind: str, tmp_path: Path) -> None:
    """New default permissions of an account end subscriptions: the error names subject, queue and sid."""

    async def scenario(door: Door) -> None:
        admin = await door.system()
        client = await door.enter(ALPHA.user(USER))
        await client.subscribe("work", "crew")
        await client.flush()
        token = OPERATOR.account(ALPHA, default_permissions={"sub": {"deny": ["work"]}})
        assert (await ask(admin, "$SYS.REQ.CLAIMS.UPDATE", token))["data"]["code"] == 200
        error = await door.first_error(client)
        assert 'permissions violation for subscription to "work" using queue "crew" (sid "1")' in error

    resolver = '{type: full, dir: "%WORKDIR%/jwt"}'
    play(kind, tmp_path, operator_conf(OPERATOR.account(ALPHA), resolver=resolver), scenario)


@pytest.mark.parametrize("kind", KINDS)
def test_a_value_in_a_template_is_one_part_of_a_subject(kind: str, tmp_path: Path) -> None:
    """A name or tag with a space is not a queue's name, and a tag that is missing is not an empty one."""
    allowed = ["{{name()}}", "x.{{name()}}", "pre-{{tag(none)}}", "u.{{tag(team)}}", "_INBOX.>"]
    keys = [Key("A", 30), Key("A", 31), Key("A", 32)]
    templates: list[dict[str, Any]] = [
        {"sub": {"allow": allowed}},
        {"pub": {"deny": ["{{name()}}"]}},
        {"pub": {"deny": ["pre-{{tag(none)}}"]}},
    ]
    scopes = [
        {
            "kind": "user_scope",
            "key": key.public,
            "role": "r",
            "template": {"subs": -1, "data": -1, "payload": -1} | one,
        }
        for key, one in zip(keys, templates, strict=True)
    ]
    config = operator_conf(OPERATOR.account(ALPHA, signing_keys=scopes))

    async def scenario(door: Door) -> None:
        def token(key: Key, name: str) -> str:
            return key.user(
                USER, claims={"name": name}, scoped=True, issuer_account=ALPHA.public, tags=["team:a b", "team:c"]
            )

        client = await door.enter(token(keys[0], "x y"))
        permissions = (await ask(client, "$SYS.REQ.USER.INFO"))["data"]["permissions"]
        assert sorted(permissions["subscribe"]["allow"]) == ["_INBOX.>", "u.c"]  # nats-server keeps no order
        assert await door.is_in(token(keys[1], "xy"))
        assert not await door.is_in(token(keys[1], "x y"))
        assert not await door.is_in(token(keys[2], "xy"))

    play(kind, tmp_path, config, scenario)


@pytest.mark.parametrize("kind", KINDS)
def test_exports_imports_and_permissions(kind: str, tmp_path: Path) -> None:
    activation = ALPHA.sign(BETA.public, {"type": "activation", "kind": "stream", "subject": "s.>"})
    exports = [
        {"type": "stream", "subject": "s.>", "token_req": True},
        {"type": "service", "subject": "double"},
    ]
    imports = [
        {"type": "stream", "subject": "s.a", "account": ALPHA.public, "token": activation, "local_subject": "here"},
        {"type": "service", "subject": "double", "account": ALPHA.public, "local_subject": "twice"},
    ]
    config = operator_conf(OPERATOR.account(ALPHA, exports=exports), OPERATOR.account(BETA, imports=imports))

    async def scenario(door: Door) -> None:
        exporter = await door.enter(ALPHA.user(USER))
        importer = await door.enter(BETA.user(USER, pub={"allow": ["twice"]}))

        async def double(msg: Any) -> None:
            await msg.respond(msg.data * 2)

        await exporter.subscribe("double", cb=double)
        await exporter.flush()
        assert (await importer.request("twice", b"ab", timeout=WAIT_S)).data == b"abab"
        sub = await importer.subscribe("here")
        await importer.flush()
        await exporter.publish("s.a", b"news")
        assert (await sub.next_msg(timeout=WAIT_S)).subject == "here"
        await importer.publish("else", b"")
        await importer.flush()
        assert "permissions violation for publish" in await door.first_error(importer)
        info = await ask(exporter, "$SYS.REQ.USER.INFO")
        assert (info["data"]["user"], info["data"]["account"]) == (USER.public, ALPHA.public)
        assert info["data"]["user_name"] == "somebody"

    play(kind, tmp_path, config, scenario)


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_change_while_clients_are_connected(kind: str, tmp_path: Path) -> None:
    now = int(time.time())
    resolver = f'{{ type: full, dir: "{tmp_path / kind / "jwt"}", allow_delete: true }}'
    config = "jetstream { store_dir: %WORKDIR%/store }\n" + operator_conf(OPERATOR.account(ALPHA), resolver=resolver)
    update = f"$SYS.REQ.ACCOUNT.{ALPHA.public}.CLAIMS.UPDATE"

    async def scenario(door: Door) -> None:
        admin = await door.system()
        client = await door.enter(ALPHA.user(USER))
        assert (await ask(client, "$JS.API.INFO"))["error"]["err_code"] == 10039
        limits = {"disk_storage": -1, "mem_storage": -1}
        answer = await ask(admin, update, OPERATOR.account(ALPHA, limits=limits))
        assert answer == {"data": {"account": ALPHA.public, "code": 200, "message": "jwt updated"}}
        await client.jetstream().add_stream(name="S", subjects=["s"])
        assert (await client.jetstream().publish("s", b"kept")).seq == 1

        assert not await door.is_in(BETA.user(USER))
        await ask(admin, "$SYS.REQ.CLAIMS.UPDATE", OPERATOR.account(BETA))
        second = await door.enter(BETA.user(OTHER, claims={"iat": now}), OTHER)
        listed = (await ask(admin, "$SYS.REQ.CLAIMS.LIST"))["data"]
        assert sorted(listed) == sorted([SYSTEM.public, ALPHA.public, BETA.public])
        stored = await admin.request(f"$SYS.REQ.ACCOUNT.{BETA.public}.CLAIMS.LOOKUP", b"", timeout=WAIT_S)
        assert stored.data.decode().count(".") == 2

        assert (await ask(admin, update, OPERATOR.account(BETA)))["error"]["code"] == 500
        await ask(admin, "$SYS.REQ.CLAIMS.UPDATE", OPERATOR.account(BETA, revocations={OTHER.public: now}))
        assert "user authentication revoked" in await door.thrown_out(second)
        third = await door.enter(BETA.user(USER))
        delete = OPERATOR.sign(OPERATOR.public, {"type": "generic", "accounts": [BETA.public]})
        answer = await ask(admin, "$SYS.REQ.CLAIMS.DELETE", delete)
        assert answer["data"]["message"] == "deleted 1 accounts"
        assert await ask(admin, "$SYS.REQ.CLAIMS.DELETE", delete) == answer  # it is gone already
        assert "account authentication expired" in await door.thrown_out(third)
        assert not await door.is_in(BETA.user(USER))
        assert client.is_connected

    play(kind, tmp_path, config, scenario)


@pytest.mark.parametrize("kind", KINDS)
def test_what_monitoring_and_events_say_of_tokens(kind: str, tmp_path: Path) -> None:
    async def scenario(door: Door) -> None:
        admin = await door.system()
        events = await admin.subscribe(f"$SYS.ACCOUNT.{ALPHA.public}.CONNECT")
        await admin.flush()
        token = ALPHA.user(USER, tags=["team:a"])
        client = await door.enter(token)
        came = json.loads((await events.next_msg(timeout=WAIT_S)).data)["client"]
        row = door.process.monitor(f"/connz?auth=1&acc={ALPHA.public}")["connections"][0]
        name = f"account-{ALPHA.public[1:5]}"
        assert (came["user"], came["issuer_key"], came["name_tag"]) == (USER.public, ALPHA.public, name)
        assert came["jwt"] == token
        assert (row["authorized_user"], row["jwt"], row["issuer_key"]) == (USER.public, token, ALPHA.public)
        assert (row["account"], row["name_tag"], row["tags"]) == (ALPHA.public, name, ["team:a"])
        listed = door.process.monitor(f"/subsz?subs=1&acc={ALPHA.public}")["subscriptions_list"]
        assert {(one["account"], one["account_tag"]) for one in listed} == {(ALPHA.public, name)}
        detail = door.process.monitor(f"/accountz?acc={ALPHA.public}")["account_detail"]
        assert (detail["account_name"], detail["name_tag"], detail["expired"]) == (ALPHA.public, name, False)
        assert (detail["jwt"], detail["issuer_key"]) == (account, OPERATOR.public)
        assert (detail["decoded_jwt"]["sub"], detail["revoked_user"].keys()) == (ALPHA.public, {OTHER.public})
        gone = await admin.subscribe(f"$SYS.ACCOUNT.{ALPHA.public}.DISCONNECT")
        await admin.flush()
        await client.close()
        went = json.loads((await gone.next_msg(timeout=WAIT_S)).data)["client"]
        assert {key: went.get(key) for key in ("user", "issuer_key", "name_tag", "jwt", "tags")} == {
            key: came[key] for key in ("user", "issuer_key", "name_tag", "jwt", "tags")
        }
        closed: list[Any] = []
        while not closed:  # the row follows the event
            closed = door.process.monitor(f"/connz?auth=1&state=closed&acc={ALPHA.public}")["connections"]
        assert {key: closed[0].get(key) for key in shown} == {key: row[key] for key in shown}

    shown = ("authorized_user", "account", "name_tag", "jwt", "issuer_key", "tags")
    account = OPERATOR.account(ALPHA, revocations={OTHER.public: 1_700_000_000})
    play(kind, tmp_path, operator_conf(account), scenario)


@pytest.mark.parametrize("kind", KINDS)
def test_limits_of_a_tier(kind: str, tmp_path: Path) -> None:
    limits = {"tiered_limits": {"R1": {"disk_storage": 1 << 20, "streams": 1, "consumer": -1}}}
    config = "jetstream { store_dir: %WORKDIR%/store }\n" + operator_conf(OPERATOR.account(ALPHA, limits=limits))

    async def scenario(door: Door) -> None:
        client = await door.enter(ALPHA.user(USER))
        await client.jetstream().add_stream(name="S", subjects=["s"])
        info = await ask(client, "$JS.API.INFO")
        assert (info["limits"]["max_storage"], info["tiers"]["R1"]["limits"]["max_storage"]) == (0, 1 << 20)
        assert (info["streams"], info["tiers"]["R1"]["streams"]) == (1, 1)
        with pytest.raises(nats.js.errors.BadRequestError, match="maximum number of streams reached"):
            await client.jetstream().add_stream(name="T", subjects=["t"])

    play(kind, tmp_path, config, scenario)


@pytest.mark.parametrize("kind", KINDS)
def test_an_account_expires_under_its_clients(kind: str, tmp_path: Path) -> None:
    config = operator_conf(OPERATOR.account(ALPHA, exp=int(time.time()) + 6), OPERATOR.account(BETA))

    async def scenario(door: Door) -> None:
        client = await door.enter(ALPHA.user(USER))
        short = await door.enter(BETA.user(USER, claims={"exp": int(time.time()) + 2}))
        assert "user authentication expired" in await door.thrown_out(short)
        assert "account authentication expired" in await door.thrown_out(client)
        assert not await door.is_in(ALPHA.user(USER))
        assert door.process.monitor(f"/accountz?acc={ALPHA.public}")["account_detail"]["expired"]
        assert not door.process.monitor(f"/accountz?acc={BETA.public}")["account_detail"]["expired"]

    play(kind, tmp_path, config, scenario)


def test_accounts_of_a_directory_outlive_the_server(tmp_path: Path) -> None:
    resolver = '{ type: full, dir: "%WORKDIR%/jwt" }'
    process = server("eyotd", operator_conf(resolver=resolver), tmp_path / "eyotd")
    process.start()

    async def first() -> None:
        door = Door(process, tmp_path)
        admin = await door.system()
        await ask(admin, "$SYS.REQ.CLAIMS.UPDATE", OPERATOR.account(ALPHA))
        await door.close()

    async def second() -> bool:
        door = Door(process, tmp_path)
        try:
            return await door.is_in(ALPHA.user(USER))
        finally:
            await door.close()

    try:
        asyncio.run(first())
        process.kill()
        process.start()
        assert asyncio.run(second())
    finally:
        process.kill()


async def push(admin: Client, token: str) -> str:
    """What the server says of an account's token."""
    answer = await ask(admin, "$SYS.REQ.CLAIMS.UPDATE", token)
    return str(answer.get("error", {}).get("description", "") or answer["data"]["message"])


def granted(subject: str, kind: str = "stream", **claims: Any) -> str:
    """ALPHA's activation of `subject` for BETA."""
    return ALPHA.sign(BETA.public, {"type": "activation", "kind": kind, "subject": subject}, **claims)


def private_exporter(**revocations: dict[str, int]) -> str:
    """ALPHA with three private exports; `revocations` by the first letter of the export."""
    exports = [
        {"type": kind, "subject": subject, "token_req": True, "revocations": revocations.get(subject[0], {})}
        for kind, subject in (("stream", "p.>"), ("stream", "q.>"), ("service", "r.>"))
    ]
    return OPERATOR.account(ALPHA, exports=exports)


def private_importer(*imports: tuple[str, str, str]) -> str:
    """BETA with imports: kind, subject and activation ("" for none) of each."""
    wanted = [
        {"type": kind, "subject": subject, "account": ALPHA.public} | ({"token": token} if token else {})
        for kind, subject, token in imports
    ]
    return OPERATOR.account(BETA, imports=wanted)


async def heard_by_importer(door: Door) -> set[str]:
    """Which of ALPHA's subjects BETA hears and reaches."""
    speaker, listener = await door.enter(ALPHA.user(USER)), await door.enter(BETA.user(USER))
    got: set[str] = set()

    async def hear(msg: Any) -> None:
        got.add(msg.subject)

    async def asked(msg: Any) -> None:
        got.add(f"asked {msg.subject}")

    await listener.subscribe("p.*", cb=hear)
    await listener.subscribe("q.*", cb=hear)
    await speaker.subscribe("r.*", cb=asked)
    end = await listener.subscribe("end")
    await listener.flush()
    await speaker.flush()
    for subject in ("p.good", "p.secret", "q.good"):
        await speaker.publish(subject, b"")
    await speaker.flush()
    for subject in ("r.good", "r.secret"):
        await listener.publish(subject, b"")
    await listener.publish("end", b"")
    await end.next_msg(timeout=WAIT_S)
    await speaker.flush()
    await speaker.close()
    await listener.close()
    return got


@pytest.mark.parametrize("kind", KINDS)
def test_an_activation_opens_its_own_import_alone(kind: str, tmp_path: Path) -> None:
    resolver = f'{{ type: full, dir: "{tmp_path / kind / "jwt"}", allow_delete: true }}'
    good = ("stream", "p.good", granted("p.good"))
    config = operator_conf(private_exporter(), private_importer(good), resolver=resolver)

    async def scenario(door: Door) -> None:
        admin = await door.system()
        assert await heard_by_importer(door) == {"p.good"}
        refused = "activation token import subject"
        for subject in ("p.secret", "p.>"):
            said = await push(admin, private_importer(good, ("stream", subject, granted("p.good"))))
            assert refused in said
            assert "doesn't match import" in said
        assert refused in await push(admin, private_importer(("service", "r.secret", granted("r.good", "service"))))
        assert "mismatch between token import type" in await push(
            admin, private_importer(("stream", "p.good", granted("p.good", "service")))
        )
        assert await heard_by_importer(door) == {"p.good"}
        await push(admin, private_importer(good, ("stream", "p.secret", "")))
        assert await heard_by_importer(door) == {"p.good"}, "no token, no import"

    play(kind, tmp_path, config, scenario)


@pytest.mark.parametrize("kind", KINDS)
def test_an_activation_that_has_expired_or_was_revoked_closes_its_import_alone(kind: str, tmp_path: Path) -> None:
    resolver = f'{{ type: full, dir: "{tmp_path / kind / "jwt"}", allow_delete: true }}'
    now = int(time.time())
    good = ("stream", "p.good", granted("p.good"))
    config = operator_conf(private_exporter(), private_importer(good), resolver=resolver)

    async def scenario(door: Door) -> None:
        admin = await door.system()
        await push(admin, private_importer(good, ("stream", "p.secret", granted("p.secret", exp=now - 5))))
        assert await heard_by_importer(door) == {"p.good"}, "an activation that has expired is none"
        await push(admin, private_importer(good, ("stream", "q.good", granted("q.good", iat=now - 9))))
        assert await heard_by_importer(door) == {"p.good", "q.good"}
        await push(admin, private_exporter(q={BETA.public: now - 5}))
        assert await heard_by_importer(door) == {"p.good"}, "what was revoked is gone, the rest stays"
        await push(admin, private_exporter())
        assert await heard_by_importer(door) == {"p.good", "q.good"}
        services = (("service", "r.good", granted("r.good", "service")), ("service", "r.secret", ""))
        await push(admin, private_importer(*services))
        assert await heard_by_importer(door) == {"asked r.good"}

    play(kind, tmp_path, config, scenario)


@pytest.mark.parametrize("kind", KINDS)
def test_answers_about_tokens_have_nats_servers_members(kind: str, tmp_path: Path) -> None:
    resolver = f'{{ type: full, dir: "{tmp_path / kind / "jwt"}" }}'

    async def scenario(door: Door) -> None:
        admin = await door.system()
        listed = await admin.request("$SYS.REQ.CLAIMS.LIST", b"", timeout=WAIT_S)
        assert list(json.loads(listed.data)) == ["data", "server"]
        for signer in (OPERATOR, ALPHA):
            delete = signer.sign(signer.public, {"type": "generic", "accounts": [ALPHA.public]})
            assert (await ask(admin, "$SYS.REQ.CLAIMS.DELETE", delete))["error"] == {
                "code": 500,
                "description": f"delete accounts request by {signer.public} failed - "
                "delete must be enabled in server config",
            }
        rich = [{"name": name, "type": "stream", "subject": name} for name in ("a", "b")]
        poor = OPERATOR.account(ALPHA, exports=rich, limits={"exports": 1})
        assert (await ask(admin, "$SYS.REQ.CLAIMS.UPDATE", poor))["error"]["description"] == (
            "jwt validation failed - validation errors: [the account contains more exports than allowed by the operator]"
        )
        missing = await admin.request(f"$SYS.REQ.ACCOUNT.{BETA.public}.CLAIMS.LOOKUP", b"", timeout=WAIT_S)
        assert missing.data == b""

    play(kind, tmp_path, operator_conf(OPERATOR.account(ALPHA), resolver=resolver), scenario)


@pytest.mark.parametrize("kind", KINDS)
def test_a_login_ends_with_the_times_of_day_that_its_token_allows(kind: str, tmp_path: Path) -> None:
    async def scenario(door: Door) -> None:
        limits = {"times": [{"start": "00:00:00", "end": "23:59:59"}], "times_location": "UTC"}
        client = await door.enter(ALPHA.user(USER, **limits))
        told = (await ask(client, "$SYS.REQ.USER.INFO"))["data"]
        assert 0 < told["expires"] < 86_400 * 10**9
        assert told["expires"] % 10**9 == 0
        forever = await door.enter(ALPHA.user(USER))
        assert "expires" not in (await ask(forever, "$SYS.REQ.USER.INFO"))["data"]

    play(kind, tmp_path, operator_conf(OPERATOR.account(ALPHA)), scenario)


@pytest.mark.parametrize("kind", KINDS)
def test_who_asks_is_told_with_token_and_issuer(kind: str, tmp_path: Path) -> None:
    """To the exporter of a shared service: in the header of the request, and in the measurement of its latency."""
    latency = {"sampling": 100, "results": "lat"}
    exports = [{"name": "svc", "subject": "svc", "type": "service", "service_latency": latency}]
    imports = [{"name": "svc", "subject": "svc", "account": ALPHA.public, "type": "service", "share": True}]
    config = operator_conf(OPERATOR.account(ALPHA, exports=exports), OPERATOR.account(BETA, imports=imports))
    token = BETA.user(OTHER, tags=["a:b"])

    async def scenario(door: Door) -> Any:
        service, client = await door.enter(ALPHA.user(USER)), await door.enter(token, OTHER)
        asked: list[Any] = []

        async def answer(message: Any) -> None:
            asked.append(json.loads(message.headers["Nats-Request-Info"]))
            await message.respond(b"ok")

        await service.subscribe("svc", cb=answer)
        measured = await service.subscribe("lat")
        await service.flush()
        await client.request("svc", b"", timeout=WAIT_S)
        metric = json.loads((await measured.next_msg(timeout=WAIT_S)).data)
        shared = ("acc", "user", "jwt", "issuer_key", "name_tag", "tags", "kind", "client_type")
        return [{name: told.get(name) for name in shared} for told in (asked[0], metric["requestor"])]

    told = play(kind, tmp_path, config, scenario)
    expected = {
        "acc": BETA.public,
        "user": OTHER.public,
        "jwt": token,
        "issuer_key": BETA.public,
        "name_tag": "somebody",
        "tags": ["a:b"],
        "kind": "Client",
        "client_type": "nats",
    }
    assert told == [expected, expected]


def test_a_memory_resolver_takes_no_updates(tmp_path: Path) -> None:
    """What would be gone at the next start is refused. (nats-server takes an update by the account's name, and forgets it.)"""
    config = operator_conf(OPERATOR.account(ALPHA))

    async def scenario(door: Door) -> None:
        admin = await door.system()
        revoked = OPERATOR.account(ALPHA, revocations={"*": int(time.time()) + 60})
        answer = await ask(admin, f"$SYS.REQ.ACCOUNT.{ALPHA.public}.CLAIMS.UPDATE", revoked)
        assert "store operation not supported for MEMORY resolver" in answer["error"]["description"]
        assert await door.is_in(ALPHA.user(USER)), "nothing has changed"

    play("eyotd", tmp_path, config, scenario)


@pytest.mark.parametrize("kind", KINDS)
def test_nobody_takes_a_push_for_a_memory_resolver(kind: str, tmp_path: Path) -> None:
    async def scenario(door: Door) -> None:
        admin = await door.system()
        for subject in (
            "$SYS.REQ.CLAIMS.UPDATE",
            "$SYS.REQ.CLAIMS.LIST",
            "$SYS.REQ.CLAIMS.PACK",
            "$SYS.REQ.CLAIMS.DELETE",
        ):
            with pytest.raises(nats.errors.NoRespondersError):
                await admin.request(subject, OPERATOR.account(ALPHA).encode(), timeout=WAIT_S)

    play(kind, tmp_path, operator_conf(OPERATOR.account(ALPHA)), scenario)
