"""What is extracted from payloads: the fields of one silver table, their paths and types."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from eyot_hub.jobs.payloads.schemas import SchemaSource

US_PER_UNIT: Final = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}

Path = tuple[str, ...]


@dataclass(frozen=True)
class Field:
    """A value in a payload: path and type; `unit` of times: iso, a number's unit, or a format of strptime."""

    name: str
    path: Path
    kind: str
    unit: str = "iso"


@dataclass(frozen=True)
class Shape:
    """What is extracted from the payloads of one silver table. Plain values: sent to the executors."""

    format: str  # json, msgpack, cbor, avro or protobuf
    columns: tuple[Field, ...]
    device: Field | str  # or subject:N, or a column's name
    event_time: Field | None  # None: stored_at
    required: tuple[str, ...]
    earliest: str
    earliest_us: int
    ahead: str
    ahead_us: int
    by_month: bool
    non_finite: bool
    schema: SchemaSource | None = None  # of avro and protobuf always, of json where it is checked


def field_path(text: str) -> Path:
    """Return the keys of `$.a.b`; a key with a dot or a bracket is written `$['a.b']`. Raises ValueError."""
    if not text.startswith("$"):
        raise ValueError(text)
    keys, at = [], 1
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None:
            raise ValueError(text)
        keys.append(found[1] if found[1] is not None else found[2])
        at = found.end()
    if not keys:
        raise ValueError(text)
    return tuple(keys)


_STEP: Final = re.compile(r"\.([^.\[\]]+)|\['([^']+)'\]")
