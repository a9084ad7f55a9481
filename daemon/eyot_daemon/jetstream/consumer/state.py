"""What a consumer has delivered and what has been acknowledged: the deciding half of every consumer, without I/O.

Sequences come in pairs: the stream's (`sseq`) and the consumer's own count of deliveries (`cseq`, contiguous from 1,
redeliveries included). A delivered message of a consumer that expects acknowledgements is *pending* until it is
acknowledged, terminated, given up (`max_deliver`) or gone from the stream. A pending message is either in the due
table (it will be redelivered when its time comes) or in the redelivery queue (it may be redelivered now).

The ack floor is the last position below which nothing is pending. It is computed from the lowest pending message, not
kept: gaps (filtered, deleted, given up) need no bookkeeping. Pending messages are held in order of their stream
sequence, which is the order in which they were first delivered.

Every time is an argument, in seconds of the monotonic clock. nats-server's rules: ADR-15, ADR-13, and observation.
"""

import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Literal, NamedTuple

from eyot_daemon.jetstream.consumer.due_table import DueTable

AckPolicyName = Literal["none", "all", "explicit"]

#: `due` of a pending message that waits in the redelivery queue.
QUEUED = math.inf


class AckRules(NamedTuple):
    """The part of a consumer's configuration that rules acknowledgements; waits in seconds, -1: no limit."""

    policy: AckPolicyName
    ack_wait_s: float = 30.0
    backoff_s: tuple[float, ...] = ()
    max_deliver: int = -1
    max_ack_pending: int = -1

    def wait_s(self, deliveries: int) -> float:
        """How long the `deliveries`-th delivery (from 1) of a message waits for its acknowledgement."""
        backoff = self.backoff_s
        if backoff:
            return backoff[min(deliveries, len(backoff)) - 1]
        return self.ack_wait_s


class GivenUp(NamedTuple):
    """A message that was delivered `max_deliver` times and never acknowledged."""

    sseq: int
    deliveries: int


