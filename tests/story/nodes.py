"""The two brokers of the story, each a real process on ports of its own: `eyotd`, or Debian's `nats-server` in its place."""

from __future__ import annotations

import time
from pathlib import Path

from support.servers.server_process import ServerProcess, executable

CONFIG = """
server_name: {name}
listen: "127.0.0.1:%CLIENT_PORT%"
http: "127.0.0.1:%MONITOR_PORT%"
jetstream {{ store_dir: "%WORKDIR%/{name}-store", domain: {name}{jetstream} }}
leafnodes {{ {leafnodes} }}
accounts {{
    FLEET {{ users: [{{user: fleet, password: fleet}}], jetstream: enabled }}
    SYS {{ users: [{{user: admin, password: admin}}] }}
}}
system_account: SYS
{mqtt}
"""

#: The sensor's listener. The port is the one that a leaf node does not need for leaf nodes of its own.
MQTT = 'mqtt { listen: "127.0.0.1:%LEAF_PORT%" }'


class Node(ServerProcess):
    """One broker with JetStream in the domain `name`; a leaf of `remote_port` when that is given."""

    def __init__(
        self, kind: str, name: str, folder: Path, *, remote_port: int | None = None, jetstream: str = ""
    ) -> None:
        self.kind = kind
        self.name = name
        #: a command that ends by executing what follows it
        self.before: list[str] = []
        if remote_port is None:
            leafnodes = 'listen: "127.0.0.1:%LEAF_PORT%", no_advertise: true'
        else:
            leafnodes = f'remotes = [ {{ url: "nats://fleet:fleet@127.0.0.1:{remote_port}", account: FLEET }} ]'
        self.speaks_mqtt = kind == "eyotd" and remote_port is not None
        mqtt = MQTT if self.speaks_mqtt else ""
        super().__init__(CONFIG.format(name=name, leafnodes=leafnodes, jetstream=jetstream, mqtt=mqtt), folder)

    @property
    def port(self) -> int:
        return self.client_port

    @property
    def url(self) -> str:
        return self.client_url("fleet")

    def command(self) -> list[str]:
        return [*self.before, executable(self.kind), "-c", str(self.config_path)]

    def timed_start(self) -> float:
        """Starts it; returns the seconds until it greeted a client."""
        begun = time.monotonic()
        self.start()
        return time.monotonic() - begun
