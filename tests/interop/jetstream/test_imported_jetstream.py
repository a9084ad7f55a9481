"""JetStream across accounts: a durable pull consumer and a stream's deliveries reached through imports.

The accounts are those of NATS' own documentation of leaf nodes with domains, against `eyotd` and Debian's `nats-server`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import nats
import pytest
from nats.js.api import ConsumerConfig

from support.servers.eyotd import Eyotd
from support.servers.nats_server import NatsServer
from support.servers.server_process import ServerProcess

CONFIG = """
server_name: hub
jetstream { store_dir: "%WORKDIR%/js", domain: hub }
accounts {
    SYS: { users: [{user: admin, password: admin}] },
    ACC: {
        users: [{user: acc, password: acc}],
        jetstream: enabled
        exports: [
            {service: "$JS.hub.API.CONSUMER.CREATE.*", response_type: "stream"}
            {stream: "deliver.acc.hub.>"}
            {service: "$JS.hub.API.CONSUMER.MSG.NEXT.orders.dur", response_type: "stream"}
            {service: "$JS.hub.API.CONSUMER.INFO.orders.dur"}
            {service: "$JS.ACK.orders.dur.>"}
            {service: "$JS.FC.orders.dur.>"}
            {service: "$JS.API.INFO"}
        ]
    }
    ASKS_OTHERS: {
        users: [{user: asks_others, password: asks_others}]
        imports: [ {service: {account: ACC, subject: "$JS.API.INFO"}} ]
    }
    HAS_NONE: { users: [{user: has_none, password: has_none}] }
    IMPORT_CLIENT: {
        users: [{user: import_client, password: import_client}],
        jetstream: enabled
        imports: [
            {service: {account: ACC, subject: "$JS.hub.API.CONSUMER.MSG.NEXT.orders.dur"},
             to: "JS.acc@hub.API.CONSUMER.MSG.NEXT.orders.dur" }
            {service: {account: ACC, subject: "$JS.hub.API.CONSUMER.INFO.orders.dur"},
             to: "JS.acc@hub.API.CONSUMER.INFO.orders.dur" }
            {service: {account: ACC, subject: "$JS.ACK.orders.dur.>"}}
            {stream: {account: ACC, subject: "deliver.acc.hub.import_client.>"}}
        ]
    }
}
system_account: SYS
"""


@pytest.fixture(params=["eyotd", "nats-server"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    kind = Eyotd if request.param == "eyotd" else NatsServer
    with kind(CONFIG, tmp_path_factory.mktemp(request.param)) as process:
        yield process


def test_an_account_that_imports_the_info_has_no_api_of_its_own(server: ServerProcess) -> None:
    """What it does not import is answered by nobody, so that clients know that nothing is there to ask."""

    async def play() -> None:
        asks_others = await nats.connect(server.client_url("asks_others"))
        info = json.loads((await asks_others.request("$JS.API.INFO", timeout=5)).data)
        assert "error" not in info
        with pytest.raises(nats.errors.NoRespondersError):
            await asks_others.request("$JS.API.STREAM.NAMES", timeout=5)
        has_none = await nats.connect(server.client_url("has_none"))
        names = json.loads((await has_none.request("$JS.API.STREAM.NAMES", timeout=5)).data)
        assert names["error"]["err_code"] == 10039
        await asks_others.close()
        await has_none.close()

    asyncio.run(asyncio.wait_for(play(), 30))


def test_a_pull_consumer_of_another_account(server: ServerProcess) -> None:
    async def play() -> None:
        owner = await nats.connect(server.client_url("acc"))
        js = owner.jetstream(domain="hub")
        await js.add_stream(name="orders", subjects=["orders.>"])
        await js.add_consumer("orders", ConsumerConfig(durable_name="dur", ack_policy="explicit", ack_wait=30))
        for number in range(20):
            await js.publish(f"orders.{number % 3}", b"%d" % number, headers={"N": str(number)})
        guest = await nats.connect(server.client_url("import_client"))
        foreign = guest.jetstream(prefix="JS.acc@hub.API")
        sub = await foreign.pull_subscribe_bind("dur", "orders")
        got = [msg for _ in range(4) for msg in await sub.fetch(5, timeout=5)]
        assert [(msg.subject, msg.data) for msg in got] == [(f"orders.{n % 3}", b"%d" % n) for n in range(20)]
        assert [msg.headers for msg in got] == [{"N": str(n)} for n in range(20)]
        assert [msg.metadata.sequence.stream for msg in got] == list(range(1, 21))
        for msg in got:
            await msg.ack()
        await guest.flush()
        for _ in range(100):
            info = await js.consumer_info("orders", "dur")
            if info.num_ack_pending == 0:
                break
            await asyncio.sleep(0.02)
        assert (info.num_ack_pending, info.num_pending, info.ack_floor.stream_seq) == (0, 0, 20)
        await guest.close()
        await owner.close()

    asyncio.run(asyncio.wait_for(play(), 30))


def test_deliveries_of_another_account(server: ServerProcess) -> None:
    async def play() -> None:
        owner = await nats.connect(server.client_url("acc"))
        js = owner.jetstream(domain="hub")
        await js.add_stream(name="orders", subjects=["orders.>"])
        await js.publish("orders.1", b"first")
        guest = await nats.connect(server.client_url("import_client"))
        sub = await guest.subscribe("deliver.acc.hub.import_client.x")
        await guest.flush()
        await js.add_consumer(
            "orders", ConsumerConfig(deliver_subject="deliver.acc.hub.import_client.x", ack_policy="none")
        )
        msg = await sub.next_msg(timeout=5)
        assert (msg.subject, msg.data) == ("orders.1", b"first")
        assert msg.reply.startswith("$JS.ACK.orders.")
        await guest.close()
        await owner.close()

    asyncio.run(asyncio.wait_for(play(), 30))
