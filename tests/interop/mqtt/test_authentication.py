"""Enhanced authentication of MQTT 5: the method `nats-nkey`, at the beginning and again later."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eyot_wire.mqtt import encoder
from eyot_wire.mqtt.packet_types import PacketType
from eyot_wire.mqtt.packets import Connect
from eyot_wire.mqtt.properties import Properties
from eyot_wire.mqtt.reason_codes import ReasonCode
from eyot_wire.trust.creds import Credentials
from support.mqtt.raw_mqtt import Got, RawMqtt
from support.servers.eyotd import Eyotd
from support.trust.claims import ALPHA, OPERATOR, OTHER, SYSTEM, USER, Key, creds, operator_conf

METHOD = "nats-nkey"
BASE = 'jetstream { store_dir: "%WORKDIR%/js" }\nmqtt { listen: "127.0.0.1:%LEAF_PORT%" }\n'
NKEYS = f"""{BASE}
    authorization {{ users: [
        {{nkey: {USER.public}, permissions: {{ subscribe: "a.>", publish: ">" }}}}
        {{nkey: {OTHER.public}}}
        {{user: app, password: secret}}
    ] }}
"""
LIMITS = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
OPERATOR_MODE = f"{BASE}{operator_conf(OPERATOR.account(ALPHA, limits=LIMITS))}system_account: {SYSTEM.public}\n"


class Client(RawMqtt):
    """A client of MQTT 5 that may sign nonces."""

    def __init__(self, port: int) -> None:
        super().__init__(port, level=5)

    def begin(self, method: str = METHOD, **more: Any) -> None:
        """CONNECT with the method."""
        props = Properties(authentication_method=method)
        self.send(encoder.connect(Connect(5, more.pop("client_id", "c"), properties=props, **more)))

    def auth(self, reason: int, data: bytes | None = None, method: str | None = METHOD) -> None:
        self.send(encoder.auth(reason, Properties(authentication_method=method, authentication_data=data)))

    def nonce(self) -> str:
        """The server's challenge."""
        got = self.expect(PacketType.AUTH)
        assert (got.reason, got.properties.authentication_method) == (0x18, METHOD)
        assert got.properties.authentication_data
        return got.properties.authentication_data.decode()

    def sign(self, nonce: str, key: Key, token: str = "", **members: str) -> None:
        answer = {"sig": Credentials("", key.seed).sign(nonce)}
        answer |= {"jwt": token} if token else {"nkey": key.public}
        self.auth(0x18, json.dumps(answer | members).encode())

    def log_in(self, key: Key, token: str = "", **more: Any) -> Got:
        """CONNECT, the exchange, and the CONNACK."""
        self.begin(**more)
        self.sign(self.nonce(), key, token)
        return self.expect(PacketType.CONNACK)

    def again(self, key: Key, token: str = "") -> Got:
        """Authenticate again; the server's last word."""
        self.auth(0x19)
        self.sign(self.nonce(), key, token)
        return self.packet()


def test_users_with_nkeys(tmp_path: Path) -> None:
    with Eyotd(NKEYS, tmp_path) as server, Client(server.leaf_port) as client, Client(server.leaf_port) as other:
        connack = client.log_in(USER)
        assert (connack.reason, connack.properties.authentication_method) == (0, METHOD)
        assert client.subscribe("a/b", "b").codes == [0, 0x87]  # the permissions of that user
        client.publish("a/b", b"1")
        assert client.message().payload == b"1"
        assert other.log_in(OTHER, client_id="o").reason == 0
        assert other.subscribe("b").codes == [0]
        assert client.again(USER).reason == 0
        assert client.is_quiet()
        assert {each["mqtt_client"] for each in server.monitor("/connz")["connections"]} == {"c", "o"}


SPOILED: tuple[Callable[[Client, str], None], ...] = (
    lambda client, nonce: client.sign(nonce + "x", USER),
    lambda client, nonce: client.sign(nonce, USER, nkey=OTHER.public),
    lambda client, nonce: client.sign(nonce, SYSTEM),
    lambda client, nonce: client.sign(nonce, USER, sig="?"),
    lambda client, nonce: client.auth(0x18, b"{"),
    lambda client, nonce: client.auth(0x18, b'{"nkey": "x"}'),
    lambda client, nonce: client.auth(0x18, b"\xff" * 1000),
    lambda client, nonce: client.auth(0x18, None),
)


def test_wrong_answers_to_the_challenge(tmp_path: Path) -> None:
    with Eyotd(NKEYS, tmp_path) as server:
        for spoil in SPOILED:
            with Client(server.leaf_port) as client:
                client.begin()
                spoil(client, client.nonce())
                assert client.packet().reason == ReasonCode.NOT_AUTHORIZED
                assert client.closed()
            with Client(server.leaf_port) as client:
                assert client.log_in(USER).reason == 0
                client.auth(0x19)
                spoil(client, client.nonce())
                got = client.packet()
                assert (got.type, got.reason) == (PacketType.DISCONNECT, ReasonCode.NOT_AUTHORIZED)
                assert client.closed()


