"""Streams of a real eyotd as nats-py, unchanged, uses them; raw API answers held against the NATS project's schemas."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, Placement, RePublish, StorageType, StreamConfig, StreamSource
from nats.js.errors import APIError, BadRequestError, NotFoundError

from support.clients.nats_py import play_alone
from support.jetstream.schemas import check_answer, check_pub_ack
from support.servers.eyotd import Eyotd

CONFIG = """
server_name: edge
jetstream { store_dir: "%WORKDIR%/js", domain: edge }
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Eyotd]:
    with Eyotd(CONFIG, tmp_path_factory.mktemp("eyotd")) as eyotd:
        yield eyotd


async def api(client: Client, words: str, body: Any = None, prefix: str = "$JS.API") -> Any:
    data = b"" if body is None else json.dumps(body).encode()
    answer = await client.request(f"{prefix}.{words}", data, timeout=5)
    return check_answer(json.loads(answer.data))


async def refusal(call: Awaitable[Any], kind: type[APIError] = BadRequestError) -> int | None:
    with pytest.raises(kind) as refused:
        await call
    return refused.value.err_code


def test_a_stream_is_created_used_changed_and_deleted(server: Eyotd) -> None:
    async def test(client: Client, js: JetStreamContext) -> None:
        info = await js.add_stream(name="ORDERS", subjects=["orders.>"])
        assert info.config.storage == StorageType.FILE
        ack = await js.publish("orders.new", b"one", headers={"Kind": "first"})
        assert (ack.stream, ack.seq, ack.domain) == ("ORDERS", 1, "edge")
        for number in range(9):
            await js.publish("orders.more", b"%d" % number)
        info = await js.stream_info("ORDERS", subjects_filter="orders.*")
        assert info.state.messages == 10
        assert info.state.subjects == {"orders.new": 1, "orders.more": 9}
        message = await js.get_msg("ORDERS", 1)
        assert (message.data, message.subject, message.headers) == (b"one", "orders.new", {"Kind": "first"})
        assert (await js.get_last_msg("ORDERS", "orders.more")).seq == 10
        assert (await js.get_msg("ORDERS", subject="orders.more", next=True)).seq == 2
        assert await js.delete_msg("ORDERS", 2)
        assert await refusal(js.get_msg("ORDERS", 2), NotFoundError) == 10037
        updated = await js.update_stream(StreamConfig(name="ORDERS", subjects=["orders.>"], max_msgs=3))
        assert updated.state.messages == 3
        assert await js.purge_stream("ORDERS", keep=1)
        assert await js.find_stream_name_by_subject("orders.x") == "ORDERS"
        assert await js.delete_stream("ORDERS")
        assert await refusal(js.stream_info("ORDERS"), NotFoundError) == 10059

    play_alone(server, test)


def test_everything_is_there_after_sigkill(tmp_path: Path) -> None:
    with Eyotd(CONFIG, tmp_path) as eyotd:

        async def before() -> None:
            client = await nats.connect(eyotd.client_url())
            js = client.jetstream()
            await js.add_stream(name="S", subjects=["s.>"], storage=StorageType.FILE)
            acks = await asyncio.gather(
                *[js.publish("s.a", b"%d" % n, headers={"Nats-Msg-Id": str(n)}) for n in range(200)]
            )
            assert sorted(ack.seq for ack in acks) == list(range(1, 201))
            await client.close()

        async def after() -> None:
            client = await nats.connect(eyotd.client_url())
            js = client.jetstream()
            info = await js.stream_info("S")
            assert (info.state.messages, info.state.first_seq, info.state.last_seq) == (200, 1, 200)
            assert (await js.publish("s.a", b"again", headers={"Nats-Msg-Id": "7"})).duplicate
            assert (await js.publish("s.a", b"new")).seq == 201
            await client.close()

        asyncio.run(before())
        eyotd.kill()
        eyotd.start()
        asyncio.run(after())


def test_publishing_with_expectations(server: Eyotd) -> None:
    async def test(client: Client, js: JetStreamContext) -> None:
        await js.add_stream(name="S", subjects=["s.>"])
        await js.publish("s.a", b"1", stream="S", headers={"Nats-Expected-Last-Sequence": "0"})
        assert await refusal(js.publish("s.a", b"2", headers={"Nats-Expected-Last-Sequence": "9"})) == 10071
        assert await refusal(js.publish("s.a", b"2", stream="T")) == 10060
        first = await js.publish("s.a", b"2", headers={"Nats-Msg-Id": "x"})
        again = await js.publish("s.a", b"2", headers={"Nats-Msg-Id": "x"})
        assert (first.seq, first.duplicate, again.seq, again.duplicate) == (2, None, 2, True)

    play_alone(server, test)


def test_a_full_stream_refuses_or_makes_room(server: Eyotd) -> None:
    async def test(client: Client, js: JetStreamContext) -> None:
        await js.add_stream(name="NEW", subjects=["new"], max_msgs=2, discard=DiscardPolicy.NEW)
        await js.publish("new", b"1")
        await js.publish("new", b"2")
        assert await refusal(js.publish("new", b"3"), APIError) == 10077
        await js.add_stream(name="OLD", subjects=["old.*"], max_msgs_per_subject=1)
        for number in range(5):
            await js.publish(f"old.{number % 2}", b"%d" % number)
        assert (await js.stream_info("OLD")).state.messages == 2

    play_alone(server, test)


def test_ages(server: Eyotd) -> None:
    async def test(client: Client, js: JetStreamContext) -> None:
        await js.add_stream(name="S", subjects=["s"], max_age=0.3)
        await js.publish("s", b"1")
        while (await js.stream_info("S")).state.messages:
            await asyncio.sleep(0.05)
        assert (await js.publish("s", b"2")).seq == 2

    play_alone(server, test)


