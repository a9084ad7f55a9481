"""The frame of the commands: stops while they wait, errors by the keys of hub.toml, what a terminal shows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import Mock

import pytest
from py4j.protocol import Py4JNetworkError

from eyot_hub.errors import DataLoss, OptionError
from eyot_hub.jobs.aggregate import AggregateRound
from eyot_hub.jobs.bronze.bronze import Ingest, Round
from eyot_hub.jobs.schedule import Job, Result
from eyot_hub.main import _parser, main
from eyot_hub.show import CELL_MAX, Show
from eyot_wire.program import INTERRUPTED

HUB = """
[nats]
servers = "nats://127.0.0.1"
[lake]
path = "{folder}/lake"
[bronze]
streams = ["S"]
poll = "10h"
"""
PATIENCE_S = 60.0  # for a stop, before the test fails
#: Commands that go on until they are stopped, and wait by themselves; Spark and the scheduler wait for the others.
WAITING = {"ingest": [], "aggregate": ["--every", "10h"], "maintain": ["--every", "10h"]}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("eyot_hub.main.session", lambda *_: None)
    path = tmp_path / "hub.toml"
    path.write_text(HUB.format(folder=tmp_path))
    return str(path)


@pytest.fixture
def signals() -> Iterator[None]:
    """Take back what the commands do to signals; a command that goes on waiting fails."""

    def still_waiting(_number: int, _frame: FrameType | None) -> None:
        raise AssertionError("the command goes on waiting")

    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)}
    signal.signal(signal.SIGALRM, still_waiting)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number, handler in kept.items():
        signal.signal(number, handler)


class Idle:
    """A job without anything new; some time after its first round a signal comes."""

    def __init__(self, number: signal.Signals) -> None:
        self.rounds = 0
        self._number = number

    def round(self, *_: Any) -> Any:
        self.rounds += 1
        threading.Timer(0.3, os.kill, (os.getpid(), self._number)).start()
        return AggregateRound()


class IdleIngest(Ingest):
    """Only the loop of the job."""

    def __init__(self, config: Any, idle: Idle) -> None:
        self._config = config
        self._idle = idle

    def round(self, target: Any = None) -> Round:
        self._idle.round()
        return Round()

    def close(self) -> None:
        pass


@pytest.mark.parametrize("missing", ["deltalake", "pyspark", "pyarrow"])
def test_a_machine_without_the_extra_hub_is_told_what_to_install(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from eyot_hub.launch import main; sys.exit(main())"
    found = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True)
    assert found.returncode == 1
    assert found.stderr.startswith(
        f"eyot-hub: the Python package {missing} is missing: install Eyot with its extra hub"
    )
    assert "Traceback" not in found.stderr


def test_the_list_of_waiting_commands_is_whole() -> None:
    (commands,) = (action.choices for action in _parser()._actions if isinstance(action.choices, dict))
    ending = {name for name, parser in commands.items() if "--once" in parser.format_help()}
    assert ending - {"devices", "run"} == set(WAITING)


@pytest.mark.parametrize("command", WAITING)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.usefixtures("signals")
def test_a_signal_ends_a_wait(
    config: str, command: str, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """systemd sends SIGTERM and kills after some time: a command that slept on would be killed each time."""
    idle = Idle(number)

    def maintained(_job: Any, _stop: Any) -> list[Any]:
        idle.round()
        return []

    monkeypatch.setattr("eyot_hub.main.Ingest", lambda _spark, config: IdleIngest(config, idle))
    monkeypatch.setattr("eyot_hub.main.Aggregate", lambda *_: idle)
    monkeypatch.setattr("eyot_hub.main.Maintenance.round", maintained)
    assert main([command, "-c", config, *WAITING[command]]) == 0
    assert idle.rounds == 1


class Ends:
    """A job whose only round fails with this error, after SIGTERM if it is stopped."""

    def __init__(self, error: Exception, *, stopped: bool) -> None:
        self.table = Mock(to_pylist=list)
        self._error = error
        self._stopped = stopped

    def round(self, *_: Any, **_options: Any) -> Any:
        if self._stopped:
            os.kill(os.getpid(), signal.SIGTERM)
        raise self._error

    run = round

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("command", "job"),
    [("ingest", "main.Ingest"), ("aggregate", "main.Aggregate"), ("devices", "jobs.devices.devices.Devices")],
)
@pytest.mark.parametrize("error", [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError()])
@pytest.mark.usefixtures("signals")
def test_a_stop_that_ends_spark_too_is_no_failure(
    config: str, command: str, job: str, error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """Of a signal for the whole process group, which ends the JVM in mid-round. Without a stop that is a failure."""
    Path(config).write_text(Path(config).read_text() + '[fleet]\nsubjects = ["status.>"]\n')
    for stopped in (True, False):
        monkeypatch.setattr(f"eyot_hub.{job}", lambda *_, stopped=stopped: Ends(error, stopped=stopped))
        assert main([command, "-c", config]) == (0 if stopped else 1)
        assert [record.message for record in caplog.records] == ["the round was abandoned: Spark ended first"]


def test_an_interrupted_command_is_silent(
    config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr("eyot_hub.main.Gaps", interrupted)
    assert main(["gaps", "-c", config]) == INTERRUPTED
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OptionError("stream", "names a stream that does not exist: 'S'"), "bronze.streams names a stream that"),
        (DataLoss("5 are gone; with the option failOnDataLoss=false reading"), "with bronze.fail_on_data_loss = false"),
        (OSError(28, "Error writing bytes to file. Detail: [errno 28] No space left on device"), "; lake.path is /"),
        (DataLoss("the stream x\x07\ny is gone"), "the stream x\\a"),
    ],
)
def test_an_error_names_keys_and_controls_no_terminal(
    config: str, error: Exception, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> object:
        raise error

    monkeypatch.setattr("eyot_hub.main.Gaps", fails)
    assert main(["gaps", "-c", config]) == 1
    told = capsys.readouterr().err
    assert line in told
    assert told.count("\n") == 1


def test_an_end_of_spark_is_told_in_a_line(
    config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("eyot_hub.main.session", lambda *_: Mock(sparkContext=None))
    monkeypatch.setattr("eyot_hub.main.Gaps", Mock(side_effect=Py4JNetworkError("Answer from Java side is empty")))
    assert main(["gaps", "-c", config]) == 1
    assert capsys.readouterr().err == "eyot-hub: Spark ended: Answer from Java side is empty\n"


@pytest.mark.parametrize("command", [["erase", "--resume"], ["run", "--once"]])
def test_a_full_output_is_no_full_lake_and_ends_no_job(
    config: str, command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds: list[int] = []

    def work() -> Result:
        rounds.append(1)
        return Result(detail={"done": True}, again=len(rounds) < 3)

    monkeypatch.setattr("eyot_hub.main.run_jobs", lambda *_: [Job("a", 1.0, work)])
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr("sys.stdout", full)
        assert main([*command, "-c", config]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "eyot-hub: No space left on device"
    assert len(rounds) == (3 if "run" in command else 0)


def test_a_long_name_leaves_the_table_readable(capsys: pytest.CaptureFixture[str]) -> None:
    Show(as_json=False).table([{"device": "d" * 1_000_000}, {"device": "e"}], ["device"])
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["DEVICE", "d" * (CELL_MAX - 1) + "…", "e"]


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out.startswith("eyot-hub 0.")


def test_an_address_that_cannot_be_listened_on(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(config)
    path.write_text(path.read_text() + '[run]\nlisten = "no.such.host.invalid:1"\n')
    assert main(["run", "-c", config]) == 1
    assert capsys.readouterr().err.startswith("eyot-hub: run.listen: no.such.host.invalid:1: ")
