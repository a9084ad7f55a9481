"""`eyot stream` with the options of the nats tool, against `eyotd` and nats-server: the configurations that result."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.servers.eyot_tool import Tool
from support.servers.server_process import ServerProcess
from support.servers.tool_servers import servers

SECOND = 10**9


running = servers()


@pytest.fixture
def eyot(running: ServerProcess, tmp_path: Path) -> Iterator[Tool]:
    """The tool, and a server without streams."""
    tool = Tool(running, tmp_path)
    yield tool
    for name in tool("stream", "ls", "-n").splitlines():
        tool("stream", "rm", name, "-f")


def test_what_the_options_make(eyot: Tool) -> None:
    eyot("stream", "add", "S", "--subjects", "s.>", "--allow-batch", "--allow-msg-ttl",
         "--subject-del-markers-ttl", "1m", "--discard-per-subject", "--max-msgs-per-subject", "5", "--max-msgs", "9",
         "--transform-source", "s.>", "--transform-destination", "t.>", "--republish-source", "t.>",
         "--republish-destination", "again.>", "--republish-headers", "--limit-consumer-inactive", "1h",
         "--limit-consumer-max-pending", "70")  # fmt: skip
    config = eyot.json("stream", "info", "S")["config"]
    expected = {
        "allow_atomic": True, "subject_delete_marker_ttl": 60 * SECOND,
        "discard": "new", "discard_new_per_subject": True, "subject_transform": {"src": "s.>", "dest": "t.>"},
        "republish": {"src": "t.>", "dest": "again.>", "headers_only": True},
        "consumer_limits": {"inactive_threshold": 3600 * SECOND, "max_ack_pending": 70},
    }  # fmt: skip
    assert {member: config[member] for member in expected} == expected
    eyot("stream", "edit", "S", "--no-transform", "--no-republish", "-f")
    config = eyot.json("stream", "info", "S")["config"]
    assert "subject_transform" not in config
    assert "republish" not in config
    eyot("stream", "add", "L", "--subjects", "later.>", "--allow-schedules")
    assert eyot.json("stream", "info", "L")["config"]["allow_msg_schedules"] is True
    eyot("stream", "add", "C", "--subjects", "c.>", "--allow-counter")
    assert eyot.json("stream", "info", "C")["config"]["allow_msg_counter"] is True
    for words in (["--transform-source", "x"], ["--republish-headers"]):
        assert eyot.run("stream", "add", "X", *words).returncode == 2


def test_a_copy_and_a_seal(eyot: Tool) -> None:
    eyot("stream", "add", "S", "--subjects", "s.>", "--max-age", "7d", "--metadata", "site=7")
    eyot("pub", "s.1", "x", "-J", "-q")
    assert "subjects overlap" in eyot.fails("stream", "copy", "S", "T")
    assert eyot("s", "cp", "S", "T", "--subjects", "t.>") == "stream T is made\n"
    one, two = (eyot.json("stream", "info", name)["config"] for name in "ST")
    assert one | {"name": "T", "subjects": ["t.>"]} == two
    assert eyot.json("stream", "state", "T")["messages"] == 0
    assert eyot("stream", "seal", "S", "-f") == "stream S is sealed\n"
    assert eyot.json("stream", "info", "S")["config"]["sealed"] is True
    assert eyot.run("pub", "s.1", "x", "-J").returncode == 1


def test_a_mirror_is_promoted_by_a_file(eyot: Tool, tmp_path: Path) -> None:
    eyot("stream", "add", "S", "--subjects", "s.>")
    eyot("stream", "add", "M", "--mirror", "S")
    info = eyot.json("stream", "info", "M")
    del info["config"]["mirror"]
    info["config"]["sources"] = [{"name": "S"}]
    (tmp_path / "m.json").write_text(json.dumps(info))
    (tmp_path / "short.json").write_text('{"name": "M", "sources": [{"name": "S"}]}')
    told = eyot.run("stream", "edit", "M", "--config", "short.json", "--dry-run").stdout.decode()
    assert {line.split(":")[0].strip() for line in told.splitlines()} <= {
        "mirror",
        "sources",
        "allow_direct",
        "mirror_direct",
    }
    eyot("stream", "edit", "M", "--config", "m.json", "-f")
    config = eyot.json("stream", "info", "M")["config"]
    assert ("mirror" in config, [each["name"] for each in config["sources"]]) == (False, ["S"])


def test_streams_that_fit(eyot: Tool) -> None:
    eyot("stream", "add", "A", "--subjects", "a.>")
    eyot("stream", "add", "B", "--subjects", "b.1,b.2")
    eyot("stream", "add", "M", "--mirror", "A")
    eyot("pub", "b.1", "x", "-J", "-q")

    def find(*words: str) -> list[str]:
        return eyot("stream", "find", "-n", *words).splitlines()

    assert find() == ["A", "B", "M"]
    assert find("--empty", "--invert") == ["B"]
    assert find("--subject", "b.*") == ["B"]
    assert find("--mirrored") == ["M"]
    assert find("--empty", "--mirrored", "--invert") == ["B"]
    assert find("--created", "1h") == find("--idle", "1h", "--subject", "b.>") == []
    assert find("--consumers", "0", "--replicas", "1", "--sourced", "--invert") == []
    assert eyot("stream", "ls", "-n", "--subject", "b.1") == "B\n"
    assert [each["stream"] for each in eyot.json("stream", "report", "--name")] == ["A", "B", "M"]
    assert [each["stream"] for each in eyot.json("stream", "report", "-m")] == ["B", "A", "M"]
    assert [each["stream"] for each in eyot.json("stream", "report", "--subject", "a.x")] == ["A"]


def test_what_a_stream_holds(eyot: Tool) -> None:
    eyot("stream", "add", "S", "--subjects", "s.>")
    eyot("pub", "s.{{Count}}", "{{Count}}", "-J", "-q", "--count", "6")
    assert eyot.json("stream", "gaps", "S") == []
    for seq in ("2", "3", "5"):
        eyot("stream", "rmm", "S", seq, "-f")
    assert eyot.json("stream", "gaps", "S", "-f") == [[2, 3], [5, 5]]
    eyot("pub", "s.1", "again", "-J", "-q")
    assert next(iter(eyot.json("stream", "subjects", "S", "--sort", "count", "-R"))) == "s.1"
    assert eyot("stream", "subjects", "S", "-n", "--reverse") == "s.6\ns.4\ns.1\n"
    assert eyot("stream", "view", "S", "--since", "1h", "--subject", "s.1", "-r") == "1\nagain\n"
    assert eyot.run("stream", "view", "S", "--since", "1h", "--id", "1").returncode == 2
    assert eyot.json("stream", "info", "S", "--state")["last_seq"] == eyot.json("stream", "state", "S")["last_seq"] == 7
