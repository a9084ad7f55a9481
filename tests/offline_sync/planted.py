"""Bugs planted by hand: the simulator is worth something only if it finds them.

Each is a mistake that is easily made. `make simulate PLANT=<name> SEEDS=200` must report violations.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import trio

from eyot_daemon.jetstream.consumer.acks import Acks
from eyot_daemon.jetstream.consumer.consumer import Consumer
from eyot_daemon.jetstream.consumer.push_delivery import PushDelivery
from eyot_daemon.jetstream.downstream.never_arrived import NeverArrived
from eyot_daemon.jetstream.downstream.tracker import DownstreamTracker
from eyot_daemon.jetstream.downstream.unserved import UnservedDownstreams
from eyot_daemon.jetstream.retention.retention import Retention
from eyot_daemon.jetstream.sourcing import source_task as copy_task
from eyot_daemon.jetstream.sourcing.source_task import SourceTask
from eyot_daemon.jetstream.stream.stream import SourcedResult, Stream
from eyot_daemon.jetstream.stream_core import Batch, StreamCore
from eyot_daemon.jetstream.wall_clock import ClockTrust
from eyot_daemon.leaf import remotes
from eyot_sync.leaf.registry import LeafRegistry
from eyot_sync.link.supervisor import LinkSupervisor
from eyot_sync.sourcing import source_consumer
from eyot_sync.sourcing.actions import Action, Skip
from eyot_sync.sourcing.origin_answers import CreateResponse
from eyot_sync.sourcing.origin_check import OriginPosition
from eyot_sync.sourcing.origin_epoch import Continue, OriginEpoch
from eyot_sync.sourcing.source_consumer import SourceConsumer
from eyot_wire.jetstream.struct import decode
from offline_sync.network import End


def _position_apart() -> Any:
    """The position of a source is committed after the messages instead of with them: a crash in between doubles them."""
    whole = Stream.ingest_copied

    def ingest_copied(self: Stream, messages: Any, *, positions: Any = None, on_done: Any, **rest: Any) -> None:
        def done(result: SourcedResult) -> None:
            if result.last_seq and positions is not None:
                txn = self.store.begin()
                for record in positions(result.last_seq):
                    self.log.put_position(txn, *record)
                self.store.submit(txn)
            on_done(result)

        whole(self, messages, on_done=done, **rest)

    return mock.patch.object(Stream, "ingest_copied", ingest_copied)


def _ack_before_commit() -> Any:
    """Publishers are answered when their messages are staged: a crash loses what was acknowledged."""
    whole = StreamCore.submit

    def submit(self: StreamCore, txn: Any, batch: Batch) -> None:
        self.account.answer(batch.acks)
        batch.acks.clear()
        whole(self, txn, batch)

    return mock.patch.object(StreamCore, "submit", submit)


def _wake_up_forgotten() -> Any:
    """A link that comes up wakes nobody: copies go on when their backoff says so."""
    return mock.patch.object(SourceTask, "interest_added", return_value=None)


def _removed_when_sent() -> Any:
    """A work queue lets go of what was sent to a copy: a cut loses it."""
    whole = Acks.sent

    def sent(self: Acks, sseqs: Sequence[int], now: float) -> None:
        if self._consumer.config.direct and self._drops:
            self._writer.acknowledged(list(sseqs), drop=True)
        else:
            whole(self, sseqs, now)

    return mock.patch.object(Acks, "sent", sent)


def _first_is_enough() -> Any:
    """A stream with interest retention lets go of what the first of its copies has: the others never get it."""

    def release(self: Retention, but: Any, seqs: Iterable[int], txn: Any, *, others: bool) -> None:
        for seq in seqs:
            self._log.remove(txn, seq, why="")

    return mock.patch.object(Retention, "_release", release)


def _copied_again() -> Any:
    """A source whose filters were changed does not ask what its predecessors copied."""
    return mock.patch.object(copy_task, "predecessors", return_value=())


def _losses_untold() -> Any:
    """What limits and purges take before it was copied is not counted."""
    return mock.patch.object(NeverArrived, "_removing", return_value=None)


def _leap_believed() -> Any:
    """A node that starts with a clock that leapt lets messages expire by it."""
    return mock.patch.object(ClockTrust, "begin", return_value=None)


def _old_claims() -> Any:
    """A copy that is linked and has not asked since is taken to have what it had."""
    return mock.patch.object(DownstreamTracker, "_reads", return_value=True)


@contextmanager
def _told_as_advanced() -> Iterator[None]:
    """The answer to CONSUMER.CREATE says how far a consumer got during a commit; a mirror takes what lies before that for gone.

    That messages wait for the record of who reads them hides it: here they do not. The reader is as nats-server 2.9: it believes what it
    is told also where messages came before the answer.
    """
    whole = Consumer.start

    def start(self: Consumer) -> None:
        whole(self)
        self._held = 0

    def go_on(self: Consumer) -> None:
        self._held = max(0, self._held - 1)
        self.mark()

    def start_copy(self: PushDelivery) -> None:
        self._downstream.reading(self._hidden, lambda: None)

    def told(payload: bytes, kind: type[Any], **how: Any) -> Any:
        answer = decode(payload, kind, **how)
        if isinstance(answer, CreateResponse):
            answer.delivered.consumer_seq = 0
        return answer

    def read_on(self: SourceConsumer) -> list[Action]:
        upto = self.verifier.before_first
        if not self.mirror or upto <= self.verifier.asked.seq:
            return []
        self._batch = [each for each in self._batch if each.origin_seq > upto]
        self.resume.last = OriginPosition(max(upto, self.resume.last.seq))
        self.progress.last_seq = self.resume.last.seq
        return [Skip(upto)]

    with (
        mock.patch.object(SourceConsumer, "_go_on", read_on),
        mock.patch.multiple(Consumer, start=start, go_on=go_on),
        mock.patch.object(PushDelivery, "_start_copy", start_copy),
        mock.patch.object(source_consumer, "decode", told),
    ):
        yield


@contextmanager
def _asked_who_it_was() -> Iterator[None]:
    """A connection that was reset right after it was accepted is asked for its peer's address, outside any `try`."""
    whole = remotes._peer_of

    def peer_of(stream: trio.abc.Stream, address: Any) -> Any:
        if isinstance(stream, End) and stream.is_reset:
            raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")
        return whole(stream, address)

    async def run_link(self: LinkSupervisor, stream: trio.abc.Stream, address: Any) -> Any:
        return await self._runner.run_link(stream, address, self.state, self.learned)

    with (
        mock.patch.object(remotes, "_peer_of", peer_of),
        mock.patch.object(LinkSupervisor, "_run_link", run_link),
    ):
        yield


