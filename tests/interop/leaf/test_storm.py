"""A small slice of `make storm`."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.links.storm import BEFORE_EACH_FAULT, Storm


@pytest.mark.parametrize(("hub", "leaf"), [("eyotd", "eyotd"), ("nats-server", "eyotd")])
def test_a_few_faults(hub: str, leaf: str, tmp_path: Path) -> None:
    storm = Storm(tmp_path, hub, leaf, seed=4)
    assert storm.run(4, print) == []
    assert min(len(marks) for marks in storm.acked.values()) >= 4 * BEFORE_EACH_FAULT
