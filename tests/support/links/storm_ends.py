"""The ends of a storm's link: servers of each kind, a cluster of three, an `eyotd` with slow flash or a planted bug, and the links between them."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from support.links.leaf_pair import HUB, LEAF, server
from support.links.link import Link
from support.servers.eyotd import Eyotd
from support.servers.nats_server import NatsServer
from support.servers.newer_nats_server import VERSION, NewerNatsServer
from support.servers.server_process import ServerProcess, free_port

ACCOUNTS = "accounts { ACC: { users: [{user: acc, password: acc}], jetstream: enabled } }\n"
CLUSTER = "cluster"
_ROUTES = 'cluster { name: HUBS, listen: "127.0.0.1:ROUTE", routes: [ROUTES] }\n'


class Stopped(NatsServer):
    """Debian's nats-server flushes what it acknowledged later than it says so: killed, it loses that. It is stopped instead."""

    def kill(self) -> None:
        self.stop()


class OddEyotd(Eyotd):
    """With flash that takes its time, or a bug of the simulator's (`offline_sync/planted.py`)."""

    flush_s = 0.0
    plant = ""

    def command(self) -> list[str]:
        if not self.flush_s and not self.plant:
            return super().command()
        odd = Path(__file__).parents[1] / "servers" / "odd_eyotd.py"
        return [sys.executable, str(odd), str(self.flush_s), self.plant or "-", "-c", str(self.config_path)]


class End:
    """A hub or a leaf node: one server, or a cluster of three of which any may be asked."""

    def __init__(self, kind: str, servers: list[ServerProcess], chance: random.Random) -> None:
        self.kind = kind
        self.servers = servers
        self.replicas = len(servers)
        self._chance = chance

    @property
    def eyotd(self) -> Eyotd | None:
        """The daemon, if it is one of ours."""
        (first, *_) = self.servers
        return first if isinstance(first, Eyotd) else None

    def client_url(self) -> str:
        """Of a server that is up, if there is one."""
        up = [each for each in self.servers if each.running]
        return self._chance.choice(up or self.servers).client_url("acc")

    def any_server(self) -> ServerProcess:
        return self._chance.choice(self.servers)

    def start(self) -> None:
        for each in self.servers:
            each.start(wait=False)
        for each in self.servers:
            each.wait_ready()

    def kill(self) -> None:
        for each in self.servers:
            each.kill()


class Links:
    """The links to every server of a hub, which fail together."""

    def __init__(self, targets: Iterable[int]) -> None:
        self._links = [Link(port) for port in targets]

    @property
    def ports(self) -> list[int]:
        return [each.port for each in self._links]

    def do(self, what: Callable[[Link], None]) -> None:
        for each in self._links:
            what(each)

    def close(self) -> None:
        self.do(Link.close)


def pair(
    folder: Path, hub: str, leaf: str, chance: random.Random, *, flush_s: float = 0.0, plant: str = ""
) -> tuple[End, End, Links]:
    """The hub, the leaf node and what lies between them. `flush_s`: how long a flush of ours takes at least."""
    kinds = [VERSION] * 3 if hub == CLUSTER else [hub]
    servers = [_server(kind, "", folder / f"hub{number}") for number, kind in enumerate(kinds)]
    links = Links(each.leaf_port for each in servers)
    routes = [free_port() for _ in servers]
    for number, (one, port) in enumerate(zip(servers, links.ports, strict=True)):
        config = HUB.replace("no_advertise: true", f'advertise: "127.0.0.1:{port}"') + ACCOUNTS
        if hub == CLUSTER:
            urls = ", ".join(f'"nats://127.0.0.1:{each}"' for each in routes)
            config = config.replace("hub-server", f"hub-server-{number}")
            config += _ROUTES.replace("ROUTES", urls).replace("ROUTE", str(routes[number]))
        one.set_config(_flushed(kinds[number], config))
    urls = ", ".join(f'"nats-leaf://acc:acc@127.0.0.1:{port}"' for port in links.ports)
    config = re.sub(r"\{ urls: \[\"nats-leaf://admin.*\n", "", LEAF) + ACCOUNTS
    config = config.replace('"nats-leaf://acc:acc@127.0.0.1:HUB_PORT"', urls)
    device = _server(leaf, _flushed(leaf, config), folder / "leaf")
    for each in (*servers, device):
        if isinstance(each, OddEyotd):
            each.flush_s, each.plant = flush_s, plant
    return End(hub, servers, chance), End(leaf, [device], chance), links


def _flushed(kind: str, config: str) -> str:
    """A nats-server is to lose nothing that it acknowledged; Debian's does not know how (`Stopped`)."""
    return config if kind in ("eyotd", "nats-server") else config.replace('/store"', '/store", sync_interval: always')


def _server(kind: str, config: str, workdir: Path) -> ServerProcess:
    if kind == "nats-server":
        return Stopped(config, workdir)
    if kind == "eyotd":
        return OddEyotd(config, workdir)
    found: Any = server(kind, config, workdir)
    assert isinstance(found, NewerNatsServer)
    return found
