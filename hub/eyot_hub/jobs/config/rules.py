"""The rules of data quality that hub.toml declares for a silver table; `quality.py` evaluates them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Final, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from eyot_wire.go.duration import parse_duration_ns

#: Columns that every silver table has and a rule may name, and their types.
OWN_COLUMNS: Final = {
    "device": "string",
    "event_time": "timestamp",
    "subject": "string",
    "stored_at": "timestamp",
    "origin_domain": "string",
    "origin_stream": "string",
    "origin_sequence": "bigint",
    "content_hash": "bigint",
    "stream": "string",
    "sequence": "bigint",
}
_INT64_MAX: Final = 2**63 - 1
_WINDOW_MIN_NS: Final = 1_000_000_000
Problems = Iterator[tuple[str, str]]


class _Rule(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, tag_field="rule"):
    """What all rules have.

    `name`: default: the rule and its columns. `severity`: the command's exit status tells errors only.
    `allow`: the share of violations, 0 to 1, up to which the rule passes.
    """

    name: str = ""
    severity: Literal["error", "warning"] = "error"
    allow: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0

    @property
    def kind(self) -> str:
        return str(self.__struct_config__.tag)

    @property
    def title(self) -> str:
        return self.name or " ".join([self.kind, *self.named])

    @property
    def named(self) -> Sequence[str]:
        """The columns that the rule is about."""
        return ()

    def problems(self, types: Mapping[str, str]) -> Problems:
        """Yield the mistakes, each as key and text; `types` of all columns that a rule may name."""
        for name in self.named:
            if name not in types:
                yield "columns" if isinstance(self, Unique) else "column", f"{name!r} is no column"


class Required(_Rule, tag="required"):
    """The column is not null."""

    column: str

    @property
    def named(self) -> Sequence[str]:
        return (self.column,)


class Range(_Rule, tag="range"):
    """The number lies within the bounds, which belong to the range; null passes, NaN does not."""

    column: str
    min: int | float | None = None
    max: int | float | None = None

    @property
    def named(self) -> Sequence[str]:
        return (self.column,)

    def problems(self, types: Mapping[str, str]) -> Problems:
        yield from super().problems(types)
        if types.get(self.column, "double") not in ("double", "bigint"):
            yield "column", f"{self.column!r} is not a number"
        if self.min is None and self.max is None:
            yield "min", "give min, max or both"
        for key, bound in (("min", self.min), ("max", self.max)):
            if bound is not None and not _is_bound(bound, integers=types.get(self.column) == "bigint"):
                yield key, f"{bound} is no bound"
        if self.min is not None and self.max is not None and self.min > self.max:
            yield "max", f"{self.max} is less than min"


class Regex(_Rule, tag="regex"):
    """The whole text matches the pattern (RE2's syntax); null passes."""

    column: str
    pattern: str

    @property
    def named(self) -> Sequence[str]:
        return (self.column,)

    @property
    def whole(self) -> str:
        """The pattern for a search, which finds whole texts only."""
        return rf"\A(?:{self.pattern})\z"

    def problems(self, types: Mapping[str, str]) -> Problems:
        yield from super().problems(types)
        if types.get(self.column, "string") != "string":
            yield "column", f"{self.column!r} is no text"
        try:
            pc.match_substring_regex(pa.array([""]), self.pattern)
        except pa.ArrowInvalid as error:
            yield "pattern", str(error)


class Unique(_Rule, tag="unique"):
    """No two rows have the same values in all of the columns; rows with a null there pass."""

    columns: Annotated[list[str], msgspec.Meta(min_length=1)]

    @property
    def named(self) -> Sequence[str]:
        return self.columns

    def problems(self, types: Mapping[str, str]) -> Problems:
        yield from super().problems(types)
        if len(set(self.columns)) < len(self.columns):
            yield "columns", "names a column twice"


class Freshness(_Rule, tag="freshness"):
    """Each device has a row that is no older than `max_age`; a device without any row for `forget` is gone ("0s": never)."""

    max_age: str
    forget: str = "0s"
    column: Literal["event_time", "stored_at"] = "event_time"

    @property
    def named(self) -> Sequence[str]:
        return (self.column,)

    @property
    def max_age_us(self) -> int:
        return parse_duration_ns(self.max_age) // 1000

    @property
    def forget_us(self) -> int:
        return parse_duration_ns(self.forget) // 1000

    def problems(self, types: Mapping[str, str]) -> Problems:
        found = list(_durations(max_age=self.max_age, forget=self.forget))
        yield from found
        if not found and 0 < self.forget_us <= self.max_age_us:
            yield "forget", f"{self.forget} is not longer than max_age"


class Rate(_Rule, tag="rate"):
    """Each device has between `min` and `max` rows in each window of event time.

    `min` is asked of the windows between a device's first and its last row, without the two windows of these rows.
    """

    per: str = "1m"
    min: Annotated[int, msgspec.Meta(ge=1, le=_INT64_MAX)] | None = None
    max: Annotated[int, msgspec.Meta(ge=1, le=_INT64_MAX)] | None = None

    @property
    def per_us(self) -> int:
        return parse_duration_ns(self.per) // 1000

    def problems(self, types: Mapping[str, str]) -> Problems:
        found = list(_durations(per=self.per))
        yield from found
        if not found and self.per_us * 1000 < _WINDOW_MIN_NS:
            yield "per", f"{self.per} is shorter than 1s"
        if self.min is None and self.max is None:
            yield "min", "give min, max or both"
        if self.min is not None and self.max is not None and self.min > self.max:
            yield "max", f"{self.max} is less than min"


Rule = Required | Range | Regex | Unique | Freshness | Rate


class QualitySettings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Section [quality]. `period`: rows that the hub stored within this time are checked; "0s": all rows.

    Windows of a rate are chosen by event time.
    """

    period: str = "24h"

    @property
    def period_us(self) -> int:
        return parse_duration_ns(self.period) // 1000


def rules_problems(rules: Sequence[Rule], declared: Mapping[str, str]) -> Problems:
    """Yield the mistakes in the rules of one silver table, whose columns have the `declared` types: key and text."""
    types = {**OWN_COLUMNS, **declared}
    titles: set[str] = set()
    for index, rule in enumerate(rules):
        for key, problem in rule.problems(types):
            yield f"quality[{index}].{key}", problem
        if rule.title in titles:
            yield f"quality[{index}].name", f"there is another rule {rule.title!r}"
        titles.add(rule.title)


def _is_bound(bound: int | float, *, integers: bool) -> bool:
    if integers or isinstance(bound, int):
        return -_INT64_MAX <= bound <= _INT64_MAX  # false for NaN
    return math.isfinite(bound)


def _durations(**texts: str) -> Problems:
    for key, text in texts.items():
        try:
            if parse_duration_ns(text) < 0:
                yield key, f"{text} is negative"
        except ValueError:
            yield key, f"{text!r} is not a duration (1s, 10m, 24h)"