@contextmanager
def _unnamed_confirmation() -> Iterator[None]:
    """A confirmation does not name what it confirms: a mirror or source answers whoever asks on its deliver subject, and is believed."""

    def control(self: SourceConsumer, reply: bytes, header: bytes, now: float) -> list[Action]:
        return self._answer(reply) if reply else whole(self, reply, header, now)

    whole = SourceConsumer._control
    with (
        mock.patch.object(SourceConsumer, "_control", control),
        mock.patch.object(PushDelivery, "_is_believed", lambda self, header: bool(self.bound)),
    ):
        yield


def _twins_linked() -> Any:
    """A hub links two leaf nodes with one domain."""
    return mock.patch.object(LeafRegistry, "same_domain_as", return_value=None)


def _skipped_untold() -> Any:
    """A mirror that goes on behind its own end does not say what it skips: it claims the whole epoch of its origin."""
    whole = OriginEpoch._skip

    def skip(self: OriginEpoch, held: int) -> Continue:
        verdict = whole(self, held)
        self.whole, self.skipped = True, 0
        return verdict

    return mock.patch.object(OriginEpoch, "_skip", skip)


def _deletion_believed() -> Any:
    """A deleted consumer deregisters its downstream, also one that says so itself when it is removed."""
    whole = UnservedDownstreams.deleted

    def deleted(self: UnservedDownstreams, deliver: bytes, *, deregisters: bool) -> None:
        whole(self, deliver, deregisters=True)

    return mock.patch.object(UnservedDownstreams, "deleted", deleted)


PLANTS: dict[str, Callable[[], Any]] = {
    "position-apart": _position_apart,
    "ack-before-commit": _ack_before_commit,
    "wake-up-forgotten": _wake_up_forgotten,
    "removed-when-sent": _removed_when_sent,
    "first-is-enough": _first_is_enough,
    "copied-again": _copied_again,
    "losses-untold": _losses_untold,
    "leap-believed": _leap_believed,
    "old-claims": _old_claims,
    "told-as-advanced": _told_as_advanced,
    "asked-who-it-was": _asked_who_it_was,
    "unnamed-confirmation": _unnamed_confirmation,
    "twins-linked": _twins_linked,
    "skipped-untold": _skipped_untold,
    "deletion-believed": _deletion_believed,
}
#: The kind of fleet that finds a bug: two leaf nodes of one domain, or operators who remove and change things by hand. Others: any.
PLANT_KINDS = {
    "unnamed-confirmation": "twins",
    "twins-linked": "twins",
    "skipped-untold": "edits",
    "deletion-believed": "edits",
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Within it the daemon has this bug; "" for none."""
    if not name:
        yield
        return
    with PLANTS[name]():
        yield
