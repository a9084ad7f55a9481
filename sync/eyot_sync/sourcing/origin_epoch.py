"""Interprets an origin's answers for a stream that has a position in it.

Sequences have a meaning only within one epoch of the origin. Its `created` distinguishes epochs. Its last sequence, and
the stored time of the last copied message (`origin_check.py`), reveal that it was set back within an epoch. The
consequence is policy:

    what is found                       a source                                  a mirror
    the origin was created again        copies it from its beginning              pauses with an error (`skip_lost`: continues)
    it was set back, or lost its end    copies what is newer than what it has     the same

A mirror cannot follow by itself: it keeps the origin's sequences, and other messages already have them.
"""

from __future__ import annotations

from typing import NamedTuple, Self

from msgspec import Struct

from eyot_sync.sourcing import origin_problems as trouble
from eyot_sync.sourcing.actions import Progress
from eyot_sync.sourcing.origin_answers import OriginInfo
from eyot_sync.sourcing.origin_check import OriginPosition
from eyot_wire.digits import parse_uint
from eyot_wire.jetstream.errors import ApiError
from eyot_wire.jetstream.stream_source import identity_of

#: Metadata of a request for a consumer: `OriginEpoch.told`, which `Claim` reads.
EPOCH_KEY = "eyot.life"


class Claim(NamedTuple):
    """What a mirror or source says of the messages before its request: they are of epoch `identity`, but for those up to `skipped`."""

    identity: str
    skipped: int = 0

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the claim in a request; text that is none claims no known epoch."""
        identity, _, skipped = text.partition(" ")
        return cls(identity, parse_uint(skipped.encode()) or 0)

    @property
    def text(self) -> str:
        return f"{self.identity} {self.skipped}" if self.skipped else self.identity


class Continue(Struct, frozen=True):
    """The origin is as it was."""


class Pause(Struct, frozen=True):
    """Copy nothing; `lag`: number of messages that are known to be missing."""

    why: ApiError
    lag: int


class Restart(Struct, frozen=True):
    """Copy it from its beginning."""


class ResumeByTime(Struct, frozen=True):
    """Copy what it stored after everything that was copied; without a known time, what follows this sequence, as nats-server does."""

    than_seq: int


Verdict = Continue | Pause | Restart | ResumeByTime


class OriginEpoch:
    """The origin's epoch that the position belongs to.

    `identity`: its `created` ("": never known). For mirrors: `skip_lost` follows an origin that gives sequences again,
    from the mirror's end on; `held_at`: one more than such an origin's last sequence when it was found (0: never).
    `whole`: a mirror holds messages of this epoch only, without a gap at an end. `skipped`: up to this sequence a mirror
    that is not `whole` holds other messages than the origin may have (0: unknown). `ended`: the origin's last sequence
    in its last answer (None: unknown).
    """

    def __init__(
        self,
        progress: Progress,
        *,
        mirror: bool,
        identity: str,
        skip_lost: bool,
        held_at: int,
        whole: bool = False,
        skipped: int = 0,
    ) -> None:
        self.identity = identity
        self.skip_lost = skip_lost
        self.held_at = held_at
        self.whole = whole
        self.skipped = skipped
        self.ended: int | None = None
        self._mirror = mirror
        self._progress = progress

    @property
    def told(self) -> str:
        """The epoch of the origin that the stream has copied up to its position, and continues to copy, as a `Claim`.

        "" if that is not so, or unknown.
        """
        if not self.identity or (self._mirror and (self.held_at or not (self.whole or self.skipped))):
            return ""
        return Claim(identity_of(self.identity), self.skipped if self._mirror else 0).text

    def assess(
        self, asked: OriginPosition, before_first: int, info: OriginInfo | None, *, refuted: bool, newer: bool
    ) -> Verdict:
        """Return the verdict on an origin for a stream that has everything up to `asked`.

        The origin begins after `before_first` and answered `info` (None: nothing). `refuted`: it has another message
        under that sequence. `newer`: the request was by time, so sequences do not count.
        """
        self.ended = None if info is None else info.state.last_seq
        if not asked.seq:
            self.whole, self.skipped = True, 0  # it begins
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
        """Handle an origin that was deleted and created again.

        Its sequences start over; the copied messages are of its former epoch.
        """
        progress = self._progress
        if not self._mirror:
            progress.epochs += 1
            progress.note = trouble.note_new_epoch(info.created, before, held)
            return Restart()
        if self.skip_lost:
            progress.note = trouble.note_skips_epoch(info.created, held)
            return self._skip(held)
        self.identity = before
        return Pause(trouble.mirror_of_another_epoch(info.created, before, held), info.state.messages)

    def _held_back(self, end: int, held: int, *, refuted: bool) -> Verdict:
        """Handle a mirror's origin that was set back, now or before (`held_at`).

        The sequences that the mirror holds will be given again, or were.
        """
        if end < held and not self.held_at:
            self.held_at = end + 1
        if not self.held_at:
            return Continue()
        end = self.held_at - 1
        if self.skip_lost:
            self._progress.note = trouble.note_skips_end(end, held)
            self._progress.error = None
            return self._skip(held)
        why = trouble.mirror_of_other_messages(held) if refuted else trouble.mirror_of_a_lost_end(end, held)
        return Pause(why, held - end)

    def _skip(self, held: int) -> Continue:
        """Continue after `held`, the mirror's end: what the origin has up to there is not copied."""
        self.held_at = 0
        self.whole = False
        self.skipped = held
        return Continue()
