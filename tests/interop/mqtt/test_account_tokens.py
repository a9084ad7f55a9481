"""MQTT follows the JetStream of an account JWT: off, on, and with other limits, while the daemon runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import pytest

from eyot_wire.mqtt import encoder
from eyot_wire.mqtt.packet_types import PacketType
from eyot_wire.mqtt.packets import Connect
from eyot_wire.mqtt.properties import Properties
from eyot_wire.mqtt.reason_codes import ReasonCode
from eyot_wire.trust.creds import Credentials
from support.links.bridge_fixture import link, until
from support.mqtt.raw_mqtt import RawMqtt
from support.servers.eyotd import Eyotd
from support.servers.mosquitto import Mosquitto, publish
from support.trust.claims import ADMIN, ALPHA, OPERATOR, SYSTEM, USER, creds, operator_conf

METHOD = "nats-nkey"
ON = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}


BRIDGE = """
eyot {{ bridges {{ cloud {{
    url: "mqtt://127.0.0.1:{port}", account: {account}, reconnect: "200ms"
    topics {{ in: {{ filter: "cmd/#", local_prefix: "from/", qos: 1 }} }}
}} }} }}
"""


def account(limits: dict[str, int]) -> str:
    return OPERATOR.account(ALPHA, limits=limits)


class Client(RawMqtt):
    """A user of the account, by its key; the session outlives the connection."""

    def __init__(self, server: Eyotd, client_id: str) -> None:
        super().__init__(server.leaf_port, level=5)
        props = Properties(authentication_method=METHOD, session_expiry_interval=3600)
        self.send(encoder.connect(Connect(5, client_id, properties=props, clean_start=False)))
        nonce = self.expect(PacketType.AUTH).properties.authentication_data
        assert nonce
        answer = {"sig": Credentials("", USER.seed).sign(nonce.decode()), "jwt": ALPHA.user(USER)}
        data = json.dumps(answer).encode()
        self.send(encoder.auth(0x18, Properties(authentication_method=METHOD, authentication_data=data)))
        self.reason = self.expect(PacketType.CONNACK).reason


class Site:
    """A daemon in operator mode, whose account JWTs change by `CLAIMS.UPDATE`."""

    def __init__(self, folder: Path, more: str = "") -> None:
        resolver = f'{{ type: full, dir: "{folder / "jwt"}" }}'
        mqtt = 'jetstream { store_dir: "%WORKDIR%/js" }\nmqtt { listen: "127.0.0.1:%LEAF_PORT%" }\n'
        trust = f"{operator_conf(account(ON), resolver=resolver)}system_account: {SYSTEM.public}\n"
        self.server = Eyotd(f"server_name: gateway\n{mqtt}{trust}{more}", folder)
        self._admin = folder / "admin.creds"
        self._admin.write_text(creds(SYSTEM.user(ADMIN), ADMIN))

    def update(self, limits: dict[str, int]) -> None:
        """Push the account's token; returns when the server has it."""

        async def push() -> Any:
            client = await nats.connect(self.server.client_url(), user_credentials=str(self._admin))
            try:
                answer = await client.request("$SYS.REQ.CLAIMS.UPDATE", account(limits).encode(), timeout=60)
                return json.loads(answer.data)
            finally:
                await client.close()

        assert asyncio.run(push())["data"]["code"] == 200

    def login(self, client_id: str) -> ReasonCode:
        with Client(self.server, client_id) as client:
            return ReasonCode(client.reason)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    with made.server:
        yield made


def test_jetstream_goes_off_and_on(site: Site) -> None:
    """Clients go when it goes, and find their sessions when it is back."""
    with Client(site.server, "away") as away:
        assert away.subscribe("t", qos=1).codes == [1]
        away.disconnect()
    for _ in range(2):
        with Client(site.server, "connected") as connected:
            site.update({})
            assert connected.expect(PacketType.DISCONNECT).reason == ReasonCode.ADMINISTRATIVE_ACTION
            assert connected.closed()
        assert site.login("new") is ReasonCode.SERVER_UNAVAILABLE
        site.update(ON)
        assert site.login("new") is ReasonCode.SUCCESS
    with Client(site.server, "again") as again:
        assert again.publish_acked("t", b"x", qos=1) == 0
    with Client(site.server, "away") as away:
        assert away.message().payload == b"x"


def test_limits_change(site: Site) -> None:
    """What does not fit is refused with a reason, and fits when the limit is raised."""
    with Client(site.server, "away") as away:
        assert away.subscribe("t", qos=1).codes == [1]
        away.disconnect()
    with Client(site.server, "connected") as connected:
        site.update(ON | {"disk_storage": 50_000})
        reasons = [connected.publish_acked("t", bytes(20_000), qos=1) for _ in range(3)]
        assert reasons[0] == ReasonCode.SUCCESS
        assert reasons[-1] >= ReasonCode.UNSPECIFIED_ERROR
        site.update(ON)
        assert connected.publish_acked("t", b"fits", qos=1) == 0
    stored = reasons.count(ReasonCode.SUCCESS)
    with Client(site.server, "away") as away:
        assert [len(away.message().payload) for _ in range(stored + 1)] == [20_000] * stored + [4]


def test_a_bridge_follows(tmp_path: Path) -> None:
    """What its remote has meanwhile waits there, and is taken in when JetStream is on again."""
    with Mosquitto(tmp_path / "mosquitto") as broker:
        site = Site(tmp_path, BRIDGE.format(port=broker.port, account=ALPHA.public))
        with site.server:
            until(lambda: link(site.server)["state"] == "up")
            with Client(site.server, "there") as there:
                assert there.subscribe("from/#", qos=1).codes == [1]
                until(lambda: publish(broker.port, "cmd/x", "begin", 1) or not there.is_quiet(), "nothing is taken in")
                there.disconnect()
            site.update({})
            until(lambda: "MQTT needs JetStream" in (link(site.server)["last_error"] or ""))
            publish(broker.port, "cmd/x", "late", 1)
            site.update(ON)
            with Client(site.server, "there") as there:
                while there.message().payload == b"begin":
                    pass