def test_republishing_reaches_subscribers(server: Eyotd) -> None:
    async def test(client: Client, js: JetStreamContext) -> None:
        await js.add_stream(name="S", subjects=["s.*"], republish=RePublish(src="s.*", dest="live.{{wildcard(1)}}"))
        live = await client.subscribe("live.>")
        await js.publish("s.a", b"x")
        message = await live.next_msg(timeout=5)
        assert (message.subject, message.data) == ("live.a", b"x")
        assert message.headers is not None
        assert message.headers["Nats-Sequence"] == "1"

    play_alone(server, test)


def test_direct_get(server: Eyotd) -> None:
    async def test(client: Client, js: JetStreamContext) -> None:
        await js.add_stream(name="S", subjects=["s.*"], allow_direct=True)
        for number in range(4):
            await js.publish(f"s.{number % 2}", b"%d" % number)
        message = await js.get_msg("S", subject="s.0", direct=True)
        assert (message.seq, message.data) == (3, b"2")
        assert (await js.get_msg("S", 2, direct=True)).data == b"1"
        assert await refusal(js.get_msg("S", 99, direct=True), NotFoundError) is None

    play_alone(server, test)


def test_mirrors_and_sources_copy_within_the_account(server: Eyotd) -> None:
    async def test(client: Client, js: JetStreamContext) -> None:
        await js.add_stream(name="ORIGIN", subjects=["o.>"])
        for number in range(20):
            await js.publish("o.a", b"%d" % number)
        await js.add_stream(name="MIRROR", mirror=StreamSource(name="ORIGIN"))
        await js.add_stream(name="SOURCED", sources=[StreamSource(name="ORIGIN", filter_subject="o.*")])
        for name in ("MIRROR", "SOURCED"):
            async with asyncio.timeout(10):
                while (await js.stream_info(name)).state.messages < 20:
                    await asyncio.sleep(0.02)
        assert (await js.get_msg("MIRROR", 20)).data == b"19"
        info = await js.stream_info("MIRROR")
        assert info.mirror is not None
        assert info.mirror.lag == 0
        await js.publish("o.b", b"more")
        async with asyncio.timeout(10):
            while (await js.stream_info("SOURCED")).state.messages < 21:
                await asyncio.sleep(0.02)

    play_alone(server, test)


def test_refusals_have_nats_servers_codes(server: Eyotd) -> None:
    async def test(client: Client, js: JetStreamContext) -> None:
        await js.add_stream(name="S", subjects=["s.>"])
        assert await refusal(js.add_stream(name="S", subjects=["t"])) == 10058
        assert await refusal(js.add_stream(name="T", subjects=["s.x"])) == 10065
        assert await refusal(js.add_stream(name="T", num_replicas=3), APIError) == 10074
        await js.add_stream(name="P", placement=Placement(cluster="c", tags=["t"]))
        assert await refusal(js.add_stream(name="T", subjects=[">"]), APIError) == 10052
        assert (await api(client, "STREAM.CREATE.T", {"name": "T", "allow_nothing": True}))["error"][
            "err_code"
        ] == 10025

    play_alone(server, test)


def test_answers_fit_the_schemas(server: Eyotd) -> None:
    async def test(client: Client, js: JetStreamContext) -> None:
        full = {
            "name": "S",
            "subjects": ["s.>"],
            "description": "all of it",
            "max_age": 3_600_000_000_000,
            "duplicate_window": 1_000_000_000,
            "max_msgs_per_subject": 5,
            "metadata": {"owner": "me"},
            "republish": {"src": "s.*", "dest": "r.{{wildcard(1)}}", "headers_only": True},
            "subject_transform": {"src": "s.*", "dest": "s.{{wildcard(1)}}"},
            "consumer_limits": {"max_ack_pending": 10, "inactive_threshold": 1_000_000_000},
            "compression": "s2",
            "first_seq": 10,
        }
        assert (await api(client, "STREAM.CREATE.S", full))["did_create"]
        check_pub_ack(json.loads((await client.request("s.a", b"x")).data))
        check_pub_ack(json.loads((await client.request("s.a", b"x", headers={"Nats-Expected-Stream": "T"})).data))
        await api(client, "STREAM.CREATE.M", {"name": "M", "mirror": {"name": "S", "external": {"api": "$JS.x.API"}}})
        for words, body in (
            ("INFO", None),
            ("STREAM.INFO.S", {"subjects_filter": ">", "deleted_details": True}),
            ("STREAM.INFO.M", None),
            ("STREAM.LIST", None),
            ("STREAM.NAMES", None),
            ("STREAM.UPDATE.S", {**full, "description": "changed"}),
            ("STREAM.MSG.GET.S", {"seq": 10}),
            ("STREAM.MSG.DELETE.S", {"seq": 10}),
            ("STREAM.PURGE.S", None),
            ("STREAM.DELETE.M", None),
            ("STREAM.DELETE.M", None),
        ):
            await api(client, words, body)
            await api(client, words, body, prefix="$JS.edge.API")

    play_alone(server, test)


def test_an_account_without_jetstream(tmp_path: Path) -> None:
    config = (
        CONFIG
        + "accounts { A { jetstream: enabled, users: [{user: a, password: a}] }, B { users: [{user: b, password: b}] } }"
    )
    with Eyotd(config, tmp_path) as eyotd:

        async def run() -> None:
            with_js = await nats.connect(eyotd.client_url("a"))
            without = await nats.connect(eyotd.client_url("b"))
            await with_js.jetstream().add_stream(name="S", subjects=["s"])
            assert (await api(without, "INFO"))["error"]["err_code"] == 10039
            assert (await api(with_js, "INFO"))["streams"] == 1
            await with_js.close()
            await without.close()

        asyncio.run(run())
