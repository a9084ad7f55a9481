"""Names in code are the field's words: none of those that `docs/glossary.md` lists as not used."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
FOLDERS = ("wire", "store", "sync", "daemon", "cli", "tests")
#: Words in names of modules, classes, functions, parameters, variables and attributes, as whole parts of the name.
UNUSED = frozenset(
    {
        "anew",
        "asked_again",
        "bye",
        "copied_out",
        "copier",
        "copiers",
        "copying",
        "farewell",
        "farewells",
        "fates",
        "gathering",
        "goodbye",
        "inlet",
        "intake",
        "judge",
        "judged",
        "judges",
        "leafs",
        "life",
        "lives",
        "look_over",
        "outlet",
        "plug",
        "sayings",
        "settling",
        "taken_back",
        "taker",
        "takers",
        "talk",
        "themes",
        "told_origins",
        "took",
        "trash",
        "vault",
        "weigh",
        "witness",
        "witnesses",
        "world",
        "worlds",
    }
)
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """All names that a module defines, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id if isinstance(node, ast.Name) else node.attr


def unused_words(name: str) -> set[str]:
    words = [word.lower() for word in _WORD.findall(name)]
    pairs = {"_".join(pair) for pair in pairwise(words)}
    return (set(words) | pairs) & UNUSED


@pytest.mark.parametrize("folder", FOLDERS)
def test_names_are_the_fields_words(folder: str) -> None:
    found = []
    for path in sorted((TOP / folder).rglob("*.py")):
        place = path.relative_to(TOP)
        if unused_words(path.stem):
            found.append(str(place))
        if path.name.startswith("test_") or folder == "tests":
            continue  # a test's name is a sentence
        found += [f"{place}:{line} {name}" for line, name in names(ast.parse(path.read_text())) if unused_words(name)]
    assert not found, "\n".join(found)
