"""SIGKILL at random moments under MQTT load of QoS 1 and 2 (see `support/mqtt/kills.py`, which `make soak` runs for long)."""

from __future__ import annotations

import os
from pathlib import Path

from support.mqtt.kills import Trial

KILLS = int(os.environ.get("EYOT_MQTT_KILLS", "20"))


def test_nothing_is_lost_doubled_or_out_of_order_under_kills(tmp_path: Path) -> None:
    trial = Trial(tmp_path, seed=20261123)
    trial.run(KILLS)
    assert trial.problems == []
    assert trial.kills == KILLS
    assert sum(len(each.acked) for each in trial.publishers) > 50 * KILLS, "the clients hardly got to publish"
    assert sum(each.resent for each in trial.subscribers) > KILLS / 4, "hardly anything was on its way at the kills"
    assert sum(len(each.wills) for each in trial.reporters) >= KILLS
