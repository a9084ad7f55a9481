"""`eyot context`: the nats tool's own files, and what a connection takes from them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import nats.aio.client
import pytest

from eyot_cli.connection.target import Target
from eyot_cli.main import cli, main
from eyot_cli.terminal.failure import Failure

Run = Callable[..., tuple[int, str, str]]
VARIABLES = ("URL", "USER", "PASSWORD", "CREDS", "NKEY", "CA", "CERT", "KEY", "DOMAIN", "CONTEXT", "TOKEN", "TIMEOUT")
#: A context as `nats context add` writes it (natscli 0.1.5).
WRITTEN_BY_NATS = {
    "description": "the hub",
    "url": "nats://hub-1:4222,nats://hub-2:4222",
    "socks_proxy": "",
    "token": "",
    "user": "app",
    "password": "secret",
    "creds": "",
    "nkey": "",
    "cert": "",
    "key": "",
    "ca": "",
    "nsc": "",
    "jetstream_domain": "hub",
    "jetstream_api_prefix": "",
    "jetstream_event_prefix": "",
    "inbox_prefix": "_INBOX.app",
    "user_jwt": "",
    "color_scheme": "green",
    "tls_first": False,
}


class Refused(OSError):
    """What the connections of these tests end with."""


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of nats's files, in a configuration folder of the test's own."""
    for name in VARIABLES:
        monkeypatch.delenv(f"NATS_{name}", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "nats" / "context").mkdir(parents=True)
    return tmp_path / "nats"


@pytest.fixture
def eyot(files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `eyot`; its exit status, stdout and stderr."""

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["eyot", *map(str, arguments)])
        status = main()
        out, err = capsys.readouterr()
        return status, out, err

    return run


@pytest.fixture
def dialed(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the client of NATS was told, attempt by attempt; none comes about."""
    attempts: list[dict[str, Any]] = []

    async def connect(_client: object, url: str, **options: Any) -> None:
        attempts.append(options | {"url": url})
        raise Refused(111, "Connection refused")

    monkeypatch.setattr(nats.aio.client.Client, "connect", connect)
    return attempts


def target_of(*options: str) -> Target:
    """Return what the options of `eyot` itself make."""
    assert cli.callback is not None
    with cli.make_context("eyot", [*options, "status"]) as context:
        context.invoke(cli.callback, **context.params)
        assert isinstance(context.obj, Target)
        return context.obj


def write(files: Path, name: str, **members: Any) -> Path:
    path = files / "context" / f"{name}.json"
    path.write_text(json.dumps(WRITTEN_BY_NATS | members))
    return path


def test_a_context_of_nats_is_listed_shown_and_selected(eyot: Run, files: Path) -> None:
    write(files, "hub")
    write(files, "lab", description="")
    (files / "context.txt").write_text("lab\n")
    told = json.loads(eyot("context", "ls", "--json")[1])
    assert [(each["name"], each["selected"]) for each in told] == [("hub", False), ("lab", True)]
    assert "lab*" in eyot("context", "ls")[1]
    shown = json.loads(eyot("context", "show", "hub", "--json")[1])
    assert shown == WRITTEN_BY_NATS | {"name": "hub", "password": "***"}
    assert "secret" not in eyot("context", "show")[1]
    assert eyot("context", "select", "hub")[0] == 0
    assert (files / "context.txt").read_text() == "hub"
    assert (files / "previous-context.txt").read_text() == "lab"


def test_the_selected_context_is_used(eyot: Run, files: Path, dialed: list[dict[str, Any]]) -> None:
    write(files, "hub")
    (files / "context.txt").write_text("hub")
    status, _, err = eyot("stream", "ls")
    assert status == 1
    assert err.startswith("eyot: cannot connect to nats://hub-1:4222,nats://hub-2:4222: Connection refused: ")
    assert [each["url"] for each in dialed] == ["nats://hub-1:4222", "nats://hub-2:4222"]
    assert {(each["user"], each["password"], each["inbox_prefix"]) for each in dialed} == {
        ("app", "secret", "_INBOX.app")
    }


@pytest.mark.parametrize("where", ["before", "behind", "environment"])
def test_a_context_is_named(
    where: str, eyot: Run, files: Path, dialed: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(files, "hub", url="nats://hub:1", user="", token="t0ken")
    write(files, "lab")
    (files / "context.txt").write_text("lab")
    if where == "environment":
        monkeypatch.setenv("NATS_CONTEXT", "hub")
    words = {"before": ["--context", "hub", "pub", "a", "b"], "behind": ["pub", "a", "b", "--context", "hub"]}
    eyot(*words.get(where, ["pub", "a", "b"]))
    assert [(each["url"], each["token"], each["user"]) for each in dialed] == [("nats://hub:1", "t0ken", None)]


def test_options_and_variables_win(
    eyot: Run, files: Path, dialed: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(files, "hub")
    monkeypatch.setenv("NATS_URL", "nats://other:4222")
    eyot("--context", "hub", "--user", "t0ken", "pub", "a", "b")
    (attempt,) = dialed
    assert (attempt["url"], attempt["token"], attempt["user"], attempt["password"]) == (
        "nats://other:4222",
        "t0ken",
        None,
        None,
    )


def test_none_selected_is_the_default(eyot: Run, dialed: list[dict[str, Any]]) -> None:
    eyot("pub", "a", "b")
    assert [each["url"] for each in dialed] == ["nats://127.0.0.1:4222"]


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"nsc": "nsc://op/acc/user"}, "eyot trust generate creds"),
        ({"socks_proxy": "http://me:secret@proxy:1080"}, "no socks5://"),
        ({"user_jwt": "eyJ"}, "credentials file"),
        ({"url": 5}, "Expected `str`"),
    ],
)
def test_what_cannot_be_honoured_is_refused(
    members: dict[str, Any], why: str, eyot: Run, files: Path, dialed: list[dict[str, Any]]
) -> None:
    write(files, "hub", **members)
    status, _, err = eyot("--context", "hub", "kv", "put", "B", "k", "v")
    assert (status, err.count("\n")) == (1, 1)
    assert why in err
    assert "secret@" not in err


