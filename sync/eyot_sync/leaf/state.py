r"""The states of a leaf session and how they follow one another.

The accepting side goes down the left, the soliciting side down the right. Every state may also lead to `CLOSED`.

                      NEW
            accept   /   \   solicit
         WAIT_CONNECT     WAIT_INFO ---> WAIT_TLS
              |            |    |           |
              |            |   WAIT_S2 <----+   (compression agreed)
         WAIT_VERDICT      |    |           |
              |          WAIT_ACCOUNT <-----+
              |               |
              +---> OPEN <----+
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final


class State(Enum):
    """The state of a session. The value appears in logs and errors."""

    NEW = "new"
    WAIT_INFO = "waiting for INFO"
    WAIT_TLS = "waiting for TLS"
    WAIT_S2 = "waiting for the INFO in S2"
    WAIT_ACCOUNT = "waiting for the INFO that answers CONNECT"
    WAIT_CONNECT = "waiting for CONNECT"
    WAIT_VERDICT = "waiting for the verdict on CONNECT"
    OPEN = "open"
    CLOSED = "closed"


#: The states that may follow each state. A hub without `info_on_connect` (before 2.9.0) opens the link without `WAIT_ACCOUNT`.
TRANSITIONS: Final[Mapping[State, frozenset[State]]] = MappingProxyType(
    {
        State.NEW: frozenset({State.WAIT_INFO, State.WAIT_CONNECT, State.CLOSED}),
        State.WAIT_INFO: frozenset({State.WAIT_TLS, State.WAIT_S2, State.WAIT_ACCOUNT, State.OPEN, State.CLOSED}),
        State.WAIT_TLS: frozenset({State.WAIT_S2, State.WAIT_ACCOUNT, State.OPEN, State.CLOSED}),
        State.WAIT_S2: frozenset({State.WAIT_ACCOUNT, State.OPEN, State.CLOSED}),
        State.WAIT_ACCOUNT: frozenset({State.OPEN, State.CLOSED}),
        State.WAIT_CONNECT: frozenset({State.WAIT_VERDICT, State.CLOSED}),
        State.WAIT_VERDICT: frozenset({State.OPEN, State.CLOSED}),
        State.OPEN: frozenset({State.CLOSED}),
        State.CLOSED: frozenset({State.CLOSED}),
    }
)
