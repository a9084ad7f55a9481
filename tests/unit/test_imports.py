"""The order in which modules load: none needs, to run, one that needs it."""

from __future__ import annotations

import grimp
import pytest

PACKAGES = ("eyot_wire", "eyot_store", "eyot_sync", "eyot_daemon", "eyot_cli", "eyot_hub")


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    """Every import that runs, also those inside functions; names that only annotations use are left out."""
    return grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True, cache_dir=None)


@pytest.mark.parametrize("package", PACKAGES)
def test_modules_load_without_circles(graph: grimp.ImportGraph, package: str) -> None:
    for folder in {package, *graph.find_descendants(package)}:
        if graph.find_children(folder):
            assert not graph.nominate_cycle_breakers(folder)