def test_packets_out_of_turn(tmp_path: Path) -> None:
    with Eyotd(NKEYS, tmp_path) as server:

        def refused(step: Callable[[Client], None], reason: int) -> None:
            with Client(server.leaf_port) as client:
                step(client)
                assert client.packet().reason == reason
                assert client.closed()

        def begun(client: Client) -> None:
            client.begin()
            client.nonce()

        def logged_in(client: Client) -> None:
            assert client.log_in(USER).reason == 0

        refused(lambda client: client.begin("SCRAM-SHA-256"), ReasonCode.BAD_AUTHENTICATION_METHOD)
        refused(lambda client: (begun(client), client.auth(0x19))[0], ReasonCode.PROTOCOL_ERROR)
        refused(lambda client: (begun(client), client.auth(0x18, b"{}", "other"))[0], ReasonCode.PROTOCOL_ERROR)
        refused(lambda client: (logged_in(client), client.auth(0x18, b"{}"))[0], ReasonCode.PROTOCOL_ERROR)
        refused(lambda client: (logged_in(client), client.auth(0x19, None, "other"))[0], ReasonCode.PROTOCOL_ERROR)
        refused(lambda client: (logged_in(client), client.auth(0x19, None, None))[0], ReasonCode.PROTOCOL_ERROR)
        with Client(server.leaf_port) as client:  # without a method there is no second time
            assert client.connect("p", user="app", password=b"secret").reason == 0
            client.auth(0x19)
            assert client.packet().reason == ReasonCode.PROTOCOL_ERROR
        with Client(server.leaf_port) as client:  # nothing but AUTH is due
            begun(client)
            client.publish("a/b", b"1")
            assert client.closed()
        with Client(server.leaf_port) as client:  # and nothing without a bound
            begun(client)
            client.send(b"\xf0\xff\xff\x03" + b"x" * 60_000)
            assert client.closed()


def test_without_users_that_sign_there_is_no_method(tmp_path: Path) -> None:
    with Eyotd(BASE, tmp_path) as server, Client(server.leaf_port) as client:
        client.begin()
        assert client.packet().reason == ReasonCode.BAD_AUTHENTICATION_METHOD


def token(seconds: int, user: Key = USER, **nats: Any) -> str:
    return ALPHA.user(user, claims={"exp": int(time.time()) + seconds}, **nats)


def test_a_newer_jwt_before_the_present_one_expires(tmp_path: Path) -> None:
    with Eyotd(OPERATOR_MODE, tmp_path) as server, Client(server.leaf_port) as client, Client(server.leaf_port) as late:
        first = token(8, **{"sub": {"allow": ["a", "b"]}})
        assert client.log_in(USER, first).reason == 0  # not a bearer token: it needs the signature
        assert late.log_in(USER, first, client_id="late").reason == 0
        assert client.subscribe("a", "b", "c").codes == [0, 0, 0x87]
        assert client.again(USER, token(3600, **{"sub": {"allow": ["a", "c"]}})).reason == 0
        assert client.subscribe("c").codes == [0]
        for topic in ("a", "b", "c"):
            client.publish(topic, topic.encode())
        assert [client.message().topic for _ in range(2)] == ["a", "c"]  # the new permissions are in force
        assert client.is_quiet()
        shown = {each["mqtt_client"]: each["jwt"] for each in server.monitor("/connz?auth=1")["connections"]}
        assert shown["late"] == first
        assert shown["c"] != first
        got = late.packet()  # who does not authenticate again ends
        assert (got.type, got.reason) == (PacketType.DISCONNECT, ReasonCode.MAXIMUM_CONNECT_TIME)
        client.publish("a", b"still here")
        assert client.message().payload == b"still here"


def test_another_user_may_not_go_on_in_the_session(tmp_path: Path) -> None:
    with Eyotd(OPERATOR_MODE, tmp_path) as server, Client(server.leaf_port) as client:
        assert client.log_in(USER, token(3600)).reason == 0
        got = client.again(OTHER, token(3600, OTHER))
        assert (got.type, got.reason) == (PacketType.DISCONNECT, ReasonCode.NOT_AUTHORIZED)
        assert client.closed()


def test_eyot_mqtt_with_credentials(tmp_path: Path) -> None:
    file = tmp_path / "user.creds"
    file.write_text(creds(token(3600), USER))
    with Eyotd(OPERATOR_MODE, tmp_path) as server:

        def eyot(*arguments: str) -> tuple[int, str, str]:
            done = subprocess.run(
                [sys.executable, "-m", "eyot_cli.main", "--creds", str(file), "mqtt", *arguments],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
                env=os.environ | {"EYOT_MQTT_URL": f"mqtt://127.0.0.1:{server.leaf_port}"},
            )
            return done.returncode, done.stdout, done.stderr

        assert eyot("pub", "-t", "a", "-m", "1", "-q", "1", "-r") == (0, "", "")
        assert eyot("sub", "-t", "a", "-C", "1", "-W", "60") == (0, "1\n", "")
        assert eyot("sub", "-t", "a", "-V", "311")[2] == "eyot: --creds and --nkey need MQTT 5: leave -V out\n"
        file.write_text(creds(token(-10), USER))
        status, _, err = eyot("pub", "-t", "a", "-m", "1")
        assert status == 1
        assert "not authorized (0x87)" in err
