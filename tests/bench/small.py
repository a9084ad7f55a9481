"""What `eyot { profile: small }` keeps of 256 MB while peers do their worst.

    .venv/bin/python tests/bench/small.py [--data 192]

The daemon runs under RLIMIT_DATA (`--data`, MiB; 0 for none): heap and other private memory beyond it is refused by the kernel. The
map of the store and the code are not counted there; `VmHWM`, the largest resident memory, has them. Each attack is one daemon's
life. It passes when the daemon still answers a new client, and its log names no lack of memory.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import socket
import sys
import tempfile
import time
import urllib.request
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.clients.raw_client import RawClient
from support.clients.websocket_client import WebSocketClient
from support.servers.eyotd import Eyotd

CONFIG = """
jetstream { store_dir: "%WORKDIR%/js" }
websocket { listen: "127.0.0.1:%LEAF_PORT%", no_tls: true, compression: true }
eyot { PROFILE }
"""
MIB = 1 << 20


def resident(pid: int, key: str) -> float:
    """MiB."""
    found = re.search(rf"{key}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def connection_flood(server: Eyotd) -> str:
    """Ten thousand connections one after the other, a thousand of them at a time, that say nothing or log in."""
    kept: list[socket.socket] = []
    for number in range(10_000):
        try:
            sock = socket.create_connection(("127.0.0.1", server.client_port), timeout=30)
        except OSError:
            continue
        if number % 2:
            try:
                sock.sendall(b"CONNECT {}\r\nSUB a.%d 1\r\nPING\r\n" % number)
            except OSError:
                pass
        kept.append(sock)
        if len(kept) > 1000:
            kept.pop(0).close()
    text = f"{metric(server, 'eyot_connections_refused_total'):,.0f} refused"
    for sock in kept:
        sock.close()
    return text


def half_payloads(server: Eyotd, connections: int = 63, hold_s: float = 0.0) -> str:
    """All connections send nearly all of a payload of 1 MiB, and stop."""
    clients = []
    for _ in range(connections):
        client = RawClient(server.client_port)
        client.send(b"PING\r\n")
        client.until(b"PONG\r\n")
        client.send(b"PUB a 1048576\r\n" + b"x" * (MIB - 10))
        clients.append(client)
    time.sleep(hold_s)
    with RawClient(server.client_port) as probe:
        probe.send(b"PING\r\n")
        probe.until(b"PONG\r\n")
    return "-"


def slow_readers(server: Eyotd, connections: int = 60) -> str:
    """Connections subscribe and read nothing, each to its own subject, while one publishes 1 GiB."""
    readers = []
    for number in range(connections):
        reader = RawClient(server.client_port)
        reader.send(b"SUB s.%d 1\r\nPING\r\n" % number)
        reader.until(b"PONG\r\n")
        readers.append(reader)
    payload = b"x" * 200_000
    with RawClient(server.client_port) as publisher:
        for turn in range(90):
            for number in range(connections):
                publisher.send(b"PUB s.%d %d\r\n%b\r\n" % (number, len(payload), payload))
            if turn % 5 == 0:
                publisher.send(b"PING\r\n")
                publisher.until(b"PONG\r\n")
    return f"{metric(server, 'eyot_slow_consumers_total'):,.0f} closed"


def bombs(server: Eyotd) -> str:
    """WebSocket messages of 64 KiB that expand to 64 MiB, by 200 clients before and after login."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = deflate.compress(b"\0" * (64 * MIB)) + deflate.flush(zlib.Z_SYNC_FLUSH)
    bomb = bomb[:-4]
    frame = b"\xc2" + b"\xff" + len(bomb).to_bytes(8, "big") + b"\0\0\0\0" + bomb
    closed = 0
    for number in range(200):
        client = WebSocketClient(server.leaf_port, compress=True, connect=b"{}" if number % 2 else None)
        try:
            client.sock.sendall(frame)
            while client.sock.recv(65536):
                pass
            closed += 1
        except OSError:
            closed += 1
        client.sock.close()
    return f"{closed} of 200 closed, frames of {len(bomb):,} bytes"


