"""The phases of a `SourceConsumer` and how they follow one another. Every phase may also lead to `STOPPED`.

WAITING --link up, retry time--> REQUESTED --response--> VERIFYING --same origin--> ACTIVE
   ^                             |      ^                |       |                  |    |
   |                             |      +----------------+-------+- gap, silence, --+    |
   |                             |         another start is needed                       |
   +-----------------------------+-----------------------+-------------------------------+
        no answer, refusal, link down, policy, a request too soon, an origin that must not be followed, failed commit
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final


class Phase(Enum):
    """The phase of a `SourceConsumer`."""

    #: No consumer at the origin; requests one at `retry_at`, or when the link comes up.
    WAITING = "waiting"
    #: A consumer is requested. Its messages may arrive before the answer.
    REQUESTED = "requested"
    #: It has a consumer and has not verified yet that the origin is the one that was copied. Nothing received since the request is
    #: handed on, and no flow control is answered.
    VERIFYING = "verifying"
    #: It has a consumer of an origin that it may follow.
    ACTIVE = "active"
    #: It is over.
    STOPPED = "stopped"

    @property
    def status(self) -> str:
        """The word in `/eyot/status`, which shows whether the origin answers."""
        return Phase.ACTIVE.value if self is Phase.VERIFYING else self.value


#: The phases that may follow each phase. A phase that follows itself restarts, with a new request or another retry
#: time.
TRANSITIONS: Final[Mapping[Phase, frozenset[Phase]]] = MappingProxyType(
    {
        Phase.WAITING: frozenset({Phase.WAITING, Phase.REQUESTED, Phase.STOPPED}),
        Phase.REQUESTED: frozenset({Phase.WAITING, Phase.REQUESTED, Phase.VERIFYING, Phase.STOPPED}),
        Phase.VERIFYING: frozenset({Phase.WAITING, Phase.REQUESTED, Phase.ACTIVE, Phase.STOPPED}),
        Phase.ACTIVE: frozenset({Phase.WAITING, Phase.REQUESTED, Phase.STOPPED}),
        Phase.STOPPED: frozenset({Phase.STOPPED}),
    }
)

#: Messages since the request are not known to be of the origin that was copied.
UNVERIFIED: Final = frozenset({Phase.REQUESTED, Phase.VERIFYING})
#: The origin has answered the request: there is a consumer.
CONNECTED: Final = frozenset({Phase.VERIFYING, Phase.ACTIVE})
