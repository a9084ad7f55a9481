"""The compression that both sides of a leaf link agree on, from the modes in INFO and CONNECT.

Each side has a mode. A link is compressed when both sides name one other than `off`, and at least one does more than
`accept`; the modes of the two directions may differ. `s2_auto` depends on the round-trip time: on a near link, bytes
cost less than the time to save them.

Source: nats-server's documentation of `leafnodes { compression }`, and the wire behaviour of 2.10 to 2.15.
"""

from __future__ import annotations

from msgspec import Struct

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
    """An unknown mode of the peer. str() is the error for the peer."""


class LeafCompression(Struct, frozen=True):
    """The mode of one side of a link."""

    mode: str = OFF
    thresholds_s: tuple[float, ...] = THRESHOLDS_S

    @property
    def is_offered(self) -> bool:
        return self.mode not in ("", OFF, NOT_SUPPORTED)

    def agreed(self, theirs: str) -> str:
        """Return this side's mode with a peer of mode `theirs`; `off` or `not supported`: the link stays uncompressed."""
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
        """Return the level of an agreed `mode` at this round-trip time (None: unknown, treated as long)."""
        if mode != AUTO:
            return mode
        thresholds = self.thresholds_s
        if rtt_s is not None:
            for level, most_s in zip(_LEVELS, thresholds, strict=False):
                if rtt_s <= most_s:
                    return level
        return BEST if len(thresholds) >= 3 else _LEVELS[max(0, len(thresholds) - 1)]


def is_compressed(mode: str) -> bool:
    """Return whether a link with this agreed mode uses S2."""
    return mode in _S2
