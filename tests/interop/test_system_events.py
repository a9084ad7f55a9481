"""Events of the system account: the same ones, with the same members, from `eyotd` and from Debian's `nats-server`."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from support.eyotd import Eyotd
from support.nats_server import NatsServer
from support.raw_client import RawClient
from support.server_process import ServerProcess

CONFIG = """
accounts { A { users: [ {user: a, password: a} ] }, SYS { users: [ {user: s, password: s} ] } }
system_account: SYS
"""


def wait_for(client: RawClient, ending: bytes) -> dict[str, Any]:
    """The next event whose subject ends so."""
    while True:
        words = client.until(b"\r\n").split()
        assert words, "the connection ended"
        if words[0] != b"MSG":
            continue
        body = client.until(b"\r\n")
        if words[1].endswith(ending):
            event: dict[str, Any] = json.loads(body)
            return event


@pytest.mark.parametrize("kind", [Eyotd, NatsServer])
def test_a_client_comes_and_goes(kind: type[ServerProcess], tmp_path: Path) -> None:
    server = kind(CONFIG, tmp_path)
    server.start()
    try:
        with RawClient(server.client_port, user="s", **{"pass": "s"}) as system:
            system.ask(b"SUB $SYS.ACCOUNT.> 1\r\nSUB $SYS.SERVER.> 2\r\n")
            fields = {"user": "a", "pass": "a", "name": "n", "lang": "l", "version": "1", "protocol": 1}
            with RawClient(server.client_port, **fields) as client:
                came = wait_for(system, b".A.CONNECT")
                assert came["type"] == "io.nats.server.advisory.v1.client_connect"
                assert came["server"]["id"] == system.info["server_id"]
                who = came["client"]
                assert (who["acc"], who["user"], who["name"], who["lang"], who["ver"]) == ("A", "a", "n", "l", "1")
                client.ask(b"SUB x 1\r\nPUB x 3\r\nabc\r\n")
            gone = wait_for(system, b".A.DISCONNECT")
            assert gone["type"] == "io.nats.server.advisory.v1.client_disconnect"
            assert gone["client"]["id"] == who["id"]
            assert gone["client"]["stop"] > gone["client"]["start"]
            assert gone["sent"] == gone["received"] == {"msgs": 1, "bytes": 3}
            assert gone["reason"] == "Client Closed"
            with RawClient(server.client_port, user="a", **{"pass": "wrong"}) as client:
                client.rest()
            refused = wait_for(system, b".CLIENT.AUTH.ERR")
            assert (refused["client"]["user"], refused["reason"]) == ("a", "Authentication Failure")
            assert "statsz" in wait_for(system, b".STATSZ")
            server.signal(signal.SIGTERM)
            wait_for(system, b".SHUTDOWN")
    finally:
        server.kill()
