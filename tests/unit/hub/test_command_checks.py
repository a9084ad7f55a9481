"""Mistakes in options and configuration: each command tells them before Spark starts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from deltalake.exceptions import DeltaError

from eyot_hub.main import main

SILVER = """
[[silver]]
name = "readings"
subjects = ["readings.>"]
device = "$.device"
event_time = "$.at"
columns = { value = "double" }
"""
LAKE = '[lake]\npath = "s3://eyot/lake"\n'
PARQUET = ('streams = ["S"]', 'streams = ["S"]\nformat = "parquet"')


class SparkStarted(Exception):
    """What no test here may reach."""


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def session(*_: object) -> object:
        raise SparkStarted

    monkeypatch.setattr("eyot_hub.main.session", session)


class Hub:
    """A configuration file; `run` runs a command with it, after replacements in the file."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.path = folder / "hub.toml"
        self.text = (
            f'[nats]\nservers = "nats://127.0.0.1"\n[lake]\npath = "{folder}/lake"\n[bronze]\nstreams = ["S"]\n{SILVER}'
        )
        self._capsys = capsys

    def run(self, command: str, *arguments: str, changed: tuple[str, str] = ("", "")) -> tuple[int, str]:
        self.path.write_text(self.text.replace(*changed) if changed[0] else self.text)
        status = main([command, "-c", str(self.path), *arguments])
        return status, self._capsys.readouterr().err

    def refused(self, command: str, *arguments: str, changed: tuple[str, str] = ("", "")) -> str:
        status, text = self.run(command, *arguments, changed=changed)
        assert status == 2, text
        return text


@pytest.fixture
def hub(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Hub:
    return Hub(tmp_path, capsys)


def test_a_right_command_starts_spark(hub: Hub) -> None:
    for command in ("ingest", "aggregate", "backfill", "gaps", "fleet", "devices", "report", "run"):
        status, text = hub.run(command)
        assert (status, "SparkStarted" in text) == (1, True), command
    for device in ("d1", ""):
        assert "SparkStarted" in hub.run("erase", "--device", device)[1]


@pytest.mark.parametrize("command", ["aggregate", "backfill", "gaps", "fleet", "report", "run"])
def test_plain_parquet_is_no_table(hub: Hub, command: str) -> None:
    assert f"bronze.format: {command} needs a table, not parquet" in hub.refused(command, changed=PARQUET)
    assert not Path(hub.path.parent, "lake").exists()


def test_places(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = hub.text
    hub.text = text.replace(f'[lake]\npath = "{tmp_path}/lake"\n', LAKE)
    for command, changed in (("devices", ("", "")), ("ingest", PARQUET)):
        assert "lake.checkpoints: must name a folder" in hub.refused(command, changed=changed)
    hub.text = text
    assert f"--output: there is no folder {tmp_path}/none" in hub.refused("report", "-o", f"{tmp_path}/none/page.html")
    assert f"--output: {tmp_path} is a folder" in hub.refused("report", "-o", str(tmp_path))
    monkeypatch.setattr("os.access", lambda path, _mode: Path(path) != tmp_path)  # of root
    text = hub.refused("report", "-o", f"{tmp_path}/page.html")
    assert f"--output: {tmp_path}/page.html: Permission denied" in text


def test_names(hub: Hub) -> None:
    assert "there is no silver or gold table 'none'" in hub.refused("backfill", "readings", "none")
    assert "--subject: 'a..b' is no subject" in hub.refused("erase", "--device", "d", "--subject", "a..b")
    assert "--subject: cannot be used together with --resume" in hub.refused("erase", "--resume", "--subject", "a.b")
    assert "devices needs a silver table or fleet.subjects" in hub.refused("devices", changed=(SILVER, ""))


@pytest.mark.parametrize("command", ["ingest", "gaps", "devices", "report", "run"])
@pytest.mark.parametrize("option", ["creds", "nkey", "tlsCa"])
def test_files(hub: Hub, tmp_path: Path, command: str, option: str) -> None:
    line = f'{option} = "{tmp_path}/none"\n[lake]'
    text = hub.refused(command, changed=("[lake]", line))
    assert f"hub.toml: nats.{option}: names a file that cannot be" in text
    assert "SparkStarted" in hub.run("aggregate", changed=("[lake]", line))[1]  # needs no server


def test_a_format_without_its_packages(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog", None)
    for name in [name for name in sys.modules if name.startswith("eyot_hub.jobs.") and ".iceberg_" in name]:
        monkeypatch.delitem(sys.modules, name)
    status, text = hub.run("aggregate", changed=("[lake]\n", '[lake]\nformat = "iceberg"\n'))
    assert (status, "lake.format: iceberg needs pyiceberg.catalog" in text) == (1, True)


def test_a_lake_keeps_its_format(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "lake" / "bronze" / "_delta_log").mkdir(parents=True)
    text = hub.refused("maintain", "--once", changed=("[lake]\n", '[lake]\nformat = "iceberg"\n'))
    assert f"hub.toml: lake.format: {tmp_path}/lake holds tables of format delta" in text


@pytest.mark.parametrize(
    ("every", "problem"),
    [("-1s", "-1s is not longer than 0s"), ("0s", "0s is not longer"), ("soon", "'soon' is not a duration")],
)
def test_times(hub: Hub, capsys: pytest.CaptureFixture[str], every: str, problem: str) -> None:
    for command in ("aggregate", "maintain"):
        with pytest.raises(SystemExit) as ended:
            hub.run(command, f"--every={every}")
        assert (ended.value.code, problem in capsys.readouterr().err) == (2, True)


def test_a_storage_that_is_away(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator's matter, which needs no traceback, whichever of its errors delta-rs raises."""
    for error in (OSError("Generic S3 error: no answer"), DeltaError("Generic error: no answer")):

        def away(*_: object, error: Exception = error) -> object:
            raise error

        monkeypatch.setattr("eyot_hub.main.Maintenance.round", away)
        status, text = hub.run("maintain", "--once")
        assert status == 1
        assert text.startswith("eyot-hub: ")
        assert text.endswith(": no answer\n")
