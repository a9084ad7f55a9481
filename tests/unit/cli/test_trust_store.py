"""`eyot trust`: the files it writes are nsc's, private, and whole."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from eyot_cli.terminal import private_files as files
from eyot_cli.terminal.failure import Failure
from eyot_cli.trust.keystore import KeyPair, Keystore, new_pair
from eyot_cli.trust.values import parse_duration, parse_number, parse_time
from eyot_wire.trust.creds import parse_creds
from support.trust.trust_tool import TrustTool


@pytest.fixture
def trust(tmp_path: Path) -> TrustTool:
    return TrustTool(tmp_path / "store")


def test_the_layout_is_nscs(trust: TrustTool) -> None:
    """The names and folders that nsc 2.12 makes with the same commands."""
    trust.run("add", "operator", "-n", "OP", "--generate-signing-key", "--sys")
    trust.run("add", "account", "A")
    trust.run("add", "user", "U")
    operator = trust.json("describe", "operator")
    keys = [operator["sub"], *operator["nats"]["signing_keys"], trust.key("account", "A"), trust.key("user", "U")]
    system = trust.json("describe", "account", "SYS")
    keys += [system["sub"], *system["nats"]["signing_keys"], trust.key("user", "sys", "-a", "SYS")]
    expected = {f"keys/{key[0]}/{key[1:3]}/{key}.nk" for key in keys} | {
        ".gitignore",
        "nsc.json",
        "OP/.nsc",
        "OP/OP.jwt",
        "OP/accounts/A/A.jwt",
        "OP/accounts/A/users/U.jwt",
        "OP/accounts/SYS/SYS.jwt",
        "OP/accounts/SYS/users/sys.jwt",
        "creds/OP/A/U.creds",
        "creds/OP/SYS/sys.creds",
    }
    found = {str(path.relative_to(trust.folder)) for path in trust.folder.rglob("*") if path.is_file()}
    assert found == expected
    assert json.loads((trust.folder / "OP" / ".nsc").read_text()) == {
        "managed": False,
        "name": "OP",
        "kind": "operator",
        "version": "1",
    }
    saved = json.loads((trust.folder / "nsc.json").read_text())
    assert (saved["store_root"], saved["operator"], saved["account"]) == (str(trust.folder), "OP", "A")


def test_everything_is_private_whatever_the_umask(trust: TrustTool) -> None:
    before = os.umask(0)
    try:
        trust.run("add", "operator", "-n", "OP", "--sys")
        trust.run("edit", "user", "sys", "-a", "SYS", "--allow-pub", "x")
    finally:
        os.umask(before)
    for path in trust.folder.rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_files_that_others_may_read_are_told(trust: TrustTool) -> None:
    trust.run("add", "operator", "-n", "OP", "--sys")
    path = trust.creds("OP", "SYS", "sys")
    path.chmod(0o644)
    result = trust.result("validate", "-A", "--json")
    assert (result.exit_code, [each["of"] for each in json.loads(result.stdout)["issues"]]) == (1, [str(path)])
    trust.run("edit", "user", "sys", "-a", "SYS")
    assert trust.json("validate", "-A") == {"issues": []}


def test_a_seed_is_private_from_its_first_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file with the content is never open to others, under no name."""
    modes: list[int] = []
    sync = os.fsync

    def look(handle: int) -> None:
        sync(handle)
        modes.append(os.fstat(handle).st_mode & 0o777)

    opened: list[tuple[int, int]] = []
    really_open = os.open

    def note(path: str, flags: int, mode: int = 0o777, **where: Any) -> int:
        opened.append((flags, mode))
        return really_open(path, flags, mode, **where)

    monkeypatch.setattr(files.os, "fsync", look)
    monkeypatch.setattr(files.os, "open", note)
    before = os.umask(0)
    try:
        Keystore(tmp_path / "keys").add(new_pair("U"))
    finally:
        os.umask(before)
    written = [(flags, mode) for flags, mode in opened if flags & os.O_CREAT]
    assert written
    assert all(mode == 0o600 and flags & os.O_EXCL for flags, mode in written)
    assert set(modes) == {0o600, 0o700}  # files, and their folders


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "A.jwt"
    files.write_private(path, b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(Failure, match="No space left on device"):
        files.write_private(path, b"new")
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["A.jwt"]


def test_a_stored_seed_is_never_replaced(tmp_path: Path) -> None:
    store = Keystore(tmp_path)
    pair, other = new_pair("A"), new_pair("A")
    path = store.add(pair)
    path.write_text(other.seed)
    with pytest.raises(Failure, match=f"holds the seed of {other.public}"):
        store.add(pair)
    assert path.read_text() == other.seed


def test_names_do_not_leave_the_store(trust: TrustTool) -> None:
    trust.run("add", "operator", "-n", "OP")
    for name in ("../evil", "a/b", "..", "a\nb", "x" * 201):
        assert "cannot be the name" in trust.refused("add", "account", "-n", name)
        assert "cannot be the name" in trust.refused("add", "operator", "-n", name)
    trust.run("add", "account", "A")
    assert "cannot be the name" in trust.refused("add", "user", "-n", "../../A")


def test_credentials_hold_the_stored_token_and_the_seed(trust: TrustTool) -> None:
    trust.run("add", "operator", "-n", "OP")
    trust.run("add", "account", "A")
    trust.run("add", "user", "U")
    trust.run("edit", "user", "U", "--allow-pub", "a")
    text = trust.creds("OP", "A", "U").read_text()
    found = parse_creds(text)
    assert found.jwt == (trust.folder / "OP/accounts/A/users/U.jwt").read_text()
    assert KeyPair(found.seed).public == trust.key("user", "U")
    assert trust.run("generate", "creds") == text


def test_a_store_of_its_folder_is_used(trust: TrustTool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the folder of an account, that operator and account are meant, as with nsc."""
    trust.run("add", "operator", "-n", "ONE")
    trust.run("add", "account", "A")
    trust.run("add", "account", "B")
    trust.run("add", "operator", "-n", "TWO")
    assert trust.json("env")["operator"] == "TWO"
    monkeypatch.chdir(trust.folder / "ONE" / "accounts" / "A")
    assert (trust.json("env")["operator"], trust.json("env")["account"]) == ("ONE", "A")
    monkeypatch.chdir("/")
    trust.run("env", "-o", "ONE", "-a", "B")
    assert (trust.json("env")["operator"], trust.json("env")["account"]) == ("ONE", "B")
    assert "operator THREE is not in" in trust.refused("env", "-o", "THREE")


def test_keys_go_out_and_come_back(trust: TrustTool, tmp_path: Path) -> None:
    trust.run("add", "operator", "-n", "OP")
    trust.run("add", "account", "A")
    away = tmp_path / "away"
    own = trust.key("operator")
    trust.run("export", "keys", "--operator", "--dir", away, "--remove")
    assert (away / f"{own}.nk").stat().st_mode & 0o777 == 0o600
    said = trust.refused("add", "account", "B")
    assert "no key that may sign for operator OP is in the keystore" in said
    assert own in said
    assert trust.json("list", "accounts") == [{"name": "A", "key": trust.key("account", "A")}]
    trust.run("add", "account", "B", "-K", away / f"{own}.nk")
    trust.run("import", "keys", "--dir", away)
    trust.run("add", "account", "C")
    rows = {row["key"]: row["stored"] for row in trust.json("list", "keys")}
    assert rows[own] is True
    assert "account NO does not exist in operator OP" in trust.refused("list", "keys", "--account", "NO")


def test_times_numbers_and_durations() -> None:
    now = 1_800_000_000  # 2027-01-15 08:00:00 UTC
    day = 86400
    assert parse_time("0", now) == 0
    assert parse_time("90d", now) == now + 90 * day
    assert parse_time("1M", now) == now + 31 * day
    assert parse_time("1y", now) == now + 365 * day
    assert parse_time("30m", now) == now + 1800
    assert parse_time("2027-01-15", now) == now - 8 * 3600
    assert parse_time("2027-01-15 08:00:00 UTC", now) == now
    assert [parse_number(each) for each in ("-1", "1000", "10M", "2GiB", "1,000", "1.5k")] == [
        -1,
        1000,
        10_000_000,
        2 << 30,
        1000,
        1500,
    ]
    assert parse_duration("1m30s") == 90 * 10**9
    for call, text in ((parse_number, "ten"), (parse_duration, "5"), (parse_duration, "5 apples")):
        with pytest.raises(Failure):
            call(text)
    with pytest.raises(Failure):
        parse_time("soon", now)


def test_a_fifo_or_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    """Root's `-o /dev/null` would otherwise make a file of it."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo, 0o644)
    with ThreadPoolExecutor() as readers:
        read = readers.submit(fifo.read_bytes)
        files.write_private(fifo, b"content")
        assert read.result() == b"content"
    assert fifo.is_fifo()
    assert fifo.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["fifo"]
