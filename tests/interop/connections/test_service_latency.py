"""Service latency: the exporting account's reports on its service's requests, from `eyotd` and from a real nats-server 2.14."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.clients.raw_client import RawClient
from support.servers.eyotd import Eyotd
from support.servers.newer_nats_server import NewerNatsServer
from support.servers.server_process import ServerProcess

CONFIG = """
accounts {
  S { users: [ {user: s, password: s} ], exports: [
    {service: "svc.*", latency: {sampling: 100%, subject: lat.svc}}
    {service: traced, latency: {sampling: headers, subject: lat.traced}}
    {service: slow, threshold: 300ms, latency: lat.slow}
  ] }
  A { users: [ {user: a, password: a} ], imports: [
    {service: {account: S, subject: "svc.*"}}, {service: {account: S, subject: traced}}, {service: {account: S, subject: slow}}
  ] }
  B { users: [ {user: b, password: b} ], imports: [ {service: {account: S, subject: "svc.*"}, share: true} ] }
  SYS {}
}
system_account: SYS
"""
SAMPLED = b"NATS/1.0\r\nX-B3-Sampled: 1\r\nother: x\r\n\r\n"
UNSAMPLED = b"NATS/1.0\r\nX-B3-Sampled: 0\r\n\r\n"


def connect(port: int, user: str) -> RawClient:
    fields = {"user": user, "pass": user, "name": f"app-{user}", "headers": True, "no_responders": True}
    return RawClient(port, **fields)


def message(client: RawClient) -> tuple[list[bytes], bytes]:
    """The next one: its line and its payload."""
    while True:
        words = client.until(b"\r\n").split()
        assert words, "the connection ended"
        if words[0] in (b"MSG", b"HMSG"):
            content = client.exactly(int(words[-1]) + 2)[:-2]
            return words, content[int(words[-2]) :] if words[0] == b"HMSG" else content


def metric(service: RawClient) -> dict[str, Any]:
    """The next metric, after answering the requests before it."""
    while True:
        words, payload = message(service)
        if words[1].startswith(b"lat."):
            found: dict[str, Any] = json.loads(payload)
            return found
        if words[1] != b"slow" and len(words) > (4 if words[0] == b"MSG" else 5):
            service.send(b"PUB %b 2\r\nok\r\n" % words[3])


@pytest.mark.parametrize("kind", [Eyotd, NewerNatsServer])
def test_what_the_exporter_hears(kind: Callable[[str, Path], ServerProcess], tmp_path: Path) -> None:
    server = kind(CONFIG, tmp_path)
    server.start()
    try:
        with (
            connect(server.client_port, "s") as service,
            connect(server.client_port, "a") as one,
            connect(server.client_port, "b") as other,
        ):
            service.ask(b"SUB lat.* 1\r\nSUB svc.x 2\r\nSUB traced 3\r\nSUB slow 4\r\n")

            one.ask(b"SUB r 1\r\nPUB svc.x r 1\r\nx\r\n")
            answered = metric(service)
            assert (answered["type"], answered["status"]) == ("io.nats.server.metric.v1.service_latency", 200)
            assert answered["requestor"].keys() <= {"acc", "rtt"}
            assert answered["requestor"]["acc"] == "A"
            assert {key: answered["responder"][key] for key in ("acc", "user", "name", "kind", "client_type")} == {
                "acc": "S",
                "user": "s",
                "name": "app-s",
                "kind": "Client",
                "client_type": "nats",
            }
            assert answered["service"] >= 0
            assert answered["total"] >= 0

            other.ask(b"SUB r 1\r\nPUB svc.x r 1\r\nx\r\n")
            shared = metric(service)["requestor"]
            assert (shared["acc"], shared["user"], shared["name"], shared["kind"]) == ("B", "b", "app-b", "Client")

            for header in (UNSAMPLED, SAMPLED):
                one.ask(b"HPUB traced r %d %d\r\n%b\r\n" % (len(header), len(header), header))
            traced = metric(service)
            assert (traced["status"], traced["header"]) == (200, {"X-B3-Sampled": ["1"]})

            one.ask(b"PUB svc.x 1\r\nx\r\n")
            unanswerable = metric(service)
            assert (unanswerable["status"], unanswerable["description"]) == (400, "Bad Request")

            one.ask(b"PUB slow r 1\r\nx\r\n")
            late = metric(service)
            assert (late["status"], late["description"]) == (504, "Service Timeout")

            one.ask(b"PUB svc.nobody r 1\r\nx\r\n")
            nobody = metric(service)
            assert (nobody["status"], nobody["description"]) == (503, "Service Unavailable")
    finally:
        server.kill()


CHAIN = """
accounts {
  C { users: [ {user: c, password: c} ], exports: [ {service: "c.*", latency: lat.c} ] }
  B { users: [ {user: b, password: b} ], exports: [ {service: "b.*", latency: lat.b} ]
      imports: [ {service: {account: C, subject: "c.*"}, to: "b.*", share: %s} ] }
  A { users: [ {user: a, password: a} ], imports: [ {service: {account: B, subject: "b.*"}, to: "a.*", share: %s} ] }
  SYS {}
}
system_account: SYS
"""


@pytest.mark.parametrize(("b_shares", "a_shares"), [(False, False), (False, True), (True, True)])
@pytest.mark.parametrize("kind", [Eyotd, NewerNatsServer])
def test_a_request_through_two_accounts_names_the_client_and_the_service(
    kind: Callable[[str, Path], ServerProcess], tmp_path: Path, b_shares: bool, a_shares: bool
) -> None:
    server = kind(CHAIN % (str(b_shares).lower(), str(a_shares).lower()), tmp_path)
    server.start()
    try:
        with (
            connect(server.client_port, "c") as service,
            connect(server.client_port, "b") as between,
            connect(server.client_port, "a") as requester,
        ):
            service.ask(b"SUB lat.* 1\r\nSUB c.* 2\r\n")
            between.ask(b"SUB lat.* 1\r\n")
            requester.ask(b"SUB r 1\r\n")
            requester.ask(b"PUB a.x r 1\r\nx\r\n")
            at_service = metric(service)
            at_between = metric(between)
            for one, shared in ((at_service, b_shares), (at_between, a_shares)):
                assert one["status"] == 200
                assert {key: one["responder"][key] for key in ("acc", "user", "name", "kind")} == {
                    "acc": "C",
                    "user": "c",
                    "name": "app-c",
                    "kind": "Client",
                }
                assert one["requestor"]["acc"] == "A"
                assert one["requestor"].get("user", "") == ("a" if shared else "")
                assert ("server" in one["requestor"]) is shared
            requester.ask(b"PUB a.x 1\r\nx\r\n")
            for one in (metric(service), metric(between)):
                assert (one["status"], one["requestor"]["acc"]) == (400, "A")
    finally:
        server.kill()
