"""One mirror or source: connects its `SourceConsumer` with the account, the stream and the clock.

A `SourceTask` carries out the actions of the `SourceConsumer`: it subscribes and sends requests in the stream's account
(over a leaf link, or locally), passes received messages to the stream at the end of each turn, and reports commits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from eyot_daemon.jetstream.ingest.rollup_search import RollupWait
from eyot_daemon.jetstream.sourcing.deregistration import RemovedSource, removed_source
from eyot_daemon.jetstream.sourcing.message_rewriter import MessageRewriter
from eyot_daemon.jetstream.sourcing.positions import Position, encode_position, read_position_update
from eyot_daemon.jetstream.sourcing.resume_point import (
    MIRROR_KEY,
    Predecessors,
    SourceHeaderIndex,
    mirror_checkpoints,
    mirror_position,
    predecessors,
    source_position,
    stored_position,
)
from eyot_daemon.jetstream.sourcing.source_gate import SourceGate
from eyot_daemon.jetstream.sourcing.source_report import SourceReport
from eyot_daemon.router.account import Account
from eyot_daemon.router.subscription import Kind, Origin, Subscription
from eyot_daemon.turn.timers import TimerHandle
from eyot_store.errors import StoreError
from eyot_sync.sourcing import origin as origins
from eyot_sync.sourcing import reported_time
from eyot_sync.sourcing.actions import (
    Action,
    Answer,
    FetchLastMessage,
    Identify,
    Release,
    Request,
    Skip,
    Subscribe,
    Unsubscribe,
)
from eyot_sync.sourcing.origin_check import OriginPosition
from eyot_sync.sourcing.phase import Phase
from eyot_sync.sourcing.source_consumer import SourceConsumer
from eyot_sync.sourcing.source_state import ResumeState, SourceConfig
from eyot_wire.frames import LeafMsg
from eyot_wire.go.time import ns_to_rfc3339
from eyot_wire.jetstream.copied_run import CopiedMessage
from eyot_wire.jetstream.error_codes import JSStreamStoreFailedF
from eyot_wire.jetstream.errors import ApiError, error
from eyot_wire.jetstream.stream import StreamSource
from eyot_wire.jetstream.stream_source import identity_of
from eyot_wire.nuid import short_id

if TYPE_CHECKING:
    from eyot_daemon.jetstream.stream.stream import SourcedResult, Stream

log = logging.getLogger("eyot.sync")

#: Stream metadata: what a mirror does whose origin gives sequences out again that it holds, `hold` (the default) or `skip`.
ORIGIN_BEHIND = "eyot.origin_behind"


class SourceTask:
    """One mirror or one source of a stream; a destination for the messages of its origin."""

    kind = Kind.JETSTREAM

    def __init__(
        self,
        stream: Stream,
        config: StreamSource,
        *,
        mirror: bool,
        others: Callable[[], Iterable[SourceTask]] = lambda: (),
    ) -> None:
        self.stream = stream
        self.config = config
        self.mirror = mirror
        self.account: Account = stream.account
        origin = origins.Origin.of(config, stream.name, stream.core.domain)
        state = stream.log.state
        position = stored_position(stream, MIRROR_KEY) if mirror else source_position(stream, origin)
        self._header_index = SourceHeaderIndex(stream) if mirror else None
        self._before = Predecessors(() if mirror else predecessors(stream, origin))
        self.source_consumer = SourceConsumer(
            SourceConfig(origin, mirror, skip_lost=_skips_lost(stream), asks_origins=mirror),
            ResumeState(
                last=mirror_position(stream) if mirror else OriginPosition(position.seq, position.ts_ns, position.size),
                identity=position.identity,
                newest_ns=position.newest_ns,
                checkpoints=list(mirror_checkpoints(stream) if mirror else position.checkpoints),
                last_stored_ns=state.last_ts_ns,
                held_at=position.seq if mirror else 0,
                whole=position.whole,
                skipped=position.skipped,
                others=self._before.seqs,
            ),
            make_id=lambda length: short_id(stream.broker.ids, length),
            jitter=stream.broker.random,
            tells=self._tells_time,
        )
        self._held_at_stored = self.source_consumer.epoch.held_at
        self._epoch_stored = position if mirror else Position()
        self._origin = origin
        self._rewriter = MessageRewriter(
            origin,
            mirror=mirror,
            follows=(identity_of(position.identity), position.seq),
            mirrored=lambda: stream.downstream.records.mirrored,
        )
        #: What has gathered waits until it is known what its roll-ups remove.
        self._rollup_wait = RollupWait(stream.rollup_search, self._searched)
        self._api = origin.api.encode()
        self._subs: list[Subscription] = []
        self._skip_to = 0
        self._dirty = False
        self._woken = False
        self._timer: TimerHandle | None = None
        self.gate = SourceGate(
            stream.broker,
            self.account,
            stream.name,
            self.source_consumer,
            others=lambda: (other.gate for other in others()),
        )
        self._gate_timer: TimerHandle | None = None
        self.report = SourceReport(
            self.account.name, stream.name, config, origin, self.source_consumer, stream.broker.clock, mirror=mirror
        )

    def __repr__(self) -> str:
        return f"<SourceTask {self.account.name}/{self.stream.name} from {self.config.name} at {self._origin.api}>"

    # -- life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._look_at_policies_in(0.0)
        if self.account.has_interest(self.api_subject()):
            self._link_up()
        else:
            self._do(self.source_consumer.unreachable(self._now()))

    def _link_up(self) -> None:
        """Request at once when the origin is reachable, with the policy's rate and the link's heartbeat."""
        self.source_consumer.terms = self.gate.terms
        self._do(self.source_consumer.link_up(self._now()))

    def policy_changed(self) -> None:
        """Apply changed stream metadata about an origin that lost messages."""
        self.source_consumer.epoch.skip_lost = _skips_lost(self.stream)
        if self.source_consumer.phase is Phase.WAITING and self.account.has_interest(self.api_subject()):
            self._link_up()

    def stop(self, *, release: bool) -> RemovedSource:
        """Stop. `release`: the mirror or source was removed. Returns its deregistration."""
        if self._gate_timer is not None:
            self._gate_timer.cancel()
        self._do(self.source_consumer.stop(release=release))
        return self.known_as

    @property
    def known_as(self) -> RemovedSource:
        return removed_source(self.stream.core, self._origin, mirror=self.mirror)

    def interest_added(self) -> None:
        """Note that interest in the origin's API came over a leaf link: the origin may have come within reach.

        The origin is requested at the end of the turn, when all interest that the peer sent with it is known.
        """
        if not self.source_consumer.is_connected and not self._woken:
            self._woken = True
            self._mark_dirty()

    def interest_removed(self) -> None:
        """Note that interest in the origin's API, which came over a leaf link, is gone: perhaps the link to the origin is."""
        if not self.account.has_interest(self.api_subject()):
            self._do(self.source_consumer.link_down(self._now()))

    # -- destination -----------------------------------------------------------------------------------------------

    def deliver(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> bool:
        if not self._subs:
            return False
        if sub is self._subs[0]:
            actions = self.source_consumer.message(reply, subject, header, payload, self._now())
            self._mark_dirty()
        else:
            self._subs.remove(sub)
            self.account.unsubscribe(sub)  # one answer is all there is
            actions = self.source_consumer.response(sub.subject, payload, self._now())
            self._hear_time()
            self._mark_dirty()
        if actions:
            self._do(actions)
        return True

    def _tells_time(self) -> dict[str, str]:
        if self.stream.wall_clock.trust.is_doubted:
            return {}
        return {reported_time.KEY: ns_to_rfc3339(self.stream.broker.clock.now_ns())}

    def _hear_time(self) -> None:
        """Report the time in the origin's answer."""
        told, self.source_consumer.reported_time = self.source_consumer.reported_time, ""
        wall_clock = self.stream.wall_clock
        if told and wall_clock.trust.is_doubted:
            domain = self.source_consumer.origin.api.removeprefix("$JS.").removesuffix(".API")
            if any(each.is_up and each.peer_domain == domain for each in self.stream.broker.links.states()):
                wall_clock.heard(told)

    def take_run(self, sub: Subscription, run: Sequence[LeafMsg]) -> int:
        """Receive a run of messages on the deliver subject, all of one read. Returns the number of messages accepted."""
        if not self._subs or sub is not self._subs[0]:
            return 0
        taken = self.source_consumer.messages(run, self._now())
        if taken:
            self._mark_dirty()
        return taken

    def flush(self) -> None:
        """End the turn: pass what has gathered to the stream as one transaction with its position."""
        self._dirty = False
        if self._woken:
            self._woken = False
            if self.account.has_interest(self.api_subject()):
                self._link_up()
        if self._header_index is not None and self.source_consumer.phase is Phase.ACTIVE:
            told = self.source_consumer.request.told
            self._header_index.only_sourced = self.source_consumer.verifier.only_sourced
            while told:
                self._header_index.told(read_position_update(told.pop(0)))
        rewrite = self._origin.rewrite
        if not self._rollup_wait.holds((rewrite(each.subject), each.header) for each in self.source_consumer.gathered):
            self._pass_on()

    def _searched(self) -> None:
        if self.source_consumer.phase is not Phase.STOPPED:
            self._pass_on()

    def _pass_on(self) -> None:
        """Pass what has gathered to the stream; what a verdict on the origin allows then follows in the same turn."""
        self._hand_on()
        phase = self.source_consumer.phase
        if phase is Phase.VERIFYING:
            self._do(self.source_consumer.passed_on(self._now()))
            if self.source_consumer.phase is Phase.ACTIVE:
                self._mark_dirty()

    def _hand_on(self) -> None:
        batch, mark = self.source_consumer.take_batch()
        if batch and self._before:
            batch = self._without_copied(batch, mark)
            if not batch:
                return
        skip_to, self._skip_to = self._skip_to, 0
        if not batch and not skip_to:
            if self.mirror and self.source_consumer.epoch.held_at > self._held_at_stored:
                self._remember_hold()
            if self._header_index is not None:
                self._put(self._header_index.note((), self.stream.log.state.last_seq))
            if self.source_consumer.is_connected:
                self._do(self.source_consumer.committed(mark, 0, 0, self.source_consumer.request.reply))
            return
        copied, asked = len(batch), self.source_consumer.request.reply

        def refused(result: SourcedResult) -> None:
            nonlocal copied
            copied = sum(1 for each in batch if each.origin_seq <= result.last_seq)
            self._refused(result)

        self.stream.ingest_copied(
            self._rewriter.rewritten(batch, self.source_consumer.identity),
            mirror=self.mirror,
            positions=self._positions_of(batch),
            skip_to=skip_to,
            on_refused=refused,
            on_done=lambda result: self._stored(mark, copied, asked, result),
        )

    # -- inside ----------------------------------------------------------------------------------------------------

    def _without_copied(self, batch: list[CopiedMessage], mark: int) -> list[CopiedMessage]:
        """Return the messages of a batch that the stream lacks. A batch without any is done when the previous one is committed."""
        new = self._before.without(
            batch, self.source_consumer.identity, self.source_consumer.verifier.stored, self.source_consumer.epoch.ended
        )
        self.source_consumer.progress.dropped_old += len(batch) - len(new)
        if not new:
            asked = self.source_consumer.request.reply

            def settled(failure: StoreError | None) -> None:
                if failure is None:
                    self._do(self.source_consumer.committed(mark, 0, len(batch), asked))
                else:  # what is under way may be another origin's, which then is told of it
                    self._failed(0, error(JSStreamStoreFailedF, err=failure.message))

            self.stream.after_commits(settled)
        return new

    def _positions_of(self, batch: Sequence[CopiedMessage]) -> Callable[[int], Iterable[tuple[bytes, bytes]]]:
        """Return the function that records the position for a batch of which some messages may be refused.

        A mirror's sequence is its stream's own. Recorded are only the origin's epoch, where an origin ended that lost
        its end, and which source headers its messages have.
        """
        index = self._header_index
        if index is not None:
            epoch = self._epoch_record()
            return lambda last_seq: (*epoch, *index.note(batch, last_seq))
        identity, newest_ns, seen = (
            self.source_consumer.identity,
            self.source_consumer.resume.newest_ns,
            self.source_consumer.resume.checkpoints,
        )

        def positions(last_seq: int) -> Iterable[tuple[bytes, bytes]]:
            last = next((each for each in reversed(batch) if each.origin_seq == last_seq), None)
            ts_ns, size = (last.ts_ns, len(last.header) + len(last.payload)) if last is not None else (0, 0)
            before = tuple(each for each in seen if each[0] < last_seq)
            return [(self._origin.key, encode_position(Position(last_seq, identity, ts_ns, size, newest_ns, before)))]

        return positions

    def _epoch_record(self) -> list[tuple[bytes, bytes]]:
        """Return the record of a mirror's epoch; none where the stored one is current."""
        epoch = self.source_consumer.epoch
        known = Position(epoch.held_at, epoch.identity, whole=epoch.whole, skipped=epoch.skipped)
        if known == self._epoch_stored:
            return []
        self._epoch_stored, self._held_at_stored = known, epoch.held_at
        return [(MIRROR_KEY, encode_position(known))]

    def _put(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        """Store records without messages."""
        store = self.stream.store
        txn = store.begin()
        for key, value in records:
            self.stream.log.put_position(txn, key, value)
        if txn.parts:
            store.submit(txn)
        else:
            store.abort(txn)

    def _remember_hold(self) -> None:
        """Store that the mirror is held, so that it stays held after a restart."""
        self._put(self._epoch_record())

    def _refused(self, result: SourcedResult) -> None:
        """Stop passing on at what the stream refuses: it would accept smaller messages that follow, out of order."""
        assert result.error is not None
        log.warning("%r: %s; copied up to %d", self, result.error.description, result.last_seq)
        self._forget_staged()
        self._do(self.source_consumer.refused(result.last_seq, result.error, self._now()))

    def _stored(self, mark: int, copied: int, asked: bytes, result: SourcedResult) -> None:
        """Process the result of what was staged of a batch: committed, or failed."""
        if result.error is not None:
            self._failed(0, result.error)
            return
        self.report.copied(copied)
        self._do(self.source_consumer.committed(mark, result.last_seq, copied, asked))

    def _failed(self, last_seq: int, problem: ApiError) -> None:
        """Return to what is on flash: a batch could not be stored beyond `last_seq` (0: nothing of it)."""
        committed = max(last_seq, self.source_consumer.progress.committed_seq)
        if self.mirror:
            committed = self.stream.log.committed_seq
        log.warning("%r: %s; copied up to %d", self, problem.description, committed)
        self._forget_staged()
        self._do(self.source_consumer.failed(committed, problem, self._now()))

    def _forget_staged(self) -> None:
        """Forget what counts as stored of the epoch and of source headers: a batch that held it may be lost."""
        self._epoch_stored = Position()
        if self._header_index is not None:
            self._header_index.reload()

    def _do(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case Subscribe(deliver, reply, identity_reply):
                    self._subs = [self.account.subscribe(each, self) for each in (deliver, reply, identity_reply)]
                case Unsubscribe():
                    self._unsubscribe()
                case Request(subject, reply, body):
                    self._request(subject, reply, body)
                case Identify(subject, reply):
                    if self._subs and not self.account.publish(self._mapped(subject), reply):
                        self._do(self.source_consumer.unidentified(self._now()))
                case FetchLastMessage(subject, reply, body):
                    self._subs.append(self.account.subscribe(reply, self))
                    if not self.account.publish(self._mapped(subject), reply, b"", body):
                        self._do(self.source_consumer.unproven(self._now()))
                case Release(subject):
                    self.account.publish(self._mapped(subject))
                case Answer(subject, header):
                    self.account.publish(subject, header=header)
                case Skip(seq):
                    self._skip_to = seq
                    self._mark_dirty()
        self._schedule()

    def _unsubscribe(self) -> None:
        for sub in self._subs:
            self.account.unsubscribe(sub)
        self._subs = []

    def _look_at_policies_in(self, seconds: float) -> None:
        self._gate_timer = self.stream.broker.timers.call_later(seconds, self._look_at_policies)

    def _look_at_policies(self) -> None:
        """Windows open and close, budgets are used up, configurations are reloaded."""
        if self.source_consumer.phase is Phase.STOPPED:
            return
        before, self.source_consumer.terms = self.source_consumer.terms, self.gate.terms
        if self.source_consumer.is_connected:
            hold = self.gate.hold()
            if hold is not None:
                self._do(self.source_consumer.held(hold.reason, hold.wait_s, self._now()))
            elif self.source_consumer.terms != before:
                self._link_up()
        self._look_at_policies_in(self.gate.look_again_s())

    def _request(self, subject: bytes, reply: bytes, body: bytes) -> None:
        hold = self.gate.hold()
        if hold is not None:
            self._do(self.source_consumer.held(hold.reason, hold.wait_s, self._now()))
            return
        if not self.account.publish(self._mapped(subject), reply, b"", body):
            self._do(self.source_consumer.unreachable(self._now()))

    def api_subject(self) -> bytes:
        """Return the subject of requests after this account's mappings."""
        return self._mapped(self.source_consumer.api_subject)

    def _mapped(self, subject: bytes) -> bytes:
        """Apply the account's mappings, as for a client's request (the own domain's prefix is mapped)."""
        return self.account.mappings.apply(subject) or subject

    def _schedule(self) -> None:
        """One timer for the source consumer's next deadline. Traffic moves the deadline back: the timer then sets itself again."""
        deadline = self.source_consumer.deadline
        if deadline is None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            return
        if self._timer is not None and self._timer.active:
            if self._timer.deadline <= deadline:
                return
            self._timer.cancel()
        self._timer = self.stream.broker.timers.call_at(deadline, self._due)

    def _due(self) -> None:
        self._timer = None
        self._do(self.source_consumer.tick(self._now()))
        self._mark_dirty()

    def _mark_dirty(self) -> None:
        if not self._dirty:
            self._dirty = True
            self.stream.broker.mark_dirty(self)

    def _now(self) -> float:
        return self.stream.broker.clock.monotonic()


def _skips_lost(stream: Stream) -> bool:
    """Return the stream's policy for an origin that lost its end or was re-created: True: continue after the last copied message."""
    return stream.config.metadata.get(ORIGIN_BEHIND, "hold") == "skip"
