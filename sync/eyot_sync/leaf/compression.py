"""Which compression the two sides of a leaf link agree on: the words of INFO and CONNECT, and what follows from them.

Each side has a mode. A link is compressed when neither says `off` or nothing at all, and at least one does more than `accept`; the modes of
the two directions may differ. `s2_auto` compresses by the round-trip time: on a near link, bytes cost less than the time to save them.

Source: nats-server's documentation of `leafnodes { compression }`, and what 2.10 to 2.15 say on the wire.
"""

from __future__ import annotations

from dataclasses import dataclass

OFF = "off"
NOT_SUPPORTED = "not supported"
ACCEPT = "accept"
AUTO = "s2_auto"
UNCOMPRESSED = "s2_uncompressed"
FAST = "s2_fast"
BETTER = "s2_better"
BEST = "s2_best"
#: Round-trip times, seconds, up to which `s2_auto` means uncompressed, fast and better; beyond them best.
THRESHOLDS_S = (0.01, 0.05, 0.1)

_LEVELS = (UNCOMPRESSED, FAST, BETTER, BEST)
_S2 = (AUTO, *_LEVELS)


class UnknownMode(ValueError):
    """The peer's word is none that is known. str() is what it is told."""


@dataclass(frozen=True, slots=True)
class LeafCompression:
    """The mode of one side of a link."""

    mode: str = OFF
    thresholds_s: tuple[float, ...] = THRESHOLDS_S

    @property
    def is_offered(self) -> bool:
        return self.mode not in ("", OFF, NOT_SUPPORTED)

    def agreed(self, theirs: str) -> str:
        """The mode of this side with a peer that says `theirs`; `off` or `not supported`: the link stays as it is."""
        if not self.is_offered:
            return self.mode or OFF
        if theirs in ("", NOT_SUPPORTED):
            return NOT_SUPPORTED
        if theirs == OFF or (theirs == ACCEPT and self.mode == ACCEPT):
            return OFF
        if theirs == ACCEPT:
            return self.mode
        if theirs not in _S2:
            raise UnknownMode(f'unsupported route compression mode "{theirs}"')
        if self.mode == ACCEPT:
            return FAST if theirs == AUTO else theirs
        return self.mode

    def level(self, mode: str, rtt_s: float | None) -> str:
        """What an agreed `mode` means at this round-trip time (None: not known yet, taken for long)."""
        if mode != AUTO:
            return mode
        thresholds = self.thresholds_s
        if rtt_s is not None:
            for level, most_s in zip(_LEVELS, thresholds, strict=False):
                if rtt_s <= most_s:
                    return level
        return BEST if len(thresholds) >= 3 else _LEVELS[max(0, len(thresholds) - 1)]


def is_compressed(mode: str) -> bool:
    """Does a link with this agreed mode speak S2?"""
    return mode in _S2
