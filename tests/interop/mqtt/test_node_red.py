"""Node-RED with a flow from its `mqtt in` nodes to its `mqtt out` nodes, with MQTT 3.1.1 and 5."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.devices.javascript import javascript_folder
from support.mqtt.raw_mqtt import RawMqtt
from support.servers.eyotd import Eyotd
from support.servers.server_process import free_port

#: What Node-RED may take to start, and to answer, seconds.
TIMEOUT_S = 90.0

CONFIG = """
    jetstream { store_dir: "%WORKDIR%/js" }
    mqtt { listen: "127.0.0.1:%LEAF_PORT%" }
"""


def flow(port: int, version: int) -> list[dict[str, Any]]:
    """The nodes of one version; the broker is told `nodered/VERSION` = online, and offline as the will."""
    broker, status = f"broker{version}", f"nodered/{version}"
    state = {
        f"{when}{key}": value
        for when, payload in (("birth", "online"), ("will", "offline"))
        for key, value in (("Topic", status), ("Qos", "1"), ("Retain", "true"), ("Payload", payload))
    }
    return [
        {
            **{"id": broker, "type": "mqtt-broker", "name": f"eyot by {version}", "broker": "127.0.0.1"},
            **{"port": str(port), "clientid": f"node-red {version}", "autoConnect": True, "usetls": False},
            **{"protocolVersion": str(version), "keepalive": "60", "cleansession": False, "sessionExpiry": "300"},
            **state,
        },
        {
            **{"id": f"in{version}", "type": "mqtt in", "z": "tab", "topic": "living room/#", "qos": "2"},
            **{"datatype": "utf8", "broker": broker, "inputs": 0, "wires": [[f"out{version}"]]},
        },
        {
            **{"id": f"out{version}", "type": "mqtt out", "z": "tab", "topic": f"out/{version}", "qos": "2"},
            **{"retain": "", "broker": broker, "wires": []},
        },
    ]


@contextmanager
def node_red(folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    nodes = [{"id": "tab", "type": "tab", "label": "t"}, *flow(port, 4), *flow(port, 5)]
    (folder / "flows.json").write_text(json.dumps(nodes))
    red = javascript_folder("node-red") / "node_modules" / "node-red" / "red.js"
    command = ["node", str(red), "-u", str(folder), "-p", str(free_port()), "flows.json"]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield process
        finally:
            process.kill()


def test_node_red(tmp_path: Path) -> None:
    flows = tmp_path / "flows"
    flows.mkdir()
    with Eyotd(CONFIG, tmp_path) as server, RawMqtt(server.leaf_port) as panel:
        panel.sock.settimeout(TIMEOUT_S)
        panel.connect("panel")
        panel.subscribe("out/+", "nodered/+", qos=2)
        with node_red(flows, server.leaf_port):
            assert _sorted(panel, 2) == [("nodered/4", b"online"), ("nodered/5", b"online")]
            with RawMqtt(server.leaf_port) as lamp:
                lamp.connect("lamp")
                for number in range(3):
                    lamp.publish_acked("living room/lamp", b"%d" % number, qos=2)
            got = [panel.message() for _ in range(6)]
            for version in (4, 5):
                assert [each.payload for each in got if each.topic == f"out/{version}"] == [b"0", b"1", b"2"]
        assert _sorted(panel, 2) == [("nodered/4", b"offline"), ("nodered/5", b"offline")]


def _sorted(panel: RawMqtt, count: int) -> list[tuple[str, bytes]]:
    got = [panel.message() for _ in range(count)]
    return sorted((each.topic, each.payload) for each in got)
