"""Options of the `nats` tool in `eyot`, against `eyotd` and nats-server: what is written elsewhere, translated, read from a stream."""

from __future__ import annotations

import errno
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.servers.eyot_tool import Tool
from support.servers.eyotd import Eyotd
from support.servers.newer_nats_server import NewerNatsServer
from support.servers.server_process import ServerProcess

CONFIG = """
    server_name: device
    jetstream { store_dir: "%WORKDIR%/js" }
    accounts { A { jetstream: enabled, users: [{user: a, password: a}] }, SYS { users: [{user: s, password: s}] } }
    system_account: SYS
    no_auth_user: a
"""
SYSTEM = ("--user", "s", "--password", "s")


@pytest.fixture(scope="module", params=[Eyotd, NewerNatsServer], ids=["eyotd", "nats-server"])
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with request.param(CONFIG, tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def eyot(running: ServerProcess, tmp_path: Path) -> Tool:
    return Tool(running, tmp_path)


def test_a_configuration_that_goes_elsewhere(eyot: Tool, tmp_path: Path) -> None:
    shown = eyot("stream", "add", "LATER", "--subjects", "later", "--max-age", "1h", "--validate")
    assert json.loads(shown[: shown.rindex("}") + 1])["max_age"] == 3600 * 10**9
    assert shown.endswith("This is a valid configuration of a stream\n")
    assert eyot("stream", "add", "LATER", "--subjects", "later", "--output", "later.json") == ""
    assert (tmp_path / "later.json").stat().st_mode & 0o777 == 0o600
    assert eyot.json("stream", "ls") == []
    eyot("stream", "add", "LATER", "--config", "later.json")
    assert json.loads(eyot("consumer", "add", "LATER", "pulled", "--output", "-"))["ack_policy"] == "explicit"
    assert eyot("consumer", "ls", "LATER", "--names", "--no-select") == ""
    (tmp_path / "wrong.json").write_text('{"subjects": ["wrong"], "max_msg": 1}')
    assert "`max_msg`" in eyot.fails("stream", "add", "WRONG", "--config", "wrong.json", "--validate")
    eyot("stream", "rm", "LATER", "-f")


def test_a_configuration_in_an_editor(eyot: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    eyot("stream", "add", "EDITED", "--subjects", "edited")
    # Editors count as such by the time of the file, which has two seconds on some file systems.
    monkeypatch.setenv(
        "EDITOR", """sh -c 'sed -i "s/\\"max_msgs\\": -1/\\"max_msgs\\": 7/" "$0"; touch -d "1 hour" "$0"'"""
    )
    assert eyot("stream", "edit", "EDITED", "-i", "-f").splitlines()[0] == "  max_msgs: -1 -> 7"
    assert eyot.json("stream", "info", "EDITED")["config"]["max_msgs"] == 7
    monkeypatch.setenv("EDITOR", """sh -c 'echo "{" >"$0"; touch -d "1 hour" "$0"'""")
    assert eyot.fails("stream", "edit", "EDITED", "-i", "-f").startswith("the stream is as it was: ")
    eyot("stream", "rm", "EDITED", "-f")


def test_translated_payloads(eyot: Tool) -> None:
    eyot("stream", "add", "TOLD", "--subjects", "told.*")
    eyot("pub", "-J", "told.a", "one")
    assert eyot("stream", "view", "TOLD", "--raw", "--translate", "sed s/^/{{Subject}}:/") == "told.a:one\n"
    assert eyot("stream", "get", "TOLD", "1", "--translate", "tr a-z A-Z").endswith("ONE\n")
    assert eyot("sub", "--stream", "TOLD", "--all", "-T", "-r", "--translate", "sed s/^/{{Stream}}:/") == "TOLD:one\n"
    said = eyot("request", "$JS.API.STREAM.NAMES", "", "--raw", "--wait", "--translate", "grep -o TOLD")
    assert said == "TOLD\n"
    assert "no-such-command" in eyot.fails("stream", "view", "TOLD", "--translate", "no-such-command")
    eyot("stream", "rm", "TOLD", "-f")


def test_events_that_a_stream_holds(eyot: Tool) -> None:
    eyot("stream", "add", "EVENTS", "--subjects", "$JS.EVENT.ADVISORY.STREAM.>")
    eyot("stream", "add", "NEWS", "--subjects", "news")
    eyot("stream", "rm", "NEWS", "-f")
    chosen = ("events", "--stream", "EVENTS", "--filter", '"NEWS"')
    told = eyot(*chosen, "--short", "-n", "2").splitlines()
    assert ["stream: NEWS" in each for each in told] == [True, True]
    one = json.loads(eyot(*chosen, "--since", "1h", "--cloudevent", "-n", "1"))
    assert (one["specversion"], one["source"], one["subject"]) == ("1.0", "urn:nats:jetstream", "advisory")
    assert (one["type"], one["data"]["stream"]) == ("io.nats.jetstream.advisory.v1.stream_action", "NEWS")
    assert (one["id"], one["time"]) == (one["data"]["id"], one["data"]["timestamp"])
    assert eyot.run("events", "--since", "1h").returncode == 2
    assert eyot.run("events", "--stream", "EVENTS", "--all").returncode == 2
    eyot("stream", "rm", "EVENTS", "-f")


def test_buckets_that_publish_again_and_leave_a_mirror(eyot: Tool) -> None:
    eyot("kv", "add", "AGAIN", "--republish-destination", "again.>")
    assert eyot.json("stream", "info", "KV_AGAIN")["config"]["republish"] == {"src": "$KV.AGAIN.>", "dest": "again.>"}
    eyot("kv", "put", "AGAIN", "a", "1")
    eyot("kv", "edit", "AGAIN", "--republish-destination", "heads.>", "--republish-headers", "--marker-ttl", "1h")
    assert eyot.json("stream", "info", "KV_AGAIN")["config"]["republish"]["headers_only"] is True
    assert eyot.run("kv", "edit", "AGAIN", "--republish-headers").returncode == 2
    eyot("kv", "add", "COPY", "--mirror", "AGAIN")
    eyot("kv", "edit", "COPY", "--no-mirror")
    eyot("kv", "put", "COPY", "b", "2")
    assert eyot("kv", "get", "COPY", "b", "--raw") == "2"
    eyot("object", "add", "FILES", "--metadata", "site=7", "--compress")
    config = eyot.json("stream", "info", "OBJ_FILES")["config"]
    assert (config["compression"], config["metadata"]["site"]) == ("s2", "7")
    for name in ("KV_AGAIN", "KV_COPY", "OBJ_FILES"):
        eyot("stream", "rm", name, "-f")


def test_a_backup_with_another_configuration(eyot: Tool, tmp_path: Path) -> None:
    eyot("stream", "add", "KEPT", "--subjects", "kept")
    eyot("pub", "-J", "kept", "one")
    eyot(
        "stream", "backup", "KEPT", "kept", "--consumers", "--no-progress", "--chunk-size", "64K", "--window-size", "1M"
    )
    eyot("stream", "rm", "KEPT", "-f")
    eyot("stream", "add", "KEPT", "--subjects", "other", "--output", "kept.json")
    eyot("stream", "add", "OTHER", "--subjects", "other", "--output", "other.json")
    assert "a restore cannot rename it" in eyot.fails("stream", "restore", "kept", "--config", "other.json")
    eyot("stream", "restore", "kept", "--config", "kept.json", "--replicas", "1", "--no-progress")
    found = eyot.json("stream", "info", "KEPT")
    assert (found["config"]["subjects"], found["state"]["messages"]) == (["other"], 1)
    eyot("stream", "rm", "KEPT", "-f")


def test_reports_in_plain_numbers_and_in_another_order(eyot: Tool) -> None:
    eyot("stream", "add", "MANY", "--subjects", "many", "--storage", "memory")
    eyot("pub", "-J", "many", "x", "--count", "1200", "-q")
    assert "1200" in eyot("stream", "report", "--raw", "--all").split()
    eyot("consumer", "add", "MANY", "behind")
    assert "1200" in eyot("consumer", "report", "MANY", "-r").split()
    assert eyot("stream", "find", "--api-level", "99", "--names") == ""
    for order in ("name", "conns", "subs", "mem", "cpu", "slow", "uptime", "rtt"):
        assert eyot.json("server", "ls", "--sort", order, "-R", *SYSTEM)[0]["server"]["name"] == "device"
    eyot("stream", "rm", "MANY", "-f")


def test_one_reading_of_top_in_a_file(eyot: Tool, tmp_path: Path) -> None:
    eyot("top", "device", "-o", "top.csv", "--delimiter", ",", "-b", "--lookup", "-d", "20ms", *SYSTEM)
    head, *rows = (tmp_path / "top.csv").read_text().split("\n\n")[1].splitlines()
    assert head.startswith("CID,HOST,NAME,ACCOUNT,USER,SUBS,")
    assert rows
    assert all(row.count(",") == head.count(",") for row in rows)
    assert "device  version " in eyot("top", "device", "-o", "-", "--interval", "20ms", *SYSTEM)


def test_what_has_no_room_says_what_to_do(eyot: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    eyot("stream", "add", "SHORT", "--subjects", "short", "--max-msgs", "1", "--discard", "new", "--max-msg-size", "9")
    eyot("pub", "-J", "short", "one")
    assert "(10077): eyot stream info shows the stream's limits, " in eyot.fails("pub", "-J", "short", "two")
    assert "(10054): eyot stream edit --max-msg-size " in eyot.fails("pub", "-J", "short", "longer than that")

    class Full(io.BytesIO):
        def write(self, _data: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("eyot_cli.jetstream.backups.os.fdopen", lambda *_: Full())
    expected = f"{tmp_path / 'kept' / 'stream.tar.s2'}: No space left on device: name a folder with more room"
    assert eyot.fails("stream", "backup", "SHORT", str(tmp_path / "kept")) == expected
    assert not (tmp_path / "kept").exists()
    eyot("stream", "rm", "SHORT", "-f")
