"""The copier: one mirror or source of a stream, as a state machine without I/O.

Its owner reports what happens (a link came up, a message arrived, a commit is on flash, time passed) and carries out the
actions that each report returns. The life of a copier:

    WAITING  --link up / retry time-->  REQUESTED  --response-->  ACTIVE
       ^                                    |                       |
       +---- no answer, refusal ------------+--- silence, gap, -----+
                                                 commit failed, link down

Exactly once rests on three things: the consumer at the origin starts right after the last message that was handed to the
writer; its consumer sequence must be without a gap (a gap means that the link lost something: ask again); and the
position commits together with the messages. Messages before the position are recognised by their sequence and dropped.

Together with each consumer the origin's STREAM.INFO is asked for, and when it stored the last message that was copied. Until that is
known (or cannot be had) nothing is handed on. What it means is judged by `origin_epoch.py`.

What can be under way and uncommitted is bounded by the origin's flow-control window (`settling.py`).
Source: sync.md sections 2 to 5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from eyot_sync.policy.stream_gate import LOOK_AGAIN_S
from eyot_sync.sourcing import origin_problems as trouble
from eyot_sync.sourcing import upstream_positions
from eyot_sync.sourcing.actions import (
    Action,
    Answer,
    Copied,
    Delivered,
    FetchLastMessage,
    Identify,
    Phase,
    Progress,
    Release,
    Request,
    Skip,
    Subscribe,
    Unsubscribe,
    settled_header,
)
from eyot_sync.sourcing.message_runs import read_run
from eyot_sync.sourcing.origin import Origin, Start, consumer_request, release_request, reset_request, start_of
from eyot_sync.sourcing.origin_answers import CreateResponse, ErrorOnly, OriginInfo
from eyot_sync.sourcing.origin_check import CHECKPOINTS_MAX, OriginCheck, OriginPosition
from eyot_sync.sourcing.origin_epoch import EPOCH_KEY, Continue, OriginEpoch, Pause, Restart, ResumeByTime
from eyot_sync.sourcing.pending_commits import PendingCommits
from eyot_wire import headers
from eyot_wire.digits import parse_uint
from eyot_wire.go.time import ns_to_rfc3339
from eyot_wire.jetstream.ack import decode_ack_reply
from eyot_wire.jetstream.error_codes import JSMirrorConsumerRequiresAckFCErr, JSSourceConsumerRequiresAckFCErr
from eyot_wire.jetstream.errors import ApiError, error
from eyot_wire.jetstream.struct import InvalidJson, decode

#: So often the origin says that it is there, unless more patience is asked for.
HEARTBEAT_S = 1.0
#: No heartbeat for so long, or in the time of so many: the consumer at the origin is gone or the link is dead.
STALL_AFTER_S = 5.0
STALL_AFTER_HEARTBEATS = 3
#: The origin answers a request within this, or it is asked again.
RESPONSE_WITHIN_S = 5.0
#: At least so long between two requests, whatever happens: a flapping link must not become a flood at the origin.
REQUEST_SPACING_S = 0.25
#: The origin tells its life within this of being asked, or it is copied by sequences alone.
IDENTIFIED_WITHIN_S = 3.0
RETRY_FIRST_S = 1.0
RETRY_MAX_S = 30.0

_LAST_CONSUMER = b"Nats-Last-Consumer"
_STALLED = b"Nats-Consumer-Stalled"


class SourceConsumer:
    """Copies one origin. `last` is the last message of the origin that is stored here; `make_id(n)` gives random names;
    `last_stored_ns` is when the target last stored a message (for a start by time). `identity` is the origin's life that `last` belongs
    to ("" if that was never known), `newest_ns` the latest time of a message of that life that is stored here, `others` more sequences of
    it whose stored time is of interest (`stored`), `checkpoints` sequences and times of messages before the last one. `asks_origins`: the origin is asked what it knows of its own; what it tells of them gathers in `told`. `tells` gives metadata for each request. `skip_lost`, `held_at` and `whole` are those of `OriginEpoch`, for mirrors."""

    def __init__(
        self,
        origin: Origin,
        *,
        mirror: bool,
        last: OriginPosition,
        make_id: Callable[[int], str],
        last_stored_ns: int = 0,
        jitter: Callable[[], float] = lambda: 0.0,
        identity: str = "",
        newest_ns: int = 0,
        skip_lost: bool = False,
        held_at: int = 0,
        whole: bool = False,
        others: Sequence[int] = (),
        checkpoints: Sequence[tuple[int, int]] = (),
        asks_origins: bool = False,
        tells: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self.origin = origin
        self.mirror = mirror
        self.phase = Phase.WAITING
        self.progress = Progress(last_seq=last.seq, committed_seq=last.seq)
        self.epoch = OriginEpoch(
            self.progress, mirror=mirror, identity=identity, skip_lost=skip_lost, held_at=held_at, whole=whole
        )
        self.retry_at = 0.0
        #: What a policy makes the copy wait for, "" if none does; the rate to ask of the origin, 0 for none.
        self.waiting = ""
        self.rate_limit_bps = 0
        #: How long the next consumer may be silent, and the present one.
        self.heartbeat_s = self._heartbeat_s = HEARTBEAT_S
        self.deliver = b""
        self.reply = b""
        self.identity_reply = b""
        self.proof_reply = b""
        self.consumer = ""
        self.newest_ns = max(newest_ns, last.ts_ns)
        self.checkpoints = list(checkpoints)
        self.told: list[str] = []
        #: What time it was at the origin when it answered, "" where that is not news.
        self.told_time = ""
        self._tells = tells
        self._asks = {upstream_positions.KEY: upstream_positions.ASKED} if asks_origins else {}
        self._others = others
        self._newer_than_ns = 0  # the origin was set back: what it stored after this is asked for
        self._old_upto = 0  # up to here it may hold what is older, out of order: its clock was set back before
        self._unknown_until: float | None = None  # what the origin is, is awaited so long
        self._epoch_pending = False
        self._info: OriginInfo | None = None
        self._before_first = 0
        self._proof = OriginCheck(OriginPosition())
        self._proves = True  # the origin is not known to leave requests for messages unanswered
        self._pending_commits = PendingCommits(last)
        self._restarted = False  # what is under way is of the time before
        self._sure = 0  # messages at the head of the batch that came before the present request
        self._make_id = make_id
        self._jitter = jitter
        self._last_stored_ns = last_stored_ns
        self._last = last
        self._consumer_seq = 0
        self._requested_at = -RETRY_MAX_S
        self._asked = last
        self._failures = 0
        self._batch: list[Copied] = []
        self._delivered_seq = 0
        self._heard_first = b""  # the consumer of the first thing that came, before the answer

    # -- when to call again ----------------------------------------------------------------------------------------

    @property
    def deadline(self) -> float | None:
        """When `tick` has something to do, if nothing else happens before."""
        match self.phase:
            case Phase.WAITING:
                return self.retry_at
            case Phase.REQUESTED:
                return self._requested_at + RESPONSE_WITHIN_S
            case Phase.ACTIVE:
                patience_s = max(STALL_AFTER_S, STALL_AFTER_HEARTBEATS * self._heartbeat_s)
                stalled_at = (self.progress.heard_at or self._requested_at) + patience_s
                return stalled_at if self._unknown_until is None else min(stalled_at, self._unknown_until)
            case Phase.STOPPED:
                return None

    @property
    def api_subject(self) -> bytes:
        """Interest in this subject means that the origin can be asked."""
        return self.origin.api_subject.encode()

    # -- reports ---------------------------------------------------------------------------------------------------

    def link_up(self, now: float) -> list[Action]:
        """The origin can be reached (again): ask it at once, whatever the backoff said."""
        if self.phase is Phase.STOPPED:
            return []
        self._failures = 0
        return self._ask(now)

    def link_down(self, now: float) -> list[Action]:
        """The origin cannot be reached: what was under way is lost; wait for the link."""
        if self.phase in (Phase.STOPPED, Phase.WAITING):
            return []
        return self._wait(now, trouble.problem("the link to the origin is down"))

    def held(self, reason: str, wait_s: float, now: float) -> list[Action]:
        """A policy keeps the origin from being read: ask again after so long, or when told that the link is up."""
        if self.phase is Phase.STOPPED:
            return []
        actions = self._forget()
        self.phase = Phase.WAITING
        self.waiting = reason
        self.retry_at = now + min(LOOK_AGAIN_S, max(wait_s, REQUEST_SPACING_S))
        return actions

    def tick(self, now: float) -> list[Action]:
        deadline = self.deadline
        if deadline is None or now < deadline:
            return []
        match self.phase:
            case Phase.WAITING:
                return self._ask(now)
            case Phase.REQUESTED:
                return self._wait(now, trouble.problem("the origin did not answer"))
            case _ if self._unknown_until is not None and now >= self._unknown_until:
                self._proves = self._proves and not (self._proof.pending and not self._epoch_pending)
                self._epoch_pending = self._proof.pending = False
                return self._assess(now)
            case _:
                self.progress.gaps += 1
                return self._ask(now)

    def unreachable(self, now: float) -> list[Action]:
        """Nobody listens on the request's subject."""
        return self._wait(now, trouble.unreachable(self.origin.api))

    def response(self, reply: bytes, payload: bytes, now: float) -> list[Action]:
        """The origin's answer to a request; answers to earlier requests are ignored."""
        if reply == self.identity_reply:
            return self._identified(payload, now)
        if reply == self.proof_reply:
            self._proof.message(payload)
            return self._assess(now)
        if self.phase is not Phase.REQUESTED or reply != self.reply:
            return []
        try:
            answer = decode(payload, ErrorOnly, strict=False)
            if answer.error is not None:
                return self._wait(now, answer.error)
            info = decode(payload, CreateResponse, strict=False)
        except InvalidJson as invalid:
            return self._wait(now, trouble.problem(f"the origin's answer cannot be read: {invalid}"))
        if self.origin.consumer and (info.config is None or info.config.ack_policy != "flow_control"):
            return self._wait(
                now, error(JSMirrorConsumerRequiresAckFCErr if self.mirror else JSSourceConsumerRequiresAckFCErr)
            )
        if self._heard_first not in (b"", info.name.encode()):
            # Two servers have answered, and it is the other one's messages that were taken.
            self.progress.gaps += 1
            return self._ask(now)
        self.phase = Phase.ACTIVE
        self._failures = 0
        self.told_time = info.ts
        self.consumer = info.name
        self.progress.heard_at = now
        self.progress.error = None
        self.progress.lag = max(0, info.num_pending - self._consumer_seq)
        # What has delivered already tells how far it is, not what the origin has no more: that the messages themselves tell.
        told = info.delivered
        self._before_first = told.stream_seq if not told.consumer_seq else min(told.stream_seq, self._asked.seq)
        metadata = info.config.metadata if info.config is not None else {}
        of_origins = metadata.get(upstream_positions.KEY, "") if self._asks else ""
        if of_origins not in ("", upstream_positions.ASKED):
            self.told.insert(0, of_origins)
        return [*self._ask_for_proof(info), *self._assess(now)]

    def unidentified(self, now: float) -> list[Action]:
        """The origin does not tell which life it is in: go by sequences alone, as nats-server does."""
        self._epoch_pending = False
        return self._assess(now)

    def unproven(self, now: float) -> list[Action]:
        """The origin's messages may not be read one by one."""
        self._proof.pending = False
        return self._assess(now)

    @property
    def identity(self) -> str:
        """The origin's life that what was taken belongs to."""
        return self.epoch.identity

    @property
    def is_assessed(self) -> bool:
        """Is it known what the present consumer's origin is?"""
        return self.phase is Phase.ACTIVE and self._unknown_until is None

    @property
    def stored(self) -> dict[int, int]:
        """When the origin stored the messages with these sequences, as far as it told; 0: they are gone."""
        return self._proof.stored

    def _ask_for_proof(self, info: CreateResponse) -> list[Action]:
        metadata = info.config.metadata if info.config is not None else {}
        if self._proof.heard(metadata):
            return []
        if not self._proves:
            self._proof.pending = False
            return []
        self.proof_reply = f"$JSC.R.{self._make_id(8)}".encode()
        subject, body = self._proof.request(self.origin)
        return [FetchLastMessage(subject, self.proof_reply, body)]

    def _identified(self, payload: bytes, now: float) -> list[Action]:
        if self.phase not in (Phase.REQUESTED, Phase.ACTIVE) or not self._epoch_pending:
            return []
        try:
            info = decode(payload, OriginInfo, strict=False)
        except InvalidJson:
            info = OriginInfo()
        self._info = info if info.error is None and info.created else None
        return self.unidentified(now)

    def _assess(self, now: float) -> list[Action]:
        """Once, when all is known that can be known of the origin."""
        if self.phase is not Phase.ACTIVE or self._unknown_until is None or self._epoch_pending or self._proof.pending:
            return []
        self._unknown_until = None
        asked = self._asked
        verdict = self.epoch.assess(
            asked, self._before_first, self._info, refuted=self._proof.refuted, newer=bool(self._newer_than_ns)
        )
        match verdict:
            case Continue():
                return self._go_on()
            case Pause(why, lag):
                self._last = asked
                self.progress.last_seq = asked.seq
                self._batch.clear()
                self.progress.lag = max(1, lag)
                return self._wait(now, why)
            case Restart():
                self.newest_ns = 0
                return self._start_over(0, now)
            case ResumeByTime() if self.newest_ns:
                return self._start_over(self.newest_ns, now)
            case ResumeByTime(seq):
                self._last = OriginPosition(seq)
                return self._ask(now) if self._consumer_seq > 0 else []

    def _go_on(self) -> list[Action]:
        """A mirror keeps the origin's sequences, also where it has nothing."""
        if not self.mirror or self._consumer_seq or self._before_first <= self._asked.seq:
            return []
        self._last = OriginPosition(self._before_first)
        self.progress.last_seq = self._before_first
        return [Skip(self._before_first)]

    def _start_over(self, newer_than_ns: int, now: float) -> list[Action]:
        """What sequences meant until now they mean no more."""
        self._newer_than_ns = newer_than_ns
        self._old_upto = (self.epoch.ended or 0) if newer_than_ns else 0
        self.checkpoints = []
        self._batch.clear()
        self._restarted = self._pending_commits.under_way
        self._last = OriginPosition()
        self.progress.last_seq = self.progress.committed_seq = 0
        return self._ask(now)

    def message(self, reply: bytes, subject: bytes, header: bytes, payload: bytes, now: float) -> list[Action]:
        """Something on the deliver subject: a message of the origin, a heartbeat or flow control."""
        if self.phase is not Phase.ACTIVE and (self.phase is not Phase.REQUESTED or self.origin.consumer):
            # A consumer that stands ready may still be sending what came before it was asked to go on.
            return []
        self.progress.heard_at = now
        if not payload and header.startswith(b"NATS/1.0 100"):
            return self._control(reply, header, now)
        ack = decode_ack_reply(reply)
        if ack is None or ack.delivered > 1 or not self._is_of_ours(ack.consumer):
            return []
        if ack.consumer_seq != self._consumer_seq + 1:
            if ack.consumer_seq <= self._consumer_seq:
                return []
            self.progress.gaps += 1
            return self._ask(now)
        self._consumer_seq = ack.consumer_seq
        self._delivered_seq = ack.stream_seq
        self.progress.lag = ack.pending
        if ack.stream_seq <= self._last.seq or self._is_old(ack.stream_seq, ack.ts_ns):
            self.progress.dropped_old += 1
            return []
        self._last = OriginPosition(ack.stream_seq, ack.ts_ns, len(header) + len(payload))
        self.progress.last_seq = ack.stream_seq
        self._batch.append(Copied(ack.stream_seq, ack.ts_ns, subject, header, payload))
        return []

    def messages(self, run: Sequence[Delivered], now: float) -> int:
        """`message` for the usual case, many at once: takes messages of the consumer that follow each other without a gap.
        Returns how many were taken; the first that was not (a heartbeat, a gap, something old) is for `message`."""
        consumer = self.consumer.encode()
        if self.phase is not Phase.ACTIVE or not consumer:
            return 0
        self.progress.heard_at = now
        taken, lag = read_run(run, consumer, self._consumer_seq, self._last.seq, self._is_old, self._batch)
        if taken:
            self._consumer_seq += taken
            self._last = _origin_position(self._batch[-1])
            self._delivered_seq = self.progress.last_seq = self._last.seq
            self.progress.lag = lag
        return taken

    def _is_old(self, seq: int, ts_ns: int) -> bool:
        """Was this stored before the origin was set back, and copied then? Whoever asks by time gets what follows, whatever its time."""
        return seq <= self._old_upto and ts_ns <= self._newer_than_ns

    def take_batch(self) -> tuple[list[Copied], int]:
        """What has gathered since the last call, and the mark to give back to `committed`."""
        if self._unknown_until is not None:
            sure, self._batch, self._sure = self._batch[: self._sure], self._batch[self._sure :], 0
            self._note_taken(sure)
            return sure, self._pending_commits.consumer_seq
        if not self._batch and self._pending_commits.under_way:
            return [], self._pending_commits.consumer_seq  # nothing is settled by there being nothing new
        batch, self._batch = self._batch, []
        self._note_taken(batch)
        return batch, self._consumer_seq

    def _note_taken(self, batch: Sequence[Copied]) -> None:
        if batch:
            self.newest_ns = max(self.newest_ns, *(each.ts_ns for each in batch))
            latest = [(each.origin_seq, each.ts_ns) for each in batch[-CHECKPOINTS_MAX - 1 :]]
            self.checkpoints = [*self.checkpoints, *latest][-CHECKPOINTS_MAX - 1 :]
            self._pending_commits.taken(_origin_position(batch[-1]))

    def committed(self, mark: int, last_seq: int, copied: int, asked: bytes) -> list[Action]:
        """A batch is on flash. `asked` is the `reply` that was current when it was taken."""
        self.progress.copied += copied
        current = asked == self.reply
        if current or not self._restarted:
            self.progress.committed_seq = max(self.progress.committed_seq, last_seq)
        self._pending_commits.committed(mark, copied, current=current)
        self._restarted = self._restarted and bool(self._pending_commits.older)
        return [] if self._unknown_until is not None else list[Action](self._pending_commits.due())

    def failed(self, committed_seq: int, problem: ApiError, now: float) -> list[Action]:
        """A batch could not be stored: go back to what is on flash and try again later."""
        self._last = self._pending_commits.failed(committed_seq)
        self.progress.last_seq = committed_seq
        self._batch.clear()
        return self._wait(now, problem)

    def stop(self, *, release: bool = False) -> list[Action]:
        """The daemon stops; or the mirror or source is gone for good (`release`)."""
        actions: list[Action] = []
        if release and self.phase is Phase.ACTIVE and not self.origin.consumer:
            actions.append(Release(release_request(self.origin, self.consumer)))
        actions += self._forget()
        self.phase = Phase.STOPPED
        self._batch.clear()
        return actions

    # -- inside ----------------------------------------------------------------------------------------------------

    def _control(self, reply: bytes, header: bytes, now: float) -> list[Action]:
        if reply:
            if not self._is_of_ours(_asks_for(reply)):
                return []
            told = headers.get(header, upstream_positions.HEADER) if self._asks else None
            if told is not None:
                self.told.append(told.decode("utf-8", "replace"))
            return self._answer(reply)
        last = headers.get(header, _LAST_CONSUMER)
        wanted = None if last is None else parse_uint(last)
        if wanted and wanted != self._consumer_seq:
            self.progress.gaps += 1
            return self._ask(now)
        stalled = headers.get(header, _STALLED)
        if stalled and self._is_of_ours(_asks_for(stalled)):
            return self._answer(stalled)
        self.progress.lag = 0
        return []

    def _is_of_ours(self, consumer: bytes) -> bool:
        """Does this come from the present consumer? Another server of the origin's domain may answer the request as well, and send to
        the same subject: who was heard first counts until the answer says which consumer it is. b"": it does not say."""
        if not consumer:
            return True
        if not self._heard_first:
            self._heard_first = consumer
        return consumer == (self.consumer.encode() or self._heard_first)

    def _answer(self, subject: bytes) -> list[Action]:
        # What is confirmed is named: who asked believes no answer that is about another server's messages.
        header = settled_header(self.consumer, self._consumer_seq, self._delivered_seq)
        # What it has may be of another life of the origin until that is known.
        self._pending_commits.wait(self._consumer_seq, Answer(subject, header))
        return [] if self._unknown_until is not None else list[Action](self._pending_commits.due())

    def _ask(self, now: float) -> list[Action]:
        """A new request, unless the last one is too recent."""
        actions = self._forget()
        spaced = self._requested_at + REQUEST_SPACING_S
        if now < spaced:
            self.phase = Phase.WAITING
            self.retry_at = spaced
            return actions
        prefix = self.origin.deliver_prefix or "$JS"
        own = f"{prefix}.{'M' if self.mirror else 'S'}.{self._make_id(8)}"
        self.deliver = (self.origin.deliver or own).encode()
        self.reply = f"$JSC.R.{self._make_id(8)}".encode()
        self.identity_reply = f"$JSC.R.{self._make_id(8)}".encode()
        start = self._start()
        self._asked = self._last
        self._proof = OriginCheck(self._asked, self._others, self.checkpoints)
        if self.origin.consumer:
            subject, body = reset_request(self.origin, start)
        else:
            subject, body = consumer_request(
                self.origin,
                mirror=self.mirror,
                start=start,
                deliver=own,
                short_id=self._make_id(8),
                rate_limit_bps=self.rate_limit_bps,
                heartbeat_s=self.heartbeat_s,
                asks=self._proof.metadata | self._asks | self._epoch_action() | dict(self._tells()),
            )
        self.phase = Phase.REQUESTED
        self.waiting = ""
        self._heartbeat_s = HEARTBEAT_S if self.origin.consumer else self.heartbeat_s
        self._requested_at = now
        self._unknown_until = now + IDENTIFIED_WITHIN_S
        self._epoch_pending = True
        self._info = None
        self._sure = len(self._batch)
        self.progress.requests += 1
        return [
            *actions,
            Subscribe(self.deliver, self.reply, self.identity_reply),
            Request(subject, self.reply, body),
            Identify(f"{self.origin.api}.STREAM.INFO.{self.origin.stream}".encode(), self.identity_reply),
        ]

    def _epoch_action(self) -> dict[str, str]:
        """Sequences of which life the copy begins after: an origin that believes it to hold another one knows better then."""
        told = self.epoch.told if self._last.seq else ""
        return {EPOCH_KEY: told} if told else {}

    def _start(self) -> Start:
        """Where to begin at the origin."""
        if self._last.seq == 0 and self._newer_than_ns:
            return Start(time=ns_to_rfc3339(self._newer_than_ns + 1))
        if self._last.seq == 0 and self.progress.epochs:
            return Start(time=self.origin.start_time)
        return start_of(self.origin, self._last.seq, self._last_stored_ns)

    def _wait(self, now: float, problem: ApiError) -> list[Action]:
        actions = self._forget()
        self.phase = Phase.WAITING
        self.progress.error = problem
        ceiling = min(RETRY_MAX_S, RETRY_FIRST_S * 2 ** min(self._failures, 16))
        self.retry_at = now + ceiling * (1.0 + self._jitter()) / 2
        self._failures += 1
        return actions

    def _forget(self) -> list[Action]:
        """Leaves the consumer at the origin to its end. What was taken from it stays good: it carries its sequence. Only
        what came before the origin's life was known is asked for again."""
        if self._unknown_until is not None:
            if len(self._batch) > self._sure:
                self._last = self._asked
                self.progress.last_seq = self._asked.seq
                del self._batch[self._sure :]
            self._unknown_until = None
        actions: list[Action] = [Unsubscribe(self.deliver, self.reply)] if self.deliver else []
        self.deliver = self.reply = self.identity_reply = self.proof_reply = b""
        self.consumer = ""
        self._heard_first = b""
        self.told = []
        self._consumer_seq = self._delivered_seq = 0
        self._pending_commits.forget()
        return actions


def _asks_for(subject: bytes) -> bytes:
    """The consumer that a flow-control subject names, `$JS.FC.[<domain>.<account>.]<stream>.<consumer>.<id>`; b"" for any other."""
    tokens = subject.split(b".")
    return tokens[-2] if len(tokens) in (5, 7) and subject.startswith(b"$JS.FC.") else b""


def _origin_position(message: Copied) -> OriginPosition:
    return OriginPosition(message.origin_seq, message.ts_ns, len(message.header) + len(message.payload))
