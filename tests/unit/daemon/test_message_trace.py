"""Message traces: the events that a publisher requests with a header."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from eyot_daemon.auth.configured import ConfigAuthenticator
from eyot_daemon.config.read import read_options
from eyot_wire.conf import parse_text
from support.servers.broker import Raw, Running, running

CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"name":"me","echo":%b}\r\n'
ASKS = b"NATS/1.0\r\nNats-Trace-Dest: t\r\n%b\r\n"


@asynccontextmanager
async def fixture(conf: str = "") -> AsyncIterator[Running]:
    loaded = read_options(parse_text("listen: 127.0.0.1:-1\n" + conf, env={}))
    async with running(loaded.options, ConfigAuthenticator(loaded.options)) as up:
        yield up


async def entered(up: Running, echo: bytes = b"true") -> Raw:
    return await up.raw(CONNECT % echo)


async def traced(client: Raw, subject: bytes, extra: bytes = b"", header: bytes = ASKS) -> tuple[dict[str, Any], bytes]:
    """Publish and ask; what is told, and what else the client got."""
    block = header % extra
    size = len(block)
    got = await client.ask(b"SUB t 99\r\nHPUB %b %d %d\r\n%bhello\r\n" % (subject, size, size + 5, block))
    at = got.index(b"MSG t 99 ")
    line, _, rest = got[at:].partition(b"\r\n")
    end = int(line.split()[-1])
    return json.loads(rest[:end]), got[:at] + rest[end + 2 :]


def events(told: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [event for event in told["events"] if event["type"] == kind]


async def test_subscriptions_that_got_it() -> None:
    async with fixture("mappings { from: to }") as up:
        client = await entered(up)
        await client.ask(b"SUB to 1\r\nSUB to q 2\r\nSUB other 3\r\n")
        told, got = await traced(client, b"from")
        assert got.count(b"hello") == 2
        assert told["request"] == {"header": {"Nats-Trace-Dest": ["t"]}, "msgsize": len(ASKS % b"") + 5}
        (ingress,) = events(told, "in")
        assert (ingress["acc"], ingress["subj"], ingress["name"], ingress["kind"]) == ("$G", "from", "me", 0)
        assert [event["to"] for event in events(told, "sm")] == ["to"]
        assert [(one["sub"], one.get("queue")) for one in events(told, "eg")] == [("to", None), ("to", "q")]
        assert told["server"]["id"]


async def test_only_a_trace() -> None:
    async with fixture() as up:
        client = await entered(up)
        await client.ask(b"SUB s 1\r\n")
        told, got = await traced(client, b"s", b"Nats-Trace-Only: true\r\n")
        assert b"hello" not in got
        assert [one["sub"] for one in events(told, "eg")] == ["s"]
        told, got = await traced(client, b"nobody", b"Nats-Trace-Only: 1\r\n")
        assert not events(told, "eg")


async def test_why_it_was_not_delivered() -> None:
    users = "[{user: a, password: a, permissions: {publish: [s, t], subscribe: {deny: s.x}}}]"
    async with fixture(f"authorization {{ users: {users} }}") as up:
        connect = (CONNECT % b"false").replace(b'"name"', b'"user":"a","pass":"a","name"')
        client, other = await up.raw(connect), await up.raw(connect)
        await client.ask(b"SUB s 1\r\n")
        await other.ask(b"SUB t 99\r\n")
        block = ASKS % b""
        for subject, error in ((b"s", "no echo"), (b"s.x", 'Permissions Violation for Publish to "s.x"')):
            await client.ask(b"HPUB %b %d %d\r\n%b\r\n" % (subject, len(block), len(block), block))
            told = json.loads((await other.until(b"}]}\r\n")).splitlines()[-1])
            assert error in next(one["error"] for one in told["events"] if "error" in one)


@pytest.mark.parametrize("allowed", [True, False])
async def test_imports_are_followed_where_that_is_allowed(allowed: bool) -> None:
    conf = """accounts {
        A { users: [{user: a, password: a}], exports: [{service: r, allow_trace: ALLOWED}, {stream: s}] }
        B { users: [{user: b, password: b}], imports: [
            {service: {account: A, subject: r}, to: mine}, {stream: {account: A, subject: s}, to: here, allow_trace: ALLOWED}] }
    }""".replace("ALLOWED", str(allowed))
    async with fixture(conf) as up:

        async def enter(name: bytes) -> Raw:
            user = b'"user":"%b","pass":"%b","name"' % (name, name)
            return await up.raw((CONNECT % b"true").replace(b'"name"', user))

        a, b = await enter(b"a"), await enter(b"b")
        await a.ask(b"SUB r 1\r\n")
        await b.ask(b"SUB here 1\r\n")
        told, _ = await traced(b, b"mine")
        assert [(one["acc"], one["from"], one["to"]) for one in events(told, "si")] == [("A", "mine", "r")]
        assert [(one["acc"], one["sub"]) for one in events(told, "eg")] == ([("A", "r")] if allowed else [])
        assert b"hello" in await a.until(b"hello")
        told, _ = await traced(a, b"s")
        assert [(one["acc"], one["to"]) for one in events(told, "se")] == [("B", "here")]
        assert [(one["acc"], one["sub"]) for one in events(told, "eg")] == ([("B", "s")] if allowed else [])
        assert b"hello" in await b.until(b"hello")


async def test_traceparent_asks_where_the_account_says_so() -> None:
    parent = b"NATS/1.0\r\nTraceParent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-%b\r\n\r\n"
    conf = "accounts { A { users: [{user: a, password: a}], msg_trace: t } }\nno_auth_user: a"
    async with fixture(conf) as up:
        client = await entered(up)
        told, _ = await traced(client, b"s", b"01", parent)
        assert events(told, "in")[0]["subj"] == "s"
        with pytest.raises(ValueError, match="subsection"):
            await traced(client, b"s", b"00", parent)


async def test_a_destination_has_to_be_allowed_and_valid() -> None:
    users = "[{user: a, password: a, permissions: {publish: s}}]"
    async with fixture(f"authorization {{ users: {users} }}") as up:
        client = await up.raw((CONNECT % b"true").replace(b'"name"', b'"user":"a","pass":"a","name"'))
        block = ASKS % b""
        got = await client.ask(b"SUB s 1\r\nHPUB s %d %d\r\n%b\r\n" % (len(block), len(block), block))
        assert b"-ERR 'Permissions Violation for Publish to \"t\"'" in got
        assert b"MSG s" not in got
        block = b"NATS/1.0\r\nNats-Trace-Dest: t.*\r\n\r\n"
        assert b"MSG s" in await client.ask(b"HPUB s %d %d\r\n%b\r\n" % (len(block), len(block), block))


async def test_what_one_account_exports_again_does_not_come_from_a_third() -> None:
    """A request that came by a service import is not handed to stream imports (nats-server)."""
    conf = """accounts {
        A { users: [{user: a, password: a}], exports: [{service: r}, {stream: r}] }
        B { users: [{user: b, password: b}], imports: [{service: {account: A, subject: r}}] }
        C { users: [{user: c, password: c}], imports: [{stream: {account: A, subject: r}}] }
    }"""
    async with fixture(conf) as up:

        async def enter(name: bytes) -> Raw:
            user = b'"user":"%b","pass":"%b","name"' % (name, name)
            return await up.raw((CONNECT % b"true").replace(b'"name"', user))

        a, b, c = await enter(b"a"), await enter(b"b"), await enter(b"c")
        await a.ask(b"SUB r 1\r\n")
        await c.ask(b"SUB r 1\r\nSUB r q 2\r\n")
        await b.ask(b"PUB r 5\r\nhello\r\n")
        assert b"hello" in await a.until(b"hello\r\n")
        await a.ask(b"PUB r 4\r\nmore\r\n")
        assert b"hello" not in await c.until(b"more\r\n")
