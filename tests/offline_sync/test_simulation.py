"""A few seeds of the simulator, that a seed replays exactly, and that bugs planted by hand are found. `make simulate` runs more."""

from __future__ import annotations

import pytest

from offline_sync.fleet import quiet
from offline_sync.planted import PLANTS, planted
from offline_sync.run import run_seed

SEEDS = range(1, 9)
#: `docs/found-by-simulation.md` says within how many seeds each is usually found.
PLANT_SEEDS_MAX = 200


@pytest.fixture(autouse=True)
def _quiet() -> None:
    quiet()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_fleet_keeps_its_promises(seed: int) -> None:
    outcome = run_seed(seed)
    assert not outcome.violation, "\n".join(outcome.trace)


def test_a_seed_replays_exactly() -> None:
    assert run_seed(11).trace == run_seed(11).trace


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_bug_is_found(plant: str) -> None:
    with planted(plant):
        assert any(run_seed(seed).violation for seed in range(1, PLANT_SEEDS_MAX + 1))
