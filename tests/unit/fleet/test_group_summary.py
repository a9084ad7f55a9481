"""Groups are counted as a plain search through all devices counts them."""

from __future__ import annotations

import random

import msgspec

from eyot_fleet.desired import Group
from eyot_fleet.device_record import STATES, ConfigRecord
from eyot_fleet.group_summary import summaries
from support.devices.fleet_devices import fleet

NOW = 1_800_000_000.0


def test_groups_are_counted_as_a_plain_search_counts_them() -> None:
    chance = random.Random(5)
    records = [
        msgspec.structs.replace(
            record,
            labels=tuple(sorted(chance.sample(["a", "b", "c", "d"], chance.randrange(4)))),
            state=chance.choice(STATES),
            config=ConfigRecord(desired=chance.choice(["", "x"])),
        )
        for record in fleet(500, NOW)
    ]
    groups = {
        f"g{number}": Group(labels=tuple(sorted(chance.sample(["a", "b", "c", "d", "e"], chance.randrange(4)))))
        for number in range(30)
    }
    found = summaries(groups, records)
    assert {each.name for each in found} == set(groups)
    for each in found:
        members = [record for record in records if set(groups[each.name].labels) <= set(record.labels)]
        assert each.devices == len(members)
        assert each.states == {
            state: count for state in STATES if (count := sum(record.state == state for record in members))
        }
        assert each.worst == next((state for state in STATES if state in each.states), "")
        assert each.backlog == sum(record.backlog or 0 for record in members)
        assert each.never_arrived == sum(record.never_arrived for record in members)
        assert each.alerted == sum(bool(record.alerts) for record in members)
        assert each.not_applied == sum(record.config.desired == "x" for record in members)
    needs = [STATES.index(each.worst) if each.worst else len(STATES) for each in found]
    assert needs == sorted(needs)
    assert len(set(needs)) > 1
