"""Configurations in the pages are accepted as they stand: whoever copies one gets no unknown field."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

import pytest

from eyot_daemon.config.read import read_options
from eyot_wire.conf import parse_text

TOP = Path(__file__).parents[3]
PAGES = [TOP / "README.md", *sorted((TOP / "docs").rglob("*.md"))]
#: How an example begins, comments apart.
BEGINNING = re.compile(
    r"(accounts|authorization|eyot|http|jetstream|leafnodes|listen|mappings|max_payload|mqtt|no_auth_user|operator|port|resolver|server_name"
    r"|system_account|tls|websocket)\s*[:={]"
)


def blocks(text: str) -> list[str]:
    """Fenced and indented blocks."""
    fenced = re.findall(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    rest = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = groupby(rest.split("\n"), key=lambda line: line.startswith("    "))
    return [*fenced, *("\n".join(line[4:] for line in found) for indented, found in lines if indented)]


def is_configuration(block: str) -> bool:
    first = next((line for line in block.split("\n") if line and not line.startswith("#")), "")
    return BEGINNING.match(first) is not None


EXAMPLES = [
    pytest.param(block, id=f"{page.relative_to(TOP)}-{number}")
    for page in PAGES
    for number, block in enumerate(filter(is_configuration, blocks(page.read_text())), 1)
]


@pytest.mark.parametrize("text", EXAMPLES)
def test_an_example_is_accepted(text: str) -> None:
    read_options(parse_text(text))


def test_the_pages_have_examples() -> None:
    assert len(EXAMPLES) >= 15
