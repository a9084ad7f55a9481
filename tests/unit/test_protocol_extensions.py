"""`docs/protocol-extensions.md` lists every name that Eyot adds to the wire.

The names are those that the code has as literals: members of metadata (`eyot.*`), headers (`Eyot-*`) and requests of the
JetStream API (`EYOT_*`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).parents[2]
FOLDERS = ("wire", "sync", "daemon")
PAGES = ("docs/protocol-extensions.md", "docs/packed-reads.md")

_HEADER = re.compile(r"Eyot(?:-[A-Z][a-z]+)+")
_METADATA = re.compile(r"eyot\.[a-z_]+")
_REQUEST = re.compile(r"(?:[A-Z]+\.)+EYOT_[A-Z]+|EYOT_[A-Z]+(?:\.[A-Z]+)+")


def literals(tree: ast.AST) -> Iterator[str | bytes]:
    """The strings and bytes of a module but its docstrings and the names of its loggers."""
    left_out = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            left_out.add(id(node.value))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "getLogger":
            left_out.update(map(id, node.args))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) and id(node) not in left_out:
            yield node.value


def wire_names(text: str) -> set[str]:
    """The names in a module's text that peers see."""
    found = set()
    for literal in literals(ast.parse(text)):
        name = literal if isinstance(literal, str) else literal.decode("latin-1")
        # What is bytes and begins with `eyot.` is a key of a position on disk.
        if _HEADER.fullmatch(name) or _REQUEST.fullmatch(name) or (name is literal and _METADATA.fullmatch(name)):
            found.add(name)
    return found


def is_listed(name: str, pages: str) -> bool:
    """Whether a page has the name, or the family that it belongs to (`Eyot-Mqtt-*`, `EYOT_MQTT.*`)."""
    families = [f"`{name[: at.end()]}*`" for at in re.finditer(r"[-.]", name)]
    return re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", pages) is not None or any(
        family in pages for family in families
    )


def test_all_names_on_the_wire_are_on_the_page() -> None:
    pages = "".join((TOP / page).read_text() for page in PAGES)
    names: set[str] = set()
    for folder in FOLDERS:
        for path in sorted((TOP / folder).rglob("*.py")):
            names |= wire_names(path.read_text())
    assert {"eyot.stored", "Eyot-Origins", "STREAM.EYOT_FORGET", "Eyot-Mqtt-Expires"} <= names
    assert sorted(name for name in names if not is_listed(name, pages)) == []


def test_names_are_found_in_code() -> None:
    text = '''
"""`eyot.said` of a docstring."""
log = logging.getLogger("eyot.part")
KEY = "eyot.new"
POSITION = b"eyot.position."
HEADER = b"Eyot-New-Header"
WORDS = "STREAM.EYOT_NEW"
'''
    assert wire_names(text) == {"eyot.new", "Eyot-New-Header", "STREAM.EYOT_NEW"}
    assert not is_listed("eyot.new", "| `eyot.news` |")
