"""No monitoring page, service of the system account or line of the log shows a secret, wherever it was configured."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from support.clients.raw_client import RawClient
from support.servers.eyotd import Eyotd

PAGES = (
    "/", "/varz", "/connz?auth=1&subs=detail&state=any", "/subsz?subs=1", "/routez", "/gatewayz", "/leafz?subs=1",
    "/accountz?acc=A", "/accountz", "/accstatz?unused=1", "/jsz?accounts=1&streams=1&consumers=1&config=1", "/healthz?details=1",
    "/ipqueuesz", "/stacksz", "/debug/vars", "/eyot/status", "/eyot/syncz", "/metrics",
    "/eyot/page", "/eyot/page.json", "/eyot/history.json",
)  # fmt: skip
SERVICES = (
    "IDZ",
    "STATSZ",
    "VARZ",
    "SUBSZ",
    "CONNZ",
    "LEAFZ",
    "ACCOUNTZ",
    "JSZ",
    "HEALTHZ",
    "EXPVARZ",
    "ROUTEZ",
    "GATEWAYZ",
)
CONFIG = """
server_name: s
system_account: SYS
eyot { http { page: true } }
jetstream { store_dir: "%WORKDIR%/store", key: "s3cr3t-store-key" }
accounts {
  A { jetstream: enabled, users: [{user: a, password: s3cr3t-of-a}] }
  SYS { users: [{user: sys, password: s3cr3t-of-sys}] }
}
leafnodes { listen: "127.0.0.1:%LEAF_PORT%"
  authorization { user: leaf, password: s3cr3t-of-leaf }
  remotes: [{urls: ["nats://remote:s3cr3t-of-remote@127.0.0.1:1", "nats://s3cr3t-token@127.0.0.1:1"], account: A}]
}
"""
#: Flags replace the file's users, so they are tried on their own.
FLAGGED = 'server_name: s\neyot { http { page: true } }\nleafnodes { remotes: [{urls: ["nats://remote:s3cr3t-of-remote@127.0.0.1:1"]}] }\n'


class Flagged(Eyotd):
    """A daemon with secrets on its command line."""

    flags: tuple[str, ...] = ()

    def command(self) -> list[str]:
        return [*super().command(), *self.flags]


def pages(server: Eyotd) -> dict[str, str]:
    """Every page, refusals too (without JetStream some have nothing to say)."""
    found = {}
    for path in PAGES:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{server.monitor_port}{path}", timeout=30) as answer:
                found[path] = answer.read().decode()
        except urllib.error.HTTPError as error:
            found[path] = error.read().decode()
        assert found[path]
    return found


def test_secrets_of_the_configuration(tmp_path: Path) -> None:
    with Eyotd(CONFIG, tmp_path) as server:
        with RawClient(server.client_port, user="a", **{"pass": "s3cr3t-of-a"}) as client:
            client.ask(b"SUB x 1\r\n")
            shown = pages(server)
        with RawClient(server.client_port, user="sys", **{"pass": "s3cr3t-of-sys"}) as system:
            system.send(b"SUB reply.* 1\r\n")
            for service in SERVICES:
                system.send(b"PUB $SYS.REQ.SERVER.PING.%b reply.%b 2\r\n{}\r\n" % (service.encode(), service.encode()))
                shown[service] = (system.until(b"\r\n") + system.until(b"\r\n")).decode()
                assert '"name"' in shown[service]
        shown["log"] = server.log()
    assert [where for where, text in shown.items() if "s3cr3t" in text] == []


@pytest.mark.parametrize(
    "flags", [("--user", "u", "--pass", "s3cr3t-of-u"), ("--auth=s3cr3t-token",), ("--auth", "s3cr3t-token")]
)
def test_secrets_of_the_command_line(flags: tuple[str, ...], tmp_path: Path) -> None:
    server = Flagged(FLAGGED, tmp_path)
    server.flags = flags
    with server:
        shown = pages(server)
        shown["log"] = server.log()
    assert [where for where, text in shown.items() if "s3cr3t" in text] == []
    assert json.loads(shown["/debug/vars"])["cmdline"]
    assert re.search(r"REDACTED", shown["/debug/vars"])
