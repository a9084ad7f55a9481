"""Accounts that are fetched when they are needed, beside nats-server: `resolver: URL(...)`, and `type: cache` that asks other servers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import nats
import nats.errors
import pytest
from nats.aio.client import Client

from support.links.leaf_pair import server
from support.trust.certificates import Authority
from support.trust.claims import ALPHA, BETA, OPERATOR, OTHER, SYSTEM, USER, Key, creds, operator_conf, operator_token

KINDS = ["eyotd", "2.14.6"]
WAIT_S = 30.0


class AccountServer:
    """An account server: `/jwt/v1/accounts/<account>`."""

    def __init__(self) -> None:
        self.tokens: dict[str, str] = {}
        self.asked: list[str] = []


@contextmanager
def account_server(tls: ssl.SSLContext | None = None) -> Iterator[tuple[AccountServer, str]]:
    known = AccountServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.rpartition("/")[2]
            known.asked.append(name)
            body = known.tokens.get(name, "").encode()
            self.send_response(200 if body or not name else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        httpd.socket = tls.wrap_socket(httpd.socket, server_side=True)
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    try:
        yield known, f"http{'s' * (tls is not None)}://127.0.0.1:{httpd.server_port}/jwt/v1/accounts/"
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()


async def enter(url: str, token: str, folder: Path, key: Key = USER) -> Client | None:
    path = folder / "some.creds"
    path.write_text(creds(token, key))
    try:
        return await nats.connect(url, user_credentials=str(path), allow_reconnect=False, connect_timeout=WAIT_S)
    except (nats.errors.Error, OSError):
        return None


@pytest.mark.parametrize("kind", KINDS)
def test_an_account_server(kind: str, tmp_path: Path) -> None:
    exports = [{"type": "service", "subject": "double"}]
    imports = [{"type": "service", "subject": "double", "account": ALPHA.public}]
    with account_server() as (known, address):
        known.tokens = {
            SYSTEM.public: OPERATOR.account(SYSTEM),
            ALPHA.public: OPERATOR.account(ALPHA, exports=exports),
            BETA.public: OPERATOR.account(BETA, imports=imports),
        }
        process = server(kind, f"operator: {operator_token()}\nresolver: URL({address})\n", tmp_path)
        process.start()

        async def run() -> None:
            url = process.client_url()
            asker = await enter(url, BETA.user(USER), tmp_path)
            assert asker is not None
            responder = await enter(url, ALPHA.user(OTHER), tmp_path, OTHER)
            assert responder is not None, "the account it imports from is fetched with it"

            async def double(msg: Any) -> None:
                await msg.respond(msg.data * 2)

            await responder.subscribe("double", cb=double)
            await responder.flush()
            assert (await asker.request("double", b"ab", timeout=WAIT_S)).data == b"abab"
            stranger = Key("A", 77)
            assert await enter(url, stranger.user(USER), tmp_path) is None, "an account that nobody knows"
            known.tokens[stranger.public] = Key("O", 99).account(stranger)
            assert await enter(url, stranger.user(USER), tmp_path) is None, "an account of another operator"
            known.tokens[stranger.public] = OPERATOR.account(stranger)
            late = await enter(url, stranger.user(USER), tmp_path)
            assert late is not None, "it is asked for again"
            for client in (asker, responder, late):
                await client.close()

        try:
            asyncio.run(run())
        finally:
            process.kill()


@pytest.mark.parametrize("kind", KINDS)
def test_an_account_server_across_a_reload(kind: str, tmp_path: Path) -> None:
    """Accounts that were fetched before are still there, connections stay, and unknown accounts are fetched as before."""
    with account_server() as (known, address):
        known.tokens = {each.public: OPERATOR.account(each) for each in (SYSTEM, ALPHA, BETA)}
        config = f"operator: {operator_token()}\nresolver: URL({address})\n"
        process = server(kind, config, tmp_path)
        process.start()

        async def run() -> None:
            url = process.client_url()
            before = await enter(url, ALPHA.user(USER), tmp_path)
            assert before is not None
            process.set_config(config + "max_payload: 2048\n")
            process.signal(signal.SIGHUP)
            await asyncio.to_thread(process.wait_log, "Reloaded server configuration", WAIT_S)
            inbox = await before.subscribe("still.here")
            await before.publish("still.here", b"yes")
            assert (await inbox.next_msg(timeout=WAIT_S)).data == b"yes"
            again = await enter(url, ALPHA.user(OTHER), tmp_path, OTHER)
            assert again is not None, "an account that was fetched before"
            assert again.max_payload == 2048
            late = await enter(url, BETA.user(USER), tmp_path)
            assert late is not None, "an account that is fetched after the reload"
            for client in (before, again, late):
                await client.close()

        try:
            asyncio.run(run())
        finally:
            process.kill()


def https_server(authority: Authority, *, asks: bool) -> ssl.SSLContext:
    """The context of an account server; `asks`: it takes clients with a certificate of the authority alone."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("accounts"))
    if asks:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority.ca_file)
    return context


