"""A configuration that changes after a kill: each message is in silver or in quarantine, whatever was killed at which commit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins

from eyot_hub.jobs.aggregate import Aggregate
from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.config.config_file import convert
from eyot_hub.jobs.silver.replay import Replay
from support.hub.aged_lake import DAYS, SPARK, Killed, aggregated, ending, lake, store, stored
from support.hub.jobs_config import GOLD, SILVER, jobs_config

pytestmark = pytest.mark.slow


def ruled(folder: Path, *required: str) -> Config:
    base: dict[str, Any] = to_builtins(jobs_config("nats://127.0.0.1", folder))
    columns = {"metric": "string", "value": "double", "unit": "string"}
    silver = {**SILVER, "columns": columns, "required": list(required)}
    return convert(
        {**{key: base[key] for key in ("nats", "lake", "bronze")}, "silver": [silver], "gold": [GOLD]}, "tests"
    )


@pytest.mark.usefixtures("each_lake_format")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_killed_at_any_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str, number: int) -> None:
    strict, mended = ruled(tmp_path, "metric", "unit"), ruled(tmp_path, "metric")
    store(strict, [stored(one, DAYS[3], poison=one % 5 == 0) for one in range(1, 21)])
    aggregated(strict)
    held = lake(strict)
    assert (len(held["silver"]), len(held["quarantine"])) == (0, 20)
    for config in (mended, strict):
        ended = ending(monkeypatch, when, number)
        with pytest.raises(Killed):
            Aggregate(SPARK, config).rebuild(set())
        ended()
        held = lake(config)
        assert {row[0] for row in held["silver"]} | {row[0] for row in held["quarantine"]} == set(range(1, 21))
        assert len(held["quarantine"]) == len(set(held["quarantine"]))
    Replay(mended, mended.silver[0]).run()
    Aggregate(SPARK, mended).rebuild(set())
    held = lake(mended)
    assert [row[0] for row in held["quarantine"]] == [5, 10, 15, 20]
    assert [row[0] for row in held["silver"]] == [one for one in range(1, 21) if one % 5]
    assert sum(row[3] for row in held["gold"]) == 16


@pytest.mark.usefixtures("each_lake_format")
@pytest.mark.parametrize("first", ["strict", "mended"])
@pytest.mark.parametrize("then", ["strict", "mended"])
def test_a_round_ends_between_its_two_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, then: str
) -> None:
    configs = {"strict": ruled(tmp_path, "metric", "unit"), "mended": ruled(tmp_path, "metric")}
    store(configs["strict"], [stored(one, DAYS[3], poison=one % 5 == 0) for one in range(1, 21)])
    ended = ending(monkeypatch, "after", 1)
    with pytest.raises(Killed):
        aggregated(configs[first])
    ended()
    store(configs["strict"], [stored(one, DAYS[3], poison=one % 5 == 0) for one in range(21, 31)])
    aggregated(configs[then])
    assert not aggregated(configs[then]).busy
    held = lake(configs[then])
    bad = {one for one in range(1, 31) if one % 5 == 0}
    good = set(range(1, 31)) - bad
    in_quarantine = [row[0] for row in held["quarantine"]]
    assert len(in_quarantine) == len(set(in_quarantine))
    if then == "mended":
        assert {row[0] for row in held["silver"]} == good
        # What the strict round had put there stays until a replay.
        assert set(in_quarantine) == bad | (set(range(1, 21)) if first == "strict" else set())
    else:
        assert (held["silver"], set(in_quarantine)) == ([], bad | good)
