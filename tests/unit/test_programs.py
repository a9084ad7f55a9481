"""What holds for every program that `pyproject.toml` installs: one line and an exit status, never a traceback."""

from __future__ import annotations

import importlib
import io
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from eyot_wire.program import CLOSED_PIPE, INTERRUPTED

Program = tuple[str, Callable[[], int]]
SCRIPTS = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["scripts"]


#: What the modules `launch` only prepare the process for.
MAINS = {name: place.replace(".launch:main", ".main") for name, place in SCRIPTS.items()}
_INTERRUPTED_WHILE_LOADING = """
import importlib, os, signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

launch = importlib.import_module(sys.argv[2])
sys.meta_path.insert(0, Interrupt())
sys.exit(launch.main())
"""


@pytest.fixture(params=sorted(SCRIPTS))
def program(request: pytest.FixtureRequest) -> Program:
    """A program's name and entry point."""
    return request.param, importlib.import_module(MAINS[request.param]).main


def _status(main: Callable[[], int]) -> object:
    try:
        return main()
    except SystemExit as end:
        return end.code


@pytest.mark.parametrize("writes_through", [False, True])
def test_a_full_disk_below_the_output_is_told(
    program: Program, writes_through: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With PYTHONUNBUFFERED the write fails, without it the flush at the end."""
    name, main = program
    monkeypatch.setattr("sys.argv", [name, "--help"])
    with open("/dev/full", "wb", buffering=0) as full:
        raw = full if writes_through else io.BufferedWriter(full)
        monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, "utf-8", write_through=writes_through))
        assert _status(main) in (1, 2)
        sys.stdout.flush()
    assert capsys.readouterr().err == f"{name}: No space left on device\n"


@pytest.mark.parametrize("option", ["--help", "--version"])
@pytest.mark.parametrize("writes_through", [False, True])
def test_a_closed_pipe_ends_a_program_silently(
    program: Program,
    option: str,
    writes_through: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As SIGPIPE ends others: `eyot --help | true`."""
    name, main = program
    monkeypatch.setattr("sys.argv", [name, option])
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb", buffering=0) as pipe:
        raw = pipe if writes_through else io.BufferedWriter(pipe)
        monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, "utf-8", write_through=writes_through))
        assert _status(main) == CLOSED_PIPE
        sys.stdout.flush()
    assert capsys.readouterr().err == ""


class InterruptedOutput(io.StringIO):
    def write(self, _text: str) -> int:
        raise KeyboardInterrupt


def test_an_interrupt_ends_a_program_silently(
    program: Program, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """But for the line that click ends, after the terminal's ^C."""
    name, main = program
    monkeypatch.setattr("sys.argv", [name, "--help"])
    monkeypatch.setattr("sys.stdout", InterruptedOutput())
    assert _status(main) == INTERRUPTED
    assert capsys.readouterr().err in ("", "\n")


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_an_interrupt_while_a_program_loads_is_silent(name: str) -> None:
    module = SCRIPTS[name].partition(":")[0]
    command = [sys.executable, "-c", _INTERRUPTED_WHILE_LOADING, MAINS[name], module]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, "")


@pytest.mark.parametrize("is_variable", [False, True])
def test_what_is_not_utf8_is_refused(
    program: Program, is_variable: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name, main = program
    monkeypatch.setattr("sys.argv", [name, "--help" if is_variable else "\udcff"])
    if is_variable:
        monkeypatch.setenv("NATS_PASSWORD", "secret\udcff")
    assert _status(main) in (2, 64)
    out, err = capsys.readouterr()
    what = "NATS_PASSWORD is not UTF-8" if is_variable else r"argument 1 is not UTF-8: \xff"
    assert (out, err.splitlines()[0]) == ("", f"{name}: {what}")
