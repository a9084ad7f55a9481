"""The streams of a simulated fleet, drawn from its seed: where messages are published, and which mirrors and sources replicate them."""

from __future__ import annotations

from random import Random
from typing import Any

from offline_sync.domains import Config, renamed
from offline_sync.flows import TOPICS

HUB = "hub"
#: A second hub, which is linked to the first: leaves know its address, too, and it can take the first one's place.
SECOND = "hub2"
#: Where the hub can be dialled; it moves between them.
HUB_ADDRESSES = ("hub-a", "hub-b")
SECOND_ADDRESSES = ("hub2-a",)
#: A hub of somebody else, which is linked to neither: a leaf may be linked to it at the same time.
OTHER = "hub3"
OTHER_ADDRESSES = ("hub3-a",)
STREAM = {"storage": "file", "retention": "limits", "max_age": 0}

#: What a published stream may be limited to.
LIMITS: tuple[Config, ...] = (
    {"max_msgs": 30},
    {"max_msgs": 200},
    {"max_bytes": 20_000},
    {"max_msgs_per_subject": 10},
    {"max_age": 60_000_000_000},
    {"max_age": 60_000_000_000, "allow_msg_ttl": True},
)


class Layout:
    """`streams`: (node, stream) in the order of their making, with what their configuration says besides `STREAM`.

    `published`: those of them that are published to. `workers`: leaves with a client that works through the hub's
    COMMANDS. `has_second`: there is a second hub. `doubly`: leaves that are linked to another one besides, drawn from
    `others`: one at most, for two would be a loop between the hubs. `limits` draws what published streams are limited
    to.
    """

    def __init__(self, chance: Random, others: Random, limits: Random, leaves: list[str]) -> None:
        self.leaves = leaves
        self.streams: dict[tuple[str, str], Config] = {}
        self.published: list[tuple[str, str]] = []
        self.workers: list[str] = []
        self.domains = {leaf: leaf for leaf in leaves}
        self._chance = chance
        for leaf in leaves:
            self._publish(leaf, "READINGS")
            if self._perhaps(0.35):
                self._publish(leaf, "EVENTS")
            if self._perhaps(0.3):
                self._publish(leaf, "JOBS", retention="workqueue")
        self._publish(HUB, "COMMANDS")
        self._hub()
        for leaf in leaves:
            self._leaf(leaf)
        self.has_second = self._perhaps(0.35)
        if self.has_second:
            self._second()
        self._chance = others
        self.doubly = [others.choice(leaves)] if self._perhaps(0.35) else []
        if self.doubly:
            self._other()
        self._chance = chance
        for place in self.published:
            if place[1] in ("READINGS", "EVENTS") and limits.random() < 0.5:
                self.streams[place] |= limits.choice(LIMITS)
        for leaf in leaves:
            if self._has(leaf, "JOBS") and limits.random() < 0.5:
                self._interest(leaf, limits)

    def source(self, leaf: str, shape: str) -> list[Config]:
        """The sources by which a hub's stream copies a leaf's READINGS; `shape` says how."""
        plain = external("READINGS", self.domains[leaf])
        topics = [f"readings.{leaf}.t{topic}" for topic in range(TOPICS)]
        match shape:
            case "plain":
                return [plain]
            case "one topic":
                return [plain | {"filter_subject": topics[0]}]
            case "two topics":
                return [plain | {"subject_transforms": [{"src": each, "dest": ""} for each in topics[:2]]}]
            case "renamed":
                renames = [{"src": each, "dest": f"site.{each}"} for each in topics[:2]]
                return [plain | {"subject_transforms": [*renames, {"src": topics[2], "dest": ""}]}]
            case "apart":
                return [plain | {"filter_subject": each} for each in topics]
            case _:
                return []

    def rename(self, leaf: str) -> str:
        """The leaf gets another domain; who copies it asks there from now on. Returns the new one."""
        before = self.domains[leaf]
        number = int(before.partition("-")[2] or 1) + 1
        after = self.domains[leaf] = f"{leaf}-{number}"
        for place, config in self.streams.items():
            self.streams[place] = renamed(config, before, after)
        return after

    def _publish(self, node: str, stream: str, **config: Any) -> None:
        self.streams[node, stream] = {"subjects": [f"{stream.lower()}.{node}.>"], **config}
        self.published.append((node, stream))

    def _perhaps(self, share: float) -> bool:
        return self._chance.random() < share

    def _shape(self) -> str:
        return self._chance.choice(SHAPES)

    def _has(self, leaf: str, stream: str) -> bool:
        return (leaf, stream) in self.streams

    def _hub(self) -> None:
        copies, leaves = self.streams, self.leaves
        copies[HUB, "ALL"] = {"sources": [each for leaf in leaves for each in self.source(leaf, self._shape())]}
        events = [external("EVENTS", leaf) for leaf in leaves if self._has(leaf, "EVENTS")]
        if events and self._perhaps(0.5):
            copies[HUB, "ALL"]["sources"] += events
        elif events:
            copies[HUB, "EVENTS"] = {"sources": events}
        jobs = [external("JOBS", leaf) for leaf in leaves if self._has(leaf, "JOBS")]
        if jobs:
            copies[HUB, "WORK"] = {"sources": jobs}
        if self._perhaps(0.4):
            copies[HUB, "DAILY"] = {"sources": [{"name": "ALL"}]}
        elif self._perhaps(0.3):
            copies[HUB, "STANDBY"] = {"mirror": {"name": "ALL"}}
        if self._perhaps(0.3):
            copies[HUB, "AGAIN"] = {"sources": [external("READINGS", leaf) for leaf in leaves]}
        for leaf in leaves:
            if self._perhaps(0.4):
                copies[HUB, f"COPY_{leaf}"] = {"mirror": external("READINGS", leaf)}
            if self._perhaps(0.15):
                only = {"filter_subject": f"readings.{leaf}.t1"}
                copies[HUB, f"PART_{leaf}"] = {"mirror": external("READINGS", leaf) | only}

    def _interest(self, leaf: str, chance: Random) -> None:
        """The leaf's JOBS stay until all that copy them have them, and these may be several."""
        self.streams[leaf, "JOBS"]["retention"] = "interest"
        if chance.random() < 0.6:
            self.streams[HUB, f"JOBS_{leaf}"] = {"mirror": external("JOBS", leaf)}
        if self.has_second and chance.random() < 0.5:
            self.streams[SECOND, "WORK"] = {"sources": [external("JOBS", leaf)]}

    def _second(self) -> None:
        """A copy of what the first hub gathered, or what it gathers by itself."""
        if self._perhaps(0.75):
            self.streams[SECOND, "ALL"] = {"mirror": external("ALL", HUB)}
        else:
            sources = [each for leaf in self.leaves for each in self.source(leaf, self._shape())]
            self.streams[SECOND, "ALL"] = {"sources": sources}
        if self._perhaps(0.4):
            self.streams[SECOND, "COMMANDS"] = {"mirror": external("COMMANDS", HUB)}

    def _other(self) -> None:
        """A copy of some leaves' readings and events, and something that they copy."""
        sources = [each for leaf in self.doubly for each in self.source(leaf, self._shape())]
        events = [external("EVENTS", leaf) for leaf in self.doubly if self._has(leaf, "EVENTS")]
        self.streams[OTHER, "ALL"] = {"sources": sources + events}
        if self._perhaps(0.3):
            self.streams[OTHER, f"COPY_{self.doubly[0]}"] = {"mirror": external("READINGS", self.doubly[0])}
        self._publish(OTHER, "ORDERS")
        for leaf in self.doubly:
            if self._perhaps(0.5):
                self.streams[leaf, "OTHERS"] = {"sources": [external("ORDERS", OTHER)]}

    def _leaf(self, leaf: str) -> None:
        if self._perhaps(0.35):
            self.streams[leaf, "COMMANDS"] = {"mirror": external("COMMANDS", HUB)}
        elif self._perhaps(0.35):
            self.streams[leaf, "ORDERS"] = {"sources": [external("COMMANDS", HUB)]}
        if self._perhaps(0.3):
            self.workers.append(leaf)


#: How a stream may take a leaf's readings.
SHAPES = ("plain", "plain", "plain", "one topic", "two topics", "renamed", "apart")


def external(stream: str, domain: str) -> Config:
    return {"name": stream, "external": {"api": f"$JS.{domain}.API", "deliver": ""}}
