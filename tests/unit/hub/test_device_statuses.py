"""What statuses of a device add up to: the same in whatever parts they come, and no status counts twice."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from eyot_hub.jobs.config.config import Config
from eyot_hub.jobs.devices.device_statuses import _STATUS, SCHEMA, TAIL, StatusSummaries
from support.hub.jobs_config import jobs_config
from support.hub.local_spark import LocalSpark

SPARK: Any = LocalSpark()
Status = tuple[str, int, int, float]  # device, time in us, linked (-1: unknown), round trip


@pytest.fixture
def summaries(tmp_path_factory: pytest.TempPathFactory) -> StatusSummaries:
    config: Config = jobs_config("nats://127.0.0.1", tmp_path_factory.mktemp("lake"))
    return StatusSummaries(SPARK, config)


def rows(statuses: list[Status], number: int) -> pa.Table:
    """Return rows of one file."""
    made = []
    for device in sorted({one[0] for one in statuses}):
        own = sorted({one[1]: one for one in statuses if one[0] == device}.values(), key=lambda one: one[1])
        packed = np.array([one[1:] for one in own], _STATUS)
        said = json.dumps({"uptime_s": own[-1][1], "synced": True, "every_s": 3600.0})
        made.append(
            {
                "path": f"file-{number}",
                "device": device,
                "stream": "STATUS",
                "last_stored_us": own[-1][1] + 5,
                "said": said,
                "statuses": packed.tobytes(),
            }
        )
    return pa.Table.from_pylist([*made, {"path": f"file-{number}"}], SCHEMA)


def check(found: dict[str, dict[str, Any]], sent: list[Status]) -> None:
    assert found.keys() == {one[0] for one in sent}
    for device, figures in found.items():
        own = {one[1]: one for one in sent if one[0] == device}
        linked = [one[2] for one in own.values() if one[2] >= 0]
        rtt = sorted(one[3] for one in own.values() if not np.isnan(one[3]))
        assert (figures["statuses"], figures["status_at"]) == (len(own), max(own))
        assert figures["status_stored_at"] == max(own) + 5
        assert figures["uptime_s"] == max(own)
        assert figures["link_up_share"] == (pytest.approx(sum(linked) / len(linked)) if linked else None)
        if rtt:
            assert figures["rtt_ms_p50"] == pytest.approx(rtt[(len(rtt) + 1) // 2 - 1], rel=0.0102)
        else:
            assert figures["rtt_ms_p50"] is None


@pytest.mark.parametrize("seed", range(20))
def test_parts_add_up_to_the_whole(summaries: StatusSummaries, seed: int) -> None:
    """New, repeated, late and very old statuses, in parts of any size, against plain Python."""
    chance, sent, now = random.Random(seed), list[Status](), 1_800_000_000_000_000
    everything, total, recounts = SCHEMA.empty_table(), dict[str, Any](), 0
    for number in range(40):
        part: list[Status] = []
        for _ in range(chance.choice([1, 3, 30, 3 * TAIL])):
            now += chance.randrange(1, 1000)
            late = chance.choice([0] * 30 + [500, 10**6])
            rtt = chance.choice([float("nan"), chance.lognormvariate(2, 1)])
            part.append((f"d{chance.randrange(3)}", now - late, chance.choice([-1, 0, 1]), float(np.float32(rtt))))
        repeats = chance.choice([0, 0, 3]) if sent else 0
        near = sent[-10:] if chance.random() < 0.8 else sent
        # A time of a device has one status: what is repeated is the same.
        known = {one[:2]: one for one in sent}
        part = [known.get(one[:2], one) for one in part + chance.choices(near or part, k=repeats)]
        part = list({one[:2]: one for one in part}.values())
        sent += part
        fresh = rows(part, number)
        everything = pa.concat_tables([everything, fresh])
        added = summaries._added(total, fresh)
        recounts += added is None
        total = summaries._total(everything) if added is None else added
        if chance.random() < 0.3:  # as the next process takes it up
            total = summaries._unpacked(list(summaries._packed(total)))
        check({name: device.figures({}, now) for name, device in total.items()}, sent)
    assert recounts < 35  # very old ones do come, and take all rows; others do not


def test_numbers_that_are_none(summaries: StatusSummaries) -> None:
    """Spark writes NaN as a text; a device that says so must not stop the job."""
    table = rows([("d", 10, 1, 1.0)], 1).to_pylist()
    table[0]["said"] = '{"every_s":"NaN","uptime_s":"Infinity","linked":true}'
    (device,) = summaries._total(pa.Table.from_pylist(table, SCHEMA)).values()
    figures = device.figures({"STATUS": 10**9}, 0)
    assert (figures["state"], figures["uptime_s"], figures["linked"]) == ("behind", None, True)


def test_a_status_that_was_stored_by_a_clock_years_ahead(summaries: StatusSummaries) -> None:
    """The device is silent by its own clock. Years behind, no device is silent."""
    table = rows([("d", 10, 1, 1.0)], 1).to_pylist()
    now, minute_us = 1_790_000_000_000_000, 60_000_000
    table[0] |= {"said": '{"every_s": 60}', "last_stored_us": now + 5 * 365 * 24 * 60 * minute_us, "stream": "S"}
    (device,) = summaries._total(pa.Table.from_pylist(table, SCHEMA)).values()
    for age, state in ((2, "behind"), (5, "silent")):
        device.last_at_us = now - age * minute_us
        assert device.figures({}, now)["state"] == state
    device.last_at_us = device.last_stored_us = now
    assert device.figures({}, now - 5 * 365 * 24 * 60 * minute_us)["state"] == "behind"
