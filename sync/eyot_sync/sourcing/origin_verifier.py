"""Verifies for each request that the origin is still the one that was copied.

A verification needs two answers besides the origin's answer to the request itself: STREAM.INFO (the epoch and the last
sequence), and the stored time of the last copied message. An answer that is late or unobtainable is no evidence; the
other one then decides. `origin_epoch.py` interprets the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from eyot_sync.sourcing.actions import Action, FetchLastMessage, Identify
from eyot_sync.sourcing.origin import Origin
from eyot_sync.sourcing.origin_answers import CreateResponse, OriginInfo
from eyot_sync.sourcing.origin_check import OriginCheck, OriginPosition
from eyot_sync.sourcing.origin_epoch import OriginEpoch, Verdict
from eyot_wire.jetstream.struct import InvalidJson, decode

#: The time limit of the origin's answer about its epoch, seconds; after it, sequences alone count.
IDENTIFIED_WITHIN_S = 3.0
#: A consumer with at most so many messages before it was made at the origin's end.
NEAR_END = 64


class OriginVerifier:
    """The checks of one origin. `make_id(n)` gives random names."""

    def __init__(
        self, origin: Origin, epoch: OriginEpoch, others: Sequence[int], make_id: Callable[[int], str]
    ) -> None:
        self.epoch = epoch
        #: The inbox of STREAM.INFO's answer; b"": no request is under way.
        self.identity_reply = b""
        #: The last copied message when the request was sent: the request begins after it.
        self.asked = OriginPosition()
        #: The origin has nothing between `asked` and this sequence that the consumer will deliver. Known once the origin has answered.
        self.before_first = 0
        #: When to stop waiting for an answer, monotonic seconds.
        self.deadline = 0.0
        self._origin = origin
        self._others = others
        self._make_id = make_id
        self._check = OriginCheck(OriginPosition())
        #: The inbox for the last message's answer; b"": not requested.
        self._check_reply = b""
        #: The origin is not known to ignore requests for single messages.
        self._answers_for_messages = True
        #: STREAM.INFO's answer is awaited.
        self._identity_pending = False
        #: Messages that the consumer had before it when it was made.
        self._pending = 0
        #: That answer; None: no usable one came.
        self._info: OriginInfo | None = None

    # -- the request -------------------------------------------------------------------------------------------------

    def begin(self, asked: OriginPosition, checkpoints: Sequence[tuple[int, int]], now: float) -> Mapping[str, str]:
        """Begin a verification for a request after `asked`; return the metadata that request stored times."""
        self.identity_reply = f"$JSC.R.{self._make_id(8)}".encode()
        self.asked = asked
        self.deadline = now + IDENTIFIED_WITHIN_S
        self._check = OriginCheck(asked, self._others, checkpoints)
        self._identity_pending = True
        self._info = None
        return self._check.metadata

    def identify(self) -> Identify:
        """Return the request for the origin's epoch, which is sent with the consumer request."""
        return Identify(f"{self._origin.api}.STREAM.INFO.{self._origin.stream}".encode(), self.identity_reply)

    def end(self) -> None:
        """End the verification: later answers are ignored."""
        self.identity_reply = self._check_reply = b""

    def claims(self, *, any_taken: bool) -> str:
        """Return the epoch of which the stream holds everything before the request, for the origin; "" if unknown.

        With it, the origin does not assume that the stream holds another epoch.
        """
        return self.epoch.told if any_taken else ""

    # -- answers -----------------------------------------------------------------------------------------------------

    def consumer_created(self, info: CreateResponse) -> list[Action]:
        """Process the origin's answer to the request; request the last copied message if its time is missing."""
        # A consumer that has delivered shows how far it is, not what the origin has removed: the messages show that.
        told = info.delivered
        self._pending = info.num_pending
        self.before_first = told.stream_seq if not told.consumer_seq else min(told.stream_seq, self.asked.seq)
        if self._check.heard(info.config.metadata if info.config is not None else {}):
            return []
        if not self._answers_for_messages:
            self._check.pending = False
            return []
        self._check_reply = f"$JSC.R.{self._make_id(8)}".encode()
        subject, body = self._check.request(self._origin)
        return [FetchLastMessage(subject, self._check_reply, body)]

    def answered(self, reply: bytes, payload: bytes) -> bool:
        """Process an answer; return False if it belongs to no question."""
        if reply == self.identity_reply:
            if self._identity_pending:
                self._identified(payload)
            return True
        if reply == self._check_reply:
            self._check.message(payload)
            return True
        return False

    @property
    def first_if_none_waits(self) -> int:
        """Return the sequence of the first message of a consumer before which there was none; 0: unknown, or there was one."""
        state = None if self._info is None else self._info.state
        if state is None or not state.messages or not state.last_seq or self._pending:
            return 0
        return state.last_seq + 1

    def leaves_out(self, first_seq: int) -> bool:
        """Return whether a consumer whose first message is `first_seq` may have begun too late.

        nats-server 2.9 looks at the end of a stream twice when it makes a consumer. A message that is stored in between
        is left out, and the answer does not show it. A second consumer begins where it should, since that message is
        there by then. Where messages were removed, it brings the same first message.
        """
        if self._origin.filters or first_seq <= max(self.before_first, self.asked.seq) + 1:
            return False
        if self.asked.seq:
            return self._pending <= NEAR_END
        first_stored = 0 if self._info is None else self._info.state.first_seq
        return first_stored < first_seq

    def unidentified(self) -> None:
        """Note that the origin does not send its epoch: sequences alone count, as in nats-server."""
        self._identity_pending = False

    def unproven(self) -> None:
        """Note that the origin's messages may not be read individually."""
        self._check.pending = False

    def give_up(self) -> None:
        """Stop waiting. An origin that answered with its epoch and ignored the other request is not asked again."""
        if self._check.pending and not self._identity_pending:
            self._answers_for_messages = False
        self._identity_pending = self._check.pending = False

    # -- the verdict -------------------------------------------------------------------------------------------------

    @property
    def is_complete(self) -> bool:
        """Whether no answer is awaited."""
        return not self._identity_pending and not self._check.pending

    @property
    def only_sourced(self) -> bool:
        """Whether the origin answered, and no client can have written `Nats-Stream-Source` into its messages."""
        return self._info is not None and self._info.only_sourced

    @property
    def stored(self) -> dict[int, int]:
        """Return the stored times of messages at the origin, by sequence, as far as the origin reported them; 0: removed."""
        return self._check.stored

    def verdict(self, *, by_time: bool) -> Verdict:
        """Return the verdict on the origin. `by_time`: the request was by time, so sequences do not count."""
        return self.epoch.assess(self.asked, self.before_first, self._info, refuted=self._check.refuted, newer=by_time)

    def _identified(self, payload: bytes) -> None:
        try:
            info = decode(payload, OriginInfo, strict=False)
        except InvalidJson:
            info = OriginInfo()
        self._info = info if info.error is None and info.created else None
        self._identity_pending = False
