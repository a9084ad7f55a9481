"""`eyot server report` against `eyotd` and nats-server: what the system account sees of connections, accounts and JetStream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.servers.eyot_tool import Tool
from support.servers.server_process import ServerProcess
from support.servers.tool_servers import ACCOUNTS, SYSTEM, servers

CONFIG = """
    server_name: device
    jetstream { store_dir: "%WORKDIR%/js", domain: dev }
"""

running = servers(CONFIG + ACCOUNTS)


@pytest.fixture
def eyot(running: ServerProcess, tmp_path: Path) -> Iterator[Tool]:
    """The tool, with a stream T of one message and its consumer C, both of the account APP."""
    tool = Tool(running, tmp_path)
    tool("stream", "add", "T", "--subjects", "t.>")
    tool("pub", "t.1", "hello", "-J", "-q")
    tool("consumer", "add", "T", "C")
    yield tool
    tool("stream", "rm", "T", "-f")


def report(eyot: Tool, *words: str) -> str:
    return eyot("server", "report", *words, *SYSTEM)


def test_connections(eyot: Tool) -> None:
    (own,) = eyot.json("server", "report", "connections", *SYSTEM, "--connection-name", "me")
    assert (own["name"], own["account"], own["server"]["name"]) == ("me", "SYS", "device")
    # Those of APP do not become more: they are the fixture's.
    every = ("--account", "APP", "--state", "all", "--sort", "cid", *SYSTEM)
    numbers = [each["cid"] for each in eyot.json("server", "report", "conns", *every)]
    assert numbers == sorted(numbers)
    assert len(numbers) > 2
    assert [each["cid"] for each in eyot.json("server", "report", "connz", "--top", "2", *every)] == numbers[-2:]
    for words in (("-R", "connections"), ("connections", "-R")):
        first = eyot.json("server", "report", *words, "--top", "2", *every)
        assert [each["cid"] for each in first] == [*reversed(numbers)][:2]
    assert "Reason" in report(eyot, "connections", "--state", "all")
    assert eyot.json("server", "report", "connections", "--closed-reason", "stale", *every) == []
    assert "of 1 connection; servers: 1" in report(eyot, "connections", "--host", "device")


def test_accounts(eyot: Tool) -> None:
    (one,) = eyot.json("server", "report", "accounts", *SYSTEM)
    assert (one["account"], one["connections"], one["server"][0]["name"]) == ("SYS", 1, "device")
    assert eyot.json("server", "report", "acct", "SYS", *SYSTEM)["connection_info"][0]["account"] == "SYS"
    assert "no connection of an account NONE" in eyot.fails("server", "report", "accounts", "NONE", *SYSTEM)


def test_servers(eyot: Tool) -> None:
    assert set(eyot.json("server", "report", "cpu", *SYSTEM)) == {"device"}
    assert eyot.json("server", "report", "mem", *SYSTEM)["device"] > 0
    assert "ok (200)" in report(eyot, "health")
    assert "device" in report(eyot, "health", "--account", "APP", "--stream", "T", "--consumer", "C")
    assert "none" in report(eyot, "leafnodes")
    assert eyot.fails("server", "report", "cpu").startswith("nobody answers: name a user of the system account")
    assert eyot.fails("server", "report", "cpu", "--host", "other", "--timeout", "0.2s", *SYSTEM)


def test_jetstream(eyot: Tool) -> None:
    (row,) = (line for line in report(eyot, "jetstream").splitlines() if "device" in line)
    assert [each.strip() for each in row.split("│")[2:6]] == ["dev", "1", "1", "1"]
    (row,) = (line for line in report(eyot, "jsz", "--account", "APP").splitlines() if "device" in line)
    assert [each.strip() for each in row.split("│")[2:6]] == ["dev", "1", "1", "1"]
    assert "no server has an account SYS with JetStream" in eyot.fails(
        "server", "report", "js", "--account", "SYS", *SYSTEM
    )


def test_what_an_older_server_cannot_load(eyot: Tool) -> None:
    assert "nothing" in report(eyot, "downgrade", "0")
    eyot("stream", "edit", "T", "--allow-msg-ttl", "-f")
    told = eyot.json("server", "report", "downgrade", "0", *SYSTEM)
    assert [(each["account"], each["name"], each["api_level"]) for each in told["streams"]] == [("APP", "T", 1)]
    assert "consumers" not in told
    told = eyot.json("server", "report", "downgrade", "0", "--all", *SYSTEM)
    assert [(each["stream"], each["name"]) for each in told["consumers"]] == [("T", "C")]
    assert "nothing" in report(eyot, "downgrade", "1")


def test_what_a_user_sees_of_the_own_account(eyot: Tool) -> None:
    (own,) = eyot.json("account", "report", "connections", "--connection-name", "me")
    assert (own["name"], own["account"], own["server"]["name"]) == ("me", "APP", "device")
    numbers = [each["cid"] for each in eyot.json("account", "rep", "conns", "--state", "all", "--sort", "cid", "-R")]
    assert numbers == sorted(numbers, reverse=True)
    (row,) = (line for line in eyot("account", "report", "statistics").splitlines() if "device" in line)
    assert row.split("│")[3].strip() == "1"
    (one,) = eyot.json("account", "report", "stats")
    assert one["data"]["account_statz"][0]["acc"] == "APP"
