"""Which subjects are taken: by the streams of an account, by the consumers of a work queue.

Comparing a new configuration with every other one costs more with each of them. This keeps the patterns of all of them together, and
brings them up to date by what changed since it was asked last.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eyot_wire.pattern_set import PatternSet, bounded


class Taken:
    """The patterns of named configurations."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[object, tuple[bytes, ...]]] = {}
        self._patterns: PatternSet = bounded()

    def follow(self, configs: Iterable[tuple[str, object, Sequence[str | bytes]]]) -> None:
        """Name, configuration (a changed one is another object) and patterns of all there are."""
        known, gone = self._known, dict(self._known)
        for name, config, patterns in configs:
            before = gone.pop(name, None)
            if before is not None and before[0] is config:
                continue
            if before is not None:
                self._forget(name, before[1])
            encoded = tuple(one if isinstance(one, bytes) else one.encode() for one in patterns)
            known[name] = (config, encoded)
            for pattern in encoded:
                self._patterns.add(pattern)
        for name, (_, patterns_gone) in gone.items():
            self._forget(name, patterns_gone)

    def _forget(self, name: str, patterns: tuple[bytes, ...]) -> None:
        del self._known[name]
        for pattern in patterns:
            self._patterns.discard(pattern)

    def overlaps(self, patterns: Iterable[bytes], *, but: str = "") -> bool:
        """Whether one of `patterns` overlaps one of a configuration of another name. Raises TooManySteps."""
        own = self._known.get(but, (None, ()))[1]
        self._patterns.steps = 0
        for pattern in own:
            self._patterns.discard(pattern)
        try:
            return any(self._patterns.overlaps(pattern) for pattern in patterns)
        finally:
            for pattern in own:
                self._patterns.add(pattern)
