"""Backups between eyotd and real nats-servers, in both directions: each restores the other's backup, message by message.

Each round goes from a real server into eyotd and from there into every server, so that the last backup has passed both
directions.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.js.api import ConsumerConfig, KeyValueConfig, StreamConfig
from nats.js.errors import APIError

from eyot_wire.archive.values import ArchivedMessage
from eyot_wire.archive.writer import TarWriter
from support.jetstream.backups import Backup, api, backup, begin_restore, consumers, contents, restore, send, state
from support.jetstream.schemas import check_answer
from support.servers.eyotd import Eyotd
from support.servers.nats_server import NatsServer
from support.servers.newer_nats_server import NewerNatsServer
from support.servers.server_process import ServerProcess

CONFIG = 'jetstream { store_dir: "%WORKDIR%/js" }'
NOW_NS = 1_700_000_000_000_000_000
DEBIAN, NEWER, NEWEST = "2.9.10", "2.14.6", "2.15.1"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ServerProcess]]:
    with ExitStack() as stack:

        def path(name: str) -> Path:
            return tmp_path_factory.mktemp(name)

        theirs = {
            DEBIAN: stack.enter_context(NatsServer(CONFIG, path("debian"))),
            NEWER: stack.enter_context(NewerNatsServer(CONFIG, path("newer"))),
            NEWEST: stack.enter_context(NewerNatsServer(CONFIG, path("newest"), NEWEST)),
        }
        for server in theirs.values():
            server.hold_directories()
        yield {"eyotd": stack.enter_context(Eyotd(CONFIG, path("eyotd"))), **theirs}


@asynccontextmanager
async def clients(servers: dict[str, ServerProcess], *, keep: bool = False) -> AsyncIterator[dict[str, Client]]:
    """A connection to each server; all their streams are gone at the end, unless they are to be kept."""
    found = {name: await nats.connect(server.client_url()) for name, server in servers.items()}
    try:
        yield found
    finally:
        for nc in found.values():
            for name in [] if keep else (await api(nc, "STREAM.NAMES")).get("streams") or []:
                await api(nc, f"STREAM.DELETE.{name}")
            await nc.close()


# -- what there is to back up ------------------------------------------------------------------------------------------


async def fill_deleted(nc: Client, name: str) -> None:
    """Headers, holes of one and of many, at the beginning, between and at the end; two consumers in the midst of things."""
    js = nc.jetstream()
    await js.add_stream(StreamConfig(name=name, subjects=[f"{name}.>"]))
    for i in range(700):
        headers = {"Number": str(i), "Odd": "yes"} if i % 3 == 0 else None
        await js.publish(f"{name}.{i % 7}", b"payload %d " % i * (i % 9), headers=headers)
    for seq in (1, 2, 10, 11, 12, 400, 699, 700):
        await js.delete_msg(name, seq)
    for seq in range(200, 290):
        await js.delete_msg(name, seq)
    await js.purge_stream(name, subject=f"{name}.3")
    await js.add_consumer(name, ConsumerConfig(durable_name="explicit", ack_policy="explicit", ack_wait=3600))
    sub = await js.pull_subscribe("", durable="explicit", stream=name)
    first = await sub.fetch(20)
    for msg in (*first[:5], first[8]):
        await msg.ack_sync()
    await first[10].nak()
    await sub.fetch(3)
    await js.add_consumer(name, ConsumerConfig(durable_name="all", ack_policy="all", ack_wait=3600))
    every = await (await js.pull_subscribe("", durable="all", stream=name)).fetch(10)
    await every[6].ack_sync()
    await js.add_consumer(name, ConsumerConfig(durable_name="idle", ack_policy="explicit", deliver_policy="new"))
    await nc.flush()


async def fill_queue(nc: Client, name: str) -> None:
    js = nc.jetstream()
    await js.add_stream(StreamConfig(name=name, subjects=[f"{name}.>"], retention="workqueue"))
    for i in range(100):
        await js.publish(f"{name}.{i % 2}", b"%d" % i)
    await js.add_consumer(name, ConsumerConfig(durable_name="worker", ack_policy="explicit", ack_wait=3600))
    messages = await (await js.pull_subscribe("", durable="worker", stream=name)).fetch(30)
    for msg in messages[::2]:
        await msg.ack_sync()
    await nc.flush()


async def fill_bucket(nc: Client, name: str) -> None:
    bucket = await nc.jetstream().create_key_value(KeyValueConfig(bucket=name.removeprefix("KV_"), history=3))
    for i in range(40):
        for key in ("a", "b", "c.d"):
            await bucket.put(key, b"%s %d" % (key.encode(), i))
    await bucket.delete("b")
    await bucket.purge("c.d")


async def fill_limited(nc: Client, name: str) -> None:
    js = nc.jetstream()
    await js.add_stream(StreamConfig(name=name, subjects=[f"{name}.>"], max_msgs=50))
    for i in range(120):
        await js.publish(f"{name}.x", b"%d" % i)


async def fill_purged(nc: Client, name: str) -> None:
    js = nc.jetstream()
    await js.add_stream(StreamConfig(name=name, subjects=[f"{name}.>"]))
    for i in range(20):
        await js.publish(f"{name}.x", b"%d" % i)
    await js.purge_stream(name)


async def fill_not(nc: Client, name: str) -> None:
    await nc.jetstream().add_stream(StreamConfig(name=name, subjects=[f"{name}.>"]))


STREAMS = {
    "deleted": fill_deleted,
    "queue": fill_queue,
    "KV_bucket": fill_bucket,
    "limited": fill_limited,
    "purged": fill_purged,
    "unused": fill_not,
}


def archive_of(stream: str, subject: str) -> Backup:
    """An archive of one message."""
    state = {"messages": 1, "bytes": 40, "first_seq": 1, "last_seq": 1, "consumer_count": 0}
    writer = TarWriter(stream, NOW_NS)
    meta = b'{"name":"%b","subjects":["%b"],"storage":"file"}' % (stream.encode(), subject.encode())
    data = writer.begin(meta, "2024-01-01T00:00:00Z", b"{}")
    data += writer.messages([ArchivedMessage(1, NOW_NS, subject.encode(), b"", b"x")])
    data += writer.messages_end(1, NOW_NS) + writer.end()
    times = {"first_ts": "2024-01-01T00:00:00Z", "last_ts": "2024-01-01T00:00:00Z"}
    return Backup({"config": {}, "state": {**state, **times}}, data)


async def look(nc: Client, stream: str, source: str) -> dict[str, Any]:
    """Everything about a stream that is to come back as it was, as far as `source` told it."""
    work_queue = stream == "queue"
    seen = await state(nc, stream)
    if source == NEWEST:
        del seen["created"]  # it is not in a flat archive
    if not seen["messages"]:
        # Versions differ in what they say of an empty stream.
        for member in ("first_ts", "last_ts", "num_deleted", "deleted"):
            seen.pop(member, None)
    stand = await consumers(nc, stream)
    if source == DEBIAN and "idle" in stand:
        del stand["idle"]["ack_floor"]  # 2.9 has none before the first delivery
    return {
        "state": seen,
        "consumers": stand,
        # A work queue has its one consumer already.
        "messages": None if work_queue else await contents(nc, stream),
    }


# -- rounds ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [DEBIAN, NEWER, NEWEST])
def test_what_a_nats_server_wrote_comes_back_here_and_goes_back_there(
    servers: dict[str, ServerProcess], source: str
) -> None:
    async def run() -> None:
        async with clients(servers) as at:
            for name, fill in STREAMS.items():
                await fill(at[source], name)
                await round_trip(at, source, name)

    asyncio.run(run())


async def round_trip(at: dict[str, Client], source: str, name: str) -> None:
    """From `source` into eyotd, and from there into every server."""
    before = await look(at[source], name, source)
    taken = await backup(at[source], name)
    assert not taken.error, taken.answer
    check_answer(await restore(at["eyotd"], name, taken, chunk=7000))
    assert await look(at["eyotd"], name, source) == before
    ours = await backup(at["eyotd"], name)
    check_answer(ours.answer)
    for version, nc in at.items():
        if version in (source, "eyotd"):
            await api(nc, f"STREAM.DELETE.{name}")
        answer = await restore(nc, name, ours)
        assert "error" not in answer, (version, answer)
        assert await look(nc, name, source) == before, version


def test_fifty_thousand_messages_there_and_back(servers: dict[str, ServerProcess]) -> None:
    async def run() -> None:
        async with clients(servers) as at:
            name = "many"
            for source, chunk, window in ((NEWER, 0, 0), ("eyotd", 20_000, 100_000)):
                nc = at[source]
                await nc.jetstream().add_stream(StreamConfig(name=name, subjects=[f"{name}.>"]))
                for i in range(50_000):
                    await nc.publish(f"{name}.{i % 1000}", b"%d " % i * 20, reply="")
                await nc.flush()
                while (await state(nc, name))["messages"] < 50_000:
                    await asyncio.sleep(0.05)
                before = await look(nc, name, source)
                taken = await backup(nc, name, chunk_size=chunk, window_size=window)
                target = at["eyotd"] if source == NEWER else at[DEBIAN]
                answer = await restore(target, name, taken)
                assert answer.get("error") is None, answer
                assert await look(target, name, source) == before
                await api(at["eyotd"], f"STREAM.DELETE.{name}")

    asyncio.run(run())


def test_streams_in_memory_go_where_they_are_understood(servers: dict[str, ServerProcess]) -> None:
    async def run() -> None:
        async with clients(servers) as at:
            name = "volatile"
            js = at[NEWEST].jetstream()
            await js.add_stream(StreamConfig(name=name, subjects=[f"{name}.>"], storage="memory"))
            for i in range(300):
                await js.publish(f"{name}.x", b"%d" % i, headers={"N": str(i)})
            await js.delete_msg(name, 7)
            await js.add_consumer(name, ConsumerConfig(durable_name="half", ack_policy="explicit", ack_wait=3600))
            for msg in (await (await js.pull_subscribe("", durable="half", stream=name)).fetch(10))[:5]:
                await msg.ack_sync()
            before = await look(at[NEWEST], name, NEWEST)
            taken = await backup(at[NEWEST], name)
            check_answer(await restore(at["eyotd"], name, taken))
            assert await look(at["eyotd"], name, NEWEST) == before
            ours = await backup(at["eyotd"], name)
            await api(at[NEWEST], f"STREAM.DELETE.{name}")
            await restore(at[NEWEST], name, ours)
            assert await look(at[NEWEST], name, NEWEST) == before
            # An older server does not know the format and says so, instead of restoring an empty stream.
            refused = await restore(at[NEWER], name, ours)
            assert refused["error"]["err_code"] == 10062
            assert name not in ((await api(at[NEWER], "STREAM.NAMES"))["streams"] or [])
            # On disk it is a stream like others.
            await api(at["eyotd"], f"STREAM.DELETE.{name}")
            config = {**ours.answer["config"], "storage": "file"}
            await restore(at["eyotd"], name, ours, config=config)
            assert await contents(at["eyotd"], name) == before["messages"]

    asyncio.run(run())


def test_messages_that_expire_still_do(servers: dict[str, ServerProcess]) -> None:
    async def run() -> None:
        async with clients({name: servers[name] for name in ("eyotd", NEWER)}) as at:
            name = "fading"
            config = {"name": name, "subjects": [f"{name}.>"], "allow_msg_ttl": True}
            assert "error" not in await api(at[NEWER], f"STREAM.CREATE.{name}", config)
            for i, ttl in enumerate(("3s", "1h", "never", "")):
                await at[NEWER].jetstream().publish(f"{name}.{i}", b"x", headers={"Nats-TTL": ttl} if ttl else None)
            before = await look(at[NEWER], name, NEWER)
            await restore(at["eyotd"], name, await backup(at[NEWER], name))
            assert await look(at["eyotd"], name, NEWER) == before
            ours = await backup(at["eyotd"], name)
            await api(at[NEWER], f"STREAM.DELETE.{name}")
            await restore(at[NEWER], name, ours)
            assert await look(at[NEWER], name, NEWER) == before
            for nc in at.values():
                async with asyncio.timeout(20):
                    while (await state(nc, name))["messages"] > 3:
                        await asyncio.sleep(0.1)
                assert [subject for _, _, subject, _, _ in await contents(nc, name)] == [
                    f"{name}.{i}" for i in (1, 2, 3)
                ]

    asyncio.run(run())


def test_consumers_go_on_where_they_stood(servers: dict[str, ServerProcess]) -> None:
    """What is pending falls due, with its count; what comes next is what came next."""

    async def run() -> None:
        async with clients({name: servers[name] for name in ("eyotd", DEBIAN, NEWER)}) as at:
            name = "going"
            js = at[NEWER].jetstream()
            await js.add_stream(StreamConfig(name=name, subjects=[f"{name}.>"]))
            for i in range(30):
                await js.publish(f"{name}.x", b"%d" % i)
            await js.add_consumer(name, ConsumerConfig(durable_name="c", ack_policy="explicit", ack_wait=2))
            sub = await js.pull_subscribe("", durable="c", stream=name)
            for msg in (await sub.fetch(6))[:4]:
                await msg.ack_sync()
            await asyncio.sleep(2.1)
            again = await sub.fetch(2)
            assert [msg.metadata.num_delivered for msg in again] == [2, 2]
            taken = await backup(at[NEWER], name)
            await restore(at["eyotd"], name, taken)
            ours = await backup(at["eyotd"], name)
            await restore(at[DEBIAN], name, ours)
            for nc in (at["eyotd"], at[DEBIAN]):
                bound = await nc.jetstream().pull_subscribe("", durable="c", stream=name)
                got: list[tuple[int, int]] = []
                async with asyncio.timeout(20):
                    while len(got) < 26:
                        for msg in await bound.fetch(26 - len(got), timeout=5):
                            await msg.ack_sync()
                            got.append((msg.metadata.sequence.stream, msg.metadata.num_delivered))
                assert sorted(got) == [(5, 3), (6, 3), *((seq, 1) for seq in range(7, 31))]

    asyncio.run(run())


def damaged(taken: Backup) -> dict[str, bytes]:
    data = taken.data
    middle = len(data) // 2
    return {
        "nothing": b"",
        "words": b"this is no archive " * 100,
        "cut": data[:middle],
        "cut at its end": data[:-20],
        "flipped": data[:middle] + bytes((data[middle] ^ 0x40,)) + data[middle + 1 :],
        "flipped early": data[:15] + bytes((data[15] ^ 1,)) + data[16:],
        "a hole": data[: middle - 500] + data[middle:],
    }


@pytest.mark.parametrize("source", [DEBIAN, NEWER, NEWEST, "eyotd"])
def test_a_damaged_archive_leaves_nothing_behind(servers: dict[str, ServerProcess], source: str) -> None:
    async def run() -> None:
        async with clients({name: servers[name] for name in {"eyotd", source}}) as at:
            name = "deleted"
            await fill_deleted(at[source], name)
            before = await look(at[source], name, source)
            taken = await backup(at[source], name)
            if source == "eyotd":
                await api(at[source], f"STREAM.DELETE.{name}")
            nc = at["eyotd"]
            for what, data in damaged(taken).items():
                answer = await restore(nc, name, Backup(taken.answer, data), chunk=5000)
                assert answer.get("error", {}).get("err_code") == 10062, (what, answer)
                check_answer(answer)
                assert (await api(nc, f"STREAM.INFO.{name}"))["error"]["err_code"] == 10059, what
            account = await api(nc, "INFO")
            assert (account["streams"], account["storage"]) == (0, 0)
            await restore(nc, name, taken)
            assert await look(nc, name, source) == before

    asyncio.run(run())


def test_what_is_refused_is_refused_as_nats_server_does(servers: dict[str, ServerProcess]) -> None:
    async def tried(nc: Client, name: str) -> list[Any]:
        """The codes of requests that cannot be met."""
        js = nc.jetstream()
        await js.add_stream(StreamConfig(name=name, subjects=[f"{name}.>"]))
        await js.publish(f"{name}.x", b"x")
        taken = await backup(nc, name)
        config = taken.answer["config"]
        renamed_archive = archive_of("other", f"{name}.x")
        codes: list[Any] = [
            (await api(nc, "STREAM.SNAPSHOT.none", {"deliver_subject": "x"}))["error"]["err_code"],
            (await api(nc, f"STREAM.SNAPSHOT.{name}"))["error"]["err_code"],
            (await api(nc, f"STREAM.SNAPSHOT.{name}", {"deliver_subject": "x.*"}))["error"]["err_code"],
            (await api(nc, f"STREAM.SNAPSHOT.{name}", {"deliver_subject": "x", "no": 1}))["error"]["err_code"],
            (await api(nc, "STREAM.RESTORE.none"))["error"]["err_code"],
            (await restore(nc, name, taken))["error"],
            (await begin_restore(nc, "other", taken))["error"],
            (await begin_restore(nc, "other", taken, {**config, "name": "other", "max_age": 1}))["error"],
            # nats-server finds out at the end, eyotd at the beginning.
            (await restore(nc, "other", renamed_archive, config={**config, "name": "other"}))["error"],
        ]
        renamed = {**config, "name": "other", "subjects": ["other.>"]}
        codes.append((await restore(nc, "other", taken, config=renamed))["error"])
        codes.append((await restore(nc, "other", Backup(taken.answer, b"no archive"), config=renamed))["error"])
        begun = await begin_restore(nc, "other", taken, renamed)
        assert begun["deliver_subject"].startswith("$JS.SNAPSHOT.RESTORE.other.")
        await nc.publish(begun["deliver_subject"], taken.data)  # no reply subject: it is over
        await nc.flush()
        with pytest.raises(nats.errors.NoRespondersError):
            await nc.request(begun["deliver_subject"], b"", timeout=5)
        return codes

    async def run() -> None:
        async with clients({name: servers[name] for name in ("eyotd", NEWER)}) as at:
            theirs, ours = await asyncio.gather(tried(at[NEWER], "one"), tried(at["eyotd"], "one"))
            assert ours == theirs

    asyncio.run(run())


def test_mirrors_and_sources_go_on_where_their_last_message_says(servers: dict[str, ServerProcess]) -> None:
    async def run() -> None:
        async with clients({name: servers[name] for name in ("eyotd", NEWER)}) as at:
            nc, js = at[NEWER], at[NEWER].jetstream()
            await js.add_stream(StreamConfig(name="origin", subjects=["origin.>"]))
            await api(nc, "STREAM.CREATE.sourced", {"name": "sourced", "sources": [{"name": "origin"}]})
            await api(nc, "STREAM.CREATE.mirrored", {"name": "mirrored", "mirror": {"name": "origin"}})
            for i in range(10):
                await js.publish("origin.x", b"%d" % i)
            copies = ("sourced", "mirrored")
            await holding(nc, copies, 10)
            for name in ("origin", *copies):
                answer = await restore(at["eyotd"], name, await backup(nc, name))
                assert "error" not in answer, answer
                if name == "origin":
                    for i in range(10, 15):
                        await at["eyotd"].jetstream().publish("origin.x", b"%d" % i)
            await holding(at["eyotd"], copies, 15)
            for name in copies:
                held = await contents(at["eyotd"], name)
                assert [(seq, payload) for seq, _, _, _, payload in held] == [(i + 1, b"%d" % i) for i in range(15)]

    asyncio.run(run())


def test_no_header_of_a_client_moves_a_source_of_a_restored_stream(servers: dict[str, ServerProcess]) -> None:
    """A backup of Eyot says where its sources are; a nats-server's does not, and clients of 2.14 write what they like."""

    async def run() -> None:
        async with clients(servers) as at:
            for source in ("eyotd", NEWER):
                nc, js = at[source], at[source].jetstream()
                await js.add_stream(StreamConfig(name="origin", subjects=["origin.>"]))
                both = {"name": "both", "subjects": ["both.>"], "sources": [{"name": "origin"}]}
                await api(nc, "STREAM.CREATE.both", both)
                for i in range(3):
                    await js.publish("origin.x", b"%d" % i)
                await holding(nc, ("both",), 3)
                claim = {"Nats-Stream-Source": "origin 5 > > origin.x"}
                with suppress(APIError):
                    await js.publish("both.x", b"claim", headers=claim)
                taken = [(name, await backup(nc, name)) for name in ("both", "origin")]
                if source == "eyotd":
                    for theirs in (DEBIAN, NEWER, NEWEST):
                        assert "error" not in await restore(at[theirs], "both", taken[0][1])
                        assert (await state(at[theirs], "both"))["messages"] == 3
                        await api(at[theirs], "STREAM.DELETE.both")
                for name, _ in taken:
                    await api(at["eyotd"], f"STREAM.DELETE.{name}")
                for name, data in reversed(taken):
                    assert "error" not in await restore(at["eyotd"], name, data)
                for i in range(3, 8):
                    await at["eyotd"].jetstream().publish("origin.x", b"%d" % i)
                again = [] if source == "eyotd" else [b"claim", b"0", b"1", b"2"]
                expected = [b"0", b"1", b"2", *again, *(b"%d" % i for i in range(3, 8))]
                await holding(at["eyotd"], ("both",), len(expected))
                assert [payload for *_, payload in await contents(at["eyotd"], "both")] == expected
                for name in ("both", "origin"):
                    await api(at["eyotd"], f"STREAM.DELETE.{name}")

    asyncio.run(run())


