"""A consumer's deliveries and acknowledgements: the decisions of every consumer, without I/O.

Sequences come in pairs: the stream's (`sseq`) and the consumer's own count of deliveries (`cseq`, contiguous from 1,
redeliveries included). A delivered message of a consumer that expects acknowledgements is *pending* until it is
acknowledged, terminated, given up (`max_deliver`) or gone from the stream. A pending message is either in the due table
(it will be redelivered when due) or in the redelivery queue (it may be redelivered now).

The ack floor is the last position below which nothing is pending. It is computed from the lowest pending message: gaps
(filtered, deleted, given up) need no bookkeeping. Pending messages are ordered by stream sequence, the order of their
first delivery.

Time is always an argument, in seconds of the monotonic clock. nats-server's rules: ADR-15, ADR-13, and observation.

When pending messages fall due for redelivery: a calendar of a few hundred buckets.

A consumer may hold a million unacknowledged messages; each has a due time, most are acknowledged long before it. A
heap would keep a dead entry per acknowledged message until its due time; a scan would touch every pending message at
every expiry. Here a due time is rounded up to a tick, one set of stream sequences per tick, and an acknowledged
message leaves its set at once. The tick grows with the distance (1/512 of it, at least 5 ms), so there are never more
than about a thousand live buckets, and nothing falls due early.

Times are seconds of the monotonic clock, handed in.

A consumer's configuration as the delivery state needs it.
"""

import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Literal, NamedTuple

from eyot_wire.jetstream.model import ConsumerConfig

#: The finest distinction between due times, seconds.
TICK_S_MIN = 0.005
#: Buckets per distance: a message due in 30 s is redelivered at most 30/512 s late.
TICKS_PER_DISTANCE = 512


class DueTable:
    """Stream sequences by due time. Every sequence is in at most one bucket; the caller keeps the bucket's key."""

    __slots__ = ("_buckets", "_earliest")

    def __init__(self) -> None:
        self._buckets: dict[float, set[int]] = {}
        self._earliest = math.inf

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    @staticmethod
    def key_for(now: float, wait_s: float) -> float:
        """Return the bucket of messages that are due `wait_s` from now: the next tick at or after it."""
        tick = wait_s / TICKS_PER_DISTANCE
        if tick < TICK_S_MIN:
            tick = TICK_S_MIN
        else:
            # A power of two, so that nearby distances share their buckets.
            tick = TICK_S_MIN * 2.0 ** math.ceil(math.log2(tick / TICK_S_MIN))
        return math.ceil((now + wait_s) / tick) * tick

    def add(self, key: float, seqs: Iterable[int]) -> None:
        """Put `seqs` into the bucket `key` (a value of `key_for`)."""
        bucket = self._buckets.get(key)
        if bucket is None:
            self._buckets[key] = set(seqs)
            if key < self._earliest:
                self._earliest = key
        else:
            bucket.update(seqs)

    def discard(self, key: float, seq: int) -> None:
        """Remove `seq` from bucket `key`; unknown keys and sequences are ignored."""
        bucket = self._buckets.get(key)
        if bucket is not None:
            bucket.discard(seq)
            if not bucket:
                del self._buckets[key]
                if key == self._earliest:
                    self._earliest = math.nan

    @property
    def earliest(self) -> float:
        """The earliest bucket's time; infinity when nothing is pending."""
        if self._earliest != self._earliest:
            self._earliest = min(self._buckets, default=math.inf)
        return self._earliest

    def pop_due(self, now: float) -> list[int]:
        """Remove and return every due sequence, ascending."""
        due: list[int] = []
        while self.earliest <= now:
            due.extend(self._buckets.pop(self._earliest))
            self._earliest = math.nan
        due.sort()
        return due

    def clear(self) -> None:
        self._buckets.clear()
        self._earliest = math.inf


AckPolicyName = Literal["none", "all", "explicit"]

#: `due` of a pending message that waits in the redelivery queue.
QUEUED = math.inf


