"""The order in which modules load: none needs, to run, one that needs it; and none is written in terms of one that knows it."""

from __future__ import annotations

import grimp
import pytest

PACKAGES = ("eyot_wire", "eyot_store", "eyot_sync", "eyot_daemon", "eyot_cli", "eyot_hub")
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
