"""What an origin's answers mean for a copy that has something of it already: is it the one that was copied, and all of it?

Sequences mean something only within one life of the origin. Its `created` tells one life from the next; where it ends, and when it
stored the last message that was copied (`proof.py`), tell whether it was set back within a life. What follows from that is policy:

    what is found                       a source                                  a mirror
    the origin was made again           copies it from its beginning              holds still and says so (`skip_lost`: goes on)
    it was set back, or lost its end    copies what is newer than what it has     the same

A mirror cannot follow by itself: it keeps the origin's sequences, and these are taken.
"""

from __future__ import annotations

from dataclasses import dataclass

from eyot_sync.sourcing import origin_problems as trouble
from eyot_sync.sourcing.actions import Progress
from eyot_sync.sourcing.origin_answers import OriginInfo
from eyot_sync.sourcing.origin_check import OriginPosition
from eyot_wire.jetstream.errors import ApiError
from eyot_wire.jetstream.stream_source import identity_of

#: Metadata of a request for a consumer: `OriginEpoch.told`.
EPOCH_KEY = "eyot.life"


@dataclass(frozen=True, slots=True)
class Continue:
    """The origin is as it was."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Take nothing of it; `lag` is what is known to be missing."""

    why: ApiError
    lag: int


@dataclass(frozen=True, slots=True)
class Restart:
    """Copy it from its beginning."""


@dataclass(frozen=True, slots=True)
class ResumeByTime:
    """Copy what it stored after all that was copied; where no time is known, what comes after this sequence, as nats-server does."""

    than_seq: int


Verdict = Continue | Pause | Restart | ResumeByTime


class OriginEpoch:
    """`identity`: the life of the origin that the position belongs to ("": never known). For mirrors: `skip_lost` follows an origin that
    gives sequences out again from the mirror's end on; `held_at` is one more than where such an origin ended when it was found (0: never).
    `whole`: a mirror holds messages of this life only, and never went on behind its own end. `ended`: the origin's last sequence when it
    was asked last (None: not told).
    """

    def __init__(
        self, progress: Progress, *, mirror: bool, identity: str, skip_lost: bool, held_at: int, whole: bool = False
    ) -> None:
        self.identity = identity
        self.skip_lost = skip_lost
        self.held_at = held_at
        self.whole = whole
        self.ended: int | None = None
        self._mirror = mirror
        self._progress = progress

    @property
    def told(self) -> str:
        """The life, by its identity, of which the copy takes everything from its position on, and has what comes before; "" if that
        is not so, or not known."""
        return identity_of(self.identity) if not self._mirror or (self.whole and not self.held_at) else ""

    def assess(
        self, asked: OriginPosition, before_first: int, info: OriginInfo | None, *, refuted: bool, newer: bool
    ) -> Verdict:
        """The copy has everything up to `asked`; the origin begins after `before_first`, tells `info` of itself (None: nothing), and
        `refuted` says that it has another message under that sequence. `newer`: the copy asked by time, sequences are of no use."""
        self.ended = None if info is None else info.state.last_seq
        if not asked.seq:
            self.whole = True  # it begins
        if info is not None:
            before, self.identity = self.identity, info.created
            if before and identity_of(before) != identity_of(info.created) and (asked.seq or newer):
                return self._other_epoch(before, info, asked.seq)
        end = min(before_first, asked.seq)
        if info is not None and info.state.last_seq is not None:
            end = min(end, info.state.last_seq)
        self._progress.behind = end < asked.seq
        if self._progress.behind:
            self._progress.error = trouble.ends_before(end, asked.seq)
        elif refuted:
            end = asked.seq - 1
        if self._mirror:
            return self._held_back(end, asked.seq, refuted=refuted and not self._progress.behind)
        if end == asked.seq:
            return Continue()
        if refuted:
            self._progress.note = trouble.note_set_back(asked.seq)
        return ResumeByTime(end)

    def _other_epoch(self, before: str, info: OriginInfo, held: int) -> Verdict:
        """The origin was deleted and made again: its sequences begin anew, what was copied is of its former life."""
        progress = self._progress
        if not self._mirror:
            progress.epochs += 1
            progress.note = trouble.note_new_epoch(info.created, before, held)
            return Restart()
        if self.skip_lost:
            progress.note = trouble.note_skips_epoch(info.created, held)
            self.held_at = 0
            self.whole = False
            return Continue()
        self.identity = before
        return Pause(trouble.mirror_of_another_epoch(info.created, before, held), info.state.messages)

    def _held_back(self, end: int, held: int, *, refuted: bool) -> Verdict:
        """A mirror's origin went back, now or before (then `held_at` remembers it): under the sequences that the mirror holds there
        are, or will be, other messages."""
        if end < held and not self.held_at:
            self.held_at = end + 1
        if not self.held_at:
            return Continue()
        end = self.held_at - 1
        if self.skip_lost:
            self._progress.note = trouble.note_skips_end(end, held)
            self._progress.error = None
            self.held_at = 0
            self.whole = False
            return Continue()
        why = trouble.mirror_of_other_messages(held) if refuted else trouble.mirror_of_a_lost_end(end, held)
        return Pause(why, held - end)
