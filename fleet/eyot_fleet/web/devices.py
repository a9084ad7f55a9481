"""Pages of devices, found on the server, and one device with its day. Equal questions within a second share one answer."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from eyot_fleet.device_query import DeviceQuery, QueryError
from eyot_fleet.device_record import DeviceRecord
from eyot_fleet.web.answers import json_answer, refusal
from eyot_fleet.web.backend import Day, Freshness
from eyot_fleet.web.views import Row, row_of
from eyot_wire.digits import is_digits

if TYPE_CHECKING:
    from collections.abc import Callable

    from eyot_fleet.web.backend import Backend
    from eyot_serving.http_messages import HttpRequest, HttpResponse

#: Devices of one page of the list.
SIZE_MAX: Final = 200
#: How long an answer is given again although the index has changed, seconds.
KEPT_S: Final = 1.0
_KEPT_MAX: Final = 64
#: Filters of one kind in a question.
_VALUES_MAX: Final = 20
_QUERY_MEMBERS: Final = frozenset(DeviceQuery.__struct_fields__)


class ListAnswer(Struct, frozen=True, kw_only=True):
    """One page of the list. `rows` by need, with the counts of all devices that the filters leave."""

    now: float
    hub: Freshness
    revision: int
    rows: list[Row]
    total: int
    fleet: int
    states: dict[str, int]
    alerts: dict[str, int]
    labels: dict[str, int]
    backlog: int
    never_arrived: int


class DeviceAnswer(Struct, frozen=True, kw_only=True):
    """One device."""

    now: float
    hub: Freshness
    device: DeviceRecord
    day: Day


class _Found(Struct, frozen=True):
    made_at: float
    answer: ListAnswer


class Devices:
    """Answers from the index. `now`: monotonic time, seconds; `shown` is told which devices a feed's viewer sees."""

    def __init__(
        self, backend: Backend, now: Callable[[], float], shown: Callable[[str, HttpRequest, frozenset[str]], None]
    ) -> None:
        self._backend = backend
        self._now = now
        self._shown = shown
        self._found: OrderedDict[DeviceQuery, _Found] = OrderedDict()

    def page(self, request: HttpRequest) -> HttpResponse:
        """Answer one page of the list."""
        try:
            query = query_of(request.query)
            found = self._page(query)
        except QueryError as error:
            return refusal(400, str(error))
        if feed := request.query.get("feed", ""):
            self._shown(feed, request, frozenset(row.name for row in found.rows))
        return json_answer(msgspec.structs.replace(found, now=self._backend.now(), hub=self._backend.freshness()))

    def one(self, name: str, request: HttpRequest) -> HttpResponse:
        """Answer one device."""
        record = self._backend.index.get(name)
        if record is None:
            return refusal(404, "there is no such device")
        if feed := request.query.get("feed", ""):
            self._shown(feed, request, frozenset((name,)))
        backend = self._backend
        return json_answer(
            DeviceAnswer(now=backend.now(), hub=backend.freshness(), device=record, day=backend.day(name))
        )

    def _page(self, query: DeviceQuery) -> ListAnswer:
        index, now = self._backend.index, self._now()
        kept = self._found.get(query)
        if kept is not None and (kept.answer.revision == index.revision or now - kept.made_at < KEPT_S):
            self._found.move_to_end(query)
            return kept.answer
        found = index.query(query)
        answer = ListAnswer(
            now=0.0,
            hub=self._backend.freshness(),
            revision=found.revision,
            rows=[row_of(record) for record in found.devices],
            total=found.total,
            fleet=found.fleet,
            states=found.states,
            alerts=found.alerts,
            labels=found.labels,
            backlog=found.backlog,
            never_arrived=found.never_arrived,
        )
        self._found[query] = _Found(now, answer)
        self._found.move_to_end(query)
        while len(self._found) > _KEPT_MAX:
            self._found.popitem(last=False)
        return answer


def query_of(asked: dict[str, str]) -> DeviceQuery:
    """Return the question that an address holds; several values of a filter are lines of one parameter. Raises QueryError."""
    for name in asked:
        if name not in _QUERY_MEMBERS and name != "feed":
            raise QueryError(f"unknown parameter: expected one of {', '.join(sorted(_QUERY_MEMBERS))}")
    query = DeviceQuery(
        text=asked.get("text", ""),
        labels=_values(asked, "labels"),
        states=_values(asked, "states"),
        alerts=_values(asked, "alerts"),
        sort=asked.get("sort", "state"),
        descending=asked.get("descending", "") == "true",
        page=_number(asked, "page", 0),
        size=_number(asked, "size", 50),
    )
    if query.size > SIZE_MAX:
        raise QueryError(f"a page has at most {SIZE_MAX} devices")
    query.check()
    return query


def _values(asked: dict[str, str], name: str) -> tuple[str, ...]:
    values = tuple(each for each in asked.get(name, "").split("\n") if each)
    if len(values) > _VALUES_MAX:
        raise QueryError(f"{name}: at most {_VALUES_MAX} at a time")
    return values


def _number(asked: dict[str, str], name: str, otherwise: int) -> int:
    text = asked.get(name, "")
    if not text:
        return otherwise
    if not is_digits(text) or len(text) > 9:
        raise QueryError(f"{name}: expected a number")
    return int(text)
