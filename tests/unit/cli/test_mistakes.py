"""`eyot` with impossible commands: one line with the reason, no traceback, and at once."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import bcrypt
import pytest

from eyot_cli.main import main
from eyot_wire.trust.nkey import encode_seed
from support.servers.server_process import free_port

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def eyot(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `eyot`; its exit status, stdout and stderr."""
    for name in ("NATS_URL", "NATS_USER", "NATS_PASSWORD", "NATS_CREDS", "NATS_NKEY", "NATS_DOMAIN", "EYOT_CONTROL"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["eyot", *map(str, arguments)])
        status = main()
        out, err = capsys.readouterr()
        return status, out, err

    return run


def test_nobody_listens(eyot: Run) -> None:
    port = free_port()
    said = eyot("--server", f"nats://app:secret@127.0.0.1:{port}", "stream", "ls")
    remedy = "is a server running there? --server or --context names another"
    assert said == (1, "", f"eyot: cannot connect to nats://127.0.0.1:{port}: Connection refused: {remedy}\n")


def test_a_server_that_is_none(eyot: Run) -> None:
    status, _, err = eyot("--server", "nats://127.0.0.1:4222222", "stream", "ls")
    assert (status, err) == (1, "eyot: cannot connect to nats://127.0.0.1:4222222: invalid connect url option\n")


def test_no_daemon_behind_the_socket(eyot: Run, tmp_path: Path) -> None:
    for page in ("status", "sync", "doctor"):
        status, out, err = eyot("--control", tmp_path / "none", page)
        assert (status, out) == (1, "")
        assert err.startswith(
            f"eyot: no answer from {tmp_path}/none: No such file or directory: is eyotd running? `systemctl status eyotd` tells"
        )
    status, _, err = eyot("--control", "http://127.0.0.1:none", "status")
    assert (status, err.count("\n")) == (1, 1)


def test_a_socket_that_is_not_for_everybody(eyot: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    status, _, err = eyot("--control", tmp_path / "socket", "status")
    assert (status, err.count("\n")) == (1, 1)
    assert "Permission denied: only root and members of the group" in err


def test_credentials_without_any(eyot: Run, tmp_path: Path) -> None:
    (tmp_path / "app.creds").write_text("nothing\n")
    said = eyot("--creds", tmp_path / "app.creds", "stream", "ls")
    assert said == (1, "", f"eyot: {tmp_path}/app.creds: no user JWT and seed found in the credentials\n")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nothing", "not an nkey seed"),
        (encode_seed("U", bytes(32))[:-1] + "A", "not an nkey seed"),
        (encode_seed("A", bytes(32)), "not the seed of a user's nkey, which begins with SU"),
    ],
)
def test_seeds_that_are_none(eyot: Run, tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "app.nk").write_text(text + "\n")
    said = eyot("--nkey", tmp_path / "app.nk", "stream", "ls")
    assert said == (1, "", f"eyot: {tmp_path}/app.nk: {why}\n")


def test_two_ways_to_say_who_it_is(eyot: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "app").touch()
    monkeypatch.setenv("NATS_CREDS", str(tmp_path / "app"))
    status, _, err = eyot("--nkey", tmp_path / "app", "stream", "ls")
    assert (status, err.count("\n")) == (1, 1)
    assert "both --creds and --nkey" in err


def test_folders_that_cannot_be_had(eyot: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said = eyot("backup", "ORDERS", tmp_path / "file" / "backup")
    assert said == (1, "", f"eyot: {tmp_path}/file/backup: Not a directory\n")
    (tmp_path / "backup.json").mkdir()
    assert eyot("restore", tmp_path) == (1, "", f"eyot: {tmp_path}/backup.json: Is a directory\n")


def test_a_backup_that_came_to_nothing_leaves_no_folder(eyot: Run, tmp_path: Path) -> None:
    status, _, _ = eyot("--server", f"nats://127.0.0.1:{free_port()}", "backup", "ORDERS", tmp_path / "new")
    assert status == 1
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("meta", "why"),
    [
        ('{"config": {"name": "S"}}', "lacks 'state'"),
        ('{"config": {"name": 5}, "state": {}}', "the stream's name is not a string"),
        ("[]", "Expected `object`"),
        ("{", "truncated"),
    ],
)
def test_backups_that_are_none(eyot: Run, tmp_path: Path, meta: str, why: str) -> None:
    (tmp_path / "backup.json").write_text(meta)
    (tmp_path / "stream.tar.s2").touch()
    status, _, err = eyot("restore", tmp_path)
    assert (status, err.count("\n")) == (1, 1)
    assert why in err


