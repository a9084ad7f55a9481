"""A process's share of the machine: the control groups of its service, or of its container, bound it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eyot_daemon import machine

OWN = "system.slice/eyotd.service"


def groups(folder: Path, file: str, own: str, above: str, name: str = OWN) -> tuple[Path, Path]:
    """A file that names a process's group, and the groups; the topmost has no limits, as on a machine."""
    proc, cgroups = folder / "cgroup", folder / "groups"
    group = cgroups / name
    group.mkdir(parents=True)
    (group / file).write_text(own + "\n")
    if group != cgroups:
        (group.parent / file).write_text(above + "\n")
    proc.write_text(f"0::/{name}\n")
    return proc, cgroups


@pytest.mark.parametrize(("own", "above", "wanted"), [("max", "max", 0), ("1000", "max", 1000), ("2000", "1500", 1500)])
def test_memory(tmp_path: Path, own: str, above: str, wanted: int) -> None:
    whole = machine.memory_bytes(tmp_path / "none")
    assert whole == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert machine.memory_bytes(*groups(tmp_path, "memory.max", own, above)) == (wanted or whole)


@pytest.mark.parametrize(
    ("own", "above", "wanted"),
    [
        ("max 100000", "max 100000", None),
        ("10000 100000", "max 100000", 0.1),
        ("90000 100000", "25000 50000", 0.5),
        ("", "nonsense", None),
        ("1 0", "max", None),
    ],
)
def test_processors(tmp_path: Path, own: str, above: str, wanted: float | None) -> None:
    whole = machine.processors(tmp_path / "none")
    assert whole == len(os.sched_getaffinity(0))
    assert machine.processors(*groups(tmp_path, "cpu.max", own, above)) == (whole if wanted is None else wanted)


def test_a_container_has_its_limits_at_the_top(tmp_path: Path) -> None:
    assert machine.memory_bytes(*groups(tmp_path / "a", "memory.max", "4096", "", name="")) == 4096
    assert machine.processors(*groups(tmp_path / "b", "cpu.max", "50000 100000", "", name="")) == 0.5


def test_threads_bound_to_one_processor(tmp_path: Path) -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert machine.processors(tmp_path / "none") == 1
    finally:
        os.sched_setaffinity(0, allowed)
