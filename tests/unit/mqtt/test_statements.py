"""The page about MQTT's statements (`docs/mqtt-statements.md`) has all of them, and the tests that it names are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
PAGE = TESTS.parent / "docs" / "mqtt-statements.md"

#: By section, the numbers of the statements: the last, or the first and the last.
STATEMENTS: dict[str, dict[str, int | tuple[int, int]]] = {
    "MQTT 3.1.1": {
        "1.5.3": 3, "2.2.2": 2, "2.3.1": 7, "3.1.0": 2, "3.1.2": 24, "3.1.3": 11, "3.1.4": 5, "3.2.0": 1, "3.2.2": 6,
        "3.3.1": 12, "3.3.2": 3, "3.3.4": 1, "3.3.5": 2, "3.6.1": 1, "3.8.1": 1, "3.8.3": 4, "3.8.4": 6, "3.9.3": 2,
        "3.10.1": 1, "3.10.3": 2, "3.10.4": 6, "3.12.4": 1, "3.14.1": 1, "3.14.4": 3, "4.1.0": 2, "4.3.1": 1, "4.3.2": 2,
        "4.3.3": 2, "4.4.0": 1, "4.5.0": 2, "4.6.0": 6, "4.7.1": 3, "4.7.2": 1, "4.7.3": 4, "4.8.0": 2, "6.0.0": 4,
    },
    "MQTT 5.0": {
        "1.5.4": 3, "1.5.5": 1, "1.5.7": 1, "2.1.3": 1, "2.2.1": (2, 6), "2.2.2": 1, "3.1.0": 2, "3.1.2": 30, "3.1.3": 12,
        "3.1.4": 6, "3.2.0": 2, "3.2.2": 22, "3.3.1": 13, "3.3.2": 20, "3.3.4": 10, "3.4.2": 3, "3.5.2": 3, "3.6.1": 1,
        "3.6.2": 3, "3.7.2": 3, "3.8.1": 1, "3.8.3": 5, "3.8.4": 8, "3.9.2": 2, "3.9.3": 2, "3.10.1": 1, "3.10.3": 2,
        "3.10.4": 6, "3.11.2": 2, "3.11.3": 2, "3.12.4": 1, "3.14.0": 1, "3.14.1": 1, "3.14.2": 4, "3.14.4": 3, "3.15.1": 1,
        "3.15.2": 3, "4.1.0": 2, "4.2.0": 1, "4.3.1": 1, "4.3.2": 5, "4.3.3": 13, "4.4.0": 2, "4.5.0": 2, "4.6.0": 6,
        "4.7.0": 1, "4.7.1": 2, "4.7.2": 1, "4.7.3": 4, "4.8.2": 6, "4.9.0": 3, "4.12.0": 7, "4.12.1": 2, "4.13.1": 1,
        "4.13.2": 1, "6.0.0": 4,
    },
}  # fmt: skip
#: How many there are in the specifications' appendices.
TOTALS = {"MQTT 3.1.1": 137, "MQTT 5.0": 251}


def rows(heading: str) -> list[list[str]]:
    """The table under a heading: number, words and what holds it."""
    part = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    table = [line.strip("|").split(" | ") for line in part.splitlines() if re.match(r"\| \d", line)]
    return [[cell.strip() for cell in row] for row in table]


@pytest.mark.parametrize("heading", STATEMENTS)
def test_each_statement_has_one_row(heading: str) -> None:
    wanted = []
    for section, numbers in STATEMENTS[heading].items():
        first, last = numbers if isinstance(numbers, tuple) else (1, numbers)
        wanted += [f"{section}-{number}" for number in range(first, last + 1)]
    assert len(wanted) == TOTALS[heading]
    assert [row[0] for row in rows(heading)] == wanted


@pytest.mark.parametrize("heading", STATEMENTS)
def test_the_tests_are_there(heading: str) -> None:
    for number, words, held in rows(heading):
        assert words, number
        named = re.findall(r"`([\w/.]+\.py)::(\w+)`", held)
        if not named:
            assert re.match(r"(client|no|differs): .", held), f"{number}: {held}"
        for file, name in named:
            source = (TESTS / file).read_text()
            assert re.search(rf"^(async )?def {name}\(", source, re.MULTILINE), f"{number}: {file}::{name}"
