"""`eyot sub --direct` against `eyotd` and nats-server: what a stream holds, read without a consumer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.servers.eyot_tool import Tool
from support.servers.server_process import ServerProcess
from support.servers.tool_servers import servers

running = servers()


@pytest.fixture
def eyot(running: ServerProcess, tmp_path: Path) -> Iterator[Tool]:
    """The tool, with the stream T: three messages of t.1 to t.3, and a fourth of t.1."""
    tool = Tool(running, tmp_path)
    tool("stream", "add", "T", "--subjects", "t.>")
    tool("pub", "t.{{Count}}", "number {{Count}}", "-J", "-q", "-H", "Number:{{Count}}", "--count", "3")
    tool("pub", "t.1", "again", "-J", "-q")
    yield tool
    for name in tool("stream", "ls", "-n").splitlines():
        tool("stream", "rm", name, "-f")


def test_where_it_begins(eyot: Tool) -> None:
    for words, expected in (
        (("t.*",), "number 1\nnumber 2\nnumber 3\nagain\n"),
        (("--stream", "T"), "number 1\nnumber 2\nnumber 3\nagain\n"),
        (("t.1", "--last"), "again\n"),
        (("--stream", "T", "--last-per-subject"), "number 2\nnumber 3\nagain\n"),
        (("t.1", "--start-sequence", "2"), "again\n"),
        (("t.*", "--since", "1h"), "number 1\nnumber 2\nnumber 3\nagain\n"),
        (("t.*", "--new"), ""),
        (("t.9",), ""),
        (("t.9", "--last-per-subject"), ""),
        (("t.9", "--last"), ""),
        (("t.>", "-I", "t.1"), "number 2\nnumber 3\n"),
    ):
        assert eyot("sub", "--direct", *words, "-T", "-r") == expected, words
    assert eyot("sub", "--direct", "t.>", "-n", "2", "-r") == "number 1\nnumber 2\n"
    assert eyot("sub", "--direct", "t.>", "--wait", "1ms", "--subjects-only") == "t.1\nt.2\nt.3\nt.1\n"
    assert eyot.json("stream", "info", "T")["state"]["consumer_count"] == 0


def test_what_is_told_of_a_message(eyot: Tool) -> None:
    assert eyot("sub", "t.2", "--direct", "-T") == eyot("sub", "t.2", "--all", "-T")
    (told,) = (eyot.json("sub", "t.2", *words, "-T") for words in (["--direct"],))
    assert (told["seq"], told["subject"], told["headers"], told["payload"]) == (2, "t.2", {"Number": "2"}, "number 2")


def test_more_messages_than_one_answer_holds(eyot: Tool) -> None:
    eyot("pub", "t.many", "{{Count}}", "-J", "-q", "--count", "600")
    found = eyot("sub", "t.many", "--direct", "-T", "-r").splitlines()
    assert found == [str(number) for number in range(1, 601)]


def test_a_work_queue_keeps_its_messages(eyot: Tool) -> None:
    eyot("stream", "add", "Q", "--subjects", "q", "--retention", "work", "--allow-direct")
    eyot("pub", "q", "job", "-J", "-q")
    for _ in range(2):
        assert eyot("sub", "--stream", "Q", "-T", "-r") == "job\n"
    assert eyot.json("stream", "info", "Q")["state"]["messages"] == 1


def test_mistakes(eyot: Tool) -> None:
    eyot("stream", "edit", "T", "--no-allow-direct", "-f")
    assert eyot.fails("sub", "t.>", "--direct") == "T allows no direct gets: eyot stream edit T --allow-direct"
    assert "stream not found" in eyot.fails("sub", "--stream", "NONE", "--direct")
    assert eyot.run("sub", "--stream", "T", "--durable", "D", "--direct").returncode == 2


def test_counts_in_place_of_messages(eyot: Tool) -> None:
    read = ("sub", "--stream", "T", "-T")
    told = eyot.json(*read, "--report-subjects", "--report-top", "2")
    assert [(each["subject"], each["messages"], each["bytes"]) for each in told] == [("t.1", 2, 13), ("t.2", 1, 8)]
    assert "3 in all: 4 messages, 29 B" in eyot(*read, "--report-subjects")
    (one,) = eyot.json("sub", "t.*", "--all", "-T", "--report-subscriptions")
    assert (one["subject"], one["messages"]) == ("t.*", 4)
    assert eyot.json(*read, "--graph")["messages"] == 4
    assert eyot.run(*read, "--graph", "--report-subjects").returncode == 2
