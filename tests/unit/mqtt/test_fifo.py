"""The queue of an idle session: first in, first out, and nothing kept once it is empty."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eyot_daemon.mqtt.fifo import Fifo


@given(st.lists(st.sampled_from(["append", "popleft", "clear"]), max_size=60))
def test_it_is_a_list_that_is_taken_from_the_front(steps: list[str]) -> None:
    fifo: Fifo[int] = Fifo()
    model: list[int] = []
    for number, step in enumerate(steps):
        if step == "append":
            fifo.append(number)
            model.append(number)
        elif step == "clear":
            fifo.clear()
            model.clear()
        elif model:
            assert fifo.first == model[0]
            assert fifo.popleft() == model.pop(0)
        else:
            with pytest.raises(IndexError):
                fifo.popleft()
            with pytest.raises(IndexError):
                _ = fifo.first
        assert (len(fifo), bool(fifo)) == (len(model), bool(model))
        assert [each for each in range(number + 1) if fifo.holds_only(each)] == (model if len(model) == 1 else [])
