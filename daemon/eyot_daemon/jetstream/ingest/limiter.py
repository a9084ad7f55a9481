"""Limits what was published to a stream and is not on flash yet.

From half of the buffer on, and while the store is congested, connections that publish to the stream are not read
(`Gate`). As in nats-server, messages beyond the whole buffer are refused with error 10167.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from eyot_daemon.turn.backpressure import Gate, Resume
from eyot_wire.jetstream.error_codes import JSStreamTooManyRequests
from eyot_wire.jetstream.errors import error

if TYPE_CHECKING:
    from eyot_daemon.jetstream.stream_core import Batch, StreamCore
    from eyot_daemon.turn.timers import Timers
    from eyot_store.store import Store
    from eyot_wire.frames import Published

log = logging.getLogger("eyot.jetstream")

#: nats-server 2.14's bounds of one stream.
MSGS_MAX = 100_000
BYTES_MAX = 128 << 20
#: How a client that sets no store by words learns of it.
TOO_MANY_REQUESTS = b"NATS/1.0 429 Too Many Requests\r\n\r\n"
#: With this much room single messages are not checked: a turn brings less.
_ROOMY_BYTES = 16 << 20
_NO_BOUND = 1 << 62


class StoreGate(Gate):
    """Shut while the store is congested; opens when half of the backlog is committed.

    `streams_refused`: messages refused by any stream since the start; `streams_held`: how often a connection had to
    wait.
    """

    def __init__(self, timers: Timers, store: Store) -> None:
        super().__init__(timers, lambda: store.congested)
        self.store = store
        self._asked = False
        self.streams_refused = 0
        self.streams_held = 0

    def wait(self, resume: Resume, seconds_max: float) -> None:
        super().wait(resume, seconds_max)
        self.streams_held += 1
        if not self._asked:
            self._asked = True
            self.store.on_relief(self._relieved)

    def _relieved(self) -> None:
        self._asked = False
        self.open()


class IngestGate(Gate):
    """Shut while much is under way from one stream."""

    def __init__(self, timers: Timers, is_shut: Callable[[], bool], store_gate: StoreGate) -> None:
        super().__init__(timers, is_shut)
        self._store_gate = store_gate

    def wait(self, resume: Resume, seconds_max: float) -> None:
        super().wait(resume, seconds_max)
        self._store_gate.streams_held += 1


class IngestLimiter:
    """Limit on the uncommitted messages of one stream. `refused` counts messages since the start."""

    def __init__(self, stream: StreamCore, store_gate: StoreGate, msgs_max: int, bytes_max: int) -> None:
        """Bounds as configured: 0 for nats-server's, negative for none."""
        self._stream = stream
        self._store_gate = store_gate
        self._msgs_max = (msgs_max or MSGS_MAX) if msgs_max >= 0 else _NO_BOUND
        self._bytes_max = (bytes_max or BYTES_MAX) if bytes_max >= 0 else _NO_BOUND
        self._msgs = 0
        self._bytes = 0
        self._told = False
        self.refused = 0
        self.gate = IngestGate(stream.timers, lambda: self.shut_gate() is self.gate, store_gate)

    def admitted(self, messages: list[Published]) -> list[Published]:
        """Return the messages of a turn that may be stored; refuse the others."""
        if self._msgs + len(messages) <= self._msgs_max and self._bytes + _ROOMY_BYTES <= self._bytes_max:
            return messages
        msgs, size = self._msgs, self._bytes
        taken: list[Published] = []
        for message in messages:
            own = sum(map(len, message))
            if msgs >= self._msgs_max or size + own > self._bytes_max:
                self.refuse(message)
                continue
            msgs += 1
            size += own
            taken.append(message)
        return taken

    def has_room(self, messages: Sequence[Published]) -> bool:
        """Return whether all of these messages may be stored; nothing is refused."""
        if self._msgs + len(messages) <= self._msgs_max and self._bytes + _ROOMY_BYTES <= self._bytes_max:
            return True
        return self._msgs + len(messages) <= self._msgs_max and self._bytes + _size(messages) <= self._bytes_max

    def shut_gate(self) -> Gate | None:
        """Return the gate at which publishers to the stream wait; None: they need not wait."""
        if self._msgs * 2 > self._msgs_max or self._bytes * 2 > self._bytes_max:
            return self.gate
        return self._store_gate if self._store_gate.store.congested else None

    def note_staged(self, batch: Batch, size: int) -> None:
        """Count a submitted transaction of published messages; `size`: its bytes."""
        batch.size = size
        self._msgs += batch.stored
        self._bytes += size

    def settled(self, batch: Batch, *, refused: bool) -> None:
        """Count a finished transaction; `refused`: the store did not accept it."""
        self._msgs -= batch.stored
        self._bytes -= batch.size
        if refused:
            self._count_refused(batch.stored)
        self._open_gate()

    def note_held(self, messages: Sequence[Published]) -> None:
        """Count messages that wait before they are staged."""
        self._msgs += len(messages)
        self._bytes += _size(messages)

    def note_released(self, messages: Sequence[Published]) -> None:
        """Count messages that do not wait any more: they are staged or refused next."""
        self._msgs -= len(messages)
        self._bytes -= _size(messages)
        self._open_gate()

    def _open_gate(self) -> None:
        """Release publishers when a quarter of the buffer is in use."""
        if self.gate.waiting and self._msgs * 4 <= self._msgs_max and self._bytes * 4 <= self._bytes_max:
            self.gate.open()
        if not self._msgs:
            self._told = False

    def _count_refused(self, msgs: int) -> None:
        self.refused += msgs
        self._store_gate.streams_refused += msgs

    def refuse(self, message: Published) -> None:
        """Count a message that is refused, and inform its publisher."""
        stream = self._stream
        self._count_refused(1)
        if not self._told:
            self._told = True
            names = stream.account.name, stream.name
            log.warning("Dropping messages due to excessive stream ingest rate on '%s' > '%s'", *names)
        refused = error(JSStreamTooManyRequests)
        stream.reject(refused)
        if message.reply:
            stream.account.publish(message.reply, header=TOO_MANY_REQUESTS, payload=stream.refusal(refused))


def _size(messages: Sequence[Published]) -> int:
    """Return the bytes of all parts of some messages."""
    return sum(len(part) for message in messages for part in message)
