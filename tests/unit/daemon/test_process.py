"""`eyotd` as a process: start, exit codes, signals, files, and its error messages."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

EYOTD = str(Path(sys.executable).with_name("eyotd"))
TIMEOUT_S = 30.0


class Daemon:
    """One eyotd on any free port, its log in a file."""

    def __init__(self, folder: Path, *arguments: str, env: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.log_path = folder / "stderr.log"
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [EYOTD, "-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", str(folder), *arguments],
                stderr=log,
                stdout=log,
                cwd=folder,
                env=os.environ | (env or {}),
            )
        self.ports_path = folder / f"nats-server_{self.process.pid}.ports"

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not happen:\n{self.log()}"
            time.sleep(0.02)

    def wait_ready(self) -> None:
        self.wait_log("Server is ready")

    def wait_log(self, text: str) -> None:
        self.wait_until(lambda: text in self.log() or self.process.poll() is not None, repr(text))
        assert text in self.log()

    def log(self) -> str:
        return self.log_path.read_text()

    def wait(self) -> int:
        return self.process.wait(TIMEOUT_S)

    @property
    def port(self) -> int:
        ports = json.loads(self.ports_path.read_text())
        return int(ports["nats"][0].rsplit(":", 1)[1])

    def handshake(self) -> dict[str, object]:
        with socket.create_connection(("127.0.0.1", self.port), TIMEOUT_S) as sock, sock.makefile("rb") as lines:
            info: dict[str, object] = json.loads(lines.readline().removeprefix(b"INFO "))
            return info


StartDaemon = Callable[..., Daemon]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartDaemon]:
    """Starts daemons that do not outlive the test."""
    daemons: list[Daemon] = []

    def run(*arguments: str, env: dict[str, str] | None = None) -> Daemon:
        daemons.append(Daemon(tmp_path, *arguments, env=env))
        return daemons[-1]

    yield run
    for daemon in daemons:
        daemon.process.kill()
        daemon.process.wait()


def eyotd(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([EYOTD, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def test_mistakes_in_the_configuration(tmp_path: Path) -> None:
    main, included = tmp_path / "main.conf", tmp_path / "more.conf"
    main.write_text("port: 4222\ninclude more.conf\n")
    included.write_text("# limits\nmax_payloud: 1mb\n")
    for flags, status in (([], 78), (["-t"], 1)):
        done = eyotd(*flags, "-c", str(main))
        assert done.returncode == status
        assert (
            done.stderr
            == f'eyotd: {included}:2:1: key "max_payloud": unknown field "max_payloud", did you mean "max_payload"?\n'
        )
    included.write_text("max_payload: 2mb\n")
    done = eyotd("-t", "-c", str(main))
    assert done.returncode == 0
    assert done.stderr.startswith(f"eyotd: configuration file {main} is valid (sha256:")
    included.write_text("ping_interval: 2m\n")
    done = eyotd("-t", "-c", str(main))
    assert done.returncode == 1
    assert "should be converted to a duration" in done.stderr
    done = eyotd("-c", str(tmp_path / "none.conf"))
    assert done.returncode == 1  # its disk may be mounted later
    assert "No such file or directory" in done.stderr


def test_mistakes_on_the_command_line() -> None:
    for arguments, words in (
        (["-zz"], "flag provided but not defined: -zz"),
        (["-t"], "must specify [-c, --config]"),
        (["--routes", "nats://x:1"], "clusters are the hub's job"),
        (["-sl", "foo"], 'unknown signal "foo"'),
    ):
        done = eyotd(*arguments)
        assert done.returncode == (1 if "-sl" in arguments else 64)
        assert words in done.stderr
        assert "Traceback" not in done.stderr


def test_version_and_help() -> None:
    done = eyotd("-v")
    assert done.returncode == 0
    assert re.fullmatch(r"nats-server: v2\.\d+\.\d+ \(eyotd \S+\)\n", done.stdout)
    assert "--ports_file_dir" in eyotd("--help").stdout
    assert "cert_file" in eyotd("--help_tls").stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_life(start: StartDaemon, tmp_path: Path, number: signal.Signals) -> None:
    daemon = start("-P", str(tmp_path / "x.pid"), "-js", "-sd", str(tmp_path / "js"), "-n", "me", "-m", "-1")
    daemon.wait_ready()
    log = daemon.log()
    assert re.search(r"^\[\d+\] \d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} \[INF\] Server is ready$", log, re.MULTILINE)
    assert f"Listening for client connections on 127.0.0.1:{daemon.port}" in log
    assert (tmp_path / "x.pid").read_text() == str(daemon.process.pid)
    info = daemon.handshake()
    assert (info["server_name"], info["port"], info["jetstream"]) == ("me", daemon.port, True)
    monitoring = json.loads(daemon.ports_path.read_text())["monitoring"][0]
    assert f"Starting http monitor on {monitoring.removeprefix('http://')}" in log
    daemon.process.send_signal(number)
    assert daemon.wait() == 0
    assert "Server Exiting.." in daemon.log()
    assert not daemon.ports_path.exists()
    assert not (tmp_path / "x.pid").exists()


def test_varz_names_the_ports_that_were_bound(start: StartDaemon, tmp_path: Path) -> None:
    config = tmp_path / "any.conf"
    config.write_text("leafnodes { listen: 127.0.0.1:-1 }\nwebsocket { listen: 127.0.0.1:-1, no_tls: true }\n")
    daemon = start("-c", str(config), "-m", "-1")
    daemon.wait_ready()
    ports = json.loads(daemon.ports_path.read_text())
    with urllib.request.urlopen(ports["monitoring"][0] + "/varz", timeout=30) as answer:
        varz = json.load(answer)
    found = {"leafnodes": varz["leaf"]["port"], "websocket": varz["websocket"]["port"], "monitoring": varz["http_port"]}
    assert found == {name: int(ports[name][0].rpartition(":")[2]) for name in found}


def test_a_taken_port(start: StartDaemon) -> None:
    first = start()
    first.wait_ready()
    second = start("-p", str(first.port))
    assert second.wait() == 1
    assert f"[FTL] Error listening on port: 127.0.0.1:{first.port}" in second.log()
    assert "another program listens there: `ss -ltnp` names it" in second.log()
    assert "Traceback" not in second.log()


def test_a_store_in_use(start: StartDaemon, tmp_path: Path) -> None:
    first = start("-js", "-sd", str(tmp_path / "js"))
    first.wait_ready()
    second = start("-js", "-sd", str(tmp_path / "js"))
    assert second.wait() == 1
    assert "[FTL] Can't start JetStream: " in second.log()
    assert "Traceback" not in second.log()


def test_a_pid_file_that_cannot_be_written(start: StartDaemon) -> None:
    daemon = start("-P", "/nonexistent/x.pid")
    assert daemon.wait() == 1
    assert "[FTL] Could not write pidfile: open /nonexistent/x.pid: No such file or directory" in daemon.log()


def test_a_log_file_that_cannot_be_opened() -> None:
    done = eyotd("-l", "/nonexistent/x.log", "-p", "-1")
    assert done.returncode == 1
    assert done.stderr == "eyotd: error opening log file /nonexistent/x.log: No such file or directory\n"


def test_reload(start: StartDaemon, tmp_path: Path) -> None:
    config = tmp_path / "x.conf"
    config.write_text("max_payload: 1mb\n")
    daemon = start("-c", str(config))
    daemon.wait_ready()
    config.write_text("max_payload: 2mb\ndebug: true\n")
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_log("Reloaded server configuration")
    assert "Reloaded: debug = true" in daemon.log()
    assert daemon.handshake()["max_payload"] == 2 << 20
    config.write_text("max_payload: 3mb\nmax_sub_tokens: 3\nauthorization { user: a, password: secret1 }\n")
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_log("config reload not supported for MaxSubTokens: old=0, new=3")
    config.write_text("max_payload: {\n")
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_log("[ERR] Failed to reload server configuration: " + str(config))
    assert daemon.handshake()["max_payload"] == 2 << 20
    assert "secret1" not in daemon.log()


def test_the_log_file_is_reopened(start: StartDaemon, tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    daemon = start("-l", str(path))
    daemon.wait_until(lambda: path.exists() and "Server is ready" in path.read_text(), "start")
    path.rename(tmp_path / "x.log.1")
    daemon.process.send_signal(signal.SIGUSR1)
    daemon.wait_until(lambda: path.exists() and "File log re-opened" in path.read_text(), "reopening")


def test_lame_duck_without_clients_ends_at_once(start: StartDaemon) -> None:
    daemon = start()
    daemon.wait_ready()
    daemon.process.send_signal(signal.SIGUSR2)
    assert daemon.wait() == 0
    assert "Entering lame duck mode, stop accepting new clients" in daemon.log()


def test_lame_duck_tells_clients_and_takes_no_new_ones(start: StartDaemon) -> None:
    daemon = start()
    daemon.wait_ready()
    with socket.create_connection(("127.0.0.1", daemon.port), TIMEOUT_S) as sock, sock.makefile("rb") as lines:
        lines.readline()
        sock.sendall(b'CONNECT {"verbose":false,"protocol":1}\r\nPING\r\n')
        while lines.readline() != b"PONG\r\n":
            pass
        port = daemon.port
        daemon.process.send_signal(signal.SIGUSR2)
        while b'"ldm":true' not in (line := lines.readline()):
            assert line
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", port), TIMEOUT_S).close()
        sock.sendall(b"PING\r\n")  # who is here is still served
        assert lines.readline() == b"PONG\r\n"
        daemon.process.send_signal(signal.SIGTERM)  # means nothing now
        daemon.wait_log('Trapped "terminated" signal')
        sock.sendall(b"PING\r\n")
        assert lines.readline() == b"PONG\r\n"
    assert daemon.wait() == 0  # the last one has gone


def test_systemd_is_told(start: StartDaemon, tmp_path: Path) -> None:
    name = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(name)
        sock.settimeout(TIMEOUT_S)
        daemon = start(env={"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "200000"})
        while (state := sock.recv(200)) != b"READY=1":
            assert state.startswith(b"EXTEND_TIMEOUT_USEC="), state  # a machine that is very busy
        told = [sock.recv(200) for _ in range(4)]
        assert told.count(b"STATUS=Serving") == 1  # without links and streams there is no more to say
        assert told.count(b"WATCHDOG=1") == 3
        daemon.process.send_signal(signal.SIGHUP)
        states = [sock.recv(100)]
        while not states[-1].startswith(b"READY"):
            states.append(sock.recv(100))
        assert any(state.startswith(b"RELOADING=1") for state in states)
        daemon.process.terminate()
        while sock.recv(100) != b"STOPPING=1":
            pass
        assert daemon.wait() == 0


def test_signals_by_command(start: StartDaemon, tmp_path: Path) -> None:
    pid_file = tmp_path / "x.pid"
    daemon = start("-P", str(pid_file))
    daemon.wait_ready()
    assert eyotd("--signal", f"reload={pid_file}").returncode == 0
    daemon.wait_log("Reloaded server configuration")
    assert eyotd("-sl", f"quit={daemon.process.pid}").returncode == 0
    assert daemon.wait() == 0


# -- under systemd -----------------------------------------------------------------------------------------------------


def test_who_asks_for_a_reload_by_signal_hears_what_was_refused(start: StartDaemon, tmp_path: Path) -> None:
    """`ExecReload=` is this command: `systemctl reload` fails when the daemon did not take the file."""
    control = tmp_path / "run" / "control.sock"
    config = tmp_path / "a.conf"
    text = f'jetstream {{ store_dir: "{tmp_path}/js", domain: a }}\neyot {{ control_socket: "{control}" }}\n'
    config.write_text(text)
    daemon = start("-c", str(config))
    daemon.wait_ready()
    asked = ("-c", str(config), "--signal", f"reload={daemon.process.pid}")
    assert (eyotd(*asked).returncode, daemon.log().count("Reloaded server configuration")) == (0, 1)
    config.write_text(text.replace("domain: a", "domain: b"))
    refused = eyotd(*asked)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert re.fullmatch(r"eyotd: reload refused: config reload not supported for .*\n", refused.stderr)
    config.write_text(text + "max_payload: 2MB\nhttp_base_path: /x\n")
    assert eyotd(*asked).returncode == 1
    config.write_text(text + "max_payload: 2MB\n")
    assert eyotd(*asked).returncode == 0
    assert daemon.handshake()["max_payload"] == 2 << 20


@pytest.mark.parametrize("block", ["{}", "websocket {{ port: -1, {} }}", "leafnodes {{ port: -1, {} }}"])
def test_certificates_that_are_missing_fail_the_test(tmp_path: Path, block: str) -> None:
    config = tmp_path / "a.conf"
    tls = f'tls {{ cert_file: "{tmp_path}/none.pem", key_file: "{tmp_path}/none.key" }}'
    config.write_text(block.format(tls))
    done = eyotd("-t", "-c", str(config))
    assert done.returncode == 1
    assert re.fullmatch(r"eyotd: error parsing X509 certificate/key pair: .*none\.pem.*No such file.*\n", done.stderr)


def test_the_authority_of_a_remote_is_looked_at(tmp_path: Path) -> None:
    config = tmp_path / "a.conf"
    remote = f'{{ url: "tls://hub:7422", tls {{ ca_file: "{tmp_path}/none.pem" }} }}'
    config.write_text(f"leafnodes {{ remotes = [ {remote} ] }}")
    done = eyotd("-t", "-c", str(config))
    assert (done.returncode, "failed to parse root ca certificate" in done.stderr) == (1, True)


def test_lines_for_the_journal_say_how_much_they_matter(tmp_path: Path) -> None:
    """systemd names the file behind stderr in JOURNAL_STREAM; whoever puts another there gets lines as they always were."""
    config = tmp_path / "a.conf"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        config.write_text(f"listen: {address}\nmax_payload: 16MB\n")
        for to_journal in (True, False):
            log = tmp_path / f"{to_journal}.log"
            with log.open("wb") as file:
                status = os.fstat(file.fileno())
                stream = f"{status.st_dev}:{status.st_ino if to_journal else 1}"
                subprocess.run(
                    [EYOTD, "-c", config], stderr=file, env=os.environ | {"JOURNAL_STREAM": stream}, check=False
                )
            found = {line[:3] for line in log.read_text().splitlines()}
            if to_journal:
                assert {"<6>", "<4>", "<2>"} <= found
                assert all(line.startswith("<") for line in log.read_text().splitlines())
            else:
                assert not any(each.startswith("<") for each in found)
