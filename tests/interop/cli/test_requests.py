"""`eyot` against a running `eyotd`: requests, refusals and a lost connection, as a terminal shows them."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from eyot_wire.trust.nkey import Signer, encode_seed
from support.clients.raw_client import RawClient
from support.servers.eyotd import Eyotd
from support.trust.certificates import Authority

CONFIG = """
    server_name: device
    jetstream { store_dir: "%WORKDIR%/js", domain: device }
    authorization { users: [{user: app, password: secret}] }
"""

LISTED = "eyot stream ls lists those that there are"
LOGINS = "--user, --creds, --nkey or --context names who logs in"


class Tool:
    """`eyot`, in front of one daemon that finds its control socket where systemd would have it."""

    def __init__(self, daemon: Eyotd, control: Path) -> None:
        self.daemon = daemon
        self._start = [sys.executable, "-m", "eyot_cli.main", "--control", str(control), "-s", daemon.client_url()]

    def command(self, *arguments: str, password: str = "secret") -> list[str]:
        return [*self._start, "--user", "app", "--password", password, *arguments]

    def __call__(self, *arguments: str, password: str = "secret") -> tuple[int, str, str]:
        done = subprocess.run(
            self.command(*arguments, password=password), capture_output=True, text=True, timeout=60, check=False
        )
        return done.returncode, done.stdout, done.stderr


@pytest.fixture
def eyot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tool]:
    runtime = tmp_path / "run"
    runtime.mkdir()
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(runtime))
    with Eyotd(CONFIG, tmp_path) as daemon:
        yield Tool(daemon, runtime / "control.sock")


def test_what_somebody_does_first(eyot: Tool) -> None:
    status, out, _ = eyot("status")  # the configuration names no control socket
    assert status == 0
    assert out.startswith("device, domain device, Eyot ")
    status, out, err = eyot("req", "$JS.API.STREAM.CREATE.READINGS", '{"name": "READINGS", "subjects": ["readings.>"]}')
    assert (status, err) == (0, "")
    assert json.loads(out)["config"]["subjects"] == ["readings.>"]
    assert eyot("pub", "--ack", "-H", "Kind:first", "readings.d1", "21.5") == (0, "stored in READINGS as 1\n", "")
    status, out, _ = eyot("stream", "info", "READINGS")
    assert status == 0
    assert "┃" not in out  # a table without names has no head
    status, out, _ = eyot("sync")
    assert (status, out) == (0, "Replicated from here\n  no mirror or source elsewhere so far\n")
    status, out, err = eyot("sync", "wait", "--timeout", "10ms")
    assert (status, out) == (1, "")
    assert err.startswith("eyot: no mirror or source elsewhere replicates any stream yet")


def test_what_the_server_refuses(eyot: Tool) -> None:
    where = eyot.daemon.client_url()
    assert eyot("stream", "ls", password="wrong") == (
        1,
        "",
        f"eyot: cannot connect to {where}: Authorization Violation: {LOGINS}\n",
    )
    assert eyot("stream", "info", "NONE") == (1, "", f"eyot: stream not found (10059): {LISTED}\n")
    assert eyot("pub", "--ack", "nobody.takes", "x") == (
        1,
        "",
        "eyot: no stream stores nobody.takes: eyot stream add NAME --subjects nobody.takes makes one\n",
    )
    assert eyot("req", "nobody.answers", "x") == (
        1,
        "",
        "eyot: no responders on nobody.answers: no service of this account listens there\n",
    )
    assert eyot("pub", "two words", "x")[0] == 2
    status, out, err = eyot("req", "$JS.API.STREAM.INFO.NONE", "")
    assert (status, err) == (1, f"eyot: stream not found (10059): {LISTED}\n")
    assert json.loads(out)["error"]["code"] == 404
    status, _, err = eyot("--domain", "elsewhere", "stream", "ls")
    assert status == 1
    assert err.startswith("eyot: no responders on $JS.elsewhere.API: domain elsewhere cannot be reached")


def test_a_payload_that_is_no_text(eyot: Tool) -> None:
    with subprocess.Popen(eyot.command("--json", "sub", "raw.>", "-n", "1"), stdout=subprocess.PIPE) as listening:
        while not eyot.daemon.monitor("/subsz?subs=1&test=raw.x")["total"]:
            time.sleep(0.02)
        with RawClient(eyot.daemon.client_port, b'{"verbose":false,"user":"app","pass":"secret"}') as client:
            client.ask(b"PUB raw.x 3\r\n\xff\x00a\r\n")
        out, _ = listening.communicate(timeout=60)
    assert json.loads(out) == {"subject": "raw.x", "headers": {}, "payload_base64": "/wBh"}


def test_a_subscriber_whose_server_goes_away(eyot: Tool) -> None:
    with subprocess.Popen(
        eyot.command("sub", "readings.>"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as listening:
        assert listening.stdout is not None
        while not eyot.daemon.monitor("/subsz?subs=1&test=readings.x")["total"]:
            time.sleep(0.02)
        eyot.daemon.kill()
        _, err = listening.communicate(timeout=30)
    assert listening.returncode == 1
    assert err.decode() == f"eyot: the connection to {eyot.daemon.client_url()} is gone\n"


def test_by_nkey(tmp_path: Path) -> None:
    seed, other = (encode_seed("U", bytes([number] * 32)) for number in (1, 2))
    config = f"""
        jetstream {{ store_dir: "%WORKDIR%/js" }}
        accounts {{ DEVICE {{ jetstream: enabled, users: [{{nkey: {Signer(seed).public_key}}}] }} }}
    """
    files = {name: tmp_path / name for name in ("bare", "decorated", "other")}
    files["bare"].write_text(seed + "\n")
    files["decorated"].write_text(f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n")
    files["other"].write_text(other)
    listed = (0, "Streams\n  none in this account\n", "")
    with Eyotd(config, tmp_path) as daemon:
        url = daemon.client_url()

        def eyot(*login: str | Path, **env: str) -> tuple[int, str, str]:
            command = [sys.executable, "-m", "eyot_cli.main", "-s", url, *login, "stream", "ls"]
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **env}
            )
            return done.returncode, done.stdout, done.stderr

        assert eyot("--nkey", files["bare"]) == listed
        assert eyot(NATS_NKEY=str(files["decorated"])) == listed
        refused = f"eyot: cannot connect to {url}: Authorization Violation: {LOGINS}\n"
        assert eyot("--nkey", files["other"]) == (1, "", refused)


def test_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    other = Authority(tmp_path / "other")
    cert, key = authority.issue("app")
    config = f"jetstream {{ store_dir: %WORKDIR%/js }}\n{authority.block('server', 'verify: true')}"
    with Eyotd(config, tmp_path) as daemon:
        start = [sys.executable, "-m", "eyot_cli.main", "-s", f"tls://localhost:{daemon.client_port}"]

        def eyot(*arguments: object) -> tuple[int, str, str]:
            command = [*start, *map(str, arguments), "stream", "ls"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            return done.returncode, done.stdout, done.stderr

        shown = ("--tlscert", cert, "--tlskey", key)
        assert eyot("--tlsca", authority.ca_file, *shown) == (0, "Streams\n  none in this account\n", "")
        status, _, err = eyot("--tlsca", other.ca_file, *shown)
        assert (status, err.count("\n")) == (1, 1)
        assert "self-signed" in err or "local issuer" in err or "signature failure" in err
        status, _, err = eyot("--tlsca", key)
        assert (status, err.count("\n")) == (1, 1)
        assert err.startswith(f"eyot: {key}: ")


def test_options_of_eyot_may_stand_behind_the_command(eyot: Tool) -> None:
    where = ("--control", str(eyot.daemon.workdir / "run/control.sock"), "-s", eyot.daemon.client_url())
    login = ("--user", "app", "--password", "secret")

    def run(*arguments: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "eyot_cli.main", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout

    before = run(*where, *login, "--json", "stream", "ls")
    assert before[0] == 0
    assert json.loads(before[1]) == []
    assert run("stream", "ls", "--json", *where, *login) == before
    assert run(*where, "stream", *login, "ls", "--json") == before
    assert run("--json", "-s", "nats://127.0.0.1:1", "stream", "ls", *where, *login) == before  # the last one counts
    assert json.loads(run("status", "--json", *where)[1])["server_name"] == "device"
    assert run("pub", *where, *login, "a", "--", "--json") == (0, "")


@pytest.mark.parametrize("program", ["eyot", "eyot-check", "eyot-hub", "eyotd"])
def test_a_closed_pipe_is_no_error_to_tell(program: str) -> None:
    command = [str(Path(sys.executable).with_name(program)), "--help"]
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, timeout=60, check=False)
    finally:
        os.close(writing)
    assert done.stderr == b""


def test_what_is_too_wide_for_the_terminal_is_shown_row_by_row(eyot: Tool) -> None:
    """At 80 columns no name or figure is folded in the middle."""
    name = "A_STREAM_OF_READINGS_WITH_A_LONG_NAME"
    assert eyot("req", f"$JS.API.STREAM.CREATE.{name}", json.dumps({"name": name, "subjects": ["r.>"]}))[0] == 0
    shown = {}
    for columns in (80, 200):
        command = ["script", "-qec", f"stty cols {columns}; {shlex.join(eyot.command('status'))}", "/dev/null"]
        env = os.environ | {"TERM": "xterm", "COLUMNS": str(columns)}
        shown[columns] = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=env).stdout
        shown[columns] = re.sub(r"\x1b\[[0-9;]*m", "", shown[columns])
    for columns, text in shown.items():
        assert name in text
        assert max(map(len, text.splitlines())) <= columns
    assert "┃" in shown[200]
    assert "Storage" in shown[80]
    assert "┃" not in shown[80]
