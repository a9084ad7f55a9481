"""The pages for people: what they name in this repository is there."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import click
import pytest

from eyot_cli.main import cli

TOP = Path(__file__).parents[2]
PAGES = sorted(
    [TOP / "README.md", TOP / "CHANGELOG.md", *(TOP / "docs").rglob("*.md")], key=lambda page: page.relative_to(TOP)
)
#: The repository's own sources, and a client library that is called like one.
SOURCES = [
    "nats.py",
    *(
        str(source)
        for folder in ("wire", "serving", "store", "sync", "daemon", "cli", "fleet", "hub", "packaging", "tests")
        for source in (TOP / folder).rglob("*.py*")
    ),
]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as forges make them."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_links(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_paths_and_targets(page: Path) -> None:
    if page.parent.name == "decisions" and page.stem != "README":
        return  # a decision names the files of its day
    text = page.read_text()
    for path in re.findall(
        r"(?<![\w/.-])((?:docs|tests|packaging|systemd|serving|daemon|store|sync|wire|cli|fleet|hub)/[\w./-]*\w/?)",
        text,
    ):
        assert (TOP / path).exists(), path
    for path in re.findall(r"`([\w./-]+\.pyx?)`", text):
        assert any(f"/{source}".endswith(f"/{path}") for source in SOURCES), path
    targets = set(re.findall(r"^([a-z-]+):", (TOP / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)", text)) <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_an_empty_line_stands_around_a_table(page: Path) -> None:
    """What follows a row at once becomes a row of the table."""
    lines = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL).splitlines()
    for line, following in pairwise(lines):
        assert line.startswith("|") == following.startswith("|") or not line or not following, (line, following)


def words_of_commands(text: str) -> Iterator[list[str]]:
    """The commands of `eyot` in blocks and between backticks, by words."""
    text = text.replace("\\\n", " ")
    for line in re.findall(r"`(eyot [^`]+)`|^ {4}(?:[A-Z_]+=\S+ )?(eyot .*)", text, re.MULTILINE):
        command = (line[0] or line[1]).partition("  #")[0]
        yield re.split(r"\s+", re.sub(r"'[^']*'", "X", command).split("|")[0].split("&&")[0].strip())


def options_of(command: click.Command) -> set[str]:
    return {name for each in command.params for name in (*each.opts, *each.secondary_opts)} | {"-h", "--help"}


def test_options_of_commands() -> None:
    """Each option that a page gives `eyot` is one of the command's or of eyot itself."""
    checked, context = 0, click.Context(cli)
    for page in PAGES:
        for words in words_of_commands(page.read_text()):
            command: click.Command | None = cli
            known, path = options_of(cli), []
            for word in words[1:]:
                inner = command.get_command(context, word) if isinstance(command, click.Group) else None
                if inner is not None:
                    command, path = inner, [*path, word]
                    known |= options_of(command)
            given = {word.split("=")[0] for word in words if re.fullmatch(r"--?[A-Za-z][\w-]*(=.*)?", word)}
            assert given <= known, (page.name, " ".join(words))
            checked += len(given)
    assert checked > 100


def test_commands() -> None:
    """What the pages have `eyot` do is there, and so are the programs that they name."""
    scripts = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["scripts"]
    said = "\n".join(page.read_text() for page in PAGES)
    assert set(re.findall(r"\beyot(?:d|-check|-fleet|-hub)\b", said)) <= set(scripts)
    commands = re.findall(
        r"(?:`|^ {4})eyot (?:--?\w+ \S+ )*([a-z][a-z-]*)(?: (ls|info|wait|forget)\b)?", said, re.MULTILINE
    )
    assert len(commands) > 20
    for name, inner in commands:
        command = cli.commands[name]
        assert not inner or (isinstance(command, click.Group) and inner in command.commands), (name, inner)


def test_examples_that_are_named_are_in_the_package() -> None:
    named = set()
    for path in (
        *TOP.glob("docs/**/*.md"),
        *TOP.glob("packaging/man/*"),
        *TOP.glob("fleet/**/*.py"),
        *TOP.glob("cli/**/*.py"),
    ):
        named |= set(re.findall(r"/usr/share/doc/eyot/examples/([a-z-]+\.(?:conf|toml))", path.read_text()))
    listed = (TOP / "packaging/debian/eyot.examples").read_text().split()
    assert named == {each.removeprefix("build/examples/") for each in listed}
