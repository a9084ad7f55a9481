"""Each cause of a failed start: its exit code, which tells systemd whether to try again, its line, and its row in the documentation."""

from __future__ import annotations

import errno
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from eyot_daemon.config.read import load_options
from eyot_daemon.process.start_error import EX_CONFIG, EX_USAGE, Cause, cannot_listen
from eyot_daemon.start_check import refusals
from eyot_store.environment import FORMAT_KEY
from eyot_store.options import StoreOptions
from eyot_store.records.store_cipher import StoreKeys
from eyot_store.store import Store
from support.trust.certificates import Authority
from support.trust.claims import ALPHA, BETA, OPERATOR, operator_token

TOP = Path(__file__).parents[3]
TIMEOUT_S = 60.0
NO_RESTART = "A restart does not mend this"
SMALL = StoreOptions(map_size=1 << 20)
OPERATOR_CONF = f"operator: {operator_token()}\n"
A_FAULT = "import sys, eyot_daemon.server as s; s.Server = None; from eyot_daemon.main import main; sys.exit(main(sys.argv[1:]))"


def preload() -> str:
    lines = "\n".join(f"{key.public}: {OPERATOR.account(key)}" for key in (ALPHA, BETA))
    return f"resolver_preload {{\n{lines}\n}}\n"


def newer_store(folder: Path) -> str:
    """A store that a later release has written."""
    import lmdb

    Store.open(folder / "eyot", notify=lambda: None, options=SMALL).close()
    with lmdb.open(str(folder / "eyot"), max_dbs=16, map_size=1 << 20) as env, env.begin(write=True) as txn:
        txn.put(FORMAT_KEY, b"99")
    return f'jetstream {{ store_dir: "{folder}" }}\n'


def encrypted_store(folder: Path) -> str:
    options = StoreOptions(map_size=1 << 20, keys=StoreKeys(b"secret"))
    Store.open(folder / "eyot", notify=lambda: None, options=options).close()
    return f'jetstream {{ store_dir: "{folder}" }}\n'


def a_file(folder: Path) -> Path:
    (folder / "file").touch()
    return folder / "file"


def certificate(folder: Path) -> str:
    cert, key = Authority(folder).issue("localhost")
    return f'cert_file: "{cert}", key_file: "{key}"'


#: What makes each cause happen: a configuration in a folder of its own, and words of the line that tells of it.
CONFIGURATIONS: list[tuple[Cause, Callable[[Path], str], str]] = [
    (
        Cause.CONTROL_SOCKET,
        lambda _: 'eyot { control_socket: "/proc/none/control.sock" }',
        "Error listening on control socket",
    ),
    (
        Cause.CONTROL_PATH,
        lambda folder: f'eyot {{ control_socket: "{folder / ("x" * 120)}" }}',
        "Error listening on control socket",
    ),
    (Cause.LOG_FILE, lambda _: "log_file: /nonexistent/x.log", "error opening log file"),
    (Cause.PID_FILE, lambda _: "pid_file: /nonexistent/x.pid", "Could not write pidfile"),
    (Cause.CONFIG_FILE, lambda folder: f"include {folder}/late.conf", "No such file or directory"),
    (Cause.CONFIGURATION, lambda _: "max_payloud: 1", "unknown field"),
    (Cause.CONFIGURATION, lambda _: "mqtt { port: -1 }\nserver_name: a", "mqtt requires JetStream to be enabled"),
    (Cause.STORE, lambda folder: f'jetstream {{ store_dir: "{a_file(folder)}/below" }}', "Can't start JetStream: "),
    (
        Cause.CONFIGURATION,
        lambda folder: (
            f'jetstream {{ store_dir: "{folder}" }}\neyot {{ bridges {{ b {{ url: "h:1", streams: R }} }} }}'
        ),
        "needs a client_id, or a server_name",
    ),
    (
        Cause.STORE,
        lambda folder: f'jetstream {{ store_dir: "{folder}" }}\neyot {{ store {{ key_file: "{folder}/late.key" }} }}',
        "late.key: No such file or directory",
    ),
    (Cause.STORE_FORMAT, newer_store, "install that release again, or restore a backup"),
    (Cause.STORE_KEY, encrypted_store, "configure the key that it is encrypted with"),
    (
        Cause.STORE_KEY,
        lambda folder: encrypted_store(folder).replace(" }", ", key: another }"),
        "configure the key that it is encrypted with",
    ),
    (
        Cause.CERTIFICATE,
        lambda folder: f'tls {{ cert_file: "{folder}/late.pem", key_file: "{folder}/late.key" }}',
        "error parsing X509 certificate/key pair",
    ),
    (
        Cause.TLS_SETTING,
        lambda folder: (
            f"tls {{ {certificate(folder)}, allow_insecure_cipher_suites: true, "
            'cipher_suites: [TLS_RSA_WITH_RC4_128_SHA], min_version: "1.2" }'
        ),
        "cipher suites are not supported",
    ),
    (
        Cause.ACCOUNTS,
        lambda folder: f'{OPERATOR_CONF}resolver {{ type: full, dir: "{a_file(folder)}/below" }}',
        "account resolver directory",
    ),
    (
        Cause.ACCOUNTS_LIMIT,
        lambda folder: f'{OPERATOR_CONF}resolver {{ type: full, dir: "{folder}/jwt", limit: 1 }}\n{preload()}',
        "jwt store is full",
    ),
]
#: What `-t` does not see: it does not open the store, which a running daemon may have.
UNSEEN = {Cause.STORE_FORMAT, Cause.STORE_KEY}
#: Causes that no file makes happen, each with a test of its own.
OTHERS = {Cause.PORT, Cause.PORT_FORBIDDEN, Cause.COMMAND_LINE, Cause.UNFORESEEN}


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def check(done: subprocess.CompletedProcess[str], cause: Cause, words: str) -> None:
    said = done.stderr
    assert done.returncode == cause.exit_code, said
    assert words in said
    assert ("Traceback" in said) == (cause is Cause.UNFORESEEN)
    # A mistake in the configuration is found before the log is open, and says where.
    assert (NO_RESTART in said) == (not cause.mends and "eyotd: " not in said), said