@pytest.mark.parametrize("time", ["-1", "nan", "inf", "10x", ""])
def test_times_that_are_none(eyot: Run, time: str) -> None:
    status, _, err = eyot("sync", "wait", "--timeout", time)
    assert status == 2
    assert f"{time!r} is not a duration" in err


@pytest.mark.parametrize("header", ["Name", ":value"])
def test_headers_that_are_none(eyot: Run, header: str) -> None:
    for command in ("pub", "req"):
        status, _, err = eyot(command, "-H", header, "subject", "payload")
        assert status == 2
        assert "is not NAME:VALUE" in err


@pytest.mark.parametrize("subjects", ["", " , "])
def test_subjects_that_are_none(eyot: Run, subjects: str) -> None:
    """A variable that is not set would make a stream of the subject that is its name."""
    status, _, err = eyot("stream", "add", "S", "--subjects", subjects)
    assert status == 2
    assert "'--subjects': it names no subject" in err


def test_a_password_is_hashed(eyot: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    typed = tmp_path / "typed"
    typed.write_text("s3cret\n")
    with typed.open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        status, out, _ = eyot("passwd", "--cost", "4")
    assert status == 0
    assert out.startswith("$2a$04$")
    assert bcrypt.checkpw(b"s3cret", out.strip().encode())
    for text, why in (("", "no password"), ("x" * 73, "longer than 72 bytes")):
        typed.write_text(text)
        with typed.open() as stdin:
            monkeypatch.setattr("sys.stdin", stdin)
            status, _, err = eyot("passwd")
        assert status == 1
        assert why in err


def test_help_tells_of_every_option(eyot: Run) -> None:
    status, out, _ = eyot("--help")
    assert status == 0
    for word in (
        "EYOT_CONTROL",
        "NATS_URL",
        "NATS_USER",
        "NATS_PASSWORD",
        "NATS_CREDS",
        "NATS_NKEY",
        "NATS_DOMAIN",
        "Exit status",
    ):
        assert word in " ".join(out.split())
    assert "..." not in out.replace("[ARGS]...", "")  # no summary is cut short


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("-s", "../../x", "rtt"), "not a host name"),
        (("-s", "../../x,127.0.0.1:1", "rtt"), "Connection refused"),
        (("-s", "localhost:1", "rtt"), "localhost:1: Connection refused: "),
        (("--control", "http://a..b", "status"), "not a host name"),
        (("--socks-proxy", "socks5://a..b", "rtt"), "the proxy is no socks5://"),
        (("--socks-proxy", "socks5://127.0.0.1:1", "rtt"), "proxy 127.0.0.1:1: Connection refused\n"),
        (("mqtt", "pub", "-t", "x", "-m", "y", "--url", "../../x"), "expected mqtt://HOST:PORT"),
        (("mqtt", "pub", "-t", "x", "-m", "y", "--url", "mqtt://a..b"), "expected mqtt://HOST:PORT"),
        (("mqtt", "pub", "-t", "x", "-m", "y", "--host", "a..b"), "--host: expected a host name or an address"),
        (("context", "add", "a" * 300), "File name too long"),
        (("object", "get", "BUCKET", "a" * 300), "File name too long"),
        (("object", "get", "BUCKET", "x", "--output", "file/under"), "file/under: Not a directory"),
        (("stream", "add", "S", "--subjects", "x", "--output", "file/under"), "file/under: Not a directory"),
        (("upgrade", "keygen", "file/under"), "file/under: Not a directory"),
    ],
)
def test_names_that_nothing_can_have(
    eyot: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], why: str
) -> None:
    """Hosts that no resolver can be asked for, and files that no file system can hold."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "file").touch()
    status, _, err = eyot(*arguments)
    assert (status, err.count("\n")) == (1, 1)
    assert why in err