async def holding(nc: Client, names: tuple[str, ...], count: int) -> None:
    """Wait until these streams hold so many messages."""
    async with asyncio.timeout(30):
        for name in names:
            while (await state(nc, name))["messages"] < count:
                await asyncio.sleep(0.05)


def test_advisories_say_the_same(servers: dict[str, ServerProcess]) -> None:
    async def heard(nc: Client) -> list[Any]:
        """Subject, and members but those that say when and who, of every advisory of a backup and a restore."""
        sub = await nc.subscribe("$JS.EVENT.ADVISORY.STREAM.*.one")
        await nc.jetstream().add_stream(StreamConfig(name="one", subjects=["one.>"]))
        await nc.jetstream().publish("one.x", b"x")
        taken = await backup(nc, "one")
        await api(nc, "STREAM.DELETE.one")
        await restore(nc, "one", taken)
        found = []
        while len(found) < 7:
            msg = await sub.next_msg(timeout=10)
            event = json.loads(msg.data)
            assert event.pop("timestamp")
            assert event.pop("id")
            assert event.pop("client", {"acc": "$G"})["acc"] == "$G"
            for member in ("start", "end"):
                assert member not in event or event.pop(member).endswith("Z")
            if "state" in event:
                del event["state"]["first_ts"], event["state"]["last_ts"]
            assert event.pop("bytes", len(taken.data)) == len(taken.data)
            found.append((msg.subject, event))
        return sorted(found, key=repr)

    async def run() -> None:
        async with clients({name: servers[name] for name in ("eyotd", NEWER)}) as at:
            theirs, ours = await asyncio.gather(heard(at[NEWER]), heard(at["eyotd"]))
            assert ours == theirs

    asyncio.run(run())


