"""The name of a server's cluster, beside nats-server: which destinations of mappings it selects, and who is told of it."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from support.servers.eyotd import Eyotd
from support.servers.newer_nats_server import NewerNatsServer

MAPPINGS = """mappings {
  both: [ { destination: x.both, weight: 100 }, { destination: e.both, weight: 100, cluster: east }, { destination: n.both, weight: 100, cluster: N } ]
  only: [ { destination: e.only, weight: 100, cluster: east } ]
  rest: [ { destination: x.rest, weight: 100 }, { destination: e.rest, weight: 0, cluster: east } ]
}
accounts { A: { users: [ { user: a, password: a } ], mappings: { own: [ { destination: x.own, weight: 100 }, { destination: n.own, weight: 100, cluster: N } ] } } }
authorization { users: [ { user: g, password: g } ] }
"""
#: Nobody listens there: the server has a remote, and no link.
REMOTES = 'leafnodes { remotes: [ { url: "nats://127.0.0.1:1" } ] }\n'
CONFIGS = {
    "no cluster": "",
    "a name": "cluster { name: east }\n",
    "a name that no mapping has": "cluster { name: west }\n",
    "remotes": REMOTES,
    "remotes and a name": REMOTES + "cluster { name: east }\n",
}


def _published(server: Eyotd | NewerNatsServer, user: str, subjects: list[str]) -> tuple[str, list[str]]:
    """Return the cluster that INFO names, and where messages on `subjects` arrive."""
    with socket.create_connection((server.host, server.client_port), timeout=10) as sock:
        lines = sock.makefile("rb")
        info = json.loads(lines.readline().removeprefix(b"INFO "))
        login = json.dumps({"verbose": False, "user": user, "pass": user})
        publishes = "".join(f"PUB {subject} 0\r\n\r\n" for subject in subjects)
        sock.sendall(f"CONNECT {login}\r\nSUB > 1\r\n{publishes}PING\r\n".encode())
        arrived = [line.split()[1].decode() for line in iter(lines.readline, b"PONG\r\n") if line.startswith(b"MSG ")]
    return info.get("cluster", ""), arrived


def _observed(server: Eyotd | NewerNatsServer) -> dict[str, Any]:
    return {
        "global": _published(server, "g", ["both", "only", "rest"]),
        "account": _published(server, "a", ["own"]),
        "varz": server.monitor("/varz")["cluster"],
    }


@pytest.mark.parametrize("name", CONFIGS)
def test_the_name_of_the_cluster(tmp_path: Path, name: str) -> None:
    config = "server_name: N\n" + MAPPINGS + CONFIGS[name]
    found = []
    for number, kind in enumerate((NewerNatsServer, Eyotd)):
        folder = tmp_path / str(number)
        folder.mkdir()
        with kind(config, folder) as server:
            found.append(_observed(server))
    assert found[1] == found[0]


def test_a_reload_that_adds_the_first_remote_selects_its_destinations(tmp_path: Path) -> None:
    """A server with remotes is in the cluster of its own name."""
    with Eyotd("server_name: N\n" + MAPPINGS, tmp_path) as server:
        assert _published(server, "g", ["both"]) == ("", ["x.both"])
        server.set_config("server_name: N\n" + MAPPINGS + REMOTES)
        server.signal(signal.SIGHUP)
        server.wait_log("Reloaded server configuration")
        assert _published(server, "g", ["both"]) == ("N", ["n.both"])
