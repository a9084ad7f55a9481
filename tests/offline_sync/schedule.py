"""What happens to a fleet: one fault or some work after the other, drawn from the seed.

Every step draws from a generator of its own: taking steps out of a schedule (`shrink.py`) leaves the others what they are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from random import Random

import trio

from offline_sync import changes, edits, faults
from offline_sync.fleet import Fleet

Step = Callable[[Fleet], Awaitable[None]]

STEPS: dict[Step, float] = {
    changes.work: 10,
    changes.burst: 1,
    faults.cut: 2,
    faults.restore: 3,
    faults.flap: 1,
    faults.half_open: 1,
    faults.one_way: 0.7,
    faults.linger: 1,
    faults.slow: 1,
    faults.crash: 3,
    faults.disk: 1,
    faults.clock: 1,
    faults.move_hub: 0.7,
    changes.recreate: 0.5,
    changes.purge: 0.5,
    changes.resource: 1,
    changes.reload: 0.5,
    changes.back_up: 0.4,
    changes.take_back: 0.3,
    changes.set_back: 0.5,
    changes.fail_over: 1,
    changes.rename: 0.4,
    changes.promote: 0.4,
    faults.leap: 0.7,
}
#: What happens to a fleet with two leaf nodes of one domain (`twins.py`): most of all, messages and links.
TWIN_STEPS: dict[Step, float] = {
    changes.work: 10,
    changes.burst: 2,
    faults.cut: 3,
    faults.restore: 4,
    faults.flap: 1,
    faults.half_open: 1,
    faults.one_way: 0.7,
    faults.linger: 1,
    faults.slow: 1,
    faults.crash: 2,
    faults.disk: 0.5,
}
#: What happens to a fleet whose operators change and remove more than they should: see `edits.py`.
EDIT_STEPS: dict[Step, float] = {
    **STEPS,
    edits.remove_consumer: 2,
    edits.delete_messages: 2,
    edits.limit: 1.5,
    edits.remake_copy: 1.5,
    edits.skip: 1.5,
    edits.archive: 1,
    edits.restore_stream: 1,
}
#: By the kind of fleet: "" is any.
_BY_KIND = {"": STEPS, "twins": TWIN_STEPS, "edits": EDIT_STEPS}
KINDS = tuple(_BY_KIND)
_PAUSES_S = (0.0, 0.01, 0.1, 0.5, 2.0, 8.0)


@dataclass(frozen=True)
class Planned:
    """The `number`th step of a schedule, and how long nothing else happens after it."""

    number: int
    step: Step
    pause_s: float

    def __str__(self) -> str:
        return f"{self.number:3} {self.step.__name__}, then {self.pause_s} s"


def plan(seed: int, steps: int, *, kind: str = "") -> list[Planned]:
    """The schedule of a seed, for a fleet of this kind (one of `KINDS`)."""
    chance, weights = Random(f"plan {seed}"), _BY_KIND[kind]
    kinds = chance.choices(list(weights), list(weights.values()), k=steps)
    return [Planned(number, step, chance.choice(_PAUSES_S)) for number, step in enumerate(kinds)]


async def play(fleet: Fleet, schedule: list[Planned], only: Collection[int] | None = None) -> None:
    """The steps of a schedule (those whose numbers are in `only`), the model checked after each."""
    for planned in schedule:
        if only is not None and planned.number not in only:
            continue
        fleet.chance = Random(f"{fleet.seed}/{planned.number}")
        fleet.say(f"-- step {planned.number}: {planned.step.__name__}")
        await planned.step(fleet)
        await trio.sleep(planned.pause_s)
        fleet.check()