def many_streams(server: Eyotd, connections: int = 20) -> str:
    """Five hundred streams, half of them in memory, and connections that publish to them as fast as they can."""
    with RawClient(server.client_port) as client:
        client.send(b"SUB _I 1\r\n")
        for number in range(500):
            storage = "memory" if number % 2 else "file"
            body = json.dumps({"name": f"S{number}", "subjects": [f"m.{number}"], "storage": storage}).encode()
            client.send(b"PUB $JS.API.STREAM.CREATE.S%d _I %d\r\n%b\r\n" % (number, len(body), body))
            client.until(b"}\r\n")
    publishers = [RawClient(server.client_port) for _ in range(connections)]
    payload = b"x" * 50_000
    for turn in range(20):
        for at, publisher in enumerate(publishers):
            publisher.sock.settimeout(300)
            publisher.send(
                b"".join(
                    b"PUB m.%d %d\r\n%b\r\n" % (number, len(payload), payload) for number in range(at, 500, connections)
                )
            )
            if turn % 5 == 4:
                publisher.send(b"PING\r\n")
                publisher.until(b"PONG\r\n")
    refused, held = metric(server, "eyot_store_refused_total"), metric(server, "eyot_store_held_back_total")
    return f"{refused:,.0f} messages refused, publishers held back {held:,.0f} times"


def all_at_once(server: Eyotd) -> str:
    """Half payloads, slow readers and many streams, with all connections that there may be."""
    with ThreadPoolExecutor() as pool:
        work = [
            pool.submit(half_payloads, server, 28, 20.0),
            pool.submit(slow_readers, server, 28),
            pool.submit(many_streams, server, 5),
        ]
        return "; ".join(each.result() for each in work if each.result() != "-")


def nothing(server: Eyotd) -> str:
    """Idle, with JetStream."""
    return "-"


def serves(server: Eyotd) -> None:
    """Wait until a new client is served; raises AssertionError after a minute."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            with RawClient(server.client_port) as client:
                client.send(b"PING\r\n")
                if b"PONG" in client.until(b"PONG\r\n"):
                    return
        except (OSError, AssertionError):  # refused: the connections of the attack are still there
            time.sleep(0.1)
    raise AssertionError("no new client is served")


ATTACKS: list[Callable[[Eyotd], str]] = [
    nothing,
    connection_flood,
    half_payloads,
    slow_readers,
    bombs,
    many_streams,
    all_at_once,
]


def metric(server: Eyotd, name: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.monitor_port}/metrics", timeout=120) as response:
        text = response.read().decode()
    found = re.search(rf"^{name} (\S+)", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def measure(attack: Callable[[Eyotd], str], profile: str, data_bytes: int, place: Path) -> str:
    """One row of the table."""
    most = after = private = 0.0
    server = Eyotd(CONFIG.replace("PROFILE", profile), place)
    with server:
        assert server.process is not None
        pid = server.process.pid
        if data_bytes:
            resource.prlimit(pid, resource.RLIMIT_DATA, (data_bytes, data_bytes))
        try:
            outcome = attack(server)
        except OSError as error:
            outcome = f"ended early: {error.strerror or error}"
        alive = server.process.poll() is None
        if alive:
            most, after, private = (resident(pid, key) for key in ("VmHWM", "VmRSS", "RssAnon"))
            serves(server)
        lacks = len(re.findall(r"MemoryError|Cannot allocate|ENOMEM", server.log_path.read_text(errors="replace")))
    end = "killed or ended" if not alive else f"{lacks} lacks of memory" if lacks else "serves"
    return f"| {attack.__name__.replace('_', ' ')} | {most:.0f} | {after:.0f} | {private:.0f} | {outcome} | {end} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=int, default=192, help="RLIMIT_DATA, MiB; 0: none")
    parser.add_argument("--profile", default="profile: small", help='the block "eyot { }"')
    parser.add_argument("attacks", nargs="*", help="names of attacks; default: all")
    chosen = parser.parse_args()
    print(
        "| what | most resident, MiB | resident after, MiB | of that private, MiB | refused | the daemon |\n| --- | --- | --- | --- | --- | --- |"
    )
    for attack in ATTACKS:
        if not chosen.attacks or attack.__name__ in chosen.attacks:
            with tempfile.TemporaryDirectory() as place:
                print(measure(attack, chosen.profile, chosen.data << 20, Path(place)), flush=True)


if __name__ == "__main__":
    main()