def test_a_flat_archive_can_be_restored_under_another_name(servers: dict[str, ServerProcess]) -> None:
    async def run() -> None:
        async with clients({name: servers[name] for name in ("eyotd", NEWEST)}) as at:
            await fill_bucket(at[NEWEST], "KV_bucket")
            taken = await backup(at[NEWEST], "KV_bucket")
            config = {**taken.answer["config"], "name": "KV_copy", "subjects": ["$KV.copy.>"]}
            subject = (await begin_restore(at["eyotd"], "KV_copy", taken, config))["deliver_subject"]
            answer = await send(at["eyotd"], subject, taken.data)
            assert (answer["config"]["name"], answer["state"]["messages"]) == (
                "KV_copy",
                taken.answer["state"]["messages"],
            )

    asyncio.run(run())


# -- the operator's tool -----------------------------------------------------------------------------------------------


async def clean(servers: dict[str, ServerProcess]) -> None:
    async with clients(servers):
        pass


def eyot(server: ServerProcess, *words: str) -> subprocess.CompletedProcess[str]:
    """`eyot`, as an operator calls it."""
    command = [sys.executable, "-m", "eyot_cli.main", "--server", server.client_url(), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_operators_tool(servers: dict[str, ServerProcess], tmp_path: Path) -> None:
    """A folder that `eyot backup` made of a nats-server's stream, restored into eyotd, and the other way round."""
    name = "deleted"

    async def fill() -> dict[str, Any]:
        async with clients({NEWER: servers[NEWER]}, keep=True) as at:
            await fill_deleted(at[NEWER], name)
            return await look(at[NEWER], name, NEWER)

    async def seen(server: str, *, keep: bool) -> dict[str, Any]:
        async with clients({server: servers[server]}, keep=keep) as at:
            return await look(at[server], name, NEWER)

    asyncio.run(clean(servers))
    before = asyncio.run(fill())
    held = before["state"]["messages"]
    theirs, ours = tmp_path / "deep" / "theirs", tmp_path / "ours"
    made = eyot(servers[NEWER], "backup", name, str(theirs))
    assert (made.returncode, made.stderr) == (0, "")
    assert made.stdout.startswith(f"deleted: {held} messages, ")
    assert sorted(each.name for each in theirs.iterdir()) == ["backup.json", "stream.tar.s2"]
    assert set(json.loads((theirs / "backup.json").read_text())) == {"config", "state"}
    restored = eyot(servers["eyotd"], "restore", str(theirs))
    assert (restored.returncode, restored.stdout) == (0, f"deleted: {held} messages, 3 consumers\n")
    assert asyncio.run(seen("eyotd", keep=True)) == before
    made = eyot(servers["eyotd"], "--json", "backup", "--check", name, str(ours))
    assert json.loads(made.stdout)["bytes"] == (ours / "stream.tar.s2").stat().st_size
    taken = eyot(servers[NEWER], "restore", str(ours))
    assert "already in use, cannot restore (10130)" in taken.stderr
    asyncio.run(seen(NEWER, keep=False))
    assert eyot(servers[NEWER], "restore", str(ours)).returncode == 0
    assert asyncio.run(seen(NEWER, keep=False)) == before
    asyncio.run(seen("eyotd", keep=False))
    # What cannot be done is said in one line, and leaves nothing.
    for words, said in (
        (("backup", name, str(ours)), "already holds a backup"),
        (("backup", "none", str(tmp_path / "none")), "stream not found (10059)"),
        (("restore", str(tmp_path)), "is not a backup: it has no backup.json"),
        (("backup", name, "/proc/none"), "/proc/none"),
    ):
        failed = eyot(servers["eyotd"], *words)
        assert failed.returncode == 1
        assert said in failed.stderr
    assert not (tmp_path / "none").exists()
