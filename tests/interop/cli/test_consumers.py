"""`eyot consumer` with the options of the nats tool, against `eyotd` and nats-server: the configurations that result."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.servers.eyot_tool import Tool
from support.servers.server_process import ServerProcess
from support.servers.tool_servers import servers

SECOND = 10**9


running = servers()


@pytest.fixture
def eyot(running: ServerProcess, tmp_path: Path) -> Iterator[Tool]:
    """The tool, with the stream S, which holds three messages."""
    tool = Tool(running, tmp_path)
    tool("stream", "add", "S", "--subjects", "s.>")
    tool("pub", "s.{{Count}}", "{{Count}}", "-J", "-q", "--count", "3")
    yield tool
    tool("stream", "rm", "S", "-f")


def config_of(eyot: Tool, name: str) -> dict[str, Any]:
    config: dict[str, Any] = eyot.json("consumer", "info", "S", name)["config"]
    config.pop("metadata", None)  # the server notes its own version there
    return config


def test_what_the_options_make(eyot: Tool) -> None:
    eyot("consumer", "add", "S", "plain", "--pull", "--defaults")
    assert config_of(eyot, "plain") == {
        "durable_name": "plain", "name": "plain", "deliver_policy": "all", "ack_policy": "explicit",
        "ack_wait": 30 * SECOND, "max_deliver": -1, "replay_policy": "instant", "max_waiting": 512,
        "max_ack_pending": 1000, "num_replicas": 0,
    }  # fmt: skip
    eyot(
        "consumer",
        "add",
        "S",
        "pushed",
        "--target",
        "out",
        "--deliver",
        "subject",
        "--bps",
        "8000",
        "--heartbeat",
        "-1",
    )
    pushed = config_of(eyot, "pushed")
    assert (pushed["ack_policy"], pushed["rate_limit_bps"]) == ("none", 8000)
    assert (pushed["deliver_policy"], pushed["filter_subject"]) == ("last_per_subject", ">")
    eyot("consumer", "add", "S", "slow", "--backoff", "linear", "--backoff-steps", "3", "--backoff-min", "1s",
         "--backoff-max", "4s", "--max-pull-batch", "9", "--max-pull-expire", "5s", "--max-pull-bytes", "1K",
         "--max-outstanding", "7", "--pause", "1h")  # fmt: skip
    slow = config_of(eyot, "slow")
    assert (slow["backoff"], slow["max_deliver"]) == ([SECOND, 2 * SECOND, 3 * SECOND], 4)
    assert (slow["max_batch"], slow["max_expires"], slow["max_bytes"]) == (9, 5 * SECOND, 1024)
    assert (slow["max_ack_pending"], "pause_until" in slow) == (7, True)
    assert eyot.run("consumer", "add", "S", "x", "--backoff", "linear", "--backoff-min", "0s").returncode == 2


def test_an_edit_changes_what_is_given(eyot: Tool, tmp_path: Path) -> None:
    eyot("consumer", "add", "S", "c", "--filter", "s.1", "--filter", "s.2", "--metadata", "site=7")
    same = ("consumer", "edit", "S", "c", "--max-deliver", "-1", "-f")
    assert eyot(*same) == "consumer c of S is so already\n"
    assert eyot.run(*same, "--dry-run").returncode == 0
    dry = eyot.run("consumer", "edit", "S", "c", "--max-deliver", "5", "--dry-run")
    assert (dry.returncode, dry.stdout) == (1, b"  max_deliver: -1 -> 5\n")
    changed = eyot("con", "update", "S", "c", "--filter", "s.3", "--wait", "9s", "--metadata", "row=1", "-f")
    assert "  filter_subject: not set -> s.3\n" in changed
    config = eyot.json("consumer", "info", "S", "c")["config"]
    assert (config["filter_subject"], config["ack_wait"]) == ("s.3", 9 * SECOND)
    assert "filter_subjects" not in config
    assert (config["metadata"]["site"], config["metadata"]["row"]) == ("7", "1")
    unasked = eyot.run("consumer", "edit", "S", "c", "--max-deliver", "5")
    assert (unasked.returncode, b"nobody can be asked" in unasked.stderr) == (1, True)
    whole = eyot.json("consumer", "info", "S", "c")
    whole["config"].pop("filter_subject")
    (tmp_path / "c.json").write_text(json.dumps(whole))
    told = eyot("consumer", "edit", "S", "c", "--config", "c.json", "--description", "of a file", "-f")
    assert told.splitlines()[:-1] == ["  filter_subject: s.3 -> not set", "  description: not set -> of a file"]
    (tmp_path / "c.json").write_text(
        '{"durable_name": "c", "ack_policy": "explicit", "ack_wait": 9000000000, "max_ack_pending": -1}'
    )
    told = eyot.run("consumer", "edit", "S", "c", "--config", "c.json", "--dry-run").stdout.decode()
    assert sorted(line.split(":")[0].strip() for line in told.splitlines()) == [
        "description",
        "max_ack_pending",
        "metadata",
    ]
    config = config_of(eyot, "c")
    assert (config["description"], "filter_subject" in config) == ("of a file", False)


def test_a_copy_has_the_configuration_and_begins_anew(eyot: Tool) -> None:
    eyot("consumer", "add", "S", "c", "--max-deliver", "5", "--wait", "9s")
    eyot("consumer", "next", "S", "c", "-r")
    eyot("con", "cp", "S", "c", "d", "--wait", "8s")
    expected = config_of(eyot, "c") | {"durable_name": "d", "name": "d", "ack_wait": 8 * SECOND}
    assert config_of(eyot, "d") == expected
    assert eyot.json("consumer", "state", "S", "d")["delivered"]["stream_seq"] == 0
    assert "consumer already exists" in eyot.fails("consumer", "copy", "S", "c", "d", "--max-deliver", "3")


def test_refused_messages_and_a_reset(eyot: Tool) -> None:
    eyot("consumer", "add", "S", "c")
    assert eyot("consumer", "next", "S", "c", "-r", "--nak") == "1\n"
    assert eyot("consumer", "next", "S", "c", "-r", "--term") == "1\n"
    assert eyot("consumer", "next", "S", "c", "-r", "--no-ack") == "2\n"
    state = eyot("consumer", "state", "S", "c")
    assert "Ack pending" in state
    assert "Ack wait" not in state
    assert eyot("consumer", "reset", "S", "c", "-f") == "consumer c of S goes on at 2\n"
    assert eyot("consumer", "next", "S", "c", "-r") == "2\n"
    eyot("consumer", "reset", "S", "c", "--sequence", "1", "-f")
    assert eyot("consumer", "next", "S", "c", "-r", "-n", "3") == "1\n2\n3\n"


def test_a_client_is_unpinned(eyot: Tool) -> None:
    eyot("consumer", "add", "S", "c", "--pinned-groups", "g", "--pinned-ttl", "1m")
    config = config_of(eyot, "c")
    assert (config["priority_policy"], config["priority_groups"]) == ("pinned_client", ["g"])
    assert config["priority_timeout"] == 60 * SECOND
    nobody = "S > c has no pinned client"
    assert eyot.fails("consumer", "unpin", "S", "c", "-f") == f"{nobody} to choose; groups with one: none"

    async def pull(jetstream: Any) -> None:
        client = jetstream._nc
        inbox = await client.subscribe(client.new_inbox())
        body = b'{"batch": 1, "group": "g", "expires": 5000000000}'
        await client.publish("$JS.API.CONSUMER.MSG.NEXT.S.c", body, reply=inbox.subject)
        await inbox.next_msg(timeout=30)

    eyot.nats_py(pull)
    assert eyot.fails("consumer", "unpin", "S", "c", "other", "-f") == f"{nobody} in other; groups with one: g"
    assert eyot("consumer", "unpin", "S", "c", "-f").endswith(" is unpinned from g of S > c\n")
    eyot("consumer", "add", "S", "o", "--overflow-groups", "g")
    assert config_of(eyot, "o")["priority_policy"] == "overflow"
    assert eyot.run("consumer", "add", "S", "x", "--overflow-groups", "g", "--pinned-groups", "h").returncode == 2


def test_consumers_are_found(eyot: Tool) -> None:
    eyot("consumer", "add", "S", "pulled")
    eyot("consumer", "add", "S", "pushed", "--target", "out", "--filter", "s.1")
    eyot("consumer", "next", "S", "pulled", "--no-ack")
    for words, names in (
        (("--pull",), ["pulled"]),
        (("--push",), ["pushed"]),
        (("--bound",), []),
        (("--waiting", "1"), ["pulled", "pushed"]),
        (("--ack-pending", "1"), ["pushed"]),
        (("--pending", "2"), ["pushed"]),
        (("--pending", "3", "--pull"), ["pulled"]),
        (("--idle", "1h"), ["pushed"]),
        (("--created", "1h"), []),
        (("--created", "1h", "--invert"), ["pulled", "pushed"]),
        (("--replicas", "1"), ["pulled", "pushed"]),
        (("--pinned",), []),
        (("--api-level", "0"), ["pulled", "pushed"]),
        (("--api-level", "1"), []),
    ):
        assert eyot.json("consumer", "find", "S", "-n", *words) == names, words
    assert [each["name"] for each in eyot.json("con", "query", "S", "--push")] == ["pushed"]
    assert "pulled" in eyot("consumer", "find", "S")
