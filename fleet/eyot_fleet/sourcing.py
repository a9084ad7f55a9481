"""Keeps the hub's streams as the rules say: makes shards, adds devices that come, removes those that an operator released."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final

from eyot_fleet.errors import ApiFailure, FleetError
from eyot_fleet.source_plan import MADE_BY, Shard, plan
from eyot_wire.device_requests import is_token
from eyot_wire.quantities import counted
from eyot_wire.quoting import printable

if TYPE_CHECKING:
    from eyot_fleet.audit import Audit
    from eyot_fleet.desired import SourceRule
    from eyot_fleet.fleet import Fleet
    from eyot_fleet.jetstream import JetStream
    from eyot_fleet.source_plan import Change

log = logging.getLogger("eyot.fleet")

BY: Final = "eyot-fleet"
#: Between two comparisons of rules and streams, seconds.
EVERY_S: Final = 10.0
#: Names of devices in one line of the audit.
_NAMES_MAX: Final = 20


class Sourcing:
    """The rules at one connection."""

    def __init__(self, jetstream: JetStream, audit: Audit, fleet: Fleet) -> None:
        self._js = jetstream
        self._audit = audit
        self._fleet = fleet
        #: by rule: streams and sources, and what cannot be done
        self.shards: dict[str, tuple[int, int]] = {}
        self.problems: dict[str, str] = {}
        #: by rule: domains that are sourced, as of the last step
        self._held: dict[str, frozenset[str]] = {}
        #: by stream: the change that the hub refused last
        self._refused: dict[str, Change] = {}

    async def step(self) -> None:
        """Compare once, and change what differs. What the hub refuses is told, and tried again with the next step."""
        rules = dict(self._fleet.rules)
        for gone in set(self.shards) - set(rules):
            self.shards.pop(gone, None)
            self.problems.pop(gone, None)
            self._held.pop(gone, None)
        if not rules:
            return
        names = await self._js.stream_names()
        for name, rule in rules.items():
            try:
                self._note(name, await self._apply(name, rule, names))
            except ApiFailure as failure:
                self._note(name, str(failure))

    async def _apply(self, name: str, rule: SourceRule, names: list[str]) -> str:
        """Return what cannot be done, "" if nothing."""
        pattern = re.compile(rf"{re.escape(name)}-\d+")
        shards = []
        for each in names:
            if pattern.fullmatch(each) and (info := await self._js.stream_info(each)) is not None:
                config = info["config"]
                if (config.get("metadata") or {}).get("made-by") != MADE_BY:
                    return f"stream {printable(each)} is not of eyot-fleet's making: give the rule another name"
                shards.append(Shard(name=each, config=config))
        wanted, released = self._domains(rule)
        found = plan(name, rule, wanted, released, shards)
        held = {origin.domain for shard in shards for origin in shard.origins()}
        for change in found.changes:
            await self._change(name, change)
            held = held.difference(change.removed).union(change.added)
        self._held[name] = frozenset(held)
        sources = sum(len(shard.config.get("sources") or []) for shard in shards)
        added = sum(len(change.added) - len(change.removed) for change in found.changes)
        count = len(shards) + sum(change.create for change in found.changes)
        if count > 1 and self.shards.get(name, (0, 0))[0] != count:
            log.info(
                "rule %s: %d sources are too many for one stream: streams %s-0 to %s-%d",
                name,
                sources + added,
                name,
                name,
                count - 1,
            )
        self.shards[name] = (count, sources + added)
        return (
            f"no room in the streams of this rule for {counted(len(found.unplaced), 'device')}"
            if found.unplaced
            else ""
        )

    def is_free(self, domain: str) -> bool:
        """Return whether no rule's streams source this domain, as of the last step in which the hub took each rule's changes."""
        return not any(domain in self._held.get(rule, (domain,)) for rule in self._fleet.rules)

    def _domains(self, rule: SourceRule) -> tuple[list[str], list[str]]:
        """Return the domains that a rule wants, and those whose sources may go."""
        wanted, released = [], []
        labels = set(rule.labels)
        for record in self._fleet.index:
            domain = record.domain or (record.name if record.enrolled_at is not None else "")
            is_known = (
                is_token(domain) and domain != self._js.domain
            )  # a record of an earlier release may hold anything
            if not is_known or self._fleet.owner_of_domain(record) is not None:
                continue
            settings = self._fleet.settings.get(record.name)
            if settings is not None and settings.released:
                released.append(domain)
            elif record.revoked_at is None and labels.issubset(record.labels):
                wanted.append(domain)
        return wanted, released

    async def _change(self, rule: str, change: Change) -> None:
        """Change a stream. A change that was refused is tried again with each step, and has its lines in the audit once."""
        again = self._refused.get(change.stream) == change
        if not again:
            detail = {"rule": rule, "added": _some(change.added), "removed": _some(change.removed)}
            detail["sources"] = str(len(change.config["sources"]))
            event = "stream made" if change.create else "stream changed"
            await self._audit.note(event, BY, change.stream, detail=detail)
        kind = "CREATE" if change.create else "UPDATE"
        try:
            await self._js.api(f"STREAM.{kind}.{change.stream}", change.config)
        except FleetError as error:
            if not again:
                await self._audit.note("stream refused", BY, change.stream, error=str(error))
            self._refused[change.stream] = change
            raise
        self._refused.pop(change.stream, None)
        log.info(
            "stream %s %s: %d sources, %d added, %d removed",
            change.stream,
            "made" if change.create else "changed",
            len(change.config["sources"]),
            len(change.added),
            len(change.removed),
        )

    def _note(self, rule: str, problem: str) -> None:
        if not problem:
            self.problems.pop(rule, None)
        elif self.problems.get(rule) != problem:
            self.problems[rule] = problem
            log.warning("rule %s: %s", rule, problem)


def _some(names: tuple[str, ...]) -> str:
    more = len(names) - _NAMES_MAX
    return ", ".join(names[:_NAMES_MAX]) + (f" and {more} more" if more > 0 else "")
