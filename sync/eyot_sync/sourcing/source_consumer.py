"""A `SourceConsumer` copies one origin into a stream, as a mirror or a source: a state machine without I/O.

Everything revolves around its phase. `phase.py` draws the phases and lists which may follow which; `SourceConsumer._enter` is the
one place where the phase changes. The owner reports what happens (a link came up, a message arrived, a commit is on flash, time
passed) and carries out the actions that each report returns.

Exactly once rests on three things. The consumer at the origin starts right after the last message that was handed to the writer.
Its consumer sequence must be without a gap; a gap means that the link lost something: ask again. The position commits together with
the messages; messages before the position are recognised by their sequence and dropped.

Beside the phase there is extra state, each in one place:

    resume      where the next request begins                          source_state.py
    request     the latest request and the consumer that answers it    source_state.py
    verifier    is the origin the one that was copied?                 origin_verifier.py
    commits     messages that are handed on and not committed yet      pending_commits.py

What can be under way and uncommitted is bounded by the origin's flow-control window.
docs/leaf-links.md describes the same for operators, from "Resume" on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from eyot_sync.policy.stream_gate import LOOK_AGAIN_S
from eyot_sync.sourcing import origin_problems as trouble
from eyot_sync.sourcing import upstream_positions
from eyot_sync.sourcing.actions import (
    Action,
    Answer,
    Progress,
    Release,
    Request,
    Skip,
    Subscribe,
    Unsubscribe,
    ack_position_header,
)
from eyot_sync.sourcing.origin import Origin, consumer_request, release_request, reset_request
from eyot_sync.sourcing.origin_answers import CreateResponse, ErrorOnly
from eyot_sync.sourcing.origin_check import CHECKPOINTS_MAX, OriginPosition
from eyot_sync.sourcing.origin_epoch import EPOCH_KEY, Continue, OriginEpoch, Pause, Restart, ResumeByTime
from eyot_sync.sourcing.origin_verifier import OriginVerifier
from eyot_sync.sourcing.pending_commits import PendingCommits
from eyot_sync.sourcing.phase import CONNECTED, TRANSITIONS, UNVERIFIED, Phase
from eyot_sync.sourcing.source_state import HEARTBEAT_S, CurrentRequest, RequestTerms, ResumeState, SourceConfig
from eyot_wire import headers
from eyot_wire.digits import parse_uint
from eyot_wire.frames import LeafMsg
from eyot_wire.jetstream.ack import decode_ack_reply
from eyot_wire.jetstream.copied_run import CopiedMessage
from eyot_wire.jetstream.error_codes import JSMirrorConsumerRequiresAckFCErr, JSSourceConsumerRequiresAckFCErr
from eyot_wire.jetstream.errors import ApiError, error
from eyot_wire.jetstream.native import newest_ns, read_run
from eyot_wire.jetstream.struct import InvalidJson, decode

#: After this long, or this many intervals, without heartbeat, the consumer counts as deleted or the link as dead.
STALL_AFTER_S = 5.0
STALL_AFTER_HEARTBEATS = 3
#: Time limit of the origin's answer, before the request is repeated.
RESPONSE_WITHIN_S = 5.0
#: The shortest time between two requests: a flapping link must not flood the origin.
REQUEST_SPACING_S = 0.25
RETRY_FIRST_S = 1.0
RETRY_MAX_S = 30.0

_LAST_CONSUMER = b"Nats-Last-Consumer"
_PENDING = b"Nats-Pending-Messages"
_STALLED = b"Nats-Consumer-Stalled"


class SourceConsumer:
    """Copies one origin. `now` in every report is monotonic seconds.

    `make_id(n)`: random names of `n` characters. `jitter()`: a random number in [0, 1). `tells()`: metadata for each
    request.
    """

    def __init__(
        self,
        config: SourceConfig,
        resume: ResumeState,
        *,
        make_id: Callable[[int], str],
        jitter: Callable[[], float] = lambda: 0.0,
        tells: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self.config = config
        self.resume = resume
        resume.newest_ns = max(resume.newest_ns, resume.last.ts_ns)
        #: Changes in `_enter` only.
        self.phase = Phase.WAITING
        self.progress = Progress(last_seq=resume.last.seq, committed_seq=resume.last.seq)
        self.request = CurrentRequest()
        #: Terms of the next request; the owner changes them as policies require.
        self.terms = RequestTerms()
        self.verifier = OriginVerifier(
            config.origin,
            OriginEpoch(
                self.progress,
                mirror=config.mirror,
                identity=resume.identity,
                skip_lost=config.skip_lost,
                held_at=resume.held_at,
                whole=resume.whole,
                skipped=resume.skipped,
            ),
            resume.others,
            make_id,
        )
        #: When to request again, monotonic seconds; only used in WAITING.
        self.retry_at = 0.0
        #: The policy that replication waits for; "": none. Not empty in WAITING only.
        self.waiting = ""
        #: The origin's time when it answered; "" when unknown or reported already.
        self.reported_time = ""
        self._make_id = make_id
        self._jitter = jitter
        self._tells = tells
        #: When the latest request was sent, monotonic seconds.
        self._requested_at = -RETRY_MAX_S
        #: Requests in a row that led to nothing; each doubles the time until the next.
        self._failures = 0
        #: Received messages that are not passed on yet, ascending.
        self._batch: list[CopiedMessage] = []
        #: Messages at the head of `_batch` from before the present request: they need no verification. <= len(_batch).
        self._verified = 0
        self._pending_commits = PendingCommits(resume.last)
        #: Pending batches of the previous epoch, before all others: their sequences mean nothing in this one.
        self._former = 0
        #: After this sequence a request was repeated, because its consumer may have begun too late. None: none was.
        self._doubted_after: int | None = None

    # -- when to call again ----------------------------------------------------------------------------------------

    @property
    def deadline(self) -> float | None:
        """Time of the next `tick`, if nothing else happens before, monotonic seconds."""
        match self.phase:
            case Phase.WAITING:
                return self.retry_at
            case Phase.REQUESTED:
                return self._requested_at + RESPONSE_WITHIN_S
            case Phase.VERIFYING:
                # Complete, it waits for `passed_on`.
                return None if self.verifier.is_complete else self.verifier.deadline
            case Phase.ACTIVE:
                return self._stalled_at
            case Phase.STOPPED:
                return None

    @property
    def _stalled_at(self) -> float:
        patience_s = max(STALL_AFTER_S, STALL_AFTER_HEARTBEATS * self.request.heartbeat_s)
        return (self.progress.heard_at or self._requested_at) + patience_s

    @property
    def origin(self) -> Origin:
        return self.config.origin

    @property
    def mirror(self) -> bool:
        return self.config.mirror

    @property
    def api_subject(self) -> bytes:
        """Return the subject whose interest shows that the origin is reachable."""
        return self.origin.api_subject.encode()

    # -- reports ---------------------------------------------------------------------------------------------------

    def link_up(self, now: float) -> list[Action]:
        """Request at once, in spite of the backoff: the origin is reachable again."""
        if self.phase is Phase.STOPPED:
            return []
        self._failures = 0
        return self._ask(now)

    def link_down(self, now: float) -> list[Action]:
        """Wait for the link: the origin is unreachable, and messages in flight are lost."""
        if self.phase in (Phase.STOPPED, Phase.WAITING):
            return []
        return self._wait(now, trouble.problem("the link to the origin is down"))

    def held(self, reason: str, wait_s: float, now: float) -> list[Action]:
        """Wait for a policy: request again after `wait_s`, or when the link comes up."""
        if self.phase is Phase.STOPPED:
            return []
        actions = self._enter(Phase.WAITING)
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
            case Phase.VERIFYING:
                self.verifier.give_up()
                return self._assess(now)
            case _:
                self.progress.gaps += 1
                return self._ask(now)

    def unreachable(self, now: float) -> list[Action]:
        """Handle a request without responders."""
        if self.phase is Phase.STOPPED:
            return []
        return self._wait(now, trouble.unreachable(self.origin.api))

    def response(self, reply: bytes, payload: bytes, now: float) -> list[Action]:
        """Process the origin's answer to a request; answers to earlier requests are ignored."""
        if self.verifier.answered(reply, payload):
            return self._assess(now)
        if self.phase is not Phase.REQUESTED or reply != self.request.reply:
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
        if self.request.heard_first not in (b"", info.name.encode()):
            # Two servers have answered, and the received messages are the other one's.
            self.progress.gaps += 1
            return self._ask(now)
        return self._consumer_created(info, now)

    def _consumer_created(self, info: CreateResponse, now: float) -> list[Action]:
        self._enter(Phase.VERIFYING)
        self._failures = 0
        self.reported_time = info.ts
        self.request.consumer = info.name
        self.progress.heard_at = now
        self.progress.error = None
        self.progress.lag = max(0, info.num_pending - self.request.consumer_seq)
        self.progress.held_back = False
        metadata = info.config.metadata if info.config is not None else {}
        of_origins = metadata.get(upstream_positions.KEY, "") if self.config.asks_origins else ""
        if of_origins not in ("", upstream_positions.ASKED):
            self.request.told.insert(0, of_origins)
        return [*self.verifier.consumer_created(info), *self._assess(now)]

    def unidentified(self, now: float) -> list[Action]:
        """Note that the origin does not send its epoch: sequences alone count, as in nats-server."""
        self.verifier.unidentified()
        return self._assess(now)

    def unproven(self, now: float) -> list[Action]:
        """Note that the origin's messages may not be read individually."""
        self.verifier.unproven()
        return self._assess(now)

    @property
    def epoch(self) -> OriginEpoch:
        """Return the origin's epoch of the received messages, with the known facts about it."""
        return self.verifier.epoch

    @property
    def identity(self) -> str:
        """Return the `created` of that epoch; "": never known."""
        return self.epoch.identity

    @property
    def is_connected(self) -> bool:
        """The origin has answered the request: there is a consumer."""
        return self.phase in CONNECTED

    def _assess(self, now: float) -> list[Action]:
        """Act on the verdict, once per request, when all obtainable answers about the origin are there.

        Messages from before the request are handed on first: the verdict may begin another epoch, and they are of this one.
        """
        if self.phase is not Phase.VERIFYING or not self.verifier.is_complete or self._verified:
            return []
        resume = self.resume
        match self.verifier.verdict(by_time=bool(resume.newer_than_ns)):
            case Continue() if self._begins_too_late(self.request.first_seq):
                return self._ask(now)
            case Continue() if self.epoch.skipped > self.request.skipped:
                return self._ask(now)  # the origin must know what it has and is not copied
            case Continue():
                self._enter(Phase.ACTIVE)
                return self._go_on()
            case Pause(why, lag):
                self.progress.lag = max(1, lag)
                return self._wait(now, why)
            case Restart():
                resume.newest_ns = 0
                return self._start_over(0, now)
            case ResumeByTime() if resume.newest_ns:
                return self._start_over(resume.newest_ns, now)
            case ResumeByTime(seq):
                self._enter(Phase.ACTIVE)
                resume.last = OriginPosition(seq)
                return self._ask(now) if self.request.consumer_seq > 0 else []

    def _begins_too_late(self, first_seq: int) -> bool:
        """Return whether the consumer's first message may not be the next one (0: unknown); each position is doubted once."""
        if not first_seq or self.origin.consumer or self.resume.newer_than_ns or self.progress.epochs:
            return False
        if self._doubted_after == self.verifier.asked.seq or not self.verifier.leaves_out(first_seq):
            return False
        self._doubted_after = self.verifier.asked.seq
        return True

    def _go_on(self) -> list[Action]:
        """Note where the consumer begins: a mirror keeps the origin's sequences, also where the origin has no messages."""
        before_first = self.verifier.before_first
        if self.request.consumer_seq or before_first <= self.verifier.asked.seq:
            return []
        if not self.mirror:
            if self.resume.newer_than_ns:
                # The next request is by sequence: the origin's clock may have been set back with it.
                self.resume.last = OriginPosition(before_first)
            return []
        self.resume.last = OriginPosition(before_first)
        self.progress.last_seq = before_first
        return [Skip(before_first)]

    def _start_over(self, newer_than_ns: int, now: float) -> list[Action]:
        """Discard the meaning of all earlier sequences."""
        self.resume.start_over(newer_than_ns, self.epoch.ended or 0)
        self._batch.clear()
        self._former = self._pending_commits.under_way
        self.progress.last_seq = self.progress.committed_seq = 0
        return self._ask(now)

    def message(self, reply: bytes, subject: bytes, header: bytes, payload: bytes, now: float) -> list[Action]:
        """Something on the deliver subject: a message of the origin, a heartbeat or flow control."""
        if not self.is_connected and (self.phase is not Phase.REQUESTED or self.origin.consumer):
            # A pre-created consumer may still send messages from before its reset.
            return []
        self.progress.heard_at = now
        if not payload and header.startswith(b"NATS/1.0 100"):
            return self._control(reply, header, now)
        ack = decode_ack_reply(reply)
        request = self.request
        if ack is None or ack.delivered > 1 or not request.is_from(ack.consumer):
            return []
        if ack.consumer_seq != request.consumer_seq + 1:
            if ack.consumer_seq <= request.consumer_seq:
                return []
            self.progress.gaps += 1
            return self._ask(now)
        if not request.first_seq:
            request.first_seq = ack.stream_seq
            if self.phase is Phase.ACTIVE and self._begins_too_late(request.first_seq):
                return self._ask(now)
        request.consumer_seq = ack.consumer_seq
        request.delivered_seq = ack.stream_seq
        self.progress.lag, self.progress.held_back = ack.pending, False
        if ack.stream_seq <= self.resume.last.seq or self.resume.is_old(ack.stream_seq, ack.ts_ns):
            self.progress.dropped_old += 1
            return []
        self.resume.last = OriginPosition(ack.stream_seq, ack.ts_ns, len(header) + len(payload))
        self.progress.last_seq = ack.stream_seq
        self._batch.append(CopiedMessage(ack.stream_seq, ack.ts_ns, subject, header, payload))
        return []

    def messages(self, run: Sequence[LeafMsg], now: float) -> int:
        """Process many consecutive messages of the consumer at once; return how many.

        The first one that is not processed (a heartbeat, a gap, an old message) is for `message`.
        """
        request, resume = self.request, self.resume
        consumer = request.consumer.encode()
        if self.phase not in CONNECTED or not consumer or not request.first_seq:
            return 0
        self.progress.heard_at = now
        is_old = resume.is_old if resume.old_upto else None
        taken, lag = read_run(run, consumer, request.consumer_seq, resume.last.seq, is_old, self._batch)
        if taken:
            request.consumer_seq += taken
            resume.last = _origin_position(self._batch[-1])
            request.delivered_seq = self.progress.last_seq = resume.last.seq
            self.progress.lag, self.progress.held_back = lag, False
        return taken

    @property
    def gathered(self) -> Sequence[CopiedMessage]:
        """Return the messages that `take_batch` will return, now or once they are verified."""
        return self._batch

    def take_batch(self) -> tuple[list[CopiedMessage], int]:
        """Return the messages since the last call, and the mark to pass back to `committed`."""
        if self.phase in UNVERIFIED:
            verified, self._batch, self._verified = self._batch[: self._verified], self._batch[self._verified :], 0
            self._note_taken(verified, 0)
            return verified, 0
        if not self._batch and self._pending_commits.under_way:
            return [], self._pending_commits.consumer_seq  # an empty batch confirms nothing
        batch, self._batch, self._verified = self._batch, [], 0
        self._note_taken(batch, self.request.consumer_seq)
        return batch, self.request.consumer_seq

    def passed_on(self, now: float) -> list[Action]:
        """Note that what `take_batch` returned was handed on, or refused: a verdict may have waited for this."""
        return self._assess(now)

    def _note_taken(self, batch: Sequence[CopiedMessage], mark: int) -> None:
        if batch:
            resume = self.resume
            resume.newest_ns = max(resume.newest_ns, newest_ns(batch))
            latest = [(each.origin_seq, each.ts_ns) for each in batch[-CHECKPOINTS_MAX - 1 :]]
            resume.checkpoints = [*resume.checkpoints, *latest][-CHECKPOINTS_MAX - 1 :]
            self._pending_commits.taken(_origin_position(batch[-1]), mark)

    def committed(self, mark: int, last_seq: int, copied: int, asked: bytes) -> list[Action]:
        """Note a committed batch. `asked`: the request's `reply` when the batch was received."""
        self.progress.copied += copied
        if not self._former:
            self.progress.committed_seq = max(self.progress.committed_seq, last_seq)
        elif copied:
            self._former -= 1
        self._pending_commits.committed(mark, copied, current=asked == self.request.reply)
        return self._answers_due()

    def refused(self, taken_seq: int, problem: ApiError, now: float) -> list[Action]:
        """Go back and retry later: of the batch that was passed on last, the stream took all up to `taken_seq` (0: nothing).

        Batches before it are still on their way to flash: the next request begins after them.
        """
        if self.phase is Phase.STOPPED:
            return []
        last = self._pending_commits.refused(taken_seq)
        if last is None or self._pending_commits.under_way <= self._former:
            last = self._pending_commits.committed_up_to(self.progress.committed_seq)
        self.resume.last = last
        self.progress.last_seq = last.seq
        self._batch.clear()
        return self._wait(now, problem)

    def failed(self, committed_seq: int, problem: ApiError, now: float) -> list[Action]:
        """Return to the committed position and retry later: a batch could not be stored."""
        if self.phase is Phase.STOPPED:
            return []
        if self._former:
            self._former, committed_seq = 0, 0  # a batch of the previous epoch: of this one nothing is committed
        self.resume.last = self._pending_commits.failed(committed_seq)
        self.progress.last_seq = committed_seq
        self._batch.clear()
        return self._wait(now, problem)

    def stop(self, *, release: bool = False) -> list[Action]:
        """Stop with the daemon; or permanently, if the mirror or source was removed (`release`)."""
        actions: list[Action] = []
        if release and self.is_connected and not self.origin.consumer:
            actions.append(Release(release_request(self.origin, self.request.consumer)))
        actions += self._enter(Phase.STOPPED)
        self._batch.clear()
        return actions

    # -- inside ----------------------------------------------------------------------------------------------------

    def _control(self, reply: bytes, header: bytes, now: float) -> list[Action]:
        if reply:
            if not self.request.is_from(_asks_for(reply)):
                return []
            told = headers.get(header, upstream_positions.HEADER) if self.config.asks_origins else None
            if told is not None:
                self.request.told.append(told.decode("utf-8", "replace"))
            return self._answer(reply)
        last = headers.get(header, _LAST_CONSUMER)
        wanted = None if last is None else parse_uint(last)
        if wanted and wanted != self.request.consumer_seq:
            self.progress.gaps += 1
            return self._ask(now)
        if wanted == 0 and self.phase is Phase.ACTIVE and self._begins_too_late(self.verifier.first_if_none_waits):
            return self._ask(now)
        stalled = headers.get(header, _STALLED)
        if stalled and self.request.is_from(_asks_for(stalled)):
            return self._answer(stalled)
        # An Eyot origin that holds messages back (its policies, a rate) says how many.
        self.progress.lag = parse_uint(headers.get(header, _PENDING) or b"0") or 0
        self.progress.held_back = self.progress.lag > 0
        return []

    def _answer(self, subject: bytes) -> list[Action]:
        # The answer names what is confirmed: the origin ignores answers about another server's messages.
        request = self.request
        header = ack_position_header(request.consumer, request.consumer_seq, request.delivered_seq)
        self._pending_commits.wait(request.consumer_seq, Answer(subject, header))
        return self._answers_due()

    def _answers_due(self) -> list[Action]:
        """Return the due answers to flow control. Received messages may be of another epoch of the origin until verified."""
        return [] if self.phase in UNVERIFIED else list[Action](self._pending_commits.due())

    def _ask(self, now: float) -> list[Action]:
        """Send a new request, unless the last one is too recent."""
        spaced = self._requested_at + REQUEST_SPACING_S
        if now < spaced:
            self.retry_at = spaced
            return self._enter(Phase.WAITING)
        actions = self._enter(Phase.REQUESTED)
        config, resume = self.config, self.resume
        prefix = config.origin.deliver_prefix or "$JS"
        own = f"{prefix}.{'M' if config.mirror else 'S'}.{self._make_id(8)}"
        request = self.request = CurrentRequest(
            deliver=(config.origin.deliver or own).encode(),
            reply=f"$JSC.R.{self._make_id(8)}".encode(),
            heartbeat_s=HEARTBEAT_S if config.origin.consumer else self.terms.heartbeat_s,
            skipped=self.epoch.skipped,
        )
        checks = self.verifier.begin(resume.last, resume.checkpoints, now)
        start = resume.start(config.origin, epochs=self.progress.epochs)
        if config.origin.consumer:
            subject, body = reset_request(config.origin, start)
        else:
            subject, body = consumer_request(
                config.origin,
                mirror=config.mirror,
                start=start,
                deliver=own,
                short_id=self._make_id(8),
                rate_limit_bps=self.terms.rate_limit_bps,
                heartbeat_s=self.terms.heartbeat_s,
                asks={**checks, **config.metadata, **self._epoch_claim(), **self._tells()},
            )
        self.waiting = ""
        self._requested_at = now
        self._verified = len(self._batch)
        self.progress.requests += 1
        return [
            *actions,
            Subscribe(request.deliver, request.reply, self.verifier.identity_reply),
            Request(subject, request.reply, body),
            self.verifier.identify(),
        ]

    def _epoch_claim(self) -> dict[str, str]:
        claimed = self.verifier.claims(any_taken=bool(self.resume.last.seq))
        return {EPOCH_KEY: claimed} if claimed else {}

    def _wait(self, now: float, problem: ApiError) -> list[Action]:
        """Request again later; `problem`: the reason."""
        self.progress.error = problem
        ceiling = min(RETRY_MAX_S, RETRY_FIRST_S * 2 ** min(self._failures, 16))
        self.retry_at = now + ceiling * (1.0 + self._jitter()) / 2
        self._failures += 1
        return self._enter(Phase.WAITING)

    # -- the phase -------------------------------------------------------------------------------------------------

    def _enter(self, phase: Phase) -> list[Action]:
        """Change the phase; the only place that does. Leaving the present request returns the actions that end it."""
        assert phase in TRANSITIONS[self.phase], f"{self.phase.name} does not lead to {phase.name}"
        actions = [] if phase in CONNECTED else self._leave_request()
        self.phase = phase
        return actions

    def _leave_request(self) -> list[Action]:
        """Abandon the consumer at the origin. Received messages stay valid, since they carry their sequences.

        Only messages that were received before the origin's epoch was known are requested again.
        """
        if self.phase in UNVERIFIED and len(self._batch) > self._verified:
            self.resume.last = self.verifier.asked
            self.progress.last_seq = self.resume.last.seq
            del self._batch[self._verified :]
        left, self.request = self.request, CurrentRequest()
        self.verifier.end()
        self._pending_commits.forget()
        return [Unsubscribe(left.deliver, left.reply)] if left.deliver else []


def _asks_for(subject: bytes) -> bytes:
    """Return the consumer in a flow-control subject, `$JS.FC.[<domain>.<account>.]<stream>.<consumer>.<id>`; b"" for others."""
    tokens = subject.split(b".")
    return tokens[-2] if len(tokens) in (5, 7) and subject.startswith(b"$JS.FC.") else b""


def _origin_position(message: CopiedMessage) -> OriginPosition:
    return OriginPosition(message.origin_seq, message.ts_ns, len(message.header) + len(message.payload))
