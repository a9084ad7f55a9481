"""The transition table of leaf sessions is whole, and the session keeps to it."""

from __future__ import annotations

import random

import pytest

from eyot_sync.leaf.events import LeafIdentity, LeafOptions, Role
from eyot_sync.leaf.session import LeafSession
from eyot_sync.leaf.state import TRANSITIONS, State


def test_every_state_can_be_reached_and_closed() -> None:
    assert set(TRANSITIONS) == set(State)
    reached, new = set(), {State.NEW}
    while new:
        reached |= new
        new = {after for state in new for after in TRANSITIONS[state]} - reached
    assert reached == set(State)
    assert all(State.CLOSED in after for after in TRANSITIONS.values())


@pytest.mark.parametrize("wrong", [State.OPEN, State.WAIT_VERDICT, State.WAIT_ACCOUNT])
def test_a_session_does_not_skip_states(wrong: State) -> None:
    identity = LeafIdentity(server_id="S", server_name="s", version="2.14.0")
    session = LeafSession(identity, LeafOptions(role=Role.ACCEPT, client_id=1), random.Random(1))
    with pytest.raises(AssertionError, match="NEW does not lead to"):
        session.enter(wrong)
