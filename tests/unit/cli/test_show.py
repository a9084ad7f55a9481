"""What peers call themselves is shown by `eyot`, never obeyed."""

from __future__ import annotations

import ast
import io
import json
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Console

from eyot_cli import main
from eyot_cli.device import doctor, status, sync
from eyot_cli.jetstream import streams
from eyot_cli.mqtt.sessions import _owner
from eyot_cli.terminal import failure, show
from eyot_wire.doctor.check import Check
from eyot_wire.jetstream.mqtt_sessions import MqttSession
from eyot_wire.status import LinkStatus, SourcingStatus, StatusReport, SyncReport

FOLDER = Path(show.__file__).parent
HOSTILE = "[/x] [bold]a\nFORGED line\x1b[2J\r\x07\u202e\u2028\x9b\ud800:smile:"
#: What must never come out as it is.
LIVE = ("\x1b", "\r", "\x07", "\u202e", "\u2028", "\x9b", "\nFORGED")


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What goes to a terminal of 400 columns."""
    out = io.StringIO()
    console = show.Out(Console(file=out, highlight=False, width=4000, force_terminal=True, color_system=None))
    for module in (show, status, sync, doctor, streams):
        monkeypatch.setattr(module, "console", console)
    return out


def hostile(form: Any) -> Any:
    """A value of a Struct with `HOSTILE` wherever there is text."""
    if form is str:
        return HOSTILE
    info = msgspec.inspect.type_info(form)
    return build(info)


def build(info: Any) -> Any:
    if isinstance(info, msgspec.inspect.StructType):
        return info.cls(**{field.name: build(field.type) for field in info.fields})
    if isinstance(info, msgspec.inspect.StrType):
        return HOSTILE
    if isinstance(info, msgspec.inspect.UnionType):
        return build(next(one for one in info.types if not isinstance(one, msgspec.inspect.NoneType)))
    if isinstance(info, msgspec.inspect.ListType):
        return [build(info.item_type)]
    if isinstance(info, msgspec.inspect.VarTupleType):
        return (build(info.item_type),)
    if isinstance(info, msgspec.inspect.DictType):
        return {build(info.key_type): build(info.value_type)}
    if isinstance(info, msgspec.inspect.LiteralType):
        return info.values[0]
    if isinstance(info, msgspec.inspect.BoolType):
        return False
    return 1


def check(text: str) -> None:
    assert "FORGED" in text
    assert "[/x] [bold]a" in text, "markup is text"
    assert ":smile:" in text
    assert not [each for each in LIVE if each in text]


class Target:
    """A daemon that answers with hostile names."""

    control = "socket"
    as_json = False
    group = ""

    def __init__(self, report: Any) -> None:
        self._body = msgspec.json.encode(report)

    def get(self, path: str) -> bytes:
        return self._body


def encodable(report: Any) -> Any:
    """Lone surrogates cannot come in JSON."""
    return msgspec.json.decode(
        json.dumps(msgspec.to_builtins(report)).replace("\\ud800", "").encode(), type=type(report)
    )


def test_status_sync_and_doctor(written: io.StringIO) -> None:
    status.status.callback.__wrapped__(Target(encodable(hostile(StatusReport))), None)  # type: ignore[union-attr]
    check(written.getvalue())
    written.truncate(0)
    sync._show(encodable(hostile(SyncReport)))
    check(written.getvalue())
    written.truncate(0)
    doctor._show([Check(name=HOSTILE, state="failure", detail=HOSTILE, remedy=HOSTILE, lines=(HOSTILE,))])
    check(written.getvalue())


def test_failures_and_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(**_: object) -> None:
        raise failure.Failure(HOSTILE, HOSTILE)

    monkeypatch.setattr(main.cli, "main", fail)
    assert main.main() == 1
    said = capsys.readouterr().err
    check(said)
    assert len(said.splitlines()) == 2
    show.print_json({"name": HOSTILE.replace("\ud800", "\U000e0041")})
    said = capsys.readouterr().out
    assert json.loads(said)["name"] == HOSTILE.replace("\ud800", "\U000e0041")
    assert not [each for each in (*LIVE, "\U000e0041") if each in said]


def test_nothing_is_written_elsewhere() -> None:
    """One place that escapes is enough as long as nobody writes past it."""
    writers = {"print", "echo", "secho", "Console"}
    for path in sorted(FOLDER.parent.rglob("*.py")):
        if path.name == "show.py" or path.parent.name == "install":  # that one writes into the journal
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            called = node.func
            name = (
                called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
            )
            owner = called.value.id if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) else ""
            assert name not in writers or owner in {"console", "view"}, f"{path.name}:{node.lineno}"


def test_status_says_what_a_policy_makes_wait(written: io.StringIO) -> None:
    link = LinkStatus(
        name="hub", account="A", role="spoke", state="waiting", next_attempt_in_s=27, waiting="outside its windows"
    )
    copy = SourcingStatus(
        account="A", stream="S", kind="source", origin="O", api_prefix="", phase="waiting", waiting="budget used up"
    )
    report = StatusReport(
        server_name="here", server_id="N", version="1", now="", uptime_s=1, links=[link], copies=[copy]
    )
    status._show(Target(b""), report)  # type: ignore[arg-type]
    assert "waiting: outside its windows" in written.getvalue()
    assert "waiting: budget used up" in written.getvalue()
    assert "next attempt" not in written.getvalue()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (httpx.Response(404, text="404 page not found"), "gives no support bundle: the control socket does"),
        (httpx.Response(403, text="log in"), "/eyot/support-bundle answered 403: log in"),
    ],
)
def test_a_support_bundle_that_is_not_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: httpx.Response, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(httpx.Client, "get", lambda *_: answer)
    done = CliRunner().invoke(main.cli, ["--control", "http://localhost:1", "support-bundle"])
    assert said in str(done.exception)
    assert not list(tmp_path.iterdir())


def test_a_bridge_among_sessions_is_called_by_its_name() -> None:
    assert _owner(MqttSession(client_id="bridge\0cloud", user="\0bridge")) == ("(bridge cloud)", "")
    assert _owner(MqttSession(client_id="bridge cloud", user="app")) == ("bridge cloud", "app")
