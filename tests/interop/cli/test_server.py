"""`eyot server` against `eyotd` and nats-server: states, exit statuses, and what the system account sees."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.servers.eyot_tool import Tool
from support.servers.server_process import ServerProcess
from support.servers.tool_servers import ACCOUNTS, SYSTEM, servers
from support.trust.claims import ALPHA, USER, creds

CONFIG = """
    server_name: device
    jetstream { store_dir: "%WORKDIR%/js" }
"""

running = servers(CONFIG + ACCOUNTS)


@pytest.fixture
def eyot(running: ServerProcess, tmp_path: Path) -> Iterator[Tool]:
    """The tool, with a stream T of one message and its consumer C, and a bucket B with the key k."""
    tool = Tool(running, tmp_path)
    tool("stream", "add", "T", "--subjects", "t.>")
    tool("pub", "t.1", "hello", "-J", "-q")
    tool("consumer", "add", "T", "C")
    tool("kv", "add", "B")
    tool("kv", "put", "B", "k", "v")
    yield tool
    for name in tool("stream", "ls", "-n").splitlines():
        tool("stream", "rm", name, "-f")


def check(eyot: Tool, *words: str) -> tuple[int, str]:
    done = eyot.run("server", "check", *words)
    assert done.stderr == b""
    return done.returncode, done.stdout.decode().rstrip("\n")


#: However long it takes, it is good.
UNTIMED = [
    word for what in ("connect", "rtt", "req") for kind in ("warn", "critical") for word in (f"--{what}-{kind}", "0s")
]
STATES = [
    (0, ("connection", *UNTIMED), r"OK Connection OK:connect time [\d.]+s OK:rtt"),
    (2, ("connection", *UNTIMED, "--rtt-critical", "1ns"), r"CRITICAL Connection Crit:rtt time "),
    (2, ("stream", "--stream", "T", "--msgs-critical", "5"),
     r"CRITICAL T Crit:1 messages OK:0 sources \| messages=1;;5 sources=0$"),
    (1, ("stream", "--stream", "T", "--msgs-warn", "1", "--subjects-warn", "1", "--subjects-critical", "2"),
     r"WARNING T Warn:1 messages Warn:1 subjects OK:0 sources \| messages=1;1 subjects=1;1;2 sources=0$"),
    (2, ("stream", "--stream", "T", "--subjects-warn", "5", "--subjects-critical", "1"), r"CRITICAL T Crit:1 subjects"),
    (2, ("stream", "--stream", "T", "--lag-critical", "5"), r"CRITICAL T Crit:not mirrored"),
    (2, ("stream", "--stream", "T", "--min-sources", "1"), r"CRITICAL T Crit:0 sources"),
    (2, ("stream", "--stream", "NONE"), r"CRITICAL NONE Crit:stream not found \(10059\)"),
    (0, ("consumer", "--stream", "T", "--consumer", "C", "--unprocessed-critical", "2"), r"OK T_C OK:Unprocessed Messages: 1 "),
    (2, ("consumer", "--stream", "T", "--consumer", "C", "--unprocessed-critical", "1", "--last-ack-critical", "1s"),
     r"CRITICAL T_C Crit:Unprocessed Messages: 1 Crit:No acks \| ack_pending=0 pull_waiting=0 pending=1;;1 redelivered=0$"),
    (2, ("consumer", "--stream", "T", "--consumer", "C", "--pinned"), r"CRITICAL T_C Crit:Not pinned client"),
    (0, ("message", "--stream", "T", "--subject", "t.1", "--age-critical", "1h", "--content", "^hel"),
     r"OK Stream Message OK:Valid message on T > t.1 \| age=[\d.]+s;;3600.0000 size=5B$"),
    (2, ("message", "--stream", "T", "--subject", "t.1", "--age-critical", "1ns"), r"CRITICAL Stream Message Crit:[\d.]+s old"),
    (2, ("message", "--stream", "T", "--subject", "t.1", "--body-timestamp"), r".* Crit:invalid timestamp body"),
    (2, ("message", "--stream", "T", "--subject", "t.2"), r".* Crit:no message found"),
    (0, ("kv", "--bucket", "B", "--key", "k", "--values-warn", "3", "--values-critical", "5"),
     r"OK B OK:bucket B OK:key k found OK:1 values \| values=1;3;5 bytes="),
    (1, ("kv", "--bucket", "B", "--values-warn", "3", "--values-critical", "0"), r"WARNING B Warn:1 values"),
    (2, ("kv", "--bucket", "B", "--key", "none"), r"CRITICAL B Crit:key none not found"),
    (2, ("kv", "--bucket", "NONE"), r"CRITICAL NONE Crit:there is no bucket NONE"),
    (0, ("jetstream",), r"OK JetStream .* memory_pct=0%;75;90 .* streams=2 "),
    (2, ("jetstream", "--mem-warn", "9", "--mem-critical", "9"), r"CRITICAL JetStream Crit:memory: invalid thresholds"),
    (2, ("request", "--subject", "nobody"), r"CRITICAL nobody Crit:no responders on nobody"),
    (2, ("server", "--name", "device"), r"CRITICAL device Crit:no server device answers"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "words", "expected"), STATES, ids=[" ".join(each[1]) for each in STATES])
def test_states(eyot: Tool, code: int, words: tuple[str, ...], expected: str) -> None:
    status, line = check(eyot, *words)
    assert re.match(expected, line), line
    assert status == code


def test_thresholds_of_metadata(eyot: Tool) -> None:
    eyot("stream", "edit", "T", "--metadata", "io.nats.monitor.msgs-critical=5", "-f")
    assert check(eyot, "stream", "--stream", "T")[0] == 2
    assert check(eyot, "stream", "--stream", "T", "--msgs-critical", "0")[0] == 0
    eyot("stream", "edit", "T", "--metadata", "io.nats.monitor.msgs-critical=many", "-f")
    assert "'many' is no threshold" in check(eyot, "stream", "--stream", "T")[1]


def test_forms_of_the_output(eyot: Tool, tmp_path: Path) -> None:
    failing = ("kv", "--bucket", "B", "--key", "none")
    told = json.loads(check(eyot, "--format", "json", *failing)[1])
    assert (told["status"], told["critical"], told["check_suite"]) == ("CRITICAL", ["key none not found"], "kv")
    assert told == json.loads(check(eyot, *failing, "--json")[1])
    status, metrics = check(eyot, *failing, "--format", "prometheus", "--namespace", "mine")
    assert status == 0
    assert 'mine_kv_status_code{item="B",status="CRITICAL"} 2' in metrics.splitlines()
    assert check(eyot, *failing, "--outfile", str(tmp_path / "out")) == (2, "")
    assert (tmp_path / "out").read_text().startswith("CRITICAL B Crit:key none not found")
    assert check(eyot, "--format", "text", *failing)[1].startswith("B: CRITICAL")


def test_what_the_system_account_sees(eyot: Tool) -> None:
    (one,) = eyot.json("server", "ls", *SYSTEM)
    assert one["server"]["name"] == "device"
    assert eyot("server", "ping", *SYSTEM).startswith("device: ")
    assert eyot.json("server", "info", "device", *SYSTEM)["server_name"] == "device"
    assert "no server other answers" in eyot.fails("server", "info", "other", *SYSTEM)
    assert eyot.fails("server", "ls").startswith("nobody answers: name a user of the system account")
    few = eyot.run("server", "ls", "2", *SYSTEM)
    assert (few.returncode, few.stderr) == (1, b"eyot: 1 of 2 servers answer\n")
    answer = json.loads(eyot("server", "request", "variables", "--name", "device", *SYSTEM))
    assert answer["data"]["server_name"] == "device"
    words = (
        "server",
        "--name",
        "device",
        "--js-required",
        "--uptime-warn",
        "1ns",
        "--conn-warn",
        "9",
        "--conn-critical",
        "0",
    )
    status, line = check(eyot, *words, *SYSTEM)
    assert status == 1
    assert re.match(r"WARNING device Warn:Connections \d+\.00 OK:JetStream enabled OK:Up ", line), line


def test_credentials(running: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    eyot = Tool(running, tmp_path)
    assert check(eyot, "credential", "--credential", "none")[1].endswith("No such file or directory")
    (tmp_path / "bad").write_text("nothing")
    assert "invalid credential" in check(eyot, "credential", "--credential", "bad")[1]
    now = int(time.time())
    for name, expires in (("ever", 0), ("over", now - 60), ("good", now + 86_400)):
        token = ALPHA.user(USER, claims={"exp": expires})
        (tmp_path / name).write_text(creds(token, USER))
    assert check(eyot, "credential", "--credential", "ever") == (2, "CRITICAL Credential Crit:never expires")
    assert check(eyot, "credential", "--credential", "ever", "--no-require-expiry")[0] == 0
    assert check(eyot, "credential", "--credential", "over")[0] == 2
    assert check(eyot, "credential", "--credential", "good")[0] == 0
    assert check(eyot, "credential", "--credential", "good", "--validity-warn", "2d")[0] == 1
    assert check(eyot, "credential", "--credential", "good", "--validity-critical", "2d")[0] == 2
