"""Publishes of QoS 1 of a turn's clients that follow each other and are stored in the same streams: one run."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from eyot_daemon.jetstream.ingest.joint import Run
from eyot_wire.frames import Published

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eyot_daemon.jetstream.ingest.joint import JointStream, RunDone
    from eyot_daemon.mqtt.session_queue import Queue
    from eyot_wire.jetstream.errors import ApiError


class RunTargets(NamedTuple):
    """Where the publishes of a topic are stored: in `streams`, with the subject at the same place of `subjects`.

    `queues` get the messages of the last of the streams.
    """

    streams: tuple[JointStream, ...]
    subjects: tuple[bytes, ...]
    queues: tuple[Queue, ...] = ()


class GatheredRun(Run):
    """A run to which clients add."""

    __slots__ = ("_messages", "_receivers", "_targets")

    def __init__(self, targets: RunTargets) -> None:
        self._messages: list[list[Published]] = [[] for _ in targets.streams]
        super().__init__(list(zip(targets.streams, self._messages, strict=True)))
        self._targets = targets
        self._receivers: list[tuple[RunDone, int]] = []

    def goes_to(self, targets: RunTargets) -> bool:
        """Return whether these are its streams, in this order, and its queues."""
        own = self._targets
        return targets is own or (targets.streams == own.streams and targets.queues == own.queues)

    def add(self, subjects: Sequence[bytes], header: bytes, payloads: Sequence[bytes], done: RunDone) -> None:
        """Add a message for each payload, with the subject that each stream stores; `done` gets the outcomes of these."""
        for messages, subject in zip(self._messages, subjects, strict=True):
            messages += [Published(subject, b"", header, payload) for payload in payloads]
        self._receivers.append((done, len(payloads)))

    def settled(self, outcomes: Sequence[ApiError | None] | None) -> None:
        """Correct what the queues count for messages that are refused, wake the queues, and tell all receivers."""
        queues = self._targets.queues
        if outcomes is not None and queues:
            messages = self._messages[-1]
            sizes = [
                len(message.subject) + len(message.header) + len(message.payload)
                for message, outcome in zip(messages, outcomes, strict=True)
                if outcome is not None
            ]
            for queue in queues:
                queue.count(-len(sizes), -sum(sizes))
        if outcomes is None or None in outcomes:
            for queue in queues:
                queue.wake()
        at = 0
        for done, count in self._receivers:
            done(outcomes if outcomes is None else outcomes[at : at + count])
            at += count
