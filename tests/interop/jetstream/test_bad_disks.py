"""A running daemon on a disk that hangs, fails or is full: the errors for publishers, readers and consumers, and the recovery
without a restart.
"""

from __future__ import annotations

import asyncio
import errno
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nats
import nats.js
import pytest
from nats.js.api import StreamConfig
from nats.js.errors import APIError

from support.clients.raw_client import RawClient
from support.store.bad_disk import BadDiskEyotd, FullDiskEyotd, SmallDiskEyotd, disk_library

CONFIG = "jetstream { store_dir: %WORKDIR%/small/js, max_buffered_size: 4M }\n"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return disk_library(tmp_path_factory.mktemp("disk"))


@contextmanager
def started(kind: type[BadDiskEyotd], library: Path, folder: Path) -> Iterator[Any]:
    kind.library = library
    with kind(CONFIG, folder) as server:
        yield server


async def eventually(attempt: Callable[[], Any], timeout_s: float = 30.0) -> Any:
    """The result of the first attempt that the server does not refuse."""
    until = time.monotonic() + timeout_s
    while True:
        try:
            return await attempt()
        except (APIError, nats.errors.TimeoutError):
            if time.monotonic() > until:
                raise
            await asyncio.sleep(0.1)


def get(server: BadDiskEyotd, path: str) -> tuple[int, bytes]:
    """Status and body of a monitoring page."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.monitor_port}{path}", timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


# -- a disk that hangs -------------------------------------------------------------------------------------------------

PUBLISHERS, MESSAGES, SIZE = 3, 60, 100_000


def make_stream(server: BadDiskEyotd) -> RawClient:
    client = RawClient(server.client_port)
    body = json.dumps({"name": "S", "subjects": ["s.>"]}).encode()
    client.send(b"SUB in 1\r\nPUB $JS.API.STREAM.CREATE.S in %d\r\n%b\r\n" % (len(body), body))
    assert b"MSG in" in client.until(b"}\r\n")
    return client


def test_publishers_wait_for_a_disk_that_hangs_and_nobody_else_does(library: Path, tmp_path: Path) -> None:
    """Each brings more than may be buffered, and none of it is refused: their sockets are not read meanwhile."""
    with started(BadDiskEyotd, library, tmp_path) as server, make_stream(server) as other:
        server.hang()
        publishers = [RawClient(server.client_port) for _ in range(PUBLISHERS)]
        sent = [0] * PUBLISHERS

        def publish(number: int) -> None:
            client = publishers[number]
            client.send(b"SUB acks.%d 1\r\n" % number)
            for _ in range(MESSAGES):
                client.send(b"PUB s.%d acks.%d %d\r\n%b\r\n" % (number, number, SIZE, bytes(SIZE)))
                sent[number] += 1

        threads = [threading.Thread(target=publish, args=(number,)) for number in range(PUBLISHERS)]
        for thread in threads:
            thread.start()
        until = time.monotonic() + 30
        while not server.monitor("/jsz")["held_back"]:
            assert time.monotonic() < until, "nobody had to wait"
            time.sleep(0.02)
        for _ in range(20):
            assert other.ask(b"PUB elsewhere 1\r\nx\r\n") == b""
        server.heal()
        for thread in threads:
            thread.join(60)
        assert sent == [MESSAGES] * PUBLISHERS
        for client in publishers:
            acks = b""
            while acks.count(b"MSG acks") < MESSAGES or not acks.endswith(b"}\r\n"):
                acks += client.until(b"}\r\n")
            assert acks.count(b'"error"') == 0, acks[:500]
            client.sock.close()
        assert server.monitor("/jsz")["refused"] == 0
        assert server.monitor("/jsz?accounts=1&streams=1")["messages"] == PUBLISHERS * MESSAGES


# -- a disk that fails, a disk that is full ----------------------------------------------------------------------------


async def prepared(server: BadDiskEyotd) -> tuple[nats.NATS, nats.js.JetStreamContext, Any]:
    """A stream with 40 messages, half of them with a consumer that has not acknowledged them."""
    client = await nats.connect(server.client_url())
    js = client.jetstream(timeout=10)
    await js.add_stream(StreamConfig(name="S", subjects=["s.>"], allow_direct=True))
    for number in range(40):
        await js.publish("s.a", b"%d" % number)
    consumer = await js.pull_subscribe("s.>", durable="C")
    return client, js, consumer


async def refused(js: nats.js.JetStreamContext, payload: bytes) -> APIError:
    """Publish until that is refused, and how it is."""
    for _ in range(2000):
        try:
            await js.publish("s.b", payload)
        except APIError as error:
            return error
    raise AssertionError("it was never full")


def test_io_errors_are_said_and_the_daemon_goes_on_when_they_end(library: Path, tmp_path: Path) -> None:
    async def play(server: BadDiskEyotd) -> None:
        client, js, consumer = await prepared(server)
        taken = await consumer.fetch(10, timeout=10)
        server.fail(errno.EIO)
        error = await refused(js, b"lost")
        assert (error.code, error.err_code) == (503, 10077), error
        code, page = await asyncio.to_thread(get, server, "/healthz")
        assert code == 503
        assert b"JetStream storage is failing: the disk failed" in page
        assert b'"store_error": "the disk failed' in (await asyncio.to_thread(get, server, "/jsz"))[1]
        metrics = (await asyncio.to_thread(get, server, "/metrics"))[1]
        assert b"\neyot_store_failing 1.0" in metrics
        assert b"\neyot_store_refused_total 1.0" in metrics
        assert (await js.get_msg("S", 7)).data == b"6"
        assert (await js.get_msg("S", 8, direct=True)).data == b"7"
        assert len(await consumer.fetch(10, timeout=10)) == 10
        ack = asyncio.create_task(client.request(taken[0].reply, b"+ACK", timeout=60))
        await asyncio.sleep(0.5)
        assert not ack.done(), "an acknowledgement was confirmed that is not on flash"
        server.heal()
        await ack
        stored = await eventually(lambda: js.publish("s.a", b"again"))
        assert (await js.get_msg("S", stored.seq)).data == b"again"
        assert (await asyncio.to_thread(get, server, "/healthz"))[0] == 200
        await client.close()
        server.kill()
        server.start()
        client = await nats.connect(server.client_url())
        js = client.jetstream()
        assert (await js.get_msg("S", stored.seq)).data == b"again"
        info = await js.consumer_info("S", "C")
        assert info.ack_floor.stream_seq == 1
        await client.close()

    with started(BadDiskEyotd, library, tmp_path) as server:
        asyncio.run(play(server))


async def backup(client: nats.NATS) -> int:
    """Bytes of a snapshot that was completed."""
    inbox = client.new_inbox()
    got = await client.subscribe(inbox)
    body = json.dumps({"deliver_subject": inbox}).encode()
    answer = json.loads((await client.request("$JS.API.STREAM.SNAPSHOT.S", body, timeout=10)).data)
    assert "error" not in answer, answer
    size = 0
    while True:
        chunk = await got.next_msg(timeout=20)
        if chunk.reply:
            await chunk.respond(b"")
        if not chunk.data:
            return size
        size += len(chunk.data)


@pytest.mark.parametrize("kind", [SmallDiskEyotd, FullDiskEyotd])
def test_a_full_disk_refuses_messages_and_goes_on_with_everything_else(
    library: Path, tmp_path: Path, kind: type[SmallDiskEyotd]
) -> None:
    async def play(server: SmallDiskEyotd) -> None:
        client, js, consumer = await prepared(server)
        server.fill()
        error = await refused(js, bytes(50_000))
        assert (error.code, error.err_code) == (503, 10077), error
        stored = (await js.stream_info("S")).state
        for message in await consumer.fetch(20, timeout=10):
            await message.ack_sync(timeout=20)  # on flash: what makes room may always be written
        assert (await js.consumer_info("S", "C")).ack_floor.stream_seq == 20
        assert (await js.get_msg("S", 30)).data == b"29"
        assert await backup(client) > 1000
        assert await js.delete_msg("S", 30)
        assert (await js.stream_info("S")).state.messages == stored.messages - 1
        assert (await refused(js, bytes(500_000))).err_code == 10077
        await js.purge_stream("S", subject="s.b")
        server.make_room()
        last = await eventually(lambda: js.publish("s.a", bytes(500_000)))
        assert last.seq >= stored.last_seq
        state = (await js.stream_info("S")).state
        assert (state.messages, state.last_seq) == (40, last.seq)
        assert server.log().count("cannot store") >= 1
        await client.close()

    with started(kind, library, tmp_path) as server:
        asyncio.run(play(server))


def test_a_file_system_without_flags_of_pwritev2(library: Path, tmp_path: Path) -> None:
    """9p, FUSE and old kernels: the start finds out, and every write is followed by a flush of its own."""

    async def play(server: BadDiskEyotd) -> None:
        client = await nats.connect(server.client_url())
        js = client.jetstream(timeout=10)
        await js.add_stream(StreamConfig(name="S", subjects=["s.>"]))
        for number in range(20):
            assert (await js.publish("s.a", b"%d" % number)).seq == number + 1
        server.be_plain(flushes=False)
        assert (await refused(js, b"lost")).err_code == 10077
        server.be_plain()
        await eventually(lambda: js.publish("s.a", b"again"))
        await client.close()

    BadDiskEyotd.library = library
    server = BadDiskEyotd(CONFIG, tmp_path)
    server.be_plain()
    with server:
        asyncio.run(play(server))
        server.kill()
        server.start()
        assert server.monitor("/jsz")["messages"] >= 21
