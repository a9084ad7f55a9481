"""Names are the field's words: none of those that `docs/glossary.md` lists as not used. Digits are read in one way.

Checked are names of modules, classes, functions, parameters, variables and attributes in Python and Cython, of the documents'
files and of the Makefile's targets. In tests, the name of a test is a sentence and free; names of helpers and fixtures are not.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
FOLDERS = ("wire", "serving", "store", "sync", "daemon", "cli", "fleet", "hub", "tests")
#: Words that are not used, as whole parts of a name; with `_` between them, two parts that follow each other.
UNUSED = frozenset(
    {
        "anew",
        "asked_again",
        "bye",
        "copied_out",
        "copier",
        "copiers",
        "copy_result",
        "copy_status",
        "copying",
        "doubts",
        "farewell",
        "farewells",
        "fate",
        "fates",
        "forget_reader",
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
        "origin_marks",
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
        "told_time",
        "took",
        "trash",
        "usual",
        "vault",
        "weigh",
        "witness",
        "witnesses",
        "world",
        "worlds",
    }
)
#: Whole names that are not used: compression has copies, too, but nothing is just "the copies".
UNUSED_ALONE = frozenset({"_copies", "COPIES"})
#: Functions whose names say neither what is done nor to what; as a state (`self._held`) some of these are clear.
_VAGUE = re.compile(r"^\s*(?:async )?(?:def|cdef|cpdef)\b[^(=:#]*?\b(_fits|_held|_home|_placed|_say)\(", re.MULTILINE)
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
#: Bytes have only the digits of ASCII: `bytes.isdigit(text)` says of what type its text is.
_DIGIT_TEST = re.compile(r"(?<!\bbytes)\.is(?:digit|decimal|numeric)\b")
_CYTHON = re.compile(r"^\s*(?:cdef|cpdef|def|class|ctypedef)\b[^(=:#]*?(\w+)\s*(?=[(=:\n])", re.MULTILINE)


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """All names that a module defines, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id if isinstance(node, ast.Name) else node.attr


def vague_functions(text: str) -> Iterator[tuple[int, str]]:
    """The functions in a module's text whose names are too vague, with their lines."""
    for found in _VAGUE.finditer(text):
        yield text.count("\n", 0, found.start(1)) + 1, found[1]


def cython_names(text: str) -> Iterator[tuple[int, str]]:
    """The names of functions, classes and typed variables in a Cython module, with their lines."""
    for found in _CYTHON.finditer(text):
        yield text.count("\n", 0, found.start(1)) + 1, found[1]


def unused_words(name: str) -> set[str]:
    words = [word.lower() for word in _WORD.findall(name)]
    pairs = {"_".join(pair) for pair in pairwise(words)}
    return (set(words) | pairs) & UNUSED | {name} & UNUSED_ALONE


def found_in(path: Path) -> list[str]:
    """The lines of a module whose names have unused words."""
    place, text = path.relative_to(TOP), path.read_text()
    if path.suffix == ".py":
        defined = [(line, name) for line, name in names(ast.parse(text)) if not name.startswith("test_")]
    else:
        defined = list(cython_names(text))
    found = [(line, name) for line, name in defined if unused_words(name)]
    return [f"{place}:{line} {name}" for line, name in [*found, *vague_functions(text)]]


@pytest.mark.parametrize("folder", FOLDERS)
def test_names_are_the_fields_words(folder: str) -> None:
    found = []
    for path in sorted((TOP / folder).rglob("*.p*")):
        if path.suffix in {".py", ".pyx", ".pxd", ".pxi"}:
            found += [str(path.relative_to(TOP))] * bool(unused_words(path.stem)) + found_in(path)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("folder", FOLDERS[:-1])
def test_digits_are_those_of_ascii(folder: str) -> None:
    """`str.isdigit` and its siblings accept what `int` refuses or nobody expects: `is_digits` or `parse_uint` reads text."""
    found = []
    for path in sorted((TOP / folder).rglob("*.p*")):
        if path.suffix in {".py", ".pyx", ".pxi"} and path != TOP / "wire/eyot_wire/digits.py":
            lines = enumerate(path.read_text().splitlines(), 1)
            found += [f"{path.relative_to(TOP)}:{number} {line}" for number, line in lines if _DIGIT_TEST.search(line)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("text", ["a.isdigit()", "str.isdigit(a)", "map(str.isdecimal, a)", "a[1:].isnumeric()"])
def test_tests_for_digits_are_found(text: str) -> None:
    assert _DIGIT_TEST.search(text)
    assert not _DIGIT_TEST.search("bytes.isdigit(a) and is_digits(b)")


@pytest.mark.parametrize("folder", [*FOLDERS, "docs", "packaging", "systemd"])
def test_no_file_has_the_name_of_an_option(folder: str) -> None:
    """A tool that takes its first argument for the file to write leaves one named `--help`."""
    assert not [path for path in (TOP / folder).rglob("-*") if path.is_file()]


def test_documents_and_targets_have_the_fields_words() -> None:
    documents = [path.relative_to(TOP) for path in (TOP / "docs").rglob("*.*") if path.parent.name != "decisions"]
    assert len(documents) > 30
    found = [str(path) for path in documents if unused_words(path.stem)]
    targets = re.findall(r"^([a-z-]+):", (TOP / "Makefile").read_text(), re.MULTILINE)
    assert "test" in targets
    assert not found + [target for target in targets if unused_words(target)]


@pytest.mark.parametrize(
    "text",
    [
        "class CopyStatus: ...",
        "def _copies(report): ...",
        "def lives(): ...",
        "def compute(*, anew): ...",
        "told_time = 1",
        "class Fate: ...",
        "class World: ...",
        "_USUAL_FIELDS = ()",
    ],
)
def test_unused_words_are_found_in_python(text: str) -> None:
    assert any(unused_words(name) for _, name in names(ast.parse(text)))


def test_functions_are_told_from_the_state_of_the_same_name() -> None:
    text = "class Reader:\n    async def _held(self): self._fits = self._placed()\n    cdef inline int _say(self):"
    assert list(vague_functions(text)) == [(2, "_held"), (3, "_say")]


@pytest.mark.parametrize("text", ["cdef class Taker:\n", "cdef inline int look_over(int x):\n", "cdef int life = 3\n"])
def test_unused_words_are_found_in_cython(text: str) -> None:
    assert any(unused_words(name) for _, name in cython_names(text))
