"""`eyot kv` and `eyot object` with the options of the nats tool, against `eyotd` and nats-server."""

from __future__ import annotations

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
    """The tool, and a server without buckets."""
    tool = Tool(running, tmp_path)
    yield tool
    for name in tool("stream", "ls", "-n").splitlines():
        tool("stream", "rm", name, "-f")


def test_what_the_options_make(eyot: Tool) -> None:
    eyot("kv", "add", "B", "--marker-ttl", "1m", "--compress", "--metadata", "site=7")
    config = eyot.json("stream", "info", "KV_B")["config"]
    assert (config["allow_msg_ttl"], config["subject_delete_marker_ttl"]) == (True, 60 * SECOND)
    assert (config["compression"], config["metadata"]["site"]) == ("s2", "7")
    eyot("kv", "edit", "B", "--history", "3", "--description", "of the plant", "--metadata", "row=1")
    config = eyot.json("stream", "info", "KV_B")["config"]
    assert (config["max_msgs_per_subject"], config["description"]) == (3, "of the plant")
    assert (config["metadata"]["site"], config["metadata"]["row"]) == ("7", "1")
    assert eyot.run("kv", "edit", "B").returncode == 2
    eyot("kv", "add", "S", "--source", "B")
    (source,) = eyot.json("stream", "info", "KV_S")["config"]["sources"]
    assert source["subject_transforms"] == [{"src": "$KV.B.>", "dest": "$KV.S.>"}]
    assert set(eyot("kv", "ls", "-n").splitlines()) == {"B", "S"}


def test_a_value_comes_back(eyot: Tool) -> None:
    eyot("kv", "add", "B", "--history", "5")
    for value in ("one", "two"):
        eyot("kv", "put", "B", "k", value)
    assert eyot("kv", "revert", "B", "k", "1", "-f") == "revision 3\n"
    assert eyot("kv", "get", "B", "k", "--raw") == "one"
    eyot("kv", "del", "B", "k")
    remedy = "eyot kv history B k shows them"
    assert eyot.fails("kv", "revert", "B", "k", "4", "-f") == f"revision 4 is no value of k: {remedy}"
    assert eyot.fails("kv", "revert", "B", "k", "9", "-f").startswith("B has no revision 9 of k")
    assert eyot("kv", "revert", "B", "k", "2", "-f") == "revision 5\n"


def test_keys_are_listed_watched_and_compacted(eyot: Tool) -> None:
    eyot("kv", "add", "B", "--history", "5", "--marker-ttl", "1m")
    for key, value in (("a.1", "one"), ("a.1", "two"), ("b", "three")):
        eyot("kv", "put", "B", key, value)
    eyot("kv", "create", "B", "short", "x", "--ttl", "1h")
    assert eyot.json("stream", "get", "KV_B", "4")["headers"]["Nats-TTL"] == "3600s"
    assert eyot("kv", "ls", "B", "a.>") == "a.1\n"
    assert eyot.json("kv", "ls", "B", "a.>", "-v", "--display-value")[0]["value"] == "two"
    assert [each["revision"] for each in eyot.json("kv", "ls", "B", "-v")] == [2, 3, 4]
    assert eyot("kv", "watch", "B", "a.>", "--history", "-n", "2").count("PUT a.1") == 2
    eyot("kv", "del", "B", "a.1")
    assert " PUT b 3: three" in eyot("kv", "watch", "B", "--no-deletes", "--revision", "3", "-n", "1")
    assert eyot.run("kv", "watch", "B", "--history", "--updates").returncode == 2
    assert eyot("kv", "compact", "B", "-f") == "2 messages deleted\n"
    assert [each["operation"] for each in eyot.json("kv", "history", "B", "a.1")] == ["DEL"]
    eyot("kv", "purge", "B", "b", "--ttl", "1h", "-f")
    assert eyot.json("stream", "get", "KV_B", "6")["headers"]["Nats-TTL"] == "3600s"


def test_objects(eyot: Tool, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(3000))
    eyot("object", "add", "O")
    eyot("object", "put", "O", "file", "-H", "Kind: zeros", "--chunk-size", "1K", "-f")
    info = eyot.json("object", "info", "O", "file")
    assert (info["chunks"], info["headers"]) == (3, {"Kind": "zeros"})
    eyot("object", "edit", "O", "--description", "of the plant", "--max-bucket-size", "1M")
    config = eyot.json("stream", "info", "OBJ_O")["config"]
    assert (config["description"], config["max_bytes"]) == ("of the plant", 1 << 20)
    assert eyot("object", "ls", "-n") == "O\n"
    assert eyot("object", "ls", "O", "--names") == "file\n"
    assert eyot("object", "watch", "O", "-n", "1").endswith(" PUT O > file: 2.9 KiB\n")
    eyot("object", "del", "O", "file", "-f")
    assert " DELETE O > file" in eyot("object", "watch", "O", "-n", "1")
