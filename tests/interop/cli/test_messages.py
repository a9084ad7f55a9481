"""`eyot pub`, `sub` and `request` with the options of the nats tool, against `eyotd` and nats-server."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.servers.eyot_tool import Tool
from support.servers.server_process import ServerProcess
from support.servers.tool_servers import servers

running = servers()


@pytest.fixture
def eyot(running: ServerProcess, tmp_path: Path) -> Iterator[Tool]:
    """The tool, with the stream T of `t.>`, which holds t.1 to t.3."""
    tool = Tool(running, tmp_path)
    (tmp_path / "t.json").write_text('{"allow_atomic": true, "allow_msg_schedules": true, "allow_msg_ttl": true}')
    tool("stream", "add", "T", "--subjects", "t.>", "--config", "t.json")
    tool("pub", "t.{{Count}}", "number {{Count}}", "-J", "-q", "--count", "3", "-H", "Number: {{Count}}")
    yield tool
    tool("stream", "rm", "T", "-f")


def test_templates(eyot: Tool) -> None:
    second = eyot.json("stream", "get", "T", "2")
    assert (second["subject"], second["payload"], second["headers"]) == ("t.2", "number 2", {"Number": "2"})
    eyot("pub", "t.as-is", "{{Count}}", "-J", "--no-templates")
    done = eyot.run("pub", "t.as-is", "{{Nope}}", "-J")
    assert (done.returncode, done.stdout) == (0, b"stored in T as 5\n")
    assert done.stderr.startswith(b"eyot: the payload is sent as it is: {{Nope}} is no function of a template")
    assert eyot("sub", "t.as-is", "--all", "-T", "--raw") == "{{Count}}\n{{Nope}}\n"
    assert eyot.run("pub", "t.{{Nope}}", "x").returncode == 2


def test_lines_of_standard_input(eyot: Tool) -> None:
    assert eyot("pub", "t.l", "-J", "-q", "--send-on", "newline", data=b"one\r\ntwo\nthree") == ""
    assert eyot("sub", "t.l", "--all", "-T", "-r") == "one\ntwo\nthree\n"
    eyot("pub", "t.whole", "-J", "-q", data=b"one\ntwo\n")
    assert eyot("sub", "t.whole", "--all", "-T", "-r") == "one\ntwo\n\n"


def test_an_atomic_batch(eyot: Tool) -> None:
    told = eyot("pub", "t.b", "--atomic", "--send-on", "newline", data=b"a\nb\nc\n")
    assert told == "stored in T: 3 messages, the last as 6\n"
    assert eyot.fails("pub", "t.b", "--atomic", "--send-on", "newline") == "0 messages: an atomic batch has 1 to 1000"
    assert "no stream stores elsewhere" in eyot.fails("pub", "elsewhere", "x", "--atomic")


def test_a_schedule(eyot: Tool) -> None:
    eyot("pub", "t.plan", "made", "--schedule-after", "1s", "--schedule-dest", "t.made", "-q")
    assert eyot("sub", "--stream", "T", "t.made", "-n", "1", "--raw") == "made\n"
    for words in (["--schedule-after", "1s"], ["--schedule-dest", "t.x"],
                  ["--schedule-dest", "t.x", "--schedule-every", "0s"],
                  ["--schedule-dest", "t.x", "--schedule-at", "tomorrow"]):  # fmt: skip
        assert eyot.run("pub", "t.plan", "x", *words).returncode == 2


def test_where_a_subscription_begins(eyot: Tool) -> None:
    eyot("pub", "t.1", "again", "-J", "-q")
    assert eyot("sub", "t.*", "--all", "-T", "-r").splitlines() == ["number 1", "number 2", "number 3", "again"]
    assert eyot("sub", "t.*", "--last", "-T", "-r") == "again\n"
    assert eyot("sub", "--stream", "T", "--last-per-subject", "-T", "--subjects-only") == "t.2\nt.3\nt.1\n"
    assert eyot("sub", "t.1", "--start-sequence", "2", "-T", "-r") == "again\n"
    assert eyot("sub", "--stream", "T", "--since", "1h", "-n", "2", "-r") == "number 1\nnumber 2\n"
    assert eyot("sub", "t.>", "--all", "-I", "t.1", "-n", "1", "-r") == "number 2\n"
    assert eyot("sub", "t.>", "--new", "--wait", "50ms") == ""
    assert "no stream stores nowhere" in eyot.fails("sub", "nowhere", "--all")
    for words in (["t.>", "--all", "--new"], ["-T", "t.>"], ["t.>", "t.1", "--all"], [], ["--durable", "D"]):
        assert eyot.run("sub", *words).returncode == 2, words


def test_a_durable_consumer_goes_on(eyot: Tool) -> None:
    assert eyot("sub", "--stream", "T", "--durable", "D", "-n", "2", "-r") == "number 1\nnumber 2\n"
    assert eyot("sub", "t.>", "--durable", "D", "-n", "1", "-r") == "number 3\n"
    info = eyot.json("consumer", "info", "T", "D")
    assert (info["config"]["ack_policy"], info["num_ack_pending"], info["num_pending"]) == ("explicit", 0, 0)
    eyot("consumer", "add", "T", "P", "--target", "pushed", "--deliver-group", "g")
    assert eyot.fails("sub", "--stream", "T", "--durable", "P") == (
        "P pushes its messages: eyot sub pushed --queue g --ack receives them"
    )


def test_forms_of_output(eyot: Tool, tmp_path: Path) -> None:
    eyot("sub", "--stream", "T", "-T", "--dump", "dumped")
    first = json.loads((tmp_path / "dumped" / "1.json").read_text())
    assert (first["Subject"], first["Header"]) == ("t.1", {"Number": ["1"]})
    assert base64.b64decode(first["Data"]) == b"number 1"
    assert eyot("sub", "--stream", "T", "-T", "--dump", "-").count("\0") == 3
    upper = f"{sys.executable} -c 'print(input().upper())'"
    assert eyot("sub", "--stream", "T", "-n", "1", "-r", "--translate", upper) == "NUMBER 1\n"
    assert eyot.run("sub", "--stream", "T", "--translate", "false").stderr.startswith(b"eyot: --translate: false ended")
    shown = eyot("sub", "--stream", "T", "-n", "1", "-t", "--headers-only").splitlines()
    assert shown[1].startswith("T 1 t.1 at ")
    assert shown[2] == "  Number: 1"
    assert "number 1" not in shown
    done = eyot.run("sub", "--inbox", "--wait", "50ms")
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.startswith(b"subscribed to _INBOX.")
