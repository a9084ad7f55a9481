"""The client protocol as raw transcripts; the answers are those of a real nats-server."""

import json
from collections.abc import AsyncIterator

import pytest
import trio

from eyot_daemon.config.options import Options
from support.clients.transcripts import CLOSING_CASES, OPEN_CASES
from support.servers.broker import Running, running

INFO = b"INFO "


@pytest.fixture
async def broker() -> AsyncIterator[Running]:
    async with running() as up:
        yield up


@pytest.mark.parametrize(
    ("connect", "sent", "answer"), [case[1:] for case in OPEN_CASES], ids=[c[0] for c in OPEN_CASES]
)
async def test_open(broker: Running, connect: bytes, sent: bytes, answer: bytes) -> None:
    for open_client in (broker.raw, broker.in_memory):
        client = await open_client(connect)
        assert await client.ask(sent) == answer
        await client.stream.aclose()
        while broker.clients.connections:
            await trio.sleep(0.001)


@pytest.mark.parametrize(("sent", "answer"), [case[1:] for case in CLOSING_CASES], ids=[c[0] for c in CLOSING_CASES])
async def test_closing(broker: Running, sent: bytes, answer: bytes) -> None:
    for client in (await broker.raw(b""), await broker.in_memory(b"")):
        await client.send(sent)
        assert await client.until_closed() == answer
    with trio.fail_after(5):
        while broker.clients.connections:
            await trio.sleep(0.005)
    assert not broker.broker.subscriptions


async def test_info_names_what_a_client_needs(broker: Running) -> None:
    client = await broker.raw(b"")
    info = json.loads(client.handshake.removeprefix(INFO))
    assert info["server_id"] == broker.broker.server_id
    assert info["version"].startswith("2.")
    assert info["proto"] == 1
    assert info["headers"] is True
    assert info["max_payload"] == 1048576
    assert info["client_id"] == 1
    assert info["client_ip"] == "127.0.0.1"
    assert info["port"] == broker.port
    assert "auth_required" not in info
    assert "nonce" not in info


async def test_the_first_pong_brings_the_account(broker: Running) -> None:
    client = await broker.raw(b'CONNECT {"verbose":false,"protocol":1}\r\n')
    assert await client.ask() == b""
    info = json.loads((await client.until(b"\r\n")).removeprefix(INFO))
    assert info["connect_info"] is True
    assert info["remote_account"] == "$G"
    assert await client.ask() == b""


async def test_frames_may_be_cut_anywhere(broker: Running) -> None:
    text = b"SUB foo.* 1\r\nPUB foo.a r 5\r\nhello\r\nHPUB foo.b 12 14\r\nNATS/1.0\r\n\r\nhi\r\nUNSUB 1\r\n"
    answer = b"MSG foo.a 1 r 5\r\nhello\r\nHMSG foo.b 1 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"
    for cut in range(1, len(text)):
        client = await broker.in_memory()
        await client.send(text[:cut])
        await trio.testing.wait_all_tasks_blocked()
        assert await client.ask(text[cut:]) == answer
        await client.stream.aclose()


async def test_a_payload_of_the_largest_size_passes(broker: Running) -> None:
    client = await broker.raw()
    payload = bytes(range(256)) * 4096
    got = await client.ask(b"SUB big 1\r\nPUB big 1048576\r\n" + payload + b"\r\n")
    assert got == b"MSG big 1 1048576\r\n" + payload + b"\r\n"


async def test_fan_out_keeps_order_over_many_subscribers(broker: Running) -> None:
    subscribers = [await broker.raw() for _ in range(5)]
    for subscriber in subscribers:
        await subscriber.ask(b"SUB fan.> 7\r\n")
    publisher = await broker.raw()
    sent = b"".join(b"PUB fan.%d 4\r\n%04d\r\n" % (n % 3, n) for n in range(2000))
    expected = b"".join(b"MSG fan.%d 7 4\r\n%04d\r\n" % (n % 3, n) for n in range(2000))
    await publisher.ask(sent)
    for subscriber in subscribers:
        assert await subscriber.ask() == expected


async def test_long_runs_of_one_line_are_messages_like_any_other(broker: Running) -> None:
    plain, group, limited = [await broker.raw() for _ in range(3)]
    await plain.ask(b"SUB run 1\r\n")
    await group.ask(b"SUB run q 2\r\nSUB run q 3\r\n")
    await limited.ask(b"SUB run 4\r\nUNSUB 4 70\r\n")
    publisher = await broker.raw()
    count = 3000
    payloads = [b"%05d" % n for n in range(count)]
    await publisher.ask(b"".join(b"PUB run 5\r\n%b\r\n" % payload for payload in payloads))
    assert await plain.ask() == b"".join(b"MSG run 1 5\r\n%b\r\n" % payload for payload in payloads)
    got = (await group.ask()).split(b"\r\n")
    assert got[1::2] == payloads
    assert {got.count(b"MSG run 2 5"), got.count(b"MSG run 3 5")} != {0, count}
    assert await limited.ask() == b"".join(b"MSG run 4 5\r\n%b\r\n" % payload for payload in payloads[:70])
    assert broker.broker.in_msgs == count
    assert broker.broker.out_msgs == 2 * count + 70


