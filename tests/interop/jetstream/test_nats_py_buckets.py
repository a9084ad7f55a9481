"""Key-value and object buckets, work queues and interest streams of a real eyotd, with nats-py unchanged."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import RetentionPolicy
from nats.js.errors import KeyDeletedError, KeyNotFoundError, KeyWrongLastSequenceError, ObjectNotFoundError

from support.clients.nats_py import play_alone
from support.servers.eyotd import Eyotd


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Eyotd]:
    with Eyotd('jetstream { store_dir: "%WORKDIR%/js" }', tmp_path_factory.mktemp("eyotd")) as eyotd:
        yield eyotd


async def left(js: JetStreamContext, stream: str) -> int:
    return (await js.stream_info(stream)).state.messages


def test_keys(server: Eyotd) -> None:
    async def test(client: Client, js: JetStreamContext) -> None:
        bucket = await js.create_key_value(bucket="B", history=3)
        for number in range(5):
            await bucket.put("k", b"%d" % number)
        entry = await bucket.get("k")
        assert (entry.value, entry.revision) == (b"4", 5)
        assert (await bucket.get("k", revision=3)).value == b"2"
        assert [each.value for each in await bucket.history("k")] == [b"2", b"3", b"4"]
        assert await bucket.create("n", b"1") == 6
        with pytest.raises(KeyWrongLastSequenceError):
            await bucket.create("n", b"2")
        assert await bucket.update("n", b"2", last=6) == 7
        with pytest.raises(KeyWrongLastSequenceError):
            await bucket.update("n", b"3", last=6)
        await bucket.delete("n")
        with pytest.raises((KeyDeletedError, KeyNotFoundError)):
            await bucket.get("n")
        assert await bucket.create("n", b"again") == 9
        assert sorted(await bucket.keys()) == ["k", "n"]
        await bucket.purge("k")
        assert [each.operation for each in await bucket.history("k")] == ["PURGE"]
        assert (await bucket.status()).values == 4
        assert await js.delete_key_value("B")

    play_alone(server, test)


def test_watching_a_bucket(server: Eyotd) -> None:
    async def test(client: Client, js: JetStreamContext) -> None:
        bucket = await js.create_key_value(bucket="B")
        await bucket.put("a", b"1")
        watcher = await bucket.watchall()
        first = await watcher.updates(timeout=5)
        assert first is not None
        assert (first.key, first.value) == ("a", b"1")
        assert await watcher.updates(timeout=5) is None
        for number in range(50):
            await bucket.put(f"k{number}", b"%d" % number)
        for number in range(50):
            update = await watcher.updates(timeout=5)
            assert update is not None
            assert (update.key, update.value) == (f"k{number}", b"%d" % number)
        await watcher.stop()

    play_alone(server, test)


def test_keys_with_their_own_time_to_live(server: Eyotd) -> None:
    async def test(client: Client, js: JetStreamContext) -> None:
        bucket = await js.create_key_value(bucket="B", limit_marker_ttl=1)
        watcher = await bucket.watchall()
        assert await watcher.updates(timeout=5) is None
        await bucket.create("short", b"x", msg_ttl=1)
        put = await watcher.updates(timeout=5)
        gone = await watcher.updates(timeout=10)
        assert put is not None
        assert gone is not None
        # This client hands the marker on as an entry without a value; then the marker itself expires.
        assert (gone.key, gone.value) == ("short", b"")
        async with asyncio.timeout(10):
            while await left(js, "KV_B"):
                await asyncio.sleep(0.05)

    play_alone(server, test)


def test_objects(server: Eyotd) -> None:
    async def test(client: Client, js: JetStreamContext) -> None:
        store = await js.create_object_store("O")
        data = bytes(range(256)) * 4000
        info = await store.put("large", data)
        assert (info.size, info.chunks) == (len(data), 8)
        assert (await store.get("large")).data == data
        await store.put("large", b"small now")
        assert (await store.get("large")).data == b"small now"
        assert [each.name for each in await store.list()] == ["large"]
        await store.delete("large")
        with pytest.raises(ObjectNotFoundError):
            await store.get("large")
        assert await left(js, "OBJ_O") == 1

    play_alone(server, test)


def test_a_work_queue_gives_every_message_once(server: Eyotd) -> None:
    async def test(client: Client, js: JetStreamContext) -> None:
        await js.add_stream(name="W", subjects=["w.>"], retention=RetentionPolicy.WORK_QUEUE)
        for number in range(10):
            await js.publish("w.a", b"%d" % number)
        worker = await js.pull_subscribe("w.>", "worker")
        for message in await worker.fetch(6, timeout=5):
            await message.ack_sync()
        info = await js.stream_info("W")
        assert (info.state.messages, info.state.first_seq) == (4, 7)
        await js.delete_consumer("W", "worker")
        worker = await js.pull_subscribe("w.>", "worker")
        assert [message.data for message in await worker.fetch(4, timeout=5)] == [b"6", b"7", b"8", b"9"]

    play_alone(server, test)


def test_an_interest_stream_keeps_what_somebody_still_needs(server: Eyotd) -> None:
    async def test(client: Client, js: JetStreamContext) -> None:
        await js.add_stream(name="I", subjects=["i.>"], retention=RetentionPolicy.INTEREST)
        assert (await js.publish("i.a", b"nobody")).seq == 1
        assert await left(js, "I") == 0
        everything = await js.pull_subscribe("i.>", "everything")
        await js.pull_subscribe("i.a", "some")
        for number in range(4):
            await js.publish("i.a" if number % 2 else "i.b", b"%d" % number)
        assert await left(js, "I") == 4
        for message in await everything.fetch(4, timeout=5):
            await message.ack_sync()
        assert await left(js, "I") == 2
        await js.delete_consumer("I", "some")
        assert await left(js, "I") == 0

    play_alone(server, test)
