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

Sequences mean something only within one life of the origin. Together with each consumer the origin's STREAM.INFO is asked
for; its `created` tells one life from the next and is kept beside the position. Until it is known (or cannot be had)
nothing is handed on. What a new life means is the policy of `_new_life`, and of `_behind` for an origin that lost its end.

Flow control is answered only when everything before it is on flash. What can be under way and uncommitted is therefore
bounded by the origin's flow-control window, and what the origin sees answered is durable here.
Source: sync.md sections 2 to 5.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from eyot_sync import origin_trouble as trouble
from eyot_sync.copier_actions import (
    Action,
    Answer,
    Copied,
    Delivered,
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
from eyot_sync.origin import Origin, Start, consumer_request, release_request, reset_request, start_of
from eyot_sync.origin_answers import CreateResponse, ErrorOnly, OriginInfo
from eyot_sync.stream_gate import LOOK_AGAIN_S
from eyot_wire import headers
from eyot_wire.ack import decode_ack_reply
from eyot_wire.js_errors import ApiError, error
from eyot_wire.js_struct import InvalidJson, decode
from eyot_wire.js_time import ns_to_rfc3339

#: No heartbeat for so long (one a second is asked for): the consumer at the origin is gone or the link is dead.
STALL_AFTER_S = 5.0
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


class Copier:
    """Copies one origin. `last_seq` is the last origin sequence that is stored here (0: none); `make_id(n)` gives random
    names; `last_stored_ns` is when the target last stored a message (for a start by time). `identity` is the origin's life
    that `last_seq` belongs to ("" if that was never known), `last_ts_ns` the time of that message at the origin.

    For mirrors: with `skip_lost` an origin that gives sequences out again is followed from the mirror's end on, without it the mirror
    holds still; `held_at` is where such an origin ended when it was found (0: never), to be kept by the owner."""

    def __init__(
        self,
        origin: Origin,
        *,
        mirror: bool,
        last_seq: int,
        make_id: Callable[[int], str],
        last_stored_ns: int = 0,
        jitter: Callable[[], float] = lambda: 0.0,
        identity: str = "",
        last_ts_ns: int = 0,
        skip_lost: bool = False,
        held_at: int = 0,
    ) -> None:
        self.origin = origin
        self.mirror = mirror
        self.phase = Phase.WAITING
        self.progress = Progress(last_seq=last_seq, committed_seq=last_seq)
        self.retry_at = 0.0
        #: What a policy makes the copy wait for, "" if none does; the rate to ask of the origin, 0 for none.
        self.waiting = ""
        self.rate_limit_bps = 0
        self.deliver = b""
        self.reply = b""
        self.identity_reply = b""
        self.identity = identity
        self.consumer = ""
        self.skip_lost = skip_lost
        self.held_at = held_at
        self._last_ts_ns = last_ts_ns
        self._ask_by_time = False
        self._unidentified_until: float | None = None
        self._behind_at: int | None = None
        self._origin_end: int | None = None  # its last sequence, as its STREAM.INFO says
        self._in_flight = 0  # batches that were taken and are not reported on yet
        self._older = 0  # those of them that were taken under earlier requests
        self._sure = 0  # messages at the head of the batch that came before the present request
        self._make_id = make_id
        self._jitter = jitter
        self._last_stored_ns = last_stored_ns
        self._last_seq = last_seq
        self._consumer_seq = 0
        self._committed_consumer_seq = 0
        self._requested_at = -RETRY_MAX_S
        self._asked_after = last_seq
        self._failures = 0
        self._batch: list[Copied] = []
        self._delivered_seq = 0
        self._answers: deque[tuple[int, Answer]] = deque()

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
                stalled_at = (self.progress.heard_at or self._requested_at) + STALL_AFTER_S
                return stalled_at if self._unidentified_until is None else min(stalled_at, self._unidentified_until)
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
            case _ if self._unidentified_until is not None and now >= self._unidentified_until:
                return self.unidentified(now)
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
            return self._wait(now, error(10214 if self.mirror else 10217))
        self.phase = Phase.ACTIVE
        self._failures = 0
        self.consumer = info.name
        self.progress.heard_at = now
        self.progress.error = None
        self.progress.lag = max(0, info.num_pending - self._consumer_seq)
        return self._placed(info.delivered.stream_seq, now)

    def unidentified(self, now: float) -> list[Action]:
        """The origin does not tell which life it is in: go by sequences alone, as nats-server does."""
        self._unidentified_until = None
        behind_at, self._behind_at = self._behind_at, None
        if self.mirror:
            return self._held_back(behind_at, now)
        return [] if behind_at is None else self._behind(behind_at, now)

    def _identified(self, payload: bytes, now: float) -> list[Action]:
        if self.phase not in (Phase.REQUESTED, Phase.ACTIVE) or self._unidentified_until is None:
            return []
        try:
            info = decode(payload, OriginInfo, strict=False)
        except InvalidJson:
            info = OriginInfo()
        if info.error is not None or not info.created:
            return self.unidentified(now)
        before, self.identity = self.identity, info.created
        if not before or before == info.created or (self._asked_after == 0 and not self._ask_by_time):
            self._origin_end = info.state.last_seq
            if self.phase is Phase.ACTIVE:
                self._check_end(self._asked_after)
            return self.unidentified(now)
        self._unidentified_until = self._behind_at = None
        return self._new_life(before, info, now)

    def _new_life(self, before: str, info: OriginInfo, now: float) -> list[Action]:
        """The origin was deleted and made again: its sequences begin anew, what was copied is of its former life.

        A source copies the new life from its beginning, behind what it holds. A mirror keeps the origin's sequences, which
        are taken: it holds still and says so, until somebody decides about the messages it has.
        """
        held = self._asked_after
        if self.mirror and self.skip_lost:
            self.progress.note = trouble.note_skips_life(info.created, held)
            self.held_at = 0
            return []
        if self.mirror:
            self.identity = before
            return self._hold(trouble.mirror_of_another_life(info.created, before, held), info.state.messages, now)
        self.progress.lives += 1
        self.progress.note = trouble.note_new_life(info.created, before, held)
        self._last_ts_ns = 0
        self._ask_by_time = False
        return self._start_over(now)

    def _start_over(self, now: float) -> list[Action]:
        """What sequences meant until now they mean no more."""
        self._batch.clear()
        self._last_seq = self.progress.last_seq = self.progress.committed_seq = 0
        return self._ask(now)

    def _placed(self, before_first: int, now: float) -> list[Action]:
        """The origin begins right after `before_first`; messages of it may have come before this response."""
        if before_first > self._asked_after:
            if self.mirror and self._consumer_seq == 0 and not self.held_at:
                self._last_seq = self.progress.last_seq = before_first
                return [Skip(before_first)]
            return []
        self.progress.behind = False
        self._check_end(before_first)
        # Whether that is a new life is known when the origin has told its identity.
        return self.unidentified(now) if self._unidentified_until is None else []

    def _check_end(self, before_first: int) -> None:
        """Does the origin end before what was copied of it? Not every version says so by where the consumer begins."""
        end = before_first if self._origin_end is None else min(before_first, self._origin_end)
        if end < self._asked_after:
            self.progress.behind = True
            self.progress.error = trouble.ends_before(end, self._asked_after)
            self._behind_at = end if self._behind_at is None else min(end, self._behind_at)

    def _held_back(self, behind_at: int | None, now: float) -> list[Action]:
        """A mirror's origin lost its end, now or before (then `held_at` remembers it): under the sequences that the mirror
        holds there are, or will be, other messages."""
        if behind_at is not None and not self.held_at:
            self.held_at = behind_at + 1
        if not self.held_at:
            return []
        end, held = self.held_at - 1, self._asked_after
        if self.skip_lost:
            self.progress.note = trouble.note_skips_end(end, held)
            self.progress.error = None
            self.held_at = 0
            return []
        return self._hold(trouble.mirror_of_a_lost_end(end, held), held - end, now)

    def _hold(self, why: ApiError, lag: int, now: float) -> list[Action]:
        """A mirror that cannot go on. It looks again now and then; what came meanwhile it does not take."""
        self._last_seq = self.progress.last_seq = self._asked_after
        self._batch.clear()
        self.progress.lag = max(1, lag)
        return self._wait(now, why)

    def _behind(self, before_first: int, now: float) -> list[Action]:
        """A source's origin ends before what was copied of it: it lost its end (a power cut, a restored backup) and gives
        its sequences out again. What is newer than the last message copied is new."""
        if self._last_ts_ns:
            self._ask_by_time = True
            return self._start_over(now)
        # As nats-server does: what the origin stores from here on is new. Some of it may have been dropped as old.
        self._last_seq = before_first
        return self._ask(now) if self._consumer_seq > 0 else []

    def message(self, reply: bytes, subject: bytes, header: bytes, payload: bytes, now: float) -> list[Action]:
        """Something on the deliver subject: a message of the origin, a heartbeat or flow control."""
        if self.phase is not Phase.ACTIVE and (self.phase is not Phase.REQUESTED or self.origin.consumer):
            # A consumer that stands ready may still be sending what came before it was asked to go on.
            return []
        self.progress.heard_at = now
        if not payload and header.startswith(b"NATS/1.0 100"):
            return self._control(reply, header, now)
        ack = decode_ack_reply(reply)
        if ack is None or ack.delivered > 1 or (self.consumer and ack.consumer.decode() != self.consumer):
            return []
        if ack.consumer_seq != self._consumer_seq + 1:
            if ack.consumer_seq <= self._consumer_seq:
                return []
            self.progress.gaps += 1
            return self._ask(now)
        self._consumer_seq = ack.consumer_seq
        self._delivered_seq = ack.stream_seq
        self.progress.lag = ack.pending
        if ack.stream_seq <= self._last_seq:
            self.progress.dropped_old += 1
            return []
        self._last_seq = self.progress.last_seq = ack.stream_seq
        self._last_ts_ns = ack.ts_ns
        self._batch.append(Copied(ack.stream_seq, ack.ts_ns, subject, header, payload))
        return []

    def messages(self, run: Sequence[Delivered], now: float) -> int:
        """`message` for the usual case, many at once: takes messages of the consumer that follow each other without a gap.
        Returns how many were taken; the first that was not (a heartbeat, a gap, something old) is for `message`."""
        consumer = self.consumer.encode()
        if self.phase is not Phase.ACTIVE or not consumer:
            return 0
        self.progress.heard_at = now
        cseq, last_seq = self._consumer_seq, self._last_seq
        append = self._batch.append
        taken = 0
        pending = b""
        for delivered in run:
            # $JS.ACK.<stream>.<consumer>.<delivered>.<sseq>.<cseq>.<time>.<pending>@<subject, which may hold dots>
            tokens = delivered.reply.split(b".", 8)
            if len(tokens) != 9 or tokens[3] != consumer or tokens[4] != b"1":
                break
            left, mark, subject = tokens[8].partition(b"@")
            if not (mark and left.isdigit() and tokens[5].isdigit() and tokens[6].isdigit() and tokens[7].isdigit()):
                break
            seq = int(tokens[5])
            if int(tokens[6]) != cseq + 1 or seq <= last_seq:
                break
            cseq += 1
            last_seq = seq
            pending = left
            taken += 1
            append(Copied(seq, int(tokens[7]), subject, delivered.header, delivered.payload))
        if taken:
            self._consumer_seq = cseq
            self._delivered_seq = last_seq
            self._last_seq = self.progress.last_seq = last_seq
            self._last_ts_ns = self._batch[-1].ts_ns
            self.progress.lag = int(pending)
        return taken

    def take_batch(self) -> tuple[list[Copied], int]:
        """What has gathered since the last call, and the mark to give back to `committed`."""
        if self._unidentified_until is not None:
            sure, self._batch, self._sure = self._batch[: self._sure], self._batch[self._sure :], 0
            self._in_flight += bool(sure)
            return sure, self._committed_consumer_seq
        if not self._batch and self._in_flight:
            return [], self._committed_consumer_seq  # nothing is settled by there being nothing new
        batch, self._batch = self._batch, []
        self._in_flight += bool(batch)
        return batch, self._consumer_seq

    def committed(self, mark: int, last_seq: int, copied: int, asked: bytes) -> list[Action]:
        """A batch is on flash. `asked` is the `reply` that was current when it was taken."""
        self.progress.copied += copied
        self.progress.committed_seq = max(self.progress.committed_seq, last_seq)
        self._in_flight = max(0, self._in_flight - bool(copied))
        if asked == self.reply:
            self._committed_consumer_seq = max(self._committed_consumer_seq, mark)
        else:
            self._older = max(0, self._older - bool(copied))
        actions: list[Action] = []
        known = self._unidentified_until is None
        while known and not self._older and self._answers and self._answers[0][0] <= self._committed_consumer_seq:
            actions.append(self._answers.popleft()[1])
        return actions

    def failed(self, committed_seq: int, problem: ApiError, now: float) -> list[Action]:
        """A batch could not be stored: go back to what is on flash and try again later."""
        self._last_seq = self.progress.last_seq = committed_seq
        self._batch.clear()
        self._in_flight = 0
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
            return self._answer(reply)
        last = headers.get(header, _LAST_CONSUMER)
        if last is not None and last.isdigit() and int(last) > 0 and int(last) != self._consumer_seq:
            self.progress.gaps += 1
            return self._ask(now)
        stalled = headers.get(header, _STALLED)
        if stalled:
            return self._answer(stalled)
        self.progress.lag = 0
        return []

    def _answer(self, subject: bytes) -> list[Action]:
        header = b""
        if self.origin.consumer:
            header = settled_header(self._consumer_seq, self._delivered_seq)
        answer = Answer(subject, header)
        known = self._unidentified_until is None  # else what it has may be of another life of the origin
        if known and self._consumer_seq <= self._committed_consumer_seq and not self._older:
            return [answer]
        self._answers.append((self._consumer_seq, answer))
        return []

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
            )
        self.phase = Phase.REQUESTED
        self.waiting = ""
        self._requested_at = now
        self._asked_after = self._last_seq
        self._unidentified_until = now + IDENTIFIED_WITHIN_S
        self._origin_end = None
        self._sure = len(self._batch)
        self.progress.requests += 1
        return [
            *actions,
            Subscribe(self.deliver, self.reply, self.identity_reply),
            Request(subject, self.reply, body),
            Identify(f"{self.origin.api}.STREAM.INFO.{self.origin.stream}".encode(), self.identity_reply),
        ]

    def _start(self) -> Start:
        """Where to begin at the origin."""
        if self._last_seq == 0 and self._ask_by_time and self._last_ts_ns:
            return Start(time=ns_to_rfc3339(self._last_ts_ns + 1))
        if self._last_seq == 0 and self.progress.lives:
            return Start(time=self.origin.start_time)
        return start_of(self.origin, self._last_seq, self._last_stored_ns)

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
        if self._unidentified_until is not None:
            if len(self._batch) > self._sure:
                self._last_seq = self.progress.last_seq = self._asked_after
                del self._batch[self._sure :]
            self._unidentified_until = self._behind_at = None
        actions: list[Action] = [Unsubscribe(self.deliver, self.reply)] if self.deliver else []
        self.deliver = self.reply = self.identity_reply = b""
        self.consumer = ""
        self._consumer_seq = self._committed_consumer_seq = self._delivered_seq = 0
        self._answers.clear()
        self._older = self._in_flight
        return actions
