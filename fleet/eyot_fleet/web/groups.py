"""Groups and rollouts as the page shows them, and the names of all devices that filters leave, for bulk actions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from eyot_fleet.device_query import QueryError
from eyot_fleet.errors import FleetError
from eyot_fleet.group_summary import GroupSummary, summaries
from eyot_fleet.rollout import RingProgress, Rollout, progress_of
from eyot_fleet.web.answers import json_answer, refusal
from eyot_fleet.web.devices import query_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from eyot_fleet.web.backend import Backend
    from eyot_serving.http_messages import HttpRequest, HttpResponse

#: How long an answer is given again, seconds: counting all devices costs more than a page of them.
KEPT_S: Final = 2.0
#: Names of one answer.
NAMES_MAX: Final = 10_000
#: Devices of a ring that are named.
RING_NAMES_MAX: Final = 20


class RolloutRow(Struct, frozen=True, kw_only=True):
    """A rollout with the devices of its rings."""

    name: str
    rollout: Rollout
    rings: list[RingProgress]


class Groups:
    """Answers from the index. `now`: monotonic time, seconds."""

    def __init__(self, backend: Backend, now: Callable[[], float]) -> None:
        self._backend = backend
        self._now = now
        self._groups: tuple[float, list[GroupSummary]] | None = None
        self._rollouts: tuple[float, list[RolloutRow]] | None = None

    def listed(self) -> HttpResponse:
        """Answer with all groups, the one that needs somebody most first."""
        if self._groups is None or self._now() - self._groups[0] >= KEPT_S:
            self._groups = (self._now(), summaries(self._backend.groups(), self._backend.index))
        return json_answer({"now": self._backend.now(), "groups": self._groups[1]})

    async def one(self, name: str) -> HttpResponse:
        """Answer with a group as it is stored, for a change that names its revision."""
        try:
            group, revision = await self._backend.group(name)
        except FleetError as error:
            return refusal(503, str(error))
        found: dict[str, Any] = {"group": group, "revision": revision}
        return json_answer(found)

    def rollouts(self) -> HttpResponse:
        """Answer with all rollouts, the latest first."""
        if self._rollouts is None or self._now() - self._rollouts[0] >= KEPT_S:
            found = sorted(self._backend.rollouts().items(), key=lambda item: (-item[1].started_at, item[0]))
            self._rollouts = (self._now(), [self._row(name, rollout) for name, rollout in found])
        return json_answer({"now": self._backend.now(), "rollouts": self._rollouts[1]})

    def forget_kept(self) -> None:
        """Compute the next answers anew: somebody has changed something."""
        self._groups = self._rollouts = None

    def _row(self, name: str, rollout: Rollout) -> RolloutRow:
        backend = self._backend
        rings = progress_of(rollout, backend.groups(), backend.index, backend.now())
        for ring in rings:
            ring.unlinked = sorted(ring.unlinked)[:RING_NAMES_MAX]
            ring.worse = dict(sorted(ring.worse.items())[:RING_NAMES_MAX])
        return RolloutRow(name=name, rollout=rollout, rings=rings)

    def names(self, request: HttpRequest) -> HttpResponse:
        """Answer with the names of all devices that the filters of an address leave, at most NAMES_MAX."""
        try:
            query = query_of(request.query)
        except QueryError as error:
            return refusal(400, str(error))
        found = self._backend.index.names(query)
        return json_answer({"names": found[:NAMES_MAX], "total": len(found)})