@pytest.mark.parametrize("prefix", ["$JS.edge.API", "$JS.edge.API.", "mine.js"])
def test_a_prefix_of_the_api(prefix: str, files: Path) -> None:
    write(files, "hub", jetstream_domain="", jetstream_api_prefix=prefix)
    assert target_of("--context", "hub").api_prefix == prefix.removesuffix(".")
    assert target_of("--context", "hub", "--domain", "d").api_prefix == "$JS.d.API"
    assert target_of("--context", "hub", "--js-api-prefix", "other.").api_prefix == "other"
    assert target_of("--context", "hub", "--no-context").api_prefix == "$JS.API"


def test_a_prefix_and_a_domain_exclude_each_other() -> None:
    with pytest.raises(Failure, match=r"^--js-api-prefix and --domain exclude each other"):
        _ = target_of("--js-api-prefix", "other", "--domain", "d").api_prefix


def test_options_of_the_connection(eyot: Run, files: Path, dialed: list[dict[str, Any]]) -> None:
    write(files, "hub")
    (files / "context.txt").write_text("hub")
    eyot("pub", "a", "b", "--token", "t", "--connection-name", "mine", "--inbox-prefix", "_I", "--timeout", "1500ms")
    first = dialed[0]
    assert (first["token"], first["user"], first["name"], first["inbox_prefix"]) == ("t", None, "mine", "_I")
    assert first["connect_timeout"] == 2
    dialed.clear()
    eyot("--token", "t", "--no-context", "pub", "a", "b")
    assert [(each["url"], each["token"]) for each in dialed] == [("nats://127.0.0.1:4222", "t")]


def test_a_context_is_made_changed_and_deleted(eyot: Run, files: Path, tmp_path: Path) -> None:
    creds = tmp_path / "app.creds"
    creds.touch()
    made = eyot(
        "context", "add", "hub", "--server", "tls://hub:4222", "--user", "app", "--password", "x", "--domain", "d"
    )
    assert made == (0, "context hub is saved\n", "")
    path = files / "context" / "hub.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_text()) | {"user": "app", "password": "x", "url": "tls://hub:4222"} == json.loads(
        path.read_text()
    )
    path.write_text(json.dumps(json.loads(path.read_text()) | {"color_scheme": "red", "later": [1]}))
    assert eyot("context", "add", "hub", "--creds", creds, "--description", "the hub", "--select")[0] == 0
    changed = json.loads(path.read_text())
    assert {name: value for name, value in changed.items() if value} == {
        "url": "tls://hub:4222",
        "creds": str(creds),
        "jetstream_domain": "d",
        "description": "the hub",
        "color_scheme": "red",
        "later": [1],
    }
    write(files, "lab")
    assert (
        eyot("context", "rm", "hub", "-f")[2]
        == "eyot: context hub is selected: eyot context select another one first\n"
    )
    assert eyot("context", "rm", "lab", "-f")[0] == 0
    assert eyot("context", "rm", "hub", "-f")[0] == 0
    assert not path.exists()
    assert not (files / "context.txt").exists()