async def test_every_message_of_a_run_without_responder_is_answered(broker: Running) -> None:
    client = await broker.raw(b'CONNECT {"headers":true,"no_responders":true,"verbose":true}\r\n')
    count = 200
    got = await client.ask(b"SUB _I 1\r\n" + b"PUB svc _I 1\r\nx\r\n" * count)
    assert got.count(b"NATS/1.0 503") == count
    assert got.count(b"+OK\r\n") == count + 2


async def test_a_mapped_request_without_responder_names_where_it_went(broker: Running) -> None:
    broker.broker.global_account.mappings.add(b"old.*", [b"new.$1"])
    client = await broker.raw(b'CONNECT {"headers":true,"no_responders":true,"verbose":false}\r\n')
    got = await client.ask(b"SUB _I 1\r\nPUB old.svc _I 0\r\n\r\n")
    assert got == b"HMSG _I 1 39 39\r\nNATS/1.0 503\r\nNats-Subject: new.svc\r\n\r\n\r\n"


async def test_headers_are_stripped_for_clients_without(broker: Running) -> None:
    plain = await broker.raw(b'CONNECT {"verbose":false}\r\n')
    await plain.ask(b"SUB h 1\r\n")
    await (await broker.raw()).ask(b"HPUB h 12 14\r\nNATS/1.0\r\n\r\nhi\r\n" * 2)
    assert await plain.ask() == b"MSG h 1 2\r\nhi\r\n" * 2


async def test_max_connections() -> None:
    async with running(Options(host="127.0.0.1", port=-1, max_connections=1)) as up:
        first = await up.raw()
        assert await first.ask() == b""
        second = await up.raw(b"")
        assert await second.until_closed() == b"-ERR 'maximum connections exceeded'\r\n"
        assert (up.broker.connections_total, up.broker.connections_refused) == (1, 1)
        await first.stream.aclose()
        while up.clients.connections:
            await trio.sleep(0.005)
        assert await (await up.raw()).ask() == b""


async def test_max_subscriptions_and_tokens() -> None:
    async with running(Options(host="127.0.0.1", port=-1, max_subscriptions=2, max_sub_tokens=3)) as up:
        client = await up.raw()
        got = await client.ask(b"SUB a.b.c.d 1\r\nSUB a 2\r\nSUB b 3\r\nSUB c 4\r\nUNSUB 2\r\nSUB c 4\r\n")
        assert got == (
            b"-ERR 'Permissions Violation for Subscription to \"a.b.c.d\", too many tokens'\r\n"
            b"-ERR 'maximum subscriptions exceeded'\r\n"
        )
        assert up.broker.subscriptions == 2


async def test_a_connection_that_closes_takes_its_interest_along(broker: Running) -> None:
    client = await broker.raw()
    await client.ask(b"SUB a 1\r\nSUB b q 2\r\n")
    assert broker.broker.subscriptions == 2
    await client.stream.aclose()
    while broker.clients.connections:
        await trio.sleep(0.005)
    assert broker.broker.subscriptions == 0
    assert broker.clients.closed[0].close_reason == "Client Closed"


async def test_a_reader_that_does_not_read_is_closed_and_counted() -> None:
    async with running(Options(host="127.0.0.1", port=-1, max_pending=100_000)) as up:
        lazy = await up.raw()
        await lazy.ask(b"SUB a 1\r\n")
        publisher = await up.raw()
        frame = b"PUB a 65536\r\n" + b"x" * 65536 + b"\r\n"
        with trio.fail_after(20):
            while not up.broker.slow_consumers:
                await publisher.ask(frame)
        assert up.clients.closed[-1].close_reason == "Slow Consumer (Pending Bytes)"
        assert up.broker.global_account.slow_consumers == 1
        assert await publisher.ask() == b""


async def test_a_write_deadline_closes_a_stalled_reader() -> None:
    async with running(Options(host="127.0.0.1", port=-1, write_deadline_s=0.05)) as up:
        lazy = await up.raw()
        await lazy.ask(b"SUB a 1\r\n")
        publisher = await up.raw()
        frame = b"PUB a 65536\r\n" + b"x" * 65536 + b"\r\n"
        with trio.fail_after(20):
            while not up.broker.slow_consumers:
                await publisher.ask(frame)
        assert up.clients.closed[-1].close_reason == "Slow Consumer (Write Deadline)"


async def test_one_broken_client_harms_nobody(broker: Running) -> None:
    good = await broker.raw()
    await good.ask(b"SUB a 1\r\n")
    for _ in range(20):
        bad = await broker.raw()
        await bad.send(b"PUB a 1\r\nx\r\n\x00\xff garbage\r\n")
        await bad.until_closed()
    assert await good.ask() == b"MSG a 1 1\r\nx\r\n" * 20


async def test_statistics(broker: Running) -> None:
    client = await broker.raw()
    await client.ask(b"SUB a 1\r\nPUB a 5\r\nhello\r\nPUB b 3\r\nabc\r\n")
    (connection,) = broker.clients.connections.values()
    assert (connection.in_msgs, connection.in_bytes) == (2, 8)
    assert (connection.out_msgs, connection.out_bytes) == (1, 5)
    assert (broker.broker.in_msgs, broker.broker.out_msgs) == (2, 1)
