"""State that the parts of one consumer share: its configuration, its delivery state, its reader, and its receivers.

Acknowledgements, deliveries and the writer of the state receive this, not the consumer that they belong to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from eyot_daemon.jetstream.advisories import Advisories
from eyot_wire.go.time import rfc3339_to_ns

if TYPE_CHECKING:
    from eyot_daemon.jetstream.consumer.reader import ConsumerReader
    from eyot_daemon.jetstream.consumer.state import ConsumerState
    from eyot_daemon.jetstream.stream_core import StreamCore
    from eyot_wire.jetstream.model import ConsumerConfig

_DURATION_MAX = 2**63 - 1


class ConsumerCore:
    """`mark` has the consumer flushed when the turn ends."""

    __slots__ = (
        "_pause_until_ns",
        "account",
        "advisories",
        "broker",
        "clock",
        "closed",
        "config",
        "mark",
        "name",
        "path",
        "reader",
        "state",
        "stream",
    )

    def __init__(
        self,
        stream: StreamCore,
        name: str,
        config: ConsumerConfig,
        reader: ConsumerReader,
        state: ConsumerState,
        mark: Callable[[], None],
    ) -> None:
        self.stream = stream
        self.account = stream.account
        self.broker = stream.account.broker
        self.clock = stream.clock
        self.name = name
        self.path = f"{stream.account.name}/{stream.name}/{name}"
        #: the configuration in force
        self.config = config
        #: replaced when the filters change
        self.reader = reader
        self.state = state
        self.advisories = Advisories(stream.account, stream.name, name, stream.domain)
        self.mark = mark
        #: deleted or stopped; nothing is delivered or written any more
        self.closed = False
        self.read_pause()

    def read_pause(self) -> None:
        """Apply the configuration in force: until when it pauses the consumer."""
        until = self.config.pause_until
        self._pause_until_ns = rfc3339_to_ns(until) if until else 0

    @property
    def paused(self) -> bool:
        return self.pause_left_ns() > 0

    def pause_left_ns(self) -> int:
        """Return how long the consumer stays paused, at most what Go's durations can say; 0: it is not."""
        if not self._pause_until_ns:
            return 0
        return min(max(0, self._pause_until_ns - self.clock.now_ns()), _DURATION_MAX)
