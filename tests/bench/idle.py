"""Cost of an idle connection: memory per connection of eyotd and of Debian's nats-server.

    .venv/bin/python tests/bench/idle.py [--connections 10000] [--settle 15] [--burst] [--server PATH ...]

They come one after the other, or with `--burst` all at once. Each says CONNECT, subscribes to one subject of its own, and hears a PONG. Resident memory (`VmRSS`) is taken before the
first and, so that first PINGs have come and been answered and what was freed was given back, some seconds after the last one.
"""

from __future__ import annotations

import argparse
import re
import resource
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from page import write_section
from table import machine

GREETING = (
    b'CONNECT {"verbose":false,"pedantic":false,"name":"device-%d","lang":"bench","version":"1","protocol":1}\r\n'
)


def resident(pid: int) -> int:
    """Bytes."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def dial(port: int, number: int) -> socket.socket:
    """One connection; the server may still be starting."""
    for _ in range(50):
        try:
            # 127.0.0.x: more connections than one address has ports
            return socket.create_connection((f"127.0.0.{1 + number % 4}", port), timeout=60)
        except ConnectionRefusedError:
            time.sleep(0.1)
    raise RuntimeError("the server does not listen")


def greet(sock: socket.socket, number: int) -> None:
    sock.sendall(GREETING % number + b"SUB device.%d.commands 1\r\nPING\r\n" % number)


def hear(sock: socket.socket) -> None:
    got = b""
    while b"PONG\r\n" not in got:
        data = sock.recv(65536)
        assert data, "the server hung up"
        got += data


def connect(port: int, numbers: range) -> list[socket.socket]:
    """So many connections, greeted and subscribed."""
    socks = [dial(port, number) for number in numbers]
    for sock, number in zip(socks, numbers, strict=True):
        greet(sock, number)
    for sock in socks:
        hear(sock)
    return socks


def answer_pings(socks: list[socket.socket], seconds: float) -> None:
    """Be an idle but living client."""
    selector = selectors.DefaultSelector()
    for sock in socks:
        selector.register(sock, selectors.EVENT_READ)
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        for key, _ in selector.select(left):
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            if b"PING" in sock.recv(65536):
                sock.sendall(b"PONG\r\n")
    selector.close()


def measure(server: str, connections: int, settle_s: float, *, burst: bool) -> float:
    """Bytes per connection."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as place:
        config = Path(place) / "server.conf"
        config.write_text(f"listen: 0.0.0.0:{port}\n")
        process = subprocess.Popen([server, "-c", str(config), "-l", str(Path(place) / "log")])
        try:
            socks = connect(port, range(1))
            time.sleep(1.0)
            before = resident(process.pid)
            step = connections if burst else 1
            for number in range(1, connections + 1, step):
                socks += connect(port, range(number, number + step))
            answer_pings(socks, settle_s)
            used = resident(process.pid) - before
            for sock in socks:
                sock.close()
        finally:
            process.terminate()
            process.wait()
    return used / connections


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--settle", type=float, default=15.0)
    parser.add_argument("--write", type=Path, help="the page to note it on")
    parser.add_argument("--burst", action="store_true")
    parser.add_argument("--server", action="append", help="paths of servers instead of the two")
    chosen = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    nats_server = shutil.which("nats-server") or "/usr/sbin/nats-server"
    rows: list[str] = []
    for server in chosen.server or [str(Path(sys.executable).with_name("eyotd")), nats_server]:
        each = measure(server, chosen.connections, chosen.settle, burst=chosen.burst)
        print(f"{server}: {each / 1024:.1f} KiB per connection", flush=True)
        rows.append(f"| {Path(server).name} | {each / 1024:.1f} |")
    if chosen.write:
        how = "all at once" if chosen.burst else "one after the other"
        text = (
            f"`python tests/bench/idle.py`: {chosen.connections:,} connections, made {how}, each with one subscription."
        )
        table = "\n".join(("| server | KiB per connection |", "| --- | --- |", *rows))
        write_section(chosen.write, "Idle connections", f"{text}\n\n{machine()}\n\n{table}\n")


if __name__ == "__main__":
    main()
