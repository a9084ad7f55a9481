"""`eyot events` in this process, beside `eyotd` and Debian's `nats-server`."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from eyot_cli.main import main
from eyot_wire.program import CLOSED_PIPE
from support.clients.raw_client import RawClient
from support.servers.eyotd import Eyotd
from support.servers.nats_server import NatsServer
from support.servers.server_process import ServerProcess

#: Of everything here, seconds.
LIMIT_S = 60
READY = "events.ready"
CONFIG = """
jetstream { store_dir: "%WORKDIR%/js" }
accounts {
    A { jetstream: enabled, users: [{user: a, password: a}, {user: n, password: n, permissions: {subscribe: {deny: "$JS.EVENT.>"}}}] }
    SYS { users: [{user: s, password: s}] }
}
system_account: SYS
"""


@pytest.fixture(scope="module", params=[Eyotd, NatsServer], ids=["eyotd", "nats-server"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with request.param(CONFIG, tmp_path_factory.mktemp("events")) as running:
        yield running


def url(server: ServerProcess, user: str) -> str:
    return f"nats://{user}:{user}@127.0.0.1:{server.client_port}"


def client(server: ServerProcess, user: str, name: str = "") -> RawClient:
    return RawClient(server.client_port, user=user, name=name, verbose=False, headers=True, **{"pass": user})


def listened(server: ServerProcess, account: str, subject: str, *, by_somebody: bool = True) -> None:
    """Return when somebody of the account subscribes to the subject, or nobody does any more."""
    deadline = time.monotonic() + LIMIT_S
    while bool(server.monitor(f"/subsz?subs=1&acc={account}&test={subject}").get("total")) is not by_somebody:
        assert time.monotonic() < deadline
        time.sleep(0.02)


Listening = Callable[..., AbstractContextManager[None]]


@pytest.fixture
def listening(server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> Listening:
    """Runs `eyot events` in a thread while the block makes events; it ends by --count."""

    @contextmanager
    def run(user: str, account: str, *arguments: str) -> Iterator[None]:
        # `READY` is subscribed to last. The server itself has subscriptions to some of the others.
        words = ["eyot", "-s", url(server, user), "events", *arguments, "--subjects", READY]
        monkeypatch.setattr(sys, "argv", words)
        codes: list[int] = []
        thread = threading.Thread(target=lambda: codes.append(main()), daemon=True)
        listened(server, account, READY, by_somebody=False)  # the connection of the one before may not be gone yet
        thread.start()
        listened(server, account, READY)
        yield
        thread.join(LIMIT_S)
        assert codes == [0]

    return run


def documents(text: str) -> list[Any]:
    found, decoder = [], json.JSONDecoder()
    while text := text.strip():
        document, end = decoder.raw_decode(text)
        found.append(document)
        text = text[end:]
    return found


def test_connections_for_the_system_account(
    server: ServerProcess, listening: Listening, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--short", "--filter", "PROBE-[0-9]", "-n", "2")
    with listening("s", "SYS", *arguments), client(server, "a", "probe-1") as probe:
        probe.ask()
    out, err = capsys.readouterr()
    assert err.startswith("Listening to $SYS.ACCOUNT.*.CONNECT, ")
    told = dict(line.partition("] ")[2].split("  ", 1) for line in out.splitlines())
    assert set(told) == {"client connected", "client disconnected"}
    assert all(text.startswith("acc: A, user: a, name: probe-1, id: ") for text in told.values())
    assert "reason: Client Closed, server.name: " in told["client disconnected"]


def test_streams_for_users_of_their_account(
    server: ServerProcess, listening: Listening, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--js-advisory", "--json", "--filter", "stream_action", "-n", "2")
    with listening("a", "A", *arguments), client(server, "a") as asking:
        body = '{"name":"EVENTS","subjects":["events"]}'
        asking.ask(f"PUB $JS.API.STREAM.CREATE.EVENTS r {len(body)}\r\n{body}\r\n".encode())
        asking.ask(b"PUB $JS.API.STREAM.DELETE.EVENTS r 0\r\n\r\n")
    out, err = capsys.readouterr()
    assert err.startswith("eyot: this login is not in the system account: ")
    events = documents(out)
    assert [(event["stream"], event["action"]) for event in events] == [("EVENTS", "create"), ("EVENTS", "delete")]
    assert {event["type"] for event in events} == {"io.nats.jetstream.advisory.v1.stream_action"}


def test_events_that_are_none_and_hostile_ones(
    server: ServerProcess, listening: Listening, capsys: pytest.CaptureFixture[str]
) -> None:
    deep = b"[" * 5000
    bodies = [b'{"type":"x.a\\u001b[2J","m":{"n":1}}', b"\xff", b'{"type":7,"rtt":1500000}', deep]
    publishes = b"".join(b"PUB odd.x %d\r\n%s\r\n" % (len(body), body) for body in bodies)
    arguments = ("--no-srv-advisory", "--subjects", "odd.*", "-n", str(len(bodies)))
    with listening("a", "A", *arguments), client(server, "a") as publisher:
        publisher.ask(publishes)
    out, _ = capsys.readouterr()
    assert out.split("\n\n") == [
        "[] a\\x1b[2J  odd.x\n    m.n: 1",
        "[] event  odd.x\n    payload_base64: /w==",
        "[] 7  odd.x\n    rtt: 1.500 ms",
        f"[] event  odd.x\n    payload: {deep.decode()}",
        "",
    ]
    with listening("a", "A", "--json", *arguments), client(server, "a") as publisher:
        publisher.ask(publishes)
    assert documents(capsys.readouterr().out) == [
        {"type": "x.a\x1b[2J", "m": {"n": 1}},
        {"subject": "odd.x", "payload_base64": "/w=="},
        {"type": 7, "rtt": 1500000},
        {"subject": "odd.x", "payload": deep.decode()},
    ]


@pytest.mark.parametrize(
    ("user", "arguments", "expected"),
    [
        ("a", (), "eyot: this login is not in the system account: "),
        ("n", ("--no-srv-advisory", "--js-metric"), "eyot: Permissions Violation for Subscription to "),
    ],
)
def test_a_login_that_may_not(
    user: str,
    arguments: tuple[str, ...],
    expected: str,
    server: ServerProcess,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["eyot", "-s", url(server, user), "events", *arguments])
    assert main() == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.lower().startswith(expected.lower())
    assert "login" in err


@pytest.mark.parametrize("arguments", [("--no-srv-advisory",), ("--filter", "(")])
def test_a_mistake_on_the_command_line(arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    # Port 1 refuses connections: a command that goes there ends with another status.
    monkeypatch.setattr(sys, "argv", ["eyot", "-s", "nats://127.0.0.1:1", "events", *arguments])
    assert main() == 2


def test_a_reader_that_closes_the_pipe(server: ServerProcess) -> None:
    command = [sys.executable, "-m", "eyot_cli.main", "-s", url(server, "a"), "events", "--no-srv-advisory"]
    with subprocess.Popen(
        [*command, "--subjects", "piped"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as listening:
        assert listening.stdout is not None
        listened(server, "A", "piped")
        with client(server, "a") as publisher:
            publisher.ask(b"PUB piped 2\r\n{}\r\n")
            assert listening.stdout.readline() == b"[] event  piped\n", "each event is written at once"
            listening.stdout.close()
            publisher.ask(b"PUB piped 2\r\n{}\r\n")
            assert listening.wait(LIMIT_S) == CLOSED_PIPE
        assert listening.stderr is not None
        assert listening.stderr.read() == b"Listening to piped\n"
