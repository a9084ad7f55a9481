"""Brokers of MQTT beside each other, and their load generator, which is compiled when it is needed."""

from __future__ import annotations

import resource
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

from support.servers.newer_nats_server import VERSION, binary
from support.servers.server_process import ServerProcess, executable

SOURCE = Path(__file__).with_name("mqtt_load.c")
FLOOR_SOURCE = Path(__file__).with_name("mqtt_floor.c")
TIMEOUT_S = 300

#: What Eyot and nats-server share. Clients come from several addresses, and nobody logs in: so with mosquitto.
NATS_CONFIG = """
server_name: bench
listen: "127.0.0.1:%CLIENT_PORT%"
http: "127.0.0.1:%MONITOR_PORT%"
max_connections: 70000
jetstream {{ store_dir: "%WORKDIR%/store"{jetstream} }}
mqtt {{ listen: "0.0.0.0:%LEAF_PORT%" }}
{more}
"""
#: Eyot's queues are bounded, mosquitto's are not with `max_queued_messages 0`.
OUR_BOUNDS = "eyot { mqtt { session_queue_msgs: 1000000, session_queue_bytes: 1G } }"
#: Nothing is dropped, as with the others. It saves its database every half hour, and when it ends.
MOSQUITTO_CONFIG = """
listener %LEAF_PORT%
allow_anonymous true
log_type warning
persistence {persistence}
persistence_location %WORKDIR%/
max_queued_messages 0
max_inflight_messages 1000
user root
"""


class NatsPeer(ServerProcess):
    """Eyot, or nats-server with MQTT. `jetstream`: more keys of that block."""

    def __init__(self, kind: str, folder: Path, jetstream: str = "") -> None:
        self.kind = kind
        super().__init__(NATS_CONFIG.format(jetstream=jetstream, more=OUR_BOUNDS if kind == "eyotd" else ""), folder)

    @property
    def mqtt_port(self) -> int:
        return self.leaf_port

    def command(self) -> list[str]:
        return [executable(self.kind), "-c", str(self.config_path)]


class Mosquitto(ServerProcess):
    """Debian's mosquitto."""

    name = "mosquitto"

    def __init__(self, folder: Path, *, persistence: bool) -> None:
        super().__init__(MOSQUITTO_CONFIG.format(persistence="true" if persistence else "false"), folder)
        folder.chmod(0o777)  # it writes as another user when root starts it

    @property
    def mqtt_port(self) -> int:
        return self.leaf_port

    def set_config(self, config: str) -> None:
        text = config.replace("%LEAF_PORT%", str(self.leaf_port)).replace("%WORKDIR%", str(self.workdir))
        self.config_path.write_text(text)

    def command(self) -> list[str]:
        return [executable("mosquitto"), "-c", str(self.config_path)]

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Wait until it listens."""
        assert self.process is not None
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and self.running:
            if listens(self.mqtt_port):
                return
            time.sleep(0.01)
        raise RuntimeError(f"{self.name} is not ready:\n{self.log()[-4000:]}")


class Floor(Mosquitto):
    """The compiled mqtt_floor.c: what no broker is faster than."""

    name = "floor"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, persistence=True)
        self._path = folder / "mqtt_floor"
        subprocess.run(["cc", "-O2", "-o", self._path, FLOOR_SOURCE], check=True)

    def command(self) -> list[str]:
        return [str(self._path), str(self.mqtt_port), str(self.workdir / "journal")]


Peer = NatsPeer | Mosquitto | Floor


def listens(port: int) -> bool:
    """Whether a listener of TCP is on this port of the machine."""
    wanted = f":{port:04X}"
    lines = [
        line.split() for family in ("tcp", "tcp6") for line in Path(f"/proc/net/{family}").read_text().splitlines()
    ]
    return any(line[1].endswith(wanted) and line[3] == "0A" for line in lines)


def wait_listens(peer: Peer) -> None:
    """Wait until the listener of MQTT is there."""
    while not listens(peer.mqtt_port):
        if not peer.running:
            raise RuntimeError(f"{peer.name} ended:\n{peer.log()[-4000:]}")
        time.sleep(0.01)


def allow_files() -> None:
    """Let this process and its servers open as many files as the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def nats_server(folder: Path, jetstream: str = "") -> NatsPeer:
    """The nats-server whose MQTT stands beside."""
    return NatsPeer(binary(VERSION), folder, jetstream)


@cache
def _load() -> tuple[str, tempfile.TemporaryDirectory[str]]:
    folder = tempfile.TemporaryDirectory(prefix="eyot-mqtt-load-")
    path = f"{folder.name}/mqtt_load"
    subprocess.run(["cc", "-O2", "-o", path, SOURCE], check=True)
    return path, folder


def load(*words: object) -> float:
    """Run the generator (its modes: `mqtt_load.c`) and return the seconds that it prints."""
    return float(_output([str(word) for word in words]) or 0)


def _output(words: list[str]) -> str:
    done = subprocess.run([_load()[0], *words], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"mqtt_load {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


class Connections:
    """Clients that stay connected until the end of the `with` block; `seconds`: until all were served."""

    def __init__(self, peer: Peer, count: int, how: str) -> None:
        words = [_load()[0], "connect", str(peer.mqtt_port), str(count), how]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.close()
            raise RuntimeError(f"{peer.name} does not serve {count} connections:\n{peer.log()[-2000:]}")
        self.seconds = float(line)

    def __enter__(self) -> Connections:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(TIMEOUT_S)


def lost_by_kill(peer: Peer, connections: int, payload: int, milliseconds: int) -> tuple[int, int]:
    """Publish to the queue of a session that is away, SIGKILL the broker, start it again and take the queue.

    Returns how many messages were acknowledged, and how many of them did not come.
    """
    load("queue", peer.mqtt_port, "away", "bench/queued")
    words = [_load()[0], "kill", peer.mqtt_port, connections, payload, milliseconds, peer.pid, "bench/queued", "away"]
    process = subprocess.Popen([str(each) for each in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    acknowledged = int(process.stdout.readline())
    peer.kill()
    peer.start()
    wait_listens(peer)
    process.stdin.write("up\n")
    process.stdin.close()
    came = int(process.stdout.readline())
    process.wait(TIMEOUT_S)
    return acknowledged, acknowledged - came
