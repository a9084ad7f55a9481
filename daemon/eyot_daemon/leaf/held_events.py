"""What a peer of a leaf link sent beyond what one turn handles: it goes on in later turns, and others are served between."""

from __future__ import annotations

import logging
from collections.abc import Callable

from eyot_daemon.net.transport import INTERNAL_ERROR, Transport
from eyot_daemon.router.core import BrokerCore
from eyot_daemon.turn.backpressure import Gate
from eyot_sync.leaf.events import LeafEvent
from eyot_wire.frames import LeafMsg

log = logging.getLogger("eyot.leaf")

#: So many events are handled at once if a peer sends more, although it is not to be read.
HELD_EVENTS_MAX = 1 << 17


class HeldEvents:
    """The events of one link that wait for later turns, in order.

    `go_on` handles those that it is given, or adds some of them again. `lost` ends the link.
    """

    __slots__ = ("_broker", "_events", "_go_on", "_is_set", "_lost", "_pause")

    def __init__(
        self, broker: BrokerCore, go_on: Callable[[list[LeafEvent]], None], lost: Callable[[str], None]
    ) -> None:
        self._broker = broker
        self._go_on: Callable[[list[LeafEvent]], None] | None = go_on
        self._lost: Callable[[str], None] | None = lost
        self._events: list[LeafEvent] = []
        self._pause: Gate | None = None  # where the peer waits meanwhile
        self._is_set = False

    def __bool__(self) -> bool:
        return bool(self._events)

    def add(self, events: list[LeafEvent], transport: Transport | None) -> None:
        """Handle events in a later turn, behind those that wait. Until then nothing is read from the peer."""
        self._events += events
        if self._pause is None:
            self._pause = Gate(self._broker.timers, lambda: bool(self._events))
        if transport is not None:
            transport.hold(self._pause)
        if len(self._events) > HELD_EVENTS_MAX:
            while self._events:
                self._next()
        elif not self._is_set:
            self._is_set = True
            self._broker.later_turns.add(self._run)

    def messages(self) -> list[LeafMsg]:
        """Return the messages among them."""
        return [event for event in self._events if isinstance(event, LeafMsg)]

    def stop(self) -> None:
        """Forget them: the link has ended."""
        self._events = []
        self._go_on = self._lost = None
        self._end_pause()

    def _run(self) -> None:
        self._is_set = False
        try:
            self._next()
        except Exception:
            log.exception("connection failed")
            if self._lost is not None:
                self._lost(INTERNAL_ERROR)

    def _next(self) -> None:
        events, self._events = self._events, []
        if events and self._go_on is not None:
            self._go_on(events)
        self._end_pause()

    def _end_pause(self) -> None:
        pause = self._pause
        if pause is not None and not self._events:
            self._pause = None
            pause.open()
