"""Bridges to brokers that keep what they acknowledge (another Eyot), that speak 3.1.1 only (nats-server), and that refuse."""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from eyot_wire.mqtt import encoder
from eyot_wire.mqtt.packets import Connack, Connect, Publish
from eyot_wire.mqtt.reader import PacketReader
from support.links.bridge_fixture import SLOW, Nats, config, first_seen, is_confirmed, link, status, until
from support.servers.eyotd import Eyotd
from support.servers.mosquitto import publish
from support.servers.newer_nats_server import NewerNatsServer
from support.servers.server_process import ServerProcess, executable, free_port
from support.trust.certificates import Authority

REMOTE = """
listen: 127.0.0.1:%CLIENT_PORT%
server_name: remote
jetstream {{ store_dir: "%WORKDIR%/js" }}
mqtt {{ listen: "127.0.0.1:%LEAF_PORT%" }}
{more}
"""


def numbered(count: int, first: int = 0) -> list[str]:
    return [f"{number:05d}" for number in range(first, first + count)]


def remote_of(kind: str, workdir: Path, more: str = "") -> ServerProcess:
    return (Eyotd if kind == "eyotd" else NewerNatsServer)(REMOTE.format(more=more), workdir)


@pytest.fixture(params=["eyotd", "nats-server"])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    """A broker with MQTT, not started; its MQTT port is the one that the helper keeps for leaf nodes."""
    server = remote_of(request.param, tmp_path / "remote")
    yield server
    server.kill()


def gateway(workdir: Path, remote: ServerProcess, bridge: str, eyot: str = "") -> Eyotd:
    return Eyotd(config(f"mqtt://127.0.0.1:{remote.leaf_port}", bridge, eyot=eyot), workdir / "gateway")


@pytest.mark.parametrize("qos", [1, 2])
def test_both_directions(remote: ServerProcess, qos: int, tmp_path: Path) -> None:
    """MQTT 5 with Eyot, 3.1.1 with nats-server, which does not speak 5."""
    remote.start()
    bridge = f'streams: READINGS, qos: {qos}, topics {{ out: "r/#", in: "cmd/#" }}'
    with gateway(tmp_path, remote, bridge) as server:
        here, there = Nats(server), Nats(remote)
        here.stream("READINGS", ["r.>"])
        here.stream("COMMANDS", ["cmd.>"])
        there.stream("TAKEN", ["r.>"])
        here.publish("r.a.b", numbered(300), {"Unit": "kelvin"})
        until(lambda: is_confirmed(server, 300))
        assert there.messages("TAKEN") == [("r.a.b", number) for number in numbered(300)]
        version = "MQTT 5.0" if isinstance(remote, Eyotd) else "MQTT 3.1.1"
        assert link(server)["peer_name"] == version
        until(lambda: _arrives(here, there))


def _arrives(here: Nats, there: Nats) -> bool:
    """The subscription may not be there yet."""
    there.publish_core("cmd.x", "go")
    return here.count("COMMANDS") > 0


