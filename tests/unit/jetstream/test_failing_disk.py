"""What a failing disk refuses is not half done: afterwards memory is what flash is, and every consumer gets what is stored."""

from __future__ import annotations

import pytest

from support.jetstream.failing_disk import run


@pytest.mark.parametrize("seed", [7, 10, 11, 34, 53, 57, 74, 86, 153, 180, 200, 318])
def test_a_failing_disk_leaves_nothing_half_done(seed: int) -> None:
    run(seed)
