"""Random worlds of accounts, exports, imports, activations, revocations and users at eyotd and nats-server: `tests/fuzz/trust.py`, a few."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def fuzz() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fuzz_trust", Path(__file__).parents[2] / "fuzz" / "trust.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("seed", [1, 7, 14, 23])
def test_the_same_may_be_heard_and_said(fuzz: ModuleType, seed: int, tmp_path: Path) -> None:
    assert fuzz.differences(seed, tmp_path) == []