@pytest.mark.parametrize("name", ["../x", "a/b", ""])
def test_names_that_are_paths(name: str, eyot: Run) -> None:
    status, _, err = eyot("context", "add", name)
    assert (status, err.count("\n")) == (1, 1)
    assert "cannot be the name of a context" in err


def test_mistakes_name_the_next_step(eyot: Run, files: Path) -> None:
    no_context = "eyot: no context none: eyot context ls lists those that there are\n"
    for words in (["context", "show", "none"], ["context", "select", "none"], ["--context", "none", "pub", "a", "b"]):
        assert eyot(*words) == (1, "", no_context)
    assert "eyot context select NAME" in eyot("context", "show")[2]
    (files / "context" / "torn.json").write_text('{"url": ')
    assert "mend the file, or eyot context rm torn" in eyot("context", "show", "torn")[2]
    assert eyot("context", "ls")[0] == 0


def test_files_that_this_user_may_not_read_are_no_hindrance(
    eyot: Run, dialed: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", refuse)
        eyot("pub", "a", "b")
    assert [each["url"] for each in dialed] == ["nats://127.0.0.1:4222"]


def test_a_user_without_a_home(eyot: Run, dialed: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setattr("os.path.expanduser", lambda name: name)
    eyot("pub", "a", "b")
    assert [each["url"] for each in dialed] == ["nats://127.0.0.1:4222"]
    assert "XDG_CONFIG_HOME names a place" in eyot("context", "add", "hub")[2]


def test_a_context_is_copied_and_edited(eyot: Run, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(files, "hub", later=[1])
    assert eyot("context", "copy", "hub", "lab", "--server", "nats://lab:1", "--description", "the lab")[0] == 0
    made = json.loads((files / "context" / "lab.json").read_text())
    assert made == WRITTEN_BY_NATS | {"url": "nats://lab:1", "description": "the lab", "later": [1]}
    assert eyot("context", "cp", "hub", "lab")[2].startswith("eyot: context lab is there")
    assert eyot("context", "copy", "none", "other")[2].startswith("eyot: no context none")
    edits = iter([None, "{", '{"url": 1}', '{"url": "nats://other:1"}'])
    monkeypatch.setattr(click, "edit", lambda _text, extension: next(edits))
    assert eyot("context", "edit", "lab")[1] == "context lab is as it was\n"
    assert eyot("context", "edit", "lab")[0] == 1
    assert eyot("context", "edit", "lab")[0] == 1
    assert json.loads((files / "context" / "lab.json").read_text()) == made
    assert eyot("context", "vi", "lab")[1] == "context lab is saved\n"
    assert json.loads((files / "context" / "lab.json").read_text()) == {"url": "nats://other:1"}
    assert eyot("context", "ls", "-n")[1] == "hub\nlab\n"


def test_the_selected_context_goes_and_comes_back(eyot: Run, files: Path) -> None:
    for name in ("hub", "lab"):
        write(files, name)
    assert eyot("context", "previous")[0] == 1
    eyot("context", "select", "hub")
    eyot("context", "select", "lab")
    assert eyot("context", "previous")[1] == "context hub is selected\n"
    assert eyot("context", "previous")[1] == "context lab is selected\n"
    assert eyot("context", "unselect")[1] == "context lab is unselected\n"
    assert eyot("context", "unselect")[1] == "no context is selected\n"
    assert eyot("context", "previous")[1] == "context lab is selected\n"


def test_contexts_are_checked(eyot: Run, files: Path, dialed: list[dict[str, Any]]) -> None:
    write(files, "hub")
    assert eyot("context", "validate")[0] == 0
    write(files, "bad", nsc="nsc://o/a/u")
    status, out, err = eyot("context", "validate", "--json")
    assert (status, err) == (1, "eyot: a context cannot be used: eyot context edit NAME changes it\n")
    assert [(each["name"], each["error"] is None) for each in json.loads(out)] == [("bad", False), ("hub", True)]
    assert eyot("context", "validate", "hub", "--connect")[0] == 1
    assert {each["url"] for each in dialed} == {"nats://hub-1:4222", "nats://hub-2:4222"}


def test_a_prefix_of_events(files: Path) -> None:
    write(files, "hub", jetstream_event_prefix="mine.events.")
    assert target_of().event_prefix == "$JS.EVENT"
    assert target_of("--context", "hub").event_prefix == "mine.events"
    assert target_of("--context", "hub", "--js-event-prefix", "other").event_prefix == "other"