@pytest.mark.parametrize("qos", [1, 2])
def test_kills_of_both_sides_under_load(qos: int, tmp_path: Path) -> None:
    """The remote keeps what it acknowledges: QoS 1 is there at least once, in order; QoS 2 exactly once."""
    total, rng = 1000, random.Random(qos)
    remote = remote_of("eyotd", tmp_path / "remote")
    with remote, gateway(tmp_path, remote, f"streams: READINGS, qos: {qos}, max_inflight: 20", SLOW) as server:
        here, there = Nats(server), Nats(remote)
        here.stream("READINGS", ["r.>"])
        there.stream("TAKEN", ["r.>"])
        here.publish("r.a", numbered(total))
        for part in (1, 2):
            until(lambda part=part: there.count("TAKEN") >= part * total // 4)  # type: ignore[misc]
            victims = rng.choice([[server], [remote], [server, remote]])
            for each in victims:
                each.kill()
            for each in victims:
                each.start()
        until(lambda: is_confirmed(server, total))
        found = [payload for _, payload in there.messages("TAKEN")]
        assert first_seen(found) == numbered(total)
        if qos == 2:
            assert len(found) == total, "some came twice"


def test_refused_topics(tmp_path: Path) -> None:
    """What the remote refuses is sent again, and nothing is lost; or it is passed over, and named."""
    users = "authorization {{ users: [ {{ user: gw, password: gw, permissions: {{ publish: {allowed} }} }} ] }}"
    remote = remote_of("eyotd", tmp_path / "remote", users.format(allowed='["ok.>", "ok"]'))
    login = "streams: READINGS, credentials { user: gw, password: gw }"
    with remote, gateway(tmp_path, remote, login + ', retry: "200ms"') as server:
        here = Nats(server)
        here.stream("READINGS", ["ok.>", "no.>"])
        here.publish("ok.a", ["1"])
        here.publish("no.a", ["2"])
        here.publish("ok.a", ["3"])
        error = until(lambda: status(server).get("error"))
        assert "refuses message 2 on topic no/a: not authorized (0x87)" in error
        until(lambda: status(server)["confirmed_seq"] == 1)
        assert not server.monitor("/eyot/syncz")["synced"]
        assert "not authorized (0x87)" in server.log()
        remote.set_config(REMOTE.format(more=users.format(allowed='">"')))
        remote.signal(signal.SIGHUP)
        until(lambda: is_confirmed(server, 3))
        remote.set_config(REMOTE.format(more=users.format(allowed='["ok.>", "ok"]')))
        remote.signal(signal.SIGHUP)
        until(lambda: remote.log().count("Reloaded server configuration") == 2)
        server.set_config(config(f"mqtt://127.0.0.1:{remote.leaf_port}", login + ", refused: skip"))
        server.signal(signal.SIGHUP)
        server.wait_log("bridge cloud changed")
        here.publish("no.a", ["4"])
        here.publish("ok.a", ["5"])
        until(lambda: is_confirmed(server, 5))
        assert [(each["reason"], each["sequences"]) for each in status(server)["lost"]] == [("refused", ["4"])]
        assert link(server)["dropped"]["refused"] == 1


def test_a_full_remote_is_tried_again(tmp_path: Path) -> None:
    """0x97 passes: whatever `refused` says, the message is sent again."""
    remote = remote_of("eyotd", tmp_path / "remote")
    with remote, gateway(tmp_path, remote, 'streams: READINGS, refused: skip, retry: "200ms"') as server:
        here, there = Nats(server), Nats(remote)
        here.stream("READINGS", ["r.>"])
        there.stream("TAKEN", ["r.>"], max_msgs=10, discard="new")
        here.publish("r.a", numbered(30))
        assert "quota exceeded (0x97)" in until(lambda: status(server).get("error"))
        until(lambda: status(server)["confirmed_seq"] == 10)
        there.purge("TAKEN")
        until(lambda: status(server)["confirmed_seq"] >= 20)
        there.purge("TAKEN")
        until(lambda: is_confirmed(server, 30))
        assert status(server)["never_arrived"] == 0


def test_a_full_stream_here_holds_back_the_remote(tmp_path: Path) -> None:
    """What cannot be stored is not acknowledged, and arrives when there is room, in order."""
    remote = remote_of("eyotd", tmp_path / "remote")
    with remote, gateway(tmp_path, remote, 'topics { in: "cmd/#" }') as server:
        here, there = Nats(server), Nats(remote)
        here.stream("COMMANDS", ["cmd.>"], max_msgs=5, discard="new")
        until(lambda: _arrives(here, there))
        here.purge("COMMANDS")
        for number in numbered(12):
            publish(remote.leaf_port, "cmd/x", number)
        until(lambda: "is tried again" in server.log())
        found: list[str] = []
        while len(found) < 12:
            until(lambda: here.count("COMMANDS") > 0)
            found += [payload for _, payload in here.messages("COMMANDS") if payload != "go"]
            here.purge("COMMANDS")
        assert first_seen(found) == numbered(12)


def test_websocket_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    port = free_port()
    websocket = f'websocket {{ listen: "127.0.0.1:{port}", {authority.block("remote")} }}'
    remote = remote_of("eyotd", tmp_path / "remote", websocket)
    text = config(f"wss://localhost:{port}/mqtt", f'streams: READINGS, tls {{ ca_file: "{authority.ca_file}" }}')
    with remote, Eyotd(text, tmp_path / "gateway") as server:
        here, there = Nats(server), Nats(remote)
        here.stream("READINGS", ["r.>"])
        there.stream("TAKEN", ["r.>"])
        here.publish("r.a", numbered(200))
        until(lambda: is_confirmed(server, 200))
        assert there.messages("TAKEN") == [("r.a", number) for number in numbered(200)]


def test_a_bridge_that_is_gone_is_forgotten_on_request(tmp_path: Path) -> None:
    remote = remote_of("eyotd", tmp_path / "remote")
    with remote, gateway(tmp_path, remote, "streams: READINGS") as server:
        here = Nats(server)
        here.stream("READINGS", ["r.>"])
        here.publish("r.a", numbered(10))
        until(lambda: is_confirmed(server, 10))
        eyot = [executable("eyotd").removesuffix("d"), "--control", f"http://127.0.0.1:{server.monitor_port}"]
        eyot += ["--server", server.client_url(), "sync"]
        waits = subprocess.run([*eyot, "wait", "--timeout", "30"], capture_output=True, text=True, check=False)
        assert (waits.returncode, "Everything is confirmed" in waits.stdout) == (0, True), waits.stderr
        forget = [*eyot, "forget", "READINGS", "cloud"]
        while_there = subprocess.run(forget, capture_output=True, text=True, check=False)
        assert "replicates READINGS at present" in while_there.stderr
        server.set_config('jetstream { store_dir: "%WORKDIR%/js" }\n')
        server.restart()
        assert "no bridge cloud forwards" in status(server)["error"]
        subprocess.run(forget, capture_output=True, text=True, check=True)
        assert status(server) == {}


class ClosingBroker(threading.Thread):
    """A broker of 3.1.1 that refuses as AWS IoT Core does: it closes the connection of a client that publishes on `bad/...`."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.got: list[str] = []
        self.closings = 0

    def run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, suppress(ConnectionError):
                self._serve(connection)

    def _serve(self, connection: socket.socket) -> None:
        reader = PacketReader(1 << 20, connect_bytes_max=1 << 20)
        while data := connection.recv(65536):
            for packet in reader.feed(data):
                if isinstance(packet, Connect):
                    connection.sendall(encoder.connack(4, Connack()))
                elif isinstance(packet, Publish):
                    if packet.topic.startswith("bad/"):
                        self.closings += 1
                        return
                    self.got.append(packet.payload.decode())
                    connection.sendall(encoder.puback(4, packet.packet_id))

    def close(self) -> None:
        self._listener.close()


@pytest.mark.parametrize("refused", ["skip", "retry"])
def test_a_remote_that_closes_the_connection(refused: str, tmp_path: Path) -> None:
    broker = ClosingBroker()
    broker.start()
    bridge = f'streams: READINGS, protocol_version: "3.1.1", refused: {refused}, retry: "60s"'
    text = config(f"mqtt://127.0.0.1:{broker.port}", bridge)
    try:
        with Eyotd(text, tmp_path) as server:
            here = Nats(server)
            here.stream("READINGS", ["ok.>", "bad.>"])
            here.publish("ok.a", numbered(30))
            here.publish("bad.a", ["refused"])
            here.publish("ok.a", numbered(30, 30))
            if refused == "skip":
                until(lambda: is_confirmed(server, 61))
                assert first_seen(broker.got) == numbered(60)
                assert [(each["reason"], each["sequences"]) for each in status(server)["lost"]] == [("refused", ["31"])]
            else:
                error = until(lambda: _error_with("closes the connection", server))
                assert "message 31 on topic bad/a" in error
                assert status(server)["confirmed_seq"] == 30
                assert not server.monitor("/eyot/syncz")["synced"]
            assert broker.closings >= 5
    finally:
        broker.close()


def _error_with(words: str, server: Eyotd) -> str:
    error = str(status(server).get("error"))
    return error if words in error else ""
