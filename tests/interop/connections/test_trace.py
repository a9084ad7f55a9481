"""The protocol trace: the lines of `eyotd -DV` beside those of Debian's `nats-server`."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest

from support.clients.raw_client import RawClient
from support.servers.eyotd import Eyotd
from support.servers.nats_server import NatsServer

SENT = (
    b"SUB foo 1\r\nSUB foo q 2\r\nPUB foo 5\r\nhello\r\nUNSUB 2\r\nUNSUB 1 5\r\n"
    b"HPUB foo r 18 23\r\nNATS/1.0\r\na: b\r\n\r\nhello\r\nPONG\r\nPING\r\n"
)


def lines(log: str) -> list[str]:
    """The lines of the trace behind address and id; what only one version writes left out."""
    found = re.findall(r"\[TRC\] 127\.0\.0\.1:\d+ - cid:\d+ - (.*)", log)
    return [
        re.sub(r'("v1:go:n" - )?("\$G/user:u" - )?', "", line, count=1)
        for line in found
        if "DELSUB" not in line and "->> MSG_PAYLOAD" not in line
    ]


def test_the_same_lines(tmp_path: Path) -> None:
    config = "debug: true, trace: true\nauthorization { user: u, password: secretpw }"
    seen = []
    for kind in (Eyotd, NatsServer):
        with kind(config, tmp_path / kind.name) as server:
            fields = {"user": "u", "pass": "secretpw", "name": "n", "lang": "go", "version": "1", "headers": True}
            with RawClient(server.client_port, **fields) as client:
                client.send(SENT)
                client.until(b"PONG\r\n")
                client.send(b"BAD\r\n")
                client.rest()
            server.wait_log(r"Client connection closed: ")
            seen.append([line for line in lines(server.log()) if "-ERR" not in line])
            assert "secretpw" not in server.log()
    assert sorted(seen[0]) == sorted(seen[1]), (seen, server.log())
    assert '<<- MSG_PAYLOAD: ["hello"]' in seen[0]


def test_payloads_are_shortened(tmp_path: Path) -> None:
    with Eyotd("trace: true, max_traced_msg_len: 3", tmp_path) as server, RawClient(server.client_port) as client:
        client.ask(b"SUB a 1\r\nPUB a 5\r\nhello\r\nPUB a 3\r\nabc\r\n")
        assert '<<- MSG_PAYLOAD: ["hel..."]' in server.log()
        assert '->> MSG_PAYLOAD: ["hel..."]' in server.log()
        assert '<<- MSG_PAYLOAD: ["abc"]' in server.log()


def test_tracing_is_switched_on_and_off(tmp_path: Path) -> None:
    with Eyotd("", tmp_path) as server, RawClient(server.client_port) as client:
        client.ask(b"SUB a 1\r\n")
        for trace in (True, False):
            before = len(server.log())
            server.set_config("trace: true" if trace else "")
            server.signal(signal.SIGHUP)
            deadline = time.monotonic() + 15
            while "Reloaded server configuration" not in server.log()[before:]:
                assert time.monotonic() < deadline
            assert client.ask(b"PUB a 1\r\nx\r\n") == b"MSG a 1 1\r\nx\r\n"
            assert ("->> [MSG a 1 1]" in server.log()[before:]) is trace


@pytest.mark.parametrize("verbose", [True, False])
def test_the_system_account(tmp_path: Path, verbose: bool) -> None:
    trace = "trace_verbose: true" if verbose else "trace: true"
    config = f"{trace}\naccounts {{ SYS {{ users: [{{user: s, password: s}}] }} }}, system_account: SYS"
    with Eyotd(config, tmp_path) as server, RawClient(server.client_port, user="s", **{"pass": "s"}) as client:
        client.ask(b"SUB secret.subject 1\r\n")
        client.ask()
        assert ("<<- [SUB secret.subject 1]" in server.log()) is verbose
