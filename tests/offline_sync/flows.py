"""The flows of a simulated fleet (origin to mirror or source), computed from the present configurations."""

from __future__ import annotations

from dataclasses import dataclass

from eyot_daemon.jetstream.stream.stream import Stream
from eyot_wire.jetstream.stream import StreamSource
from eyot_wire.subject import matches
from offline_sync.domains import node_of
from offline_sync.node import ACCOUNT, Node

#: The subjects of a published stream: `<stream>.<node>.t<n % TOPICS>`.
TOPICS = 3


def subject_of(node: str, stream: str, n: int) -> str:
    """Where message `n` of a published stream was published."""
    return f"{stream.lower()}.{node}.t{n % TOPICS}"


@dataclass(frozen=True)
class Flow:
    """A mirror or source: `target` of `node` copies `origin` of `origin_node`.

    `across`: the leaf over whose link, "" for none. `filters`: what is asked for; `renames`: (subject at the origin,
    subject here).
    """

    origin_node: str
    origin: str
    node: str
    target: str
    across: str
    mirror: bool
    filters: tuple[str, ...]
    renames: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        only = f" ({', '.join(self.filters)})" if self.filters else ""
        return f"{self.node}/{self.target} from {self.origin_node}/{self.origin}{only}"

    @property
    def place(self) -> tuple[str, str]:
        return self.node, self.target

    @property
    def source(self) -> tuple[str, str]:
        return self.origin_node, self.origin

    def takes(self, subject: str) -> bool:
        return not self.filters or any(matches(subject.encode(), each.encode()) for each in self.filters)

    def stored_as(self, subject: str) -> str:
        return dict(self.renames).get(subject, subject)


class Flows:
    """The flows of all streams that are there, worked out anew for a stream when its configuration has changed."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[object, tuple[Flow, ...]]] = {}
        #: Copies whose sources were changed, or that have several of one origin: (node, target, origin node). What comes from
        #: there is in order for each topic only.
        self.mixed: set[tuple[str, str, str]] = set()

    def of(self, node: Node, stream: Stream) -> tuple[Flow, ...]:
        place = node.name, stream.name
        config, flows = self._known.get(place, (None, ()))
        if config is not stream.config:
            before = set(flows)
            flows = tuple(_flows(node, stream))
            for flow in before.symmetric_difference(flows) if config is not None else ():
                self.mixed.add((*place, flow.origin_node))
            origins = [flow.source for flow in flows]
            self.mixed |= {(*place, flow.origin_node) for flow in flows if origins.count(flow.source) > 1}
            self._known[place] = stream.config, flows
        return flows

    def at(self, node: Node) -> list[Flow]:
        """All flows into the streams of a running node."""
        streams = node.js.accounts[ACCOUNT].streams.values()
        return [flow for stream in streams for flow in self.of(node, stream)]


def _flows(node: Node, stream: Stream) -> list[Flow]:
    config = stream.config
    mirrors = [] if config.mirror is None else [config.mirror]
    return [_flow(node, stream.name, each, mirror=True) for each in mirrors] + [
        _flow(node, stream.name, each, mirror=False) for each in config.sources
    ]


def _flow(node: Node, target: str, source: StreamSource, *, mirror: bool) -> Flow:
    domain = node_of(source.external.api.split(".")[1]) if source.external is not None else node.name
    filters = [source.filter_subject] if source.filter_subject else [each.src for each in source.subject_transforms]
    across = "" if domain == node.name else domain if node.addresses and not domain.startswith("hub") else node.name
    renames = tuple((each.src, each.dest) for each in source.subject_transforms if each.dest)
    return Flow(domain, source.name, node.name, target, across, mirror, tuple(filters), renames)
