"""Small pieces of work share tasks of about the same load."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eyot_hub.grouping import grouped


@given(st.lists(st.integers(1, 1000), max_size=60), st.integers(1, 9))
def test_every_item_once_in_tasks_of_about_the_same_load(loads: list[int], tasks: int) -> None:
    items = list(range(len(loads)))
    groups = grouped(items, loads, tasks)
    assert sorted(item for group in groups for item in group) == items
    assert all(group == sorted(group) for group in groups)
    assert groups == sorted(groups)
    assert len(groups) == min(tasks, len(loads))
    if loads:
        # The heaviest task without its last item was the lightest one at that time.
        totals = [sum(loads[item] for item in group) for group in groups]
        assert max(totals) <= sum(loads) / len(groups) + max(loads)
