"""Brings rollouts forward while this service leads: opens rings, halts, and writes each step with its line in the audit."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from eyot_fleet.errors import Conflict
from eyot_fleet.rollout import RUNNING, Rollout, next_step, progress_of
from eyot_wire.quoting import printable

if TYPE_CHECKING:
    from eyot_fleet.actions import Actions
    from eyot_fleet.fleet import Fleet

log = logging.getLogger("eyot.fleet")

BY: Final = "eyot-fleet"
#: Between two looks at running rollouts, seconds.
EVERY_S: Final = 3.0


class RolloutSteps:
    """The rollouts at one connection."""

    def __init__(self, actions: Actions, fleet: Fleet) -> None:
        self._actions = actions
        self._fleet = fleet

    async def step(self, now: float) -> None:
        """Compare each running rollout with its devices once. Raises FleetError."""
        for name, known in list(self._fleet.rollouts.items()):
            if known.state != RUNNING:
                continue
            # What the hub has counts: an operator may have halted it a moment ago.
            rollout, revision = await self._actions.read(Rollout, name)
            if rollout is None:
                continue
            fleet = self._fleet
            found = next_step(rollout, progress_of(rollout, fleet.groups, fleet.index, now), now)
            if found is None:
                continue
            try:
                await self._actions.write(name, found, BY, revision)
            except Conflict:
                continue  # somebody steers it: the next step looks again
            rings = ", ".join(ring.group for ring in found.rings[: len(found.opened)])
            told = log.warning if found.state != rollout.state and found.reason else log.info
            told("rollout %s of %s: %s, open: %s %s", name, found.version, found.state, rings, printable(found.reason))
