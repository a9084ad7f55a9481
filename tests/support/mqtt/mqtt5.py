"""A server for tests of MQTT 5, and clients of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from eyot_wire.mqtt.packet_types import PacketType
from eyot_wire.mqtt.properties import Properties
from support.mqtt.raw_mqtt import Closed, Got, RawMqtt
from support.servers.eyotd import Eyotd

CONFIG = """
server_name: mqtt
jetstream { store_dir: "%WORKDIR%/js" }
authorization { users: [ { user: a, password: a }
    { user: few, password: few, permissions: { publish: "few.>", subscribe: "few.>" } } ] }
mqtt { listen: "127.0.0.1:%LEAF_PORT%", MORE }
eyot { mqtt { max_keepalive: 300 } }
"""
PATIENCE_S = 60.0
LASTS = Properties(session_expiry_interval=3600)


@contextmanager
def mqtt5_server(workdir: Path) -> Iterator[Eyotd]:
    """Run a server, and look for tracebacks in its log at the end."""
    with Eyotd(CONFIG.replace("MORE", ""), workdir) as running:
        yield running
        log = running.log()
        assert "Traceback" not in log, log[log.index("Traceback") - 300 :][:5000]


def client(server: Eyotd, client_id: str = "", *, level: int = 5, user: str = "a", **more: object) -> RawMqtt:
    """A client that is connected; `connack` is what it was answered."""
    made = RawMqtt(server.leaf_port, level=level)
    made.sock.settimeout(PATIENCE_S)
    connack = made.connect(client_id, user=user, password=user.encode(), **more)  # type: ignore[arg-type]
    assert connack.reason == 0, connack
    made.connack = connack  # type: ignore[attr-defined]
    return made


def connack(made: RawMqtt) -> Got:
    return made.connack  # type: ignore[attr-defined, no-any-return]


def ended(made: RawMqtt) -> int:
    """Read to the end of the connection; the reason of its DISCONNECT, 0 without one."""
    reason = 0
    try:
        while True:
            got = made.packet()
            reason = got.reason if got.type is PacketType.DISCONNECT else reason
    except Closed:
        return reason
