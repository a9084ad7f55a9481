"""Which of the hub's streams sources which device. Pure: the rule, the devices and the streams as they are decide.

What is sourced stays where it is: a shard is filled up to its size and never rearranged, because a source that moves to another
stream would copy everything again. The streams themselves are the record, so that nothing can disagree with them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct

from eyot_fleet.desired import SHARDS_MAX, SourceRule

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_API: Final = re.compile(r"\$JS\.([^.\s*>]+)\.API")
#: Metadata of a shard: who made it.
MADE_BY: Final = "eyot-fleet"


class Origin(NamedTuple):
    """A device's stream as a source: the device's JetStream domain, and the stream."""

    domain: str
    stream: str


class Shard(Struct):
    """One of a rule's streams at the hub. `config`: as JetStream gave it."""

    name: str
    config: dict[str, Any]

    def origins(self) -> list[Origin]:
        """Return the origins of the shard's sources."""
        return [origin for source in self.config.get("sources") or [] if (origin := origin_of(source)) is not None]


class Change(Struct, frozen=True, kw_only=True):
    """One stream to be created or updated. `config`: whole. `added`, `removed`: domains of devices."""

    stream: str
    create: bool
    config: dict[str, Any]
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class SourcePlan(Struct, frozen=True, kw_only=True):
    """What has to change. `unplaced`: domains for which SHARDS_MAX shards have no room."""

    changes: list[Change]
    unplaced: tuple[str, ...] = ()


def origin_of(source: Mapping[str, Any]) -> Origin | None:
    """Return the origin of a source, None for one that reads no other domain."""
    external = source.get("external") or {}
    found = _API.fullmatch(str(external.get("api") or ""))
    return None if found is None else Origin(found[1], str(source.get("name") or ""))


def plan(
    name: str, rule: SourceRule, wanted: Iterable[str], removable: Iterable[str], shards: Iterable[Shard]
) -> SourcePlan:
    """Return what has to change so that each domain of `wanted` is sourced once.

    `removable`: domains whose sources may go. What is neither wanted nor removable stays: its messages may still be needed.
    """
    present = {shard.name: shard for shard in shards}
    held = {origin.domain: shard.name for shard in present.values() for origin in shard.origins()}
    gone = set(removable) - set(wanted)
    added: dict[str, list[str]] = {}
    removed = {
        name: leaving
        for name, shard in present.items()
        if (leaving := [origin.domain for origin in shard.origins() if origin.domain in gone])
    }
    room = {
        shard.name: rule.shard_size - len(shard.config.get("sources") or []) + len(removed.get(shard.name, ()))
        for shard in present.values()
    }
    numbered = [f"{name}-{number}" for number in range(SHARDS_MAX)]
    unplaced, at = [], 0
    for domain in sorted(set(wanted) - set(held)):
        while at < SHARDS_MAX and room.get(numbered[at], rule.shard_size) <= 0:
            at += 1
        if at == SHARDS_MAX:
            unplaced.append(domain)
            continue
        shard_name = numbered[at]
        room[shard_name] = room.get(shard_name, rule.shard_size) - 1
        added.setdefault(shard_name, []).append(domain)
    changes = [
        _change(rule, shard_name, present.get(shard_name), added.get(shard_name, []), removed.get(shard_name, []))
        for shard_name in sorted({*added, *removed}, key=lambda each: (len(each), each))
    ]
    return SourcePlan(changes=changes, unplaced=tuple(unplaced))


def _change(rule: SourceRule, name: str, shard: Shard | None, added: list[str], removed: list[str]) -> Change:
    sources = [] if shard is None else list(shard.config.get("sources") or [])
    leaving = set(removed)
    kept = [each for each in sources if (origin := origin_of(each)) is None or origin.domain not in leaving]
    kept += [_source(rule, domain) for domain in added]
    config = _new_config(rule, name) if shard is None else dict(shard.config)
    config["sources"] = kept
    return Change(stream=name, create=shard is None, config=config, added=tuple(added), removed=tuple(removed))


def _source(rule: SourceRule, domain: str) -> dict[str, Any]:
    source: dict[str, Any] = {"name": rule.stream, "external": {"api": f"$JS.{domain}.API", "deliver": ""}}
    if rule.filter_subject:
        source["filter_subject"] = rule.filter_subject
    return source


def _new_config(rule: SourceRule, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "description": f"{rule.stream} of devices, made by eyot-fleet",
        "storage": "file",
        "num_replicas": rule.replicas,
        "max_age": int(rule.max_age_s * 1e9),
        "max_bytes": rule.max_bytes,
        "metadata": {"made-by": MADE_BY},
    }
