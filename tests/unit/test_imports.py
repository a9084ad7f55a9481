"""The order in which modules load: none needs, to run, one that needs it; and none is written in terms of one that knows it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import grimp
import pytest

PACKAGES = ("eyot_wire", "eyot_serving", "eyot_store", "eyot_sync", "eyot_daemon", "eyot_cli", "eyot_fleet", "eyot_hub")
#: Modules that import themselves by way of others when imports for annotations count. The list only shrinks.
IN_A_CIRCLE: frozenset[str] = frozenset()


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    """Every import that runs, also those inside functions; names that only annotations use are left out."""
    return grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True, cache_dir=None)


@pytest.fixture(scope="module")
def whole_graph() -> grimp.ImportGraph:
    """Every import, also those of names that only annotations use."""
    return grimp.build_graph(*PACKAGES, cache_dir=None)


def modules_in_a_circle(graph: grimp.ImportGraph) -> set[str]:
    """The modules from which a chain of imports leads back to themselves."""
    return {
        module
        for module in graph.modules
        if any(
            graph.chain_exists(importer=imported, imported=module)
            for imported in graph.find_modules_directly_imported_by(module)
        )
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_modules_load_without_circles(graph: grimp.ImportGraph, package: str) -> None:
    for folder in {package, *graph.find_descendants(package)}:
        if graph.find_children(folder):
            assert not graph.nominate_cycle_breakers(folder)


def test_no_module_enters_a_circle(whole_graph: grimp.ImportGraph) -> None:
    assert sorted(modules_in_a_circle(whole_graph) - IN_A_CIRCLE) == []


def test_the_list_names_only_modules_in_a_circle(whole_graph: grimp.ImportGraph) -> None:
    """A module that left its circle leaves the list too, so that it cannot come back."""
    assert sorted(IN_A_CIRCLE - modules_in_a_circle(whole_graph)) == []


def test_a_circle_of_annotations_is_found() -> None:
    graph = grimp.ImportGraph()
    for importer, imported in (
        ("stream", "purging"),
        ("purging", "limits"),
        ("limits", "stream"),
        ("engine", "stream"),
    ):
        graph.add_import(importer=importer, imported=imported)
    assert modules_in_a_circle(graph) == {"stream", "purging", "limits"}


# -- what packages say of themselves -------------------------------------------------------------------------------

TOP = Path(__file__).parents[2]
FLOORS = {
    "eyot_wire": "wire",
    "eyot_serving": "serving",
    "eyot_store": "store",
    "eyot_sync": "sync",
    "eyot_daemon": "daemon",
}
#: Lines of a docstring, tables of modules and blank lines apart.
LINES_MAX = 6


def folder_of(package: str) -> Path:
    [folder] = TOP.glob(f"*/{package.replace('.', '/')}")
    return folder


def docstring_of(package: str) -> str:
    return ast.get_docstring(ast.parse((folder_of(package) / "__init__.py").read_text())) or ""


def packages_of(graph: grimp.ImportGraph) -> list[str]:
    return sorted(module for module in graph.modules if graph.find_children(module))


def has_name(folder: Path, path: list[str]) -> bool:
    """Whether `module.Name`, or `package.module.Name`, is below a folder."""
    while len(path) > 1 and (folder / path[0]).is_dir():
        folder, path = folder / path[0], path[1:]
    file = folder / f"{path[0]}.py"
    if len(path) == 1:
        return file.is_file() or folder.is_dir()
    return file.is_file() and re.search(rf"(?m)^(?:(?:async )?def |class )?{path[1]}\b", file.read_text()) is not None


def test_packages_say_what_they_are_in_few_lines_and_where_to_begin(graph: grimp.ImportGraph) -> None:
    for package in packages_of(graph):
        text = docstring_of(package)
        lines = [line for line in text.splitlines() if line.strip() and not line.startswith("    ")]
        assert 0 < len(lines) <= LINES_MAX, package
        entry = re.search(r"Entry points?\b(.*?)(?:\.\s|\Z)", text, re.DOTALL)
        assert entry is not None, package
        for name in re.findall(r"`([a-z_]+(?:\.\w+)+)`", entry[1]):
            path = name.removesuffix(".py").split(".")
            folder = folder_of(package)
            assert has_name(folder, path) or has_name(folder.parent, path), f"{package}: {name}"


def test_packages_name_all_packages_that_they_import(whole_graph: grimp.ImportGraph) -> None:
    """Those of the same folder by name, and for packages of the broker the floors below."""
    packages = set(packages_of(whole_graph))
    for package in sorted(packages):
        parent, _, _ = package.rpartition(".")
        modules = {package, *whole_graph.find_descendants(package)}
        imported = {to for module in modules for to in whole_graph.find_modules_directly_imported_by(module)} - modules
        siblings = {
            to.removeprefix(f"{parent}.").split(".")[0]
            for to in imported
            if parent and to.startswith(f"{parent}.") and ".".join(to.split(".")[: package.count(".") + 1]) in packages
        }
        floors = {
            FLOORS[root] for to in imported if (root := to.split(".")[0]) in FLOORS and root != package.split(".")[0]
        }
        _, found, said = docstring_of(package).partition("mport")
        assert found, package
        named = set(re.findall(r"`(?:eyot_)?(\w+)[./\w]*`", said)) | set(
            re.findall(r"\b(?:wire|store|sync|serving)\b", said)
        )
        assert siblings - named == set(), package
        if parent in ("", "eyot_daemon"):
            assert floors - named == set(), package
