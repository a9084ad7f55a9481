"""Clients that others wrote: mosquitto_pub and mosquitto_sub, Paho for C and for Python, aiomqtt, MQTT.js."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiomqtt
import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from support.clients.raw_client import RawClient
from support.devices.javascript import javascript_folder
from support.servers.eyotd import Eyotd
from support.servers.server_process import executable

CONFIG = """
    jetstream { store_dir: "%WORKDIR%/js" }
    mqtt { listen: "127.0.0.1:%LEAF_PORT%" }
"""
TIMEOUT_S = 60
VERSIONS = ("mqttv311", "mqttv5")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Eyotd]:
    with Eyotd(CONFIG, tmp_path) as made:
        yield made


class Mosquitto:
    """mosquitto's clients with one version of the protocol."""

    def __init__(self, server: Eyotd, version: str) -> None:
        self.server = server
        self._where = ("-h", "127.0.0.1", "-p", str(server.leaf_port), "-V", version)

    def pub(self, *arguments: str, typed: str = "") -> None:
        command = [executable("mosquitto_pub"), *self._where, *arguments]
        done = subprocess.run(command, input=typed, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert (done.returncode, done.stderr) == (0, "")

    def sub(self, *arguments: str) -> str:
        command = [executable("mosquitto_sub"), *self._where, "-W", str(TIMEOUT_S), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S + 30, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    @contextmanager
    def listening(self, topic: str, *arguments: str) -> Iterator[Callable[[], str]]:
        """A subscriber, once the server knows it; yields what returns its output when it ends by itself."""
        command = [executable("mosquitto_sub"), *self._where, "-W", str(TIMEOUT_S), "-t", topic, *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            subject = topic.replace("/", ".").replace("#", "x")
            while not self.server.monitor(f"/subsz?subs=1&test={subject}")["total"]:
                assert process.poll() is None
                time.sleep(0.01)
            try:
                yield lambda: process.communicate(timeout=TIMEOUT_S + 30)[0]
            finally:
                process.kill()


@pytest.fixture(params=VERSIONS)
def mosquitto(request: pytest.FixtureRequest, server: Eyotd) -> Mosquitto:
    return Mosquitto(server, request.param)


def test_mosquitto_publishes_and_subscribes(mosquitto: Mosquitto) -> None:
    with mosquitto.listening("t/#", "-q", "2", "-C", "5", "-F", "%t %q %r %p") as output:
        for qos in ("0", "1", "2"):
            mosquitto.pub("-t", f"t/{qos}", "-m", f"m{qos}", "-q", qos)
        mosquitto.pub("-t", "t/lines", "-l", "-q", "1", typed="one\ntwo\n")
        assert output().splitlines() == ["t/0 0 0 m0", "t/1 1 0 m1", "t/2 2 0 m2", "t/lines 1 0 one", "t/lines 1 0 two"]


def test_mosquitto_retains_and_clears(mosquitto: Mosquitto) -> None:
    mosquitto.pub("-t", "r/a", "-m", "a", "-r", "-q", "1")
    mosquitto.pub("-t", "r/b", "-m", "b", "-r", "-q", "2")
    assert mosquitto.sub("-t", "r/#", "-v", "-C", "2") == "r/a a\nr/b b\n"
    mosquitto.pub("-t", "r/a", "-n", "-r", "-q", "1")
    assert mosquitto.sub("-t", "r/#", "-v", "-C", "1") == "r/b b\n"


def test_mosquittos_session_waits(mosquitto: Mosquitto) -> None:
    lasting = ("-c", "-i", "panel", "-q", "1", "-t", "q/#")
    if "mqttv5" in mosquitto._where:
        lasting += ("-x", "3600")
    assert mosquitto.sub(*lasting, "-E") == ""
    for number in range(3):
        mosquitto.pub("-t", "q/x", "-m", str(number), "-q", "1")
    mosquitto.server.kill()
    mosquitto.server.start()
    assert mosquitto.sub(*lasting, "-C", "3") == "0\n1\n2\n"


def test_mosquittos_will(mosquitto: Mosquitto) -> None:
    will = ("--will-topic", "gone", "--will-payload", "left", "--will-qos", "1")
    with mosquitto.listening("gone", "-C", "1") as output:
        with mosquitto.listening("x", *will):
            pass  # it is killed
        assert output() == "left\n"


def test_mosquitto_reads_the_topics_of_dashboards(mosquitto: Mosquitto) -> None:
    found = dict(line.split(" ", 1) for line in mosquitto.sub("-t", "$SYS/broker/+", "-v", "-C", "2").splitlines())
    assert sorted(found) == ["$SYS/broker/uptime", "$SYS/broker/version"]
    assert found["$SYS/broker/version"].startswith("Eyot ")
    assert mosquitto.sub("-t", "$SYS/broker/retained messages/count", "-C", "1") == "0\n"


def test_mosquittos_properties_become_headers(server: Eyotd) -> None:
    mosquitto = Mosquitto(server, "mqttv5")
    with RawClient(server.client_port, headers=True) as nats:
        nats.ask(b"SUB p 1\r\n")
        user = ("-D", "publish", "user-property", "Unit", "C", "-D", "publish", "content-type", "text/plain")
        mosquitto.pub("-t", "p", "-m", "21", "-q", "1", *user)
        got = nats.until(b"\r\n21\r\n")
        assert b"Unit: C\r\n" in got
        assert b"Content-Type: text/plain\r\n" in got


def test_aiomqtt(server: Eyotd) -> None:
    def client(name: str, **more: Any) -> Any:
        return aiomqtt.Client(
            "127.0.0.1", server.leaf_port, identifier=name, protocol=aiomqtt.ProtocolVersion.V5, **more
        )

    async def play() -> None:
        async with asyncio.timeout(TIMEOUT_S), client("panel") as panel, client("sensor") as sensor:
            await panel.subscribe("plant/+/temp", qos=2)
            for qos in (0, 1, 2):
                await sensor.publish(f"plant/{qos}/temp", payload=f"m{qos}", qos=qos, retain=qos == 1)
            got = [await anext(panel.messages) for _ in range(3)]
            assert [(str(each.topic), each.payload, each.qos, each.retain) for each in got] == [
                ("plant/0/temp", b"m0", 0, False),
                ("plant/1/temp", b"m1", 1, False),
                ("plant/2/temp", b"m2", 2, False),
            ]
            await sensor.subscribe("plant/#", qos=1)
            kept = await anext(sensor.messages)
            assert (str(kept.topic), kept.payload, kept.retain) == ("plant/1/temp", b"m1", True)
            await asyncio.gather(*(sensor.publish("plant/n/temp", payload=str(number), qos=1) for number in range(200)))
            numbers = [int((await anext(panel.messages)).payload) for _ in range(200)]
            assert numbers == list(range(200))

    asyncio.run(play())


def wait_until(happened: Callable[[], bool], *seen: Sequence[object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not happened():
        assert time.monotonic() < deadline, seen
        time.sleep(0.02)


@pytest.fixture(scope="session")
def paho_for_c(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("paho") / "paho"
    source = str(Path(__file__).parents[1] / "clients" / "paho.c")
    subprocess.run(
        ["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-o", path, source, "-lpaho-mqtt3c"], check=True
    )
    return path


@pytest.mark.parametrize("version", [4, 5])
def test_paho_for_c(server: Eyotd, paho_for_c: Path, tmp_path: Path, version: int) -> None:
    command = [str(paho_for_c), str(server.leaf_port), str(version), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    unit = " C" if version == 5 else ""
    assert done.stdout.splitlines() == [
        *(f"t/{qos} {qos} m{qos}{unit}" for qos in (0, 1, 2)),
        *(f"t/away {qos} q{qos}{unit}" for qos in (1, 2)),
    ]


@pytest.mark.parametrize("version", [paho.MQTTv311, paho.MQTTv5])
def test_paho_for_python_over_a_kill(server: Eyotd, version: int) -> None:
    """What the client could not publish while the server was away arrives, in order."""
    is_v5 = version == paho.MQTTv5
    made = paho.Client(
        CallbackAPIVersion.VERSION2, "paho python", clean_session=None if is_v5 else False, protocol=version
    )
    expiry = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    expiry.SessionExpiryInterval = 300
    got: list[tuple[str, bytes, int]] = []
    made.on_message = lambda _client, _data, message: got.append((message.topic, message.payload, message.qos))
    published: list[int] = []
    made.on_publish = lambda _client, _data, mid, _reason, _properties: published.append(mid)
    made.reconnect_delay_set(1, 1)
    made.connect("127.0.0.1", server.leaf_port, properties=expiry if is_v5 else None)
    made.subscribe("living room/#", qos=1)
    made.loop_start()
    try:
        for number in range(3):
            made.publish("living room/lamp", b"%d" % number, qos=1)
        wait_until(lambda: len(set(published)) == 3, published, got)
        server.kill()
        for number in range(3, 6):
            made.publish("living room/lamp", b"%d" % number, qos=1)
        server.start()
        wait_until(lambda: len(set(published)) == 6 == len(set(got)), published, got)
    finally:
        made.loop_stop()
    assert list(dict.fromkeys(got)) == [("living room/lamp", b"%d" % number, 1) for number in range(6)]


MQTT_JS = """
import mqtt from 'mqtt';
const [port, version] = [Number(process.argv[1]), Number(process.argv[2])];
const options = {protocolVersion: version, clientId: 'js', clean: true, reconnectPeriod: 0};
const client = mqtt.connect(`mqtt://127.0.0.1:${port}`, options);
const got = [];
client.on('error', error => { console.error(String(error)); process.exit(1); });
client.on('message', (topic, payload, packet) => {
  got.push([topic, payload.toString(), packet.qos]);
  if (got.length === 3) client.end(false, () => console.log(JSON.stringify(got)));
});
client.on('connect', () => client.subscribe('t/#', {qos: 2}, () => {
  client.publish('t/0', 'm0', {qos: 0}, () =>
    client.publish('t/1', 'm1', {qos: 1}, () => client.publish('t/2', 'm2', {qos: 2})));
}));
"""


@pytest.mark.parametrize("version", [4, 5])
def test_mqtt_js(server: Eyotd, version: int) -> None:
    command = ["node", "--input-type=module", "-e", MQTT_JS, str(server.leaf_port), str(version)]
    done = subprocess.run(
        command, cwd=javascript_folder(), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == [["t/0", "m0", 0], ["t/1", "m1", 1], ["t/2", "m2", 2]]
