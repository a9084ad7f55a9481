"""The brokers that `make bench` compares, each started for its rows by `running`."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import wire
from nodes import Node

from support.servers.newer_nats_server import VERSION, binary
from support.servers.server_process import executable

OURS = "eyotd"
NATS = "nats-server 2.14"
NEWEST = "nats-server 2.15"
ALWAYS = "nats-server 2.14 always"
FLOOR = "floor"
NEWEST_VERSION = "2.15.1"
#: Programs of other peers, by name: a checkout that is compared (compare.py).
MORE: dict[str, str] = {}


class Kind(NamedTuple):
    """What is started, and more options for its `jetstream { }`."""

    program: str
    jetstream: str = ""


@cache
def floor() -> str:
    """The compiled floor.c."""
    path = Path(tempfile.gettempdir()) / "eyot-bench-floor"
    subprocess.run(["cc", "-O2", "-o", path, Path(__file__).with_name("floor.c")], check=True)
    return str(path)


def kind(peer: str) -> Kind:
    """How a peer is started."""
    if peer == OURS or peer in MORE:
        return Kind(MORE.get(peer, "eyotd"))
    if peer == FLOOR:
        return Kind(floor())
    return Kind(
        binary(NEWEST_VERSION if peer == NEWEST else VERSION), ", sync_interval: always" if peer == ALWAYS else ""
    )


def version(peer: str) -> str:
    """What the program says of itself."""
    if peer == FLOOR:
        return "tests/bench/floor.c"
    program = executable(kind(peer).program)
    return subprocess.run([program, "-v"], capture_output=True, text=True, check=True).stdout.strip()


@contextmanager
def running(peer: str, *, more: str = "", before: Sequence[str] = (), stream: bool | None = None) -> Iterator[Node]:
    """A broker with a stream BENCH of `bench.durable` and below, unless `more` are further lines of its configuration or `stream` says
    otherwise; `before`: a command that ends by executing the broker.
    """
    chosen = kind(peer)
    with tempfile.TemporaryDirectory(prefix="eyot-bench-", dir="/var/tmp") as folder:
        node = Node(chosen.program, "bench", Path(folder), jetstream=chosen.jetstream)
        node.before = list(before)
        if more:
            node.config_path.write_text(node.config_path.read_text() + more)
        node.start()
        try:
            if not more if stream is None else stream:
                wire.make_stream(node.port, "BENCH", "bench.durable")
            yield node
        finally:
            node.stop()
