"""Accounts that are fetched when they are needed, beside nats-server: `resolver: URL(...)`, and `type: cache` that asks other servers."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import nats
import nats.errors
import pytest
from nats.aio.client import Client

from support.claims import ALPHA, BETA, OPERATOR, OTHER, SYSTEM, USER, Key, creds, operator_conf, operator_token
from support.leaf_pair import server

KINDS = ["eyotd", "2.14.6"]
WAIT_S = 30.0


class AccountServer:
    """An account server: `/jwt/v1/accounts/<account>`."""

    def __init__(self) -> None:
        self.tokens: dict[str, str] = {}
        self.asked: list[str] = []


@contextmanager
def account_server() -> Iterator[tuple[AccountServer, str]]:
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
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    try:
        yield known, f"http://127.0.0.1:{httpd.server_port}/jwt/v1/accounts/"
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


def test_an_account_server_that_is_down(tmp_path: Path) -> None:
    process = server("eyotd", f"operator: {operator_token()}\nresolver: URL(http://127.0.0.1:1/jwt/)\n", tmp_path)
    with pytest.raises(RuntimeError, match=r"could not fetch"):
        process.start()


HUB = 'leafnodes { listen: "127.0.0.1:%LEAF_PORT%", no_advertise: true }\n'


@pytest.mark.parametrize("hub_kind", KINDS)
def test_a_cache_asks_the_hub(hub_kind: str, tmp_path: Path) -> None:
    """A leaf node whose system account is linked to the hub's learns an account when somebody of it comes, and keeps it."""
    for name in ("hub", "leaf"):
        (tmp_path / name).mkdir()
    hub = server(
        hub_kind,
        HUB + operator_conf(OPERATOR.account(ALPHA), resolver=f'{{ type: full, dir: "{tmp_path}/hub/jwt" }}'),
        tmp_path / "hub",
    )
    hub.start()
    (tmp_path / "leaf" / "sys.creds").write_text(creds(SYSTEM.user(OTHER), OTHER))
    remote = f'{{ url: "nats://127.0.0.1:{hub.leaf_port}", account: {SYSTEM.public}, credentials: "{tmp_path}/leaf/sys.creds" }}'
    leaf = server(
        "eyotd",
        f"leafnodes {{ reconnect: 1, remotes: [{remote}] }}\n"
        + operator_conf(resolver=f'{{ type: cache, dir: "{tmp_path}/leaf/jwt", ttl: "1h" }}'),
        tmp_path / "leaf",
    )

    async def is_in() -> bool:
        client = await enter(leaf.client_url(), ALPHA.user(USER), tmp_path / "leaf")
        if client is not None:
            await client.close()
        return client is not None

    async def until_in() -> None:
        async with asyncio.timeout(WAIT_S):
            while not await is_in():
                await asyncio.sleep(0.1)

    try:
        leaf.start()
        asyncio.run(until_in())
        assert (tmp_path / "leaf" / "jwt" / f"{ALPHA.public}.jwt").exists()
        hub.kill()
        leaf.kill()
        leaf.start()
        assert asyncio.run(is_in()), "what is cached serves without the hub"
    finally:
        leaf.kill()
        hub.kill()
