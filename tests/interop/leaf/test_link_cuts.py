"""A few of the random cuts and kills of `make cuts`."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.links.link_cuts import Cuts, problems


@pytest.mark.parametrize(("hub", "leaf"), [("eyotd", "eyotd")])
def test_cuts_and_kills(hub: str, leaf: str, tmp_path: Path) -> None:
    cuts = Cuts(tmp_path, hub, leaf, seed=5)
    truth = cuts.run(8, print)
    assert problems(cuts, truth) == []
    assert len(truth.acked) > 8, "the client hardly got to publish between the cuts"
