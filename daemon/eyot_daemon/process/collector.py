"""Settings of Python's garbage collector for a broker.

Reference counts free objects; the collector only looks for cycles, which are rare here: exceptions with their frames, and what those
hold. While it looks, nobody is served: some 0.3 us for each object, so a tenth of a second for the connections of a large server.
Therefore it looks at each object once, soon after it was made. What is still in use then is excluded (`gc.freeze`), as is all that
the start has made. For cycles that were in use at their first look, all objects are looked at when as many are new as there were at
the last such look.
"""

import gc

import trio

#: New objects before the collector looks at them: less than a millisecond, even with cold caches.
YOUNG_OBJECTS = 2_000
#: New objects, at least, before all are looked at.
GROWTH_MIN = 100_000
CHECK_S = 60.0


class Collector:
    """What is known of this process's objects."""

    def __init__(self) -> None:
        self._new = 0
        self._kept = 0

    def settle(self) -> None:
        """Exclude what the start has made, and from now on what has been looked at."""
        self._look_at_all()
        gc.callbacks.append(self._exclude)
        gc.set_threshold(YOUNG_OBJECTS)
        gc.enable()  # the launcher loads without it

    async def run(self) -> None:
        """Look at all objects when very many are new."""
        while True:
            await trio.sleep(CHECK_S)
            if self._new >= max(GROWTH_MIN, self._kept):
                self._look_at_all()

    def _exclude(self, phase: str, _: dict[str, int]) -> None:
        if phase == "stop":
            gc.freeze()
            self._new += YOUNG_OBJECTS

    def _look_at_all(self) -> None:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._kept = gc.get_freeze_count()
        self._new = 0