class ConsumerState:
    """Delivery and acknowledgement state of one consumer.

    `delivered_cseq`  deliveries so far; `delivered_sseq`: the stream sequence up to which the stream has been read.
    `pending`         sseq -> (cseq of its first delivery, key in the due table or QUEUED), ascending by sseq.
    `redelivered`     sseq -> deliveries so far, for pending messages delivered more than once.
    """

    __slots__ = (
        "_due",
        "_given_up",
        "_queue",
        "_removed",
        "delivered_cseq",
        "delivered_sseq",
        "pending",
        "redelivered",
        "rules",
    )

    def __init__(self, rules: AckRules, delivered_sseq: int = 0) -> None:
        self.rules = rules
        self.delivered_cseq = 0
        self.delivered_sseq = delivered_sseq
        self.pending: dict[int, tuple[int, float]] = {}
        self.redelivered: dict[int, int] = {}
        self._queue: OrderedDict[int, None] = OrderedDict()
        self._due = DueTable()
        self._given_up: list[GivenUp] = []
        self._removed = 0

    # -- what is known ---------------------------------------------------------------------------------------------

    @property
    def num_ack_pending(self) -> int:
        return len(self.pending)

    @property
    def queued(self) -> int:
        """Messages that may be redelivered now."""
        return len(self._queue)

    @property
    def next_due(self) -> float:
        """When the earliest pending message falls due; infinity when none will."""
        return self._due.earliest

    def room(self) -> int:
        """How many new messages `max_ack_pending` still allows (a large number when it is not limited)."""
        if self.rules.policy == "none" or self.rules.max_ack_pending <= 0:
            return 1 << 62
        return max(0, self.rules.max_ack_pending - len(self.pending))

    def ack_floor(self) -> tuple[int, int]:
        """(cseq, sseq) up to which nothing is pending."""
        self._compact()
        for sseq, (cseq, _) in self.pending.items():
            return cseq - 1, sseq - 1
        return self.delivered_cseq, self.delivered_sseq

    def deliveries(self, sseq: int) -> int:
        """How often `sseq` has been delivered, at least 1 for anything that was."""
        return self.redelivered.get(sseq, 1)

    def queue_order(self) -> list[int]:
        """The redelivery queue, next first."""
        return list(self._queue)

    # -- delivering ------------------------------------------------------------------------------------------------

    def deliver(self, sseqs: Sequence[int], now: float) -> int:
        """New messages `sseqs` (ascending, above `delivered_sseq`) leave now; returns the first one's cseq."""
        count = len(sseqs)
        first = self.delivered_cseq + 1
        self.delivered_cseq += count
        self.delivered_sseq = sseqs[-1]
        if self.rules.policy != "none":
            key = self._due.key_for(now, self.rules.wait_s(1))
            self.pending.update(zip(sseqs, zip(range(first, first + count), repeat(key)), strict=False))
            self._due.add(key, sseqs)
        return first

    def skip_to(self, sseq: int) -> None:
        """The stream was read up to `sseq` and held nothing (more) for this consumer."""
        if sseq > self.delivered_sseq:
            self.delivered_sseq = sseq

    def rewind_to(self, sseq: int) -> None:
        """The stream's end moved back to `sseq` (a commit failed) before anything was delivered."""
        if not self.delivered_cseq and sseq < self.delivered_sseq:
            self.delivered_sseq = sseq

    def next_redelivery(self) -> int:
        """The head of the redelivery queue (0: none). It stays there until `redeliver`, an ack or the like takes it."""
        while self._queue:
            sseq = next(iter(self._queue))
            if not self._exhausted(sseq):
                return sseq
            self._give_up(sseq)
        return 0

    def redeliver(self, sseq: int, now: float) -> tuple[int, int]:
        """A queued message leaves again; returns its new (cseq, deliveries)."""
        del self._queue[sseq]
        deliveries = self.redelivered[sseq] = self.redelivered.get(sseq, 1) + 1
        self.delivered_cseq += 1
        key = self._due.key_for(now, self.rules.wait_s(deliveries))
        self.pending[sseq] = (self.pending[sseq][0], key)
        self._due.add(key, (sseq,))
        return self.delivered_cseq, deliveries

    def expire(self, now: float) -> int:
        """Move what has fallen due into the redelivery queue, or give it up; returns how many fell due."""
        due = self._due.pop_due(now)
        for sseq in due:
            self._enqueue(sseq)
        return len(due)

    def take_given_up(self) -> list[GivenUp]:
        """The messages given up since the last call."""
        taken = self._given_up
        if taken:
            self._given_up = []
        return taken

    # -- what consumers answer -------------------------------------------------------------------------------------

    def ack(self, sseq: int) -> Sequence[int]:
        """`sseq` is acknowledged (with policy "all", so is everything below it); returns what was pending of it."""
        if self.rules.policy == "all":
            taken = []
            for each in self.pending:
                if each > sseq:
                    break
                taken.append(each)
            for each in taken:
                self._drop(each)
            self._compact()
            return taken
        if sseq not in self.pending:
            return ()
        self._drop(sseq)
        return (sseq,)

    def ack_each(self, sseqs: Iterable[int]) -> list[int]:
        """The same for many with policy "explicit"; returns those that were pending."""
        pending, discard = self.pending, self._due.discard
        taken = []
        for sseq in sseqs:
            held = pending.pop(sseq, None)
            if held is None:
                continue
            if held[1] == QUEUED:
                self._queue.pop(sseq, None)
            else:
                discard(held[1], sseq)
            taken.append(sseq)
        if self.redelivered:
            for sseq in taken:
                self.redelivered.pop(sseq, None)
        self._removed += len(taken)
        return taken

    def nak(self, sseq: int, delay_s: float, now: float) -> bool:
        """Not acknowledged: redeliver now (or give up), or after `delay_s`. False if it is not pending."""
        held = self.pending.get(sseq)
        if held is None:
            return False
        if delay_s > 0:
            self._reschedule(sseq, held, self._due.key_for(now, delay_s))
        elif held[1] != QUEUED:
            self._due.discard(held[1], sseq)
            self._enqueue(sseq)
        return True

    def progress(self, sseq: int, now: float) -> bool:
        """Still at work: the wait starts anew. False if it is not pending."""
        held = self.pending.get(sseq)
        if held is None:
            return False
        self._reschedule(sseq, held, self._due.key_for(now, self.rules.wait_s(self.deliveries(sseq))))
        return True

    def remove(self, sseq: int) -> bool:
        """The message is no longer pending for another reason (terminated, gone from the stream)."""
        if sseq not in self.pending:
            return False
        self._drop(sseq)
        return True

    def remove_below(self, sseq: int) -> list[int]:
        """Everything below `sseq` has left the stream; returns what of it was pending."""
        gone = []
        for each in self.pending:
            if each >= sseq:
                break
            gone.append(each)
        for each in gone:
            self._drop(each)
        self._compact()
        self.skip_to(sseq - 1)
        return gone

    def reset(self, sseq: int) -> None:
        """Begin anew after `sseq`: nothing was delivered, nothing is pending."""
        self.delivered_cseq, self.delivered_sseq = 0, sseq
        self.pending.clear()
        self.redelivered.clear()
        self._queue.clear()
        self._due.clear()
        self._given_up.clear()
        self._removed = 0

    # -- changes and recovery --------------------------------------------------------------------------------------

    def set_rules(self, rules: AckRules) -> None:
        """The configuration changed; messages already waiting keep their due times."""
        self.rules = rules

    def restore(
        self,
        delivered: tuple[int, int],
        pending: Iterable[tuple[int, int, float]],
        queued: Iterable[int],
        redelivered: dict[int, int],
        now: float,
    ) -> None:
        """Take over stored state: `delivered` (cseq, sseq); pending (sseq, cseq, remaining wait in s) ascending; the
        redelivery queue in order (its messages are also in `pending`, their remaining wait is not looked at)."""
        self.delivered_cseq, self.delivered_sseq = delivered
        self.redelivered = dict(redelivered)
        queue = list(queued)
        self._queue = OrderedDict.fromkeys(queue)
        self._due.clear()
        self.pending = {}
        for sseq, cseq, remaining_s in pending:
            if sseq in self._queue:
                self.pending[sseq] = (cseq, QUEUED)
            else:
                key = self._due.key_for(now, remaining_s)
                self.pending[sseq] = (cseq, key)
                self._due.add(key, (sseq,))

    # -- inside ----------------------------------------------------------------------------------------------------

    def _exhausted(self, sseq: int) -> bool:
        return 0 < self.rules.max_deliver <= self.redelivered.get(sseq, 1)

    def _enqueue(self, sseq: int) -> None:
        """A message that is no longer in the due table: queue it, unless its deliveries are used up."""
        self.pending[sseq] = (self.pending[sseq][0], QUEUED)
        if self._exhausted(sseq):
            self._give_up(sseq)
        else:
            self._queue[sseq] = None

    def _give_up(self, sseq: int) -> None:
        self._given_up.append(GivenUp(sseq, self.deliveries(sseq)))
        self._drop(sseq)

    def _reschedule(self, sseq: int, held: tuple[int, float], key: float) -> None:
        if held[1] == QUEUED:
            self._queue.pop(sseq, None)
        else:
            self._due.discard(held[1], sseq)
        self.pending[sseq] = (held[0], key)
        self._due.add(key, (sseq,))

    def _drop(self, sseq: int) -> None:
        key = self.pending.pop(sseq)[1]
        if key == QUEUED:
            self._queue.pop(sseq, None)
        else:
            self._due.discard(key, sseq)
        if self.redelivered:
            self.redelivered.pop(sseq, None)
        self._removed += 1

    def _compact(self) -> None:
        """Rebuild the dict once mostly dead entries stand before its first live one, so that finding that stays cheap."""
        if self._removed > 64 + 2 * len(self.pending):
            self.pending = dict(self.pending)
            self._removed = 0