class AckRules(NamedTuple):
    """The acknowledgement rules of a consumer's configuration; waits in seconds, -1: unlimited."""

    policy: AckPolicyName
    ack_wait_s: float = 30.0
    backoff_s: tuple[float, ...] = ()
    max_deliver: int = -1
    max_ack_pending: int = -1

    def wait_s(self, deliveries: int) -> float:
        """Return how long the `deliveries`-th delivery (from 1) of a message waits for its acknowledgement."""
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
    `keeps_given_up`  `redelivered` also has the messages that were given up, until they are acknowledged after all or leave
                      the stream: interest retention keeps them for whoever handles what nobody could.
    """

    __slots__ = (
        "_due",
        "_given_up",
        "_kept",
        "_queue",
        "_removed",
        "delivered_cseq",
        "delivered_sseq",
        "keeps_given_up",
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
        self.keeps_given_up = False
        #: those of `redelivered` that were given up
        self._kept: dict[int, int] = {}

    # -- queries -----------------------------------------------------------------------------------------------------

    @property
    def num_ack_pending(self) -> int:
        return len(self.pending)

    @property
    def queued(self) -> int:
        """Messages that may be redelivered now."""
        return len(self._queue)

    @property
    def next_due(self) -> float:
        """Time at which the earliest pending message falls due, monotonic seconds; infinity: none does."""
        return self._due.earliest

    def room(self) -> int:
        """Return how many new messages `max_ack_pending` still allows (a large number when it is not limited)."""
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
        """Return how often `sseq` has been delivered, at least 1 for anything that was."""
        return self.redelivered.get(sseq, 1)

    def queue_order(self) -> list[int]:
        """Return the redelivery queue, next first."""
        return list(self._queue)

    # -- delivering ------------------------------------------------------------------------------------------------

    def deliver(self, sseqs: Sequence[int], now: float) -> int:
        """Deliver new messages `sseqs` (ascending, above `delivered_sseq`) now; return the first one's cseq."""
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
        """Note that the stream was read up to `sseq` and held nothing (more) for this consumer."""
        if sseq > self.delivered_sseq:
            self.delivered_sseq = sseq

    def rewind_to(self, sseq: int) -> None:
        """Return to `sseq`: the stream's end moved back (a commit failed) before anything was delivered."""
        if not self.delivered_cseq and sseq < self.delivered_sseq:
            self.delivered_sseq = sseq

    def next_redelivery(self) -> int:
        """Return the head of the redelivery queue (0: none); it stays there until `redeliver`, an ack or a removal."""
        while self._queue:
            sseq = next(iter(self._queue))
            if not self._exhausted(sseq):
                return sseq
            self._give_up(sseq)
        return 0

    def redeliver(self, sseq: int, now: float) -> tuple[int, int]:
        """Redeliver a queued message; return its new (cseq, deliveries)."""
        del self._queue[sseq]
        deliveries = self.redelivered[sseq] = self.redelivered.get(sseq, 1) + 1
        self.delivered_cseq += 1
        key = self._due.key_for(now, self.rules.wait_s(deliveries))
        self.pending[sseq] = (self.pending[sseq][0], key)
        self._due.add(key, (sseq,))
        return self.delivered_cseq, deliveries

    def expire(self, now: float) -> int:
        """Move due messages into the redelivery queue, or give them up; return how many were due."""
        due = self._due.pop_due(now)
        for sseq in due:
            self._enqueue(sseq)
        return len(due)

    def take_given_up(self) -> list[GivenUp]:
        """Return the messages given up since the last call."""
        taken = self._given_up
        if taken:
            self._given_up = []
        return taken

    # -- answers of clients ------------------------------------------------------------------------------------------

    def ack(self, sseq: int) -> Sequence[int]:
        """Acknowledge `sseq` (with policy "all" also everything below); return what was pending of it."""
        if self.rules.policy == "all":
            taken = []
            for each in self.pending:
                if each > sseq:
                    break
                taken.append(each)
            for each in taken:
                self._drop(each)
            self._compact()
            self.forget_given_up([each for each in self._kept if each <= sseq])
            return taken
        if sseq not in self.pending:
            self.forget_given_up([sseq])
            return ()
        self._drop(sseq)
        return (sseq,)

    def ack_each(self, sseqs: Sequence[int]) -> list[int]:
        """Acknowledge many with policy "explicit"; return those that were pending."""
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
            for sseq in sseqs:
                self.redelivered.pop(sseq, None)
                self._kept.pop(sseq, None)
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

    def give_back(self, sseqs: Iterable[int]) -> None:
        """Queue pending messages for redelivery; the whole queue is in the order of the stream then."""
        queue = self._queue
        for sseq in list(sseqs):
            held = self.pending.get(sseq)
            if held is not None and held[1] != QUEUED:
                self._due.discard(held[1], sseq)
                self.pending[sseq] = (held[0], QUEUED)
                queue[sseq] = None
        self._queue = OrderedDict.fromkeys(sorted(queue))

    def progress(self, sseq: int, now: float) -> bool:
        """Restart the wait of a message in progress. False if it is not pending."""
        held = self.pending.get(sseq)
        if held is None:
            return False
        self._reschedule(sseq, held, self._due.key_for(now, self.rules.wait_s(self.deliveries(sseq))))
        return True

    def remove(self, sseq: int) -> bool:
        """Remove a pending message for another reason (terminated, removed from the stream)."""
        if sseq not in self.pending:
            return False
        self._drop(sseq)
        return True

    def remove_below(self, sseq: int) -> list[int]:
        """Remove everything below `sseq`, which left the stream; return what was pending of it."""
        gone = []
        for each in self.pending:
            if each >= sseq:
                break
            gone.append(each)
        for each in gone:
            self._drop(each)
        self._compact()
        self.forget_given_up([each for each in self._kept if each < sseq])
        self.skip_to(sseq - 1)
        return gone

    def given_up(self) -> list[int]:
        """Return the messages that were given up, and are neither acknowledged since nor gone."""
        return list(self._kept) if self.keeps_given_up else []

    @property
    def num_redelivered(self) -> int:
        """How many pending messages were delivered more than once."""
        return len(self.redelivered) - len(self._kept)

    def forget_given_up(self, sseqs: Iterable[int]) -> None:
        """Forget messages that were given up: they are acknowledged after all, or left the stream."""
        if self._kept:
            for sseq in sseqs:
                if self._kept.pop(sseq, 0):
                    del self.redelivered[sseq]

    def reset(self, sseq: int) -> None:
        """Start over after `sseq`: nothing was delivered, nothing is pending."""
        self.delivered_cseq, self.delivered_sseq = 0, sseq
        self.pending.clear()
        self.redelivered.clear()
        self._kept.clear()
        self._queue.clear()
        self._due.clear()
        self._given_up.clear()
        self._removed = 0

    # -- changes and recovery --------------------------------------------------------------------------------------

    def set_rules(self, rules: AckRules, now: float) -> None:
        """Apply a changed configuration: other waits hold for the messages that wait already, as nats-server has it."""
        old, self.rules = self.rules, rules
        if (old.ack_wait_s, old.backoff_s) == (rules.ack_wait_s, rules.backoff_s):
            return
        for sseq, held in list(self.pending.items()):
            deliveries = self.deliveries(sseq)
            before_s, wait_s = old.wait_s(deliveries), rules.wait_s(deliveries)
            if held[1] == QUEUED or before_s == wait_s:
                continue
            left_s = held[1] - now
            # A key is late by a part of the old wait, which may be more than all of the new one. Only a delayed
            # redelivery waits longer than the old wait.
            most_s = wait_s if left_s <= before_s * (1 + 4 / TICKS_PER_DISTANCE) + TICK_S_MIN else math.inf
            self._reschedule(sseq, held, self._due.key_for(now, min(left_s + wait_s - before_s, most_s)))

    def restore(
        self,
        delivered: tuple[int, int],
        pending: Iterable[tuple[int, int, float]],
        queued: Iterable[int],
        redelivered: dict[int, int],
        now: float,
    ) -> None:
        """Restore stored state.

        `delivered`: (cseq, sseq). `pending`: (sseq, cseq, remaining wait in s), ascending. `queued`: the redelivery
        queue in order; its messages are also in `pending`, with their remaining wait ignored.
        """
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
        self._kept = {sseq: count for sseq, count in redelivered.items() if sseq not in self.pending}

    # -- inside ----------------------------------------------------------------------------------------------------

    def _exhausted(self, sseq: int) -> bool:
        return 0 < self.rules.max_deliver <= self.redelivered.get(sseq, 1)

    def _enqueue(self, sseq: int) -> None:
        """Queue a message that left the due table, unless its deliveries are used up."""
        self.pending[sseq] = (self.pending[sseq][0], QUEUED)
        if self._exhausted(sseq):
            self._give_up(sseq)
        else:
            self._queue[sseq] = None

    def _give_up(self, sseq: int) -> None:
        deliveries = self.deliveries(sseq)
        self._given_up.append(GivenUp(sseq, deliveries))
        self._drop(sseq)
        if self.keeps_given_up:
            self.redelivered[sseq] = self._kept[sseq] = deliveries

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
        """Rebuild the dict once mostly dead entries precede its first live one, so that finding it stays cheap."""
        if self._removed > 64 + 2 * len(self.pending):
            self.pending = dict(self.pending)
            self._removed = 0


#: A wait for acknowledgements that does not end: a hundred years.
NO_WAIT_S = 100 * 365 * 86_400.0


def ack_rules(config: ConsumerConfig) -> AckRules:
    """Nanoseconds become seconds, 0 and less become "no limit"."""
    if config.ack_policy == "flow_control":
        # The receiver reports its position, which acknowledges everything up to it; nothing is redelivered.
        return AckRules(policy="all", ack_wait_s=NO_WAIT_S, max_ack_pending=config.max_ack_pending)
    return AckRules(
        policy=config.ack_policy,
        ack_wait_s=config.ack_wait / 1e9,
        backoff_s=tuple(wait / 1e9 for wait in config.backoff),
        max_deliver=config.max_deliver,
        max_ack_pending=config.max_ack_pending,
    )
