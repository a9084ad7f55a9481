"""Files that pages name, and pages that the code names.

The paths of a message in `docs/architecture.md` have at most ten stations each, every station is one file, no file comes twice.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
#: Where a path in the tables may begin.
PLACES = (
    "daemon/eyot_daemon",
    "daemon/eyot_daemon/jetstream",
    "daemon/eyot_daemon/jetstream/consumer",
    "wire/eyot_wire",
    "store",
    "sync",
)
#: Where the code is.
FLOORS = ("wire", "serving", "store", "sync", "daemon", "cli", "fleet", "hub")
PATHS = ("A publish", "A delivery", "A leaf link", "A mirror or source")


def stations(title: str) -> list[list[str]]:
    """The files in the second column of the table below a heading, station by station."""
    text = (TOP / "docs/architecture.md").read_text().split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.split("|") for line in text.splitlines() if re.match(r"\| \d+ \|", line)]
    return [re.findall(r"`([\w/]+\.py)`", row[2]) for row in rows]


@pytest.mark.parametrize("title", PATHS)
def test_a_path_is_short_and_every_station_is_a_file(title: str) -> None:
    found = stations(title)
    assert 0 < len(found) <= 10
    assert all(found)
    files = [file for station in found for file in station]
    assert len(files) == len(set(files))
    for file in files:
        assert any((TOP / place / file).is_file() for place in PLACES), file


def test_the_pages_that_the_code_names_exist() -> None:
    """By their path from the top of the repository, or from docs/."""
    files = [file for floor in FLOORS for kind in ("*.py", "*.pyx") for file in (TOP / floor).rglob(kind)]
    assert files
    missing = [
        f"{file.relative_to(TOP)}: {page}"
        for file in files
        for page in re.findall(r"(?<![\w./-])[\w/-]+\.md\b", file.read_text())
        if not (TOP / page).is_file() and not (TOP / "docs" / page).is_file()
    ]
    assert missing == []
