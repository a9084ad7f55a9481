"""The graph of `eyot sub --graph`."""

from __future__ import annotations

from eyot_cli.messages.sub_reports import plot


def test_columns_are_as_high_as_their_values() -> None:
    assert plot([0, 1, 2, 4], 2) == ["   █ 4", " ▄██ 0"]
    assert plot([8, 16], 2) == [" █ 16", "██ 0"]


def test_nothing_is_flat() -> None:
    assert plot([], 2) == [" 1", " 0"]
    assert plot([0, 0], 2) == ["   1", "   0"]
