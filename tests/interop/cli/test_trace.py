"""`eyot trace` in this process, beside `eyotd` and nats-server 2.14, and a leaf pair of them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eyot_cli.main import main
from eyot_cli.messages.traces import Event, Report, Request, Server, lines, missing
from support.clients.raw_client import RawClient
from support.servers.eyotd import Eyotd
from support.servers.nats_server import NatsServer, debian_version
from support.servers.newer_nats_server import NewerNatsServer
from support.servers.server_process import ServerProcess

CONFIG = 'server_name: device\njetstream { store_dir: "%WORKDIR%/js" }\nmappings { "old": "m.new" }\n'
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module", params=[Eyotd, NewerNatsServer], ids=["eyotd", "nats-server"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with request.param(CONFIG, tmp_path_factory.mktemp("trace")) as running:
        yield running


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def words(server: ServerProcess, *arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["eyot", "-s", server.client_url(), *arguments])
        code = main()
        return code, *capsys.readouterr()

    return words


def test_a_mapping_a_stream_and_a_subscription(server: ServerProcess, run: Run) -> None:
    assert run(server, "stream", "add", "M", "--subjects", "m.>")[0] == 0
    with RawClient(server.client_port, name="pump") as client:
        client.ask(b"SUB m.* q 1\r\n")
        code, out, err = run(server, "trace", "old", "--timeout", "60s")
        assert (code, err) == (0, "")
        text = re.sub(r"cid \d+", "cid N", out)
        assert text.startswith("device 2.14.")
        assert "  from client eyot (cid N), account $G, subject old\n  mapped to m.new\n" in text
        assert "\n  into stream M, subject m.new\n" in text
        assert "\n  to client pump (cid N), subscription m.*, queue q\n" in text
        assert b"MSG" not in client.ask(), "reported, and not delivered"
        code, out, _ = run(server, "trace", "old", "hello", "--deliver", "--json", "-H", "A:b", "--timeout", "60s")
        assert code == 0
        assert json.loads(out)[0]["request"]["header"]["A"] == ["b"]
        assert b"hello" in client.ask()


def test_nobody_subscribes(server: ServerProcess, run: Run) -> None:
    code, out, _ = run(server, "trace", "nobody", "--timeout", "60s")
    assert code == 0
    assert out.endswith("  nobody here subscribes to it\n")


@pytest.mark.skipif(debian_version() >= (2, 11), reason="this server traces")
def test_a_server_that_does_not_report(run: Run, tmp_path: Path) -> None:
    with NatsServer("", tmp_path) as old:
        code, out, err = run(old, "trace", "a")
    assert (code, out) == (1, "")
    assert err.endswith(": tracing needs nats-server 2.11 or later\n")


def test_reports_of_several_servers() -> None:
    link = {"kind": 4, "cid": 2, "name": "hub"}
    first = Report(
        Server("leaf", "2.14.0"),
        Request(),
        [Event("in", acc="A", subj="m"), Event("eg", **link, hop="1"), Event("eg", **link, error="no")],
    )
    second = Report(
        Server("hub", "2.15.0"),
        Request({"Nats-Trace-Hop": ["1"]}),
        [Event("in", kind=4), Event("eg", name="x", hop="1.1")],
    )
    assert missing([]) == {""}
    assert missing([first]) == {"1"}
    assert missing([second, first]) == {"1.1"}
    assert lines([second, first]) == [
        "leaf 2.14.0",
        "  from client - (cid 0), account A, subject m",
        "  to leaf link hub (cid 2)",
        "    hub 2.15.0",
        "      from leaf link - (cid 0), subject ",
        "      to client x (cid 0)",
        "        no report came from there in time",
        "  to leaf link hub (cid 2): no",
    ]
