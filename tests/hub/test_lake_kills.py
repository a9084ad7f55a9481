"""The jobs that change what a lake holds, killed beside ingest; and that `make hub-kills` kills every job in every format."""

from __future__ import annotations

import re
from pathlib import Path

from eyot_hub.main import _parser
from support.hub import lake_kills, table_kills
from support.hub.lake_formats import FORMATS
from support.hub.streams import Streams

ROOT = Path(__file__).parents[2]
#: Which job of a script stands for a command of another name; no job for those that fill no table of their own.
PARTS: dict[str, set[str]] = {
    "maintain": {"retention", "compact", "vacuum"},
    "explain": set(),
    "report": set(),
    "run": set(),
}


def commands() -> set[str]:
    (choices,) = (action.choices for action in _parser()._actions if action.dest == "command")
    return set(choices or ())


def test_hub_kills_has_every_job_in_every_format() -> None:
    target = (ROOT / "Makefile").read_text().partition("\nhub-kills:")[2].partition("\n\n")[0]
    runs = re.findall(r"tests/support/hub/(\w+)\.py([^\n]*)", target)
    killed: dict[str, set[str]] = {name: set() for name in FORMATS}
    for script, options in runs:
        (table_format,) = re.findall(r"--format (\w+)", options) or FORMATS[:1]
        jobs = {"ingest_kills": ("ingest",), "table_kills": table_kills.JOBS, "lake_kills": lake_kills.JOBS}
        killed[table_format] |= set(jobs.get(script, ()))
    wanted = {job for command in commands() for job in PARTS.get(command, {command})}
    assert {name: sorted(wanted - jobs) for name, jobs in killed.items()} == {name: [] for name in FORMATS}


def test_killed_beside_ingest(streams: Streams, tmp_path: Path) -> None:
    """Each table holds what is true. (support/hub/lake_kills.py kills all jobs, as often as it is told to, in both formats.)"""
    trial = lake_kills.Trial(streams.url, tmp_path, seed=1, table_format="iceberg")
    trial.run(1, jobs=("erase", "replay", "retention"))
    assert trial.killed.total() == 3
