"""A driver of NATS' client for Rust (async-nats, through its Python binding): ADDRESS CHAPTER; prints what the client saw.

Times, ids and addresses are left out. See ../test_rust_client.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from natsrpy import Nats
from natsrpy.exceptions import NatsrpyBaseError
from natsrpy.js import (
    AckPolicy,
    CountersConfig,
    DeliverPolicy,
    JetStream,
    KVConfig,
    ObjectStoreConfig,
    PriorityPolicy,
    PullConsumerConfig,
    PushConsumerConfig,
    RetentionPolicy,
    Source,
    StreamConfig,
)

SOON_S = 10.0
#: Pulls of what is there already end early.
SHORT_S = 0.2

#: Iterators of the binding, which now and then panic when they are let go in a thread of its own.
KEPT: list[object] = []

Seen = list[Any]
Chapter = Callable[[Nats, JetStream], Awaitable[Seen]]


async def first(count: int, rows: AsyncIterator[Any]) -> list[Any]:
    """The next `count` of what comes."""
    return [await asyncio.wait_for(anext(rows), SOON_S) for _ in range(count)]


def kept(rows: AsyncIterator[Any]) -> AsyncIterator[Any]:
    KEPT.append(rows)
    return rows


async def refused(doing: Awaitable[Any]) -> str:
    """The error, as far as it does not name an address or an id."""
    try:
        await doing
    except NatsrpyBaseError as error:
        return str(error)
    return "not refused"


async def core(nats: Nats, _: JetStream) -> Seen:
    seen: Seen = []
    async with nats.subscribe("core.>") as everything, nats.subscribe("core.work", queue="q") as queue:
        await nats.flush()
        await nats.publish("core.work", b"1", headers={"A": "x", "B": ["y", "z"]}, reply="back.here")
        for message in [*await first(1, everything), *await first(1, queue)]:
            seen.append([message.subject, message.reply, message.payload, sorted(message.headers.items())])
    seen.append(await refused(nats.request("core.nobody", b"", timeout=0.5)))
    return seen


async def stream(nats: Nats, js: JetStream) -> Seen:
    config = StreamConfig("READINGS", ["readings.>"], max_messages_per_subject=2, allow_direct=True, allow_rollup=True)
    held = await js.streams.create(config)
    seen: Seen = []
    for number in range(5):
        ack = await js.publish(
            f"readings.{number % 2}", b"%d" % number, headers={"Nats-Msg-Id": f"{number % 4}"}, wait=True
        )
        seen.append([ack.stream, ack.sequence, ack.domain, ack.duplicate])
    wrong = {"Nats-Expected-Last-Subject-Sequence": "1"}
    seen.append(await refused(js.publish("readings.1", b"", headers=wrong, wait=True)))
    for found in (
        await held.direct_get(2),
        await held.direct_get_last_for_subject("readings.0"),
        await held.direct_get_next_for_subject("readings.1", 3),
    ):
        assert found.headers.pop("Nats-Time-Stamp")
        seen.append([found.subject, found.sequence, found.payload, sorted(found.headers.items())])
    seen.append(await refused(held.direct_get(77)))
    await held.delete_message(2)
    await js.publish("readings.0", b"only", headers={"Nats-Rollup": "sub"}, wait=True)
    seen.append(await held.purge(filter="readings.1", keep=0))
    state = (await held.get_info()).state
    seen.append([state.messages, state.first_sequence, state.last_sequence, state.consumer_count])
    seen.append(await refused(js.streams.create(StreamConfig("OTHER", ["readings.0"]))))
    seen.append(await js.streams.delete("READINGS"))
    seen.append(await refused(js.streams.get("READINGS")))
    return seen


async def pulls(nats: Nats, js: JetStream) -> Seen:
    held = await js.streams.create(StreamConfig("JOBS", ["jobs.*"], retention=RetentionPolicy.WORKQUEUE))
    for number in range(6):
        await js.publish(f"jobs.{number}", b"%d" % number, wait=True)
    # Made after them: published right after it was made, nats-server once counted one pending message too few.
    worker = await held.consumers.create(
        PullConsumerConfig(durable_name="w", ack_policy=AckPolicy.EXPLICIT, ack_wait=30.0, max_deliver=3)
    )
    seen: Seen = []
    batch = await worker.fetch(max_messages=4, expires=SOON_S)
    seen.append([[m.subject, m.stream_sequence, m.consumer_sequence, m.delivered, m.pending, m.domain] for m in batch])
    await batch[0].ack(double=True)
    await batch[1].nack()
    await batch[2].term(double=True)
    await batch[3].progress()
    again = await worker.fetch(max_messages=1, expires=SOON_S)
    seen.append([[m.subject, m.consumer_sequence, m.delivered] for m in again])
    await again[0].ack(double=True)
    async with worker.consume() as messages:
        for message in await first(2, messages):
            seen.append([message.subject, message.pending])
            await message.ack(double=True)
    seen.append((await held.get_info()).state.messages)
    await held.consumers.create(
        PullConsumerConfig(durable_name="w", ack_policy=AckPolicy.EXPLICIT, max_deliver=5, ack_wait=30.0)
    )
    seen.append(await refused(held.consumers.create(PullConsumerConfig(durable_name="x", ack_policy=AckPolicy.NONE))))
    seen += [await held.consumers.pause("w", 60.0), await held.consumers.resume("w")]
    seen.append([name async for name in kept(await held.consumers.list_names())])
    return seen


async def groups(nats: Nats, js: JetStream) -> Seen:
    held = await js.streams.create(StreamConfig("GROUPS", ["groups"]))
    shared = await held.consumers.create(
        PullConsumerConfig(
            durable_name="g",
            ack_policy=AckPolicy.EXPLICIT,
            priority_policy=PriorityPolicy.OVERFLOW,
            priority_groups=["A"],
        )
    )
    for number in range(5):
        await js.publish("groups", b"%d" % number, wait=True)
    spare = await shared.fetch(max_messages=2, group="A", min_pending=10, expires=SHORT_S)
    taken = await shared.fetch(max_messages=2, group="A", min_pending=3, expires=SOON_S)
    return [
        len(spare),
        [m.payload for m in taken],
        await refused(shared.fetch(max_messages=1, group="B", expires=SHORT_S)),
    ]


async def pushes(nats: Nats, js: JetStream) -> Seen:
    held = await js.streams.create(StreamConfig("NEWS", ["news.*"]))
    for number in range(4):
        await js.publish(f"news.{number % 2}", b"%d" % number, wait=True)
    pushed = await held.consumers.create(
        PushConsumerConfig(
            deliver_subject="here.news",
            durable_name="p",
            deliver_policy=DeliverPolicy.LAST_PER_SUBJECT,
            filter_subject="news.*",
            ack_policy=AckPolicy.NONE,
            idle_heartbeat=1.0,
            flow_control=True,
        )
    )
    seen: Seen = []
    async with pushed.consume() as messages:
        for message in await first(2, messages):
            seen.append([message.subject, message.payload, message.stream_sequence, message.pending])
        await js.publish("news.5", b"5", wait=True)
        seen.append([m.subject for m in await first(1, messages)])
    return seen


async def buckets(nats: Nats, js: JetStream) -> Seen:
    bucket = await js.kv.create(KVConfig("settings", history=3, limit_markers=60.0))
    seen: Seen = [await bucket.create("a", b"1"), await refused(bucket.create("a", b"2")), await bucket.put("b", "3")]
    await bucket.update("a", b"4", 1)
    seen.append(await refused(bucket.update("a", b"5", 1)))
    watched = kept(await bucket.watch_all())
    seen.append([await bucket.delete("b"), await bucket.get("a"), await bucket.get("b"), await bucket.get("c")])
    seen.append([[e.key, e.value, e.revision, e.operation] for e in await first(1, watched)])
    seen.append([[e.key, e.value, e.revision, e.delta] async for e in kept(await bucket.history("a"))])
    await bucket.purge("a")
    seen.append(await bucket.create("a", b"6", ttl=30.0))
    seen.append([key async for key in kept(await bucket.keys())])
    entry = await bucket.entry("b")
    seen.append(entry and [entry.key, entry.revision, entry.operation])
    seen += [await js.kv.delete("settings"), await refused(js.kv.get("settings"))]
    return [[str(one) for one in row] if isinstance(row, list) else row for row in seen]


async def objects(nats: Nats, js: JetStream) -> Seen:
    store = await js.object_store.create(ObjectStoreConfig("files", description="of the machine"))
    whole = bytes(range(256)) * 12_000
    await store.put("image", whole, chunk_size=100_000, metadata={"kind": "disk"}, headers={"X": "y"})
    got = io.BytesIO()
    await store.get("image", got)
    info = await store.get_info("image")
    seen: Seen = [got.getvalue() == whole, [info.size, info.chunks, info.digest, info.metadata, info.description]]
    await store.put("image", b"new")
    await store.put("other", b"")
    linked = await store.link_object("image", "link")
    assert linked.link is not None
    seen.append([linked.name, linked.link.name, linked.link.bucket])
    await store.delete("other")
    seen.append(sorted([one.name async for one in kept(await store.list())]))
    await store.seal()
    seen.append(await refused(store.put("late", b"x")))
    return seen


async def counters(nats: Nats, js: JetStream) -> Seen:
    held = await js.counters.create(CountersConfig("COUNTS", ["counts.>"]))
    seen: Seen = [await held.add("counts.a", 5), await held.decr("counts.a"), await held.incr("counts.b")]
    entry = await held.get("counts.a")
    seen.append([entry.subject, entry.value, entry.sources])
    gathered = await js.counters.create(CountersConfig("ALL", [], sources=[Source("COUNTS")]))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SOON_S):
            while await refused(gathered.get("counts.b")) != "not refused":
                await asyncio.sleep(0.05)
    entry = await gathered.get("counts.a")
    seen.append([entry.subject, entry.value, entry.sources])
    return seen


CHAPTERS: dict[str, Chapter] = {
    chapter.__name__: chapter for chapter in (core, stream, pulls, groups, pushes, buckets, objects, counters)
}


async def told(address: str, chapter: Chapter) -> Seen:
    nats = Nats([f"nats://{address}"])
    await nats.startup()
    try:
        return await chapter(nats, await nats.jetstream(domain="isle"))
    finally:
        await nats.shutdown()


if __name__ == "__main__":
    for row in asyncio.run(told(sys.argv[1], CHAPTERS[sys.argv[2]])):
        print(row)
    sys.stdout.flush()
    os._exit(0)  # its threads do not survive the interpreter's end
