"""`eyot bench` in this process, beside `eyotd` and Debian's `nats-server`."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from eyot_cli.main import main
from support.clients.raw_client import RawClient
from support.servers.eyotd import Eyotd
from support.servers.nats_server import NatsServer
from support.servers.server_process import ServerProcess

#: Of everything here, seconds.
LIMIT_S = 60
CONFIG = """
jetstream { store_dir: "%WORKDIR%/js" }
max_payload: 2000
authorization { users: [
    {user: a, password: a}
    {user: n, password: n, permissions: {subscribe: {deny: "bench.>"}, publish: {deny: "bench.>"}}}
] }
"""
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module", params=[Eyotd, NatsServer], ids=["eyotd", "nats-server"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with request.param(CONFIG, tmp_path_factory.mktemp("bench")) as running:
        yield running


@pytest.fixture
def eyot(server: ServerProcess, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `eyot` in this process; its exit status, stdout and stderr."""

    def run(*words: str, user: str = "a") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["eyot", "-s", server.client_url(user), *words])
        code = main()
        return code, *capsys.readouterr()

    return run


def test_publishing(eyot: Run, server: ServerProcess) -> None:
    before = server.monitor("/varz")["in_msgs"]
    code, out, err = eyot("bench", "pub", "bench.pub", "--msgs", "2001", "--clients", "2", "--size", "1K", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert [(each["messages"], each["bytes"]) for each in found["clients"]] == [
        (1001, 1001 * 1024),
        (1000, 1000 * 1024),
    ]
    assert found["total"]["messages"] == 2001
    deadline = time.monotonic() + LIMIT_S
    while server.monitor("/varz")["in_msgs"] != before + 2001:  # nats-server counts a read after its answers
        assert time.monotonic() < deadline
        time.sleep(0.02)
    code, out, _ = eyot("bench", "pub", "bench.pub", "-n", "10", "-c", "2")
    assert code == 0
    assert out.startswith("Published to bench.pub")
    assert "This tool used " in out


def test_receiving(server: ServerProcess, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["eyot", "-s", server.client_url("a"), "bench", "sub", "bench.*", "-n", "3000", "--clients", "2", "--json"]
    monkeypatch.setattr(sys, "argv", words)
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(main()), daemon=True)
    thread.start()
    deadline = time.monotonic() + LIMIT_S
    while (server.monitor("/subsz?subs=1&test=bench.x").get("total") or 0) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    with RawClient(server.client_port, user="a", **{"pass": "a"}) as publisher:
        publisher.ask(3000 * b"PUB bench.x 7\r\n1234567\r\n")
    thread.join(LIMIT_S)
    assert codes == [0]
    out, err = capsys.readouterr()
    assert err == "Subscribed to bench.*: waiting for 3,000 messages\n"
    assert [(each["messages"], each["bytes"]) for each in json.loads(out)["clients"]] == [(3000, 21000), (3000, 21000)]


@pytest.mark.parametrize("batch", ["1", "7", "500"])
def test_publishing_into_a_stream(batch: str, eyot: Run) -> None:
    words = ("bench", "js", "bench.js", "--batch", batch, "--create", "--purge", "-n", "101", "-c", "2", "--json")
    code, out, err = eyot(*words)
    assert (code, err) == (0, "")
    assert json.loads(out)["total"]["messages"] == 101
    code, out, _ = eyot("--json", "stream", "info", "benchstream")
    assert json.loads(out)["state"]["messages"] == 101


def test_a_stream_that_refuses(eyot: Run) -> None:
    code, out, err = eyot("bench", "js", "bench.nowhere")
    assert (code, out, err) == (1, "", "eyot: no stream stores this subject: --create makes one\n")
    assert eyot("stream", "add", "FULL", "--subjects", "bench.full", "--max-msgs", "5", "--discard", "new")[0] == 0
    code, out, err = eyot("bench", "js", "bench.full", "-n", "100")
    assert (code, out) == (1, "")
    assert err.startswith("eyot: maximum messages exceeded (100")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("pub", "bench.x", "--size", "3000"), "eyot: payloads of 3000 bytes: the server takes at most 2000 "),
        (("pub", "bench.x", "-n", "10"), "eyot: Permissions Violation for Publish to "),
        (("sub", "bench.x", "-n", "10"), "eyot: Permissions Violation for Subscription to "),
    ],
)
def test_what_the_server_does_not_allow(words: tuple[str, ...], expected: str, eyot: Run) -> None:
    code, out, err = eyot("bench", *words, user="n")
    assert (code, out) == (1, "")
    assert err.startswith(expected)


@pytest.mark.parametrize(
    "words", [("pub", "bench.*"), ("sub", "bench..x"), ("js", "a b"), ("pub", "x", "--size", "big")]
)
def test_a_mistake_on_the_command_line(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    # Port 1 refuses connections: a command that goes there ends with another status.
    monkeypatch.setattr(sys, "argv", ["eyot", "-s", "nats://127.0.0.1:1", "bench", *words])
    assert main() == 2
