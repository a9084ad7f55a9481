"""`--watch` of reports, in this process beside `eyotd`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator

import pytest

import eyot_cli.connection.watch
from eyot_cli.main import main
from support.servers.eyotd import Eyotd

Watch = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Eyotd]:
    with Eyotd('jetstream { store_dir: "%WORKDIR%/js" }', tmp_path_factory.mktemp("watch")) as running:
        yield running


@pytest.fixture
def watch(daemon: Eyotd, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Watch:
    """Runs `eyot` until the pauses are used up, and presses Ctrl-C then; `pauses` are called with the seconds to pause."""

    def run(*words: str, pauses: list[Callable[[float], None]]) -> tuple[int, str, str]:
        control = f"http://127.0.0.1:{daemon.monitor_port}"
        monkeypatch.setattr(sys, "argv", ["eyot", "-s", daemon.client_url(), "--control", control, *words])
        left = iter(pauses)

        def pause(seconds: float) -> None:
            found = next(left, None)
            if found is None:
                raise KeyboardInterrupt
            found(seconds)

        monkeypatch.setattr(eyot_cli.connection.watch, "sleep", pause)
        code = main()
        out, err = capsys.readouterr()
        return code, out, err.rstrip("\n")  # click ends the line of ^C

    return run


@pytest.mark.parametrize(
    ("words", "title"),
    [(("status",), "Links\n"), (("sync",), "Replicated from here\n"), (("stream", "ls"), "Streams\n")],
    ids=["status", "sync", "stream ls"],
)
def test_a_report_again_and_again(words: tuple[str, ...], title: str, watch: Watch) -> None:
    slept: list[float] = []
    code, out, err = watch(*words, "--watch", pauses=[slept.append, slept.append])
    assert (code, err) == (130, "")
    assert out.count(title) == 3
    assert out.count("\nEvery 2.0s: ") == 2
    assert slept == [2.0, 2.0]


def test_json_every_five_seconds(watch: Watch) -> None:
    slept: list[float] = []
    code, out, _ = watch("--json", "status", "--watch", "5s", pauses=[slept.append])
    assert code == 130
    decoder = json.JSONDecoder()
    first, end = decoder.raw_decode(out)
    second, _ = decoder.raw_decode(out[end:].strip())
    assert first["server_name"] == second["server_name"]
    assert slept == [5.0]


def test_a_daemon_that_restarts(daemon: Eyotd, watch: Watch) -> None:
    def start(_seconds: float) -> None:
        daemon.start()

    code, out, err = watch("status", "--watch", "1", pauses=[lambda _seconds: daemon.kill(), start])
    assert code == 130
    assert out.count("Links\n") == 2
    assert err.startswith("eyot: no answer from ")
    assert len(err.splitlines()) == 1


def test_a_daemon_that_is_not_there(watch: Watch) -> None:
    code, out, err = watch("status", "--watch", "--control", "http://127.0.0.1:1", pauses=[])
    assert (code, out) == (1, "")
    assert err.startswith("eyot: no answer from http://127.0.0.1:1")


def test_watching_is_for_the_report_alone(watch: Watch) -> None:
    assert watch("sync", "--watch", "1", "wait", pauses=[])[0] == 2
    assert watch("status", "--watch", "soon", pauses=[])[0] == 2
