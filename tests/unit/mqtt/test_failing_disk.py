"""What a failing disk refuses is not half done: afterwards sessions and retained messages in memory are what flash is."""

from __future__ import annotations

import pytest

from support.mqtt.failing_disk import run


@pytest.mark.parametrize("seed", [1, 2, 3, 202])
def test_a_failing_disk_leaves_nothing_half_done(seed: int) -> None:
    run(seed)