@pytest.mark.parametrize("asks", [False, True], ids=["", "with client certificates"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_account_server_over_https(kind: str, asks: bool, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    with account_server(https_server(authority, asks=asks)) as (known, address):
        known.tokens = {each.public: OPERATOR.account(each) for each in (SYSTEM, ALPHA)}
        certificate, key = authority.issue("server")
        own = f', cert_file: "{certificate}", key_file: "{key}"' if asks else ""
        tls = f'resolver_tls {{ ca_file: "{authority.ca_file}"{own} }}\n'
        process = server(kind, f"operator: {operator_token()}\nresolver: URL({address})\n{tls}", tmp_path)
        process.start()

        async def run() -> None:
            client = await enter(process.client_url(), ALPHA.user(USER), tmp_path)
            assert client is not None
            await client.close()

        try:
            asyncio.run(run())
            assert ALPHA.public in known.asked
        finally:
            process.kill()


@pytest.mark.parametrize("lacks", ["the authority", "the right authority", "a certificate of its own"])
def test_an_account_server_over_https_that_cannot_be_trusted(lacks: str, tmp_path: Path) -> None:
    """It is asked for nothing, and the start is refused with the reason."""
    authority = Authority(tmp_path / "ca")
    with account_server(https_server(authority, asks=lacks == "a certificate of its own")) as (known, address):
        known.tokens = {each.public: OPERATOR.account(each) for each in (SYSTEM, ALPHA)}
        another = Authority(tmp_path / "another", "Another CA").ca_file
        ca_file = another if lacks == "the right authority" else authority.ca_file
        tls = "" if lacks == "the authority" else f'resolver_tls {{ ca_file: "{ca_file}" }}\n'
        process = server("eyotd", f"operator: {operator_token()}\nresolver: URL({address})\n{tls}", tmp_path)
        # The server hangs up on those without a certificate: the alert may or may not be read before that.
        hung_up = "certificate.required|EOF occurred|reset by peer"
        reason = hung_up if lacks == "a certificate of its own" else "certificate verify failed"
        with pytest.raises(RuntimeError, match=rf"(?is)could not fetch.*({reason})"):
            process.start()
        assert known.asked == []


def test_an_account_server_that_is_down(tmp_path: Path) -> None:
    process = server("eyotd", f"operator: {operator_token()}\nresolver: URL(http://127.0.0.1:1/jwt/)\n", tmp_path)
    with pytest.raises(RuntimeError, match=r"could not fetch"):
        process.start()


HUB = 'leafnodes { listen: "127.0.0.1:%LEAF_PORT%", no_advertise: true }\n'


class Learning:
    """A leaf node with a cache, whose system account is linked to a hub that has ALPHA and BETA."""

    def __init__(self, hub_kind: str, folder: Path, cache: str) -> None:
        for name in ("hub", "leaf"):
            (folder / name).mkdir()
        self.folder = folder / "leaf"
        self.jwts = folder / "leaf" / "jwt"
        full = f'{{ type: full, dir: "{folder}/hub/jwt" }}'
        accounts = [OPERATOR.account(each) for each in (ALPHA, BETA)]
        self.hub = server(hub_kind, HUB + operator_conf(*accounts, resolver=full), folder / "hub")
        self.hub.start()
        secret = self.folder / "sys.creds"
        secret.write_text(creds(SYSTEM.user(OTHER), OTHER))
        remote = (
            f'{{ url: "nats://127.0.0.1:{self.hub.leaf_port}", account: {SYSTEM.public}, credentials: "{secret}" }}'
        )
        self.leaf = server(
            "eyotd",
            f"leafnodes {{ reconnect: 1, remotes: [{remote}] }}\n"
            + operator_conf(resolver=f'{{ type: cache, dir: "{self.jwts}", {cache} }}'),
            self.folder,
        )

    def __enter__(self) -> Self:
        self.leaf.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.leaf.kill()
        self.hub.kill()

    def is_in(self, account: Key) -> bool:
        """Whether a user of it may enter."""

        async def play() -> bool:
            client = await enter(self.leaf.client_url(), account.user(USER), self.folder)
            if client is not None:
                await client.close()
            return client is not None

        return asyncio.run(play())

    def until_in(self, account: Key) -> None:
        deadline = time.monotonic() + WAIT_S
        while not self.is_in(account):
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def file_of(self, account: Key) -> Path:
        return self.jwts / f"{account.public}.jwt"

    def alone(self) -> None:
        """Start the leaf node again, without the hub."""
        self.hub.kill()
        self.leaf.kill()
        self.leaf.start()


@pytest.mark.parametrize("hub_kind", KINDS)
def test_a_cache_asks_the_hub(hub_kind: str, tmp_path: Path) -> None:
    """A leaf node whose system account is linked to the hub's learns an account when somebody of it comes, and keeps it."""
    with Learning(hub_kind, tmp_path, 'ttl: "1h"') as learning:
        learning.until_in(ALPHA)
        assert learning.file_of(ALPHA).exists()
        learning.alone()
        assert learning.is_in(ALPHA), "what is cached serves without the hub"
        assert not learning.is_in(BETA), "nobody of it had come"


def test_a_cache_forgets_what_is_older_than_its_ttl(tmp_path: Path) -> None:
    with Learning("eyotd", tmp_path, 'ttl: "1h"') as learning:
        learning.until_in(ALPHA)
        learning.until_in(BETA)
        old = time.time() - 3700
        os.utime(learning.file_of(ALPHA), (old, old))
        learning.alone()
        assert not learning.file_of(ALPHA).exists()
        assert not learning.is_in(ALPHA)
        assert learning.is_in(BETA)


def test_a_cache_keeps_its_limit(tmp_path: Path) -> None:
    """The account that was learned first makes room, and is learned again when somebody of it comes; the system account stays."""
    with Learning("eyotd", tmp_path, "limit: 2") as learning:
        for account, evicted in ((ALPHA, BETA), (BETA, ALPHA), (ALPHA, BETA)):
            learning.until_in(account)
            assert learning.file_of(account).exists()
            assert not learning.file_of(evicted).exists()
            assert learning.file_of(SYSTEM).exists()
            learning.leaf.kill()  # what is in use stays in memory
            learning.leaf.start()
            assert learning.file_of(account).exists(), "a start evicts nobody"
        learning.alone()
        assert learning.is_in(ALPHA)
        assert not learning.is_in(BETA)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_cache_answers(kind: str, tmp_path: Path) -> None:
    """It takes updates of accounts that it has learned, and leaves questions for all accounts to full resolvers."""
    resolver = f'{{ type: cache, dir: "{tmp_path}/jwt" }}'
    process = server(kind, operator_conf(OPERATOR.account(ALPHA), resolver=resolver), tmp_path)
    process.start()

    async def answer(admin: Client, subject: str, payload: str = "") -> Any:
        try:
            told = json.loads((await admin.request(subject, payload.encode(), timeout=WAIT_S)).data)
        except nats.errors.NoRespondersError:
            return "no responders"
        return told.get("data") or told["error"]

    async def run() -> None:
        admin = await enter(process.client_url(), SYSTEM.user(OTHER), tmp_path, OTHER)
        user = await enter(process.client_url(), ALPHA.user(USER), tmp_path)
        assert admin is not None
        assert user is not None
        by_name = f"$SYS.REQ.ACCOUNT.{ALPHA.public}.CLAIMS.UPDATE"
        updated = {"account": ALPHA.public, "code": 200, "message": "jwt updated cache"}
        assert await answer(admin, "$SYS.REQ.CLAIMS.UPDATE", OPERATOR.account(ALPHA)) == updated
        assert await answer(admin, by_name, OPERATOR.account(ALPHA)) == updated
        skipped = {"account": BETA.public, "code": 200, "message": "jwt update cache skipped"}
        assert await answer(admin, "$SYS.REQ.CLAIMS.UPDATE", OPERATOR.account(BETA)) == skipped
        refused = await answer(admin, by_name, OPERATOR.account(BETA))
        assert (refused["code"], refused["account"]) == (500, ALPHA.public)
        assert refused["description"].startswith("jwt update cache resulted in error - ")
        assert sorted(await answer(admin, "$SYS.REQ.CLAIMS.LIST")) == sorted([SYSTEM.public, ALPHA.public])
        assert await answer(admin, "$SYS.REQ.CLAIMS.PACK") == "no responders"
        assert await answer(admin, f"$SYS.REQ.ACCOUNT.{ALPHA.public}.CLAIMS.LOOKUP") == "no responders"
        for client in (admin, user):
            await client.close()

    try:
        asyncio.run(run())
    finally:
        process.kill()