@pytest.mark.slow
@pytest.mark.parametrize(("cause", "configuration", "words"), CONFIGURATIONS)
def test_each_cause(cause: Cause, configuration: Callable[[Path], str], words: str, tmp_path: Path) -> None:
    file = tmp_path / "eyotd.conf"
    file.write_text(f"{configuration(tmp_path)}\n")
    done = run("-m", "eyot_daemon.launch", "-a", "127.0.0.1", "-p", "-1", "-m", "-1", "-c", str(file))
    check(done, cause, words)
    assert "[ERR]" not in done.stderr, "the cause alone"
    tested = run("-m", "eyot_daemon.launch", "-t", "-c", str(file))
    if cause in UNSEEN:
        assert tested.returncode == 0, tested.stderr
    else:
        assert (tested.returncode, words in tested.stderr) == (1, True), tested.stderr


@pytest.mark.slow
def test_causes_that_no_file_makes_happen() -> None:
    check(run("-m", "eyot_daemon.launch", "-zz"), Cause.COMMAND_LINE, "flag provided but not defined: -zz")
    check(run("-c", A_FAULT, "-p", "-1"), Cause.UNFORESEEN, "eyotd failed")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        check(run("-m", "eyot_daemon.launch", "-a", "127.0.0.1", "-p", port), Cause.PORT, "Error listening on port")


def test_a_port_that_is_forbidden_is_told_from_one_that_is_taken() -> None:
    forbidden = cannot_listen("mqtt ", "0.0.0.0", 883, OSError(errno.EACCES, "Permission denied"))
    assert forbidden.cause is Cause.PORT_FORBIDDEN
    assert str(forbidden).startswith(
        'Error listening on mqtt port: 0.0.0.0:883, "Permission denied": choose a port from 1024 on'
    )
    for number in (errno.EADDRINUSE, errno.EADDRNOTAVAIL):
        assert cannot_listen("", "0.0.0.0", 4222, OSError(number, "x")).cause is Cause.PORT


def test_every_cause_is_tested_and_documented() -> None:
    assert {cause for cause, _, _ in CONFIGURATIONS} | OTHERS == set(Cause)
    page = (TOP / "docs/operate/run.md").read_text()
    rows = re.findall(r"^\| (.+) \| (\d+) \| (tried again|stays down) \|$", page, re.MULTILINE)
    assert rows == [(each.what, str(each.exit_code), "tried again" if each.mends else "stays down") for each in Cause]
    unit = (TOP / "systemd/eyotd.service").read_text()
    assert f"\nRestartPreventExitStatus={EX_USAGE} {EX_CONFIG}\n" in unit
    assert "\nStartLimitIntervalSec=0\n" in unit
    assert {each.exit_code for each in Cause if each.mends} == {1}


def refused(text: str, folder: Path, env: dict[str, str] | None = None) -> list[str]:
    file = folder / "eyotd.conf"
    file.write_text(text)
    loaded = load_options(str(file))
    return list(refusals(loaded.options, env or {}))


def test_listeners_that_share_a_port(tmp_path: Path) -> None:
    listeners = ("mqtt { port: 4222 }\nserver_name: a\njetstream {}", "leafnodes { port: 4222 }",
                 "websocket { port: 4222, no_tls: true }")  # fmt: skip
    for listener, name in zip(listeners, ("mqtt", "leafnodes", "websocket"), strict=True):
        assert refused(listener, tmp_path) == [f"clients and {name} cannot share the port 4222"]
    apart = 'listen: "127.0.0.1:4222"\nleafnodes { listen: "127.0.0.2:4222" }'
    assert refused(apart, tmp_path) == []
    assert refused("port: -1\nleafnodes { port: -1 }\nhttp_port: -1", tmp_path) == []


def test_the_store_key_may_be_a_credential(tmp_path: Path) -> None:
    key = tmp_path / "eyot-store-key"
    key.touch()
    env = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    assert refused("jetstream {}", tmp_path, env) == [f"Can't start JetStream: {key} holds no key"]
    key.write_text("secret\n")
    assert refused("jetstream {}", tmp_path, env) == []
    key.write_text("")
    assert refused("jetstream { key: other }", tmp_path, env) == []


def test_folders_that_the_service_makes_at_its_start(tmp_path: Path) -> None:
    assert refused("pid_file: /run/eyot-none/eyotd.pid", tmp_path, {"RUNTIME_DIRECTORY": "/run/eyot-none"}) == []
    said = refused(f"pid_file: {tmp_path}/none/eyotd.pid\nlog_file: {tmp_path}", tmp_path)
    assert said == [
        f"error opening log file {tmp_path}: Is a directory",
        f"Could not write pidfile: open {tmp_path}/none/eyotd.pid: No such file or directory",
    ]


def test_a_bridge_without_its_certificate_is_told_once(tmp_path: Path) -> None:
    """It was a traceback."""
    text = (
        f'server_name: gw\njetstream {{ store_dir: "{tmp_path}" }}\neyot {{ bridges {{ site {{ url: "mqtts://127.0.0.1:1", '
        f'streams: S, tls {{ cert_file: "{tmp_path}/c.pem", key_file: "{tmp_path}/k.pem" }} }} }} }}\n'
    )
    assert [line.count("c.pem") for line in refused(text, tmp_path)] == [1]
