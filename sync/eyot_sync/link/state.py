"""What is known of a link at this moment and of its past: the truth that status pages show.

One `LinkState` per remote lives as long as the remote; one per accepted link as long as the link. It is written by the supervisor and
by whoever runs the connection, and read by monitoring. Times are wall clock, nanoseconds since the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from eyot_sync.leaf.events import Established


class LinkPhase(Enum):
    """Where a link stands."""

    WAITING = "waiting"
    DIALING = "dialing"
    HANDSHAKE = "handshake"
    UP = "up"
    DISABLED = "disabled"


@dataclass(slots=True)
class LinkTraffic:
    """Messages and their bytes (header and payload) over all connections of a link."""

    in_msgs: int = 0
    in_bytes: int = 0
    out_msgs: int = 0
    out_bytes: int = 0
    # Not sent because the message lane was full, or larger than the peer takes; not taken because rules forbid it.
    dropped_full: int = 0
    dropped_too_large: int = 0
    refused_inbound: int = 0
    # Bytes on the wire, all frames.
    wire_in_bytes: int = 0
    wire_out_bytes: int = 0

    def received(self, msgs: int, size: int) -> None:
        self.in_msgs += msgs
        self.in_bytes += size

    def sent(self, msgs: int, size: int) -> None:
        self.out_msgs += msgs
        self.out_bytes += size

    def lost(self, dropped_full: int, dropped_too_large: int, refused_inbound: int) -> None:
        """Of a connection that ended."""
        self.dropped_full += dropped_full
        self.dropped_too_large += dropped_too_large
        self.refused_inbound += refused_inbound


@dataclass(slots=True)
class LinkState:
    """One link. `name` is unique among the server's links and free of secrets.

    `since_ns`: when the link came up, or when it went down (for a remote that was never up: when it was first tried).
    `attempts`: attempts since the link was last up. `connects`: how often it came up.
    """

    name: str
    account: str
    solicited: bool
    since_ns: int
    phase: LinkPhase = LinkPhase.WAITING
    address: str = ""
    attempts: int = 0
    connects: int = 0
    last_error: str = ""
    last_error_ns: int = 0
    remedy: str = ""
    next_attempt_ns: int = 0
    last_heard_ns: int = 0
    rtt_s: float | None = None
    peer_name: str = ""
    peer_id: str = ""
    peer_version: str = ""
    peer_domain: str = ""
    peer_cluster: str = ""
    remote_account: str = ""
    is_spoke: bool = False
    is_isolated: bool = False
    #: What a policy makes the link wait for; "" if none does.
    waiting: str = ""
    #: Another server has the JetStream domain of this one, or of the peer: in which words, "" if none is known; and when that was seen.
    twin: str = ""
    twin_ns: int = 0
    #: The peer announces interest in the API of this server's domain: somebody else answers there as well.
    twin_by_interest: int = 0
    traffic: LinkTraffic = field(default_factory=LinkTraffic)

    @property
    def is_up(self) -> bool:
        return self.phase is LinkPhase.UP

    @property
    def peer_group(self) -> str:
        """Who is behind the link, whichever server of a cluster it leads to: the cluster's name, or that of a server alone."""
        return self.peer_cluster or self.peer_name

    @property
    def is_cluster(self) -> bool:
        """The peer belongs to a cluster. A server with remotes that is alone says that it is one of its own name."""
        return self.peer_cluster not in ("", self.peer_name)

    def came_up(self, now_ns: int) -> None:
        self.phase = LinkPhase.UP
        self.since_ns = now_ns
        self.last_heard_ns = now_ns
        self.connects += 1
        self.attempts = 0
        self.last_error = self.remedy = self.waiting = ""
        self.next_attempt_ns = 0

    def met(self, peer: Established, account: str, *, is_spoke: bool) -> None:
        """Who the peer is, and which account here the link is for. `is_spoke`: the peer is upstream."""
        self.account = account
        self.peer_name = peer.server_name
        self.peer_id = peer.server_id
        self.peer_version = peer.version
        self.peer_domain = peer.domain
        self.peer_cluster = peer.peer.cluster
        self.remote_account = peer.remote_account
        self.is_spoke = is_spoke
        self.is_isolated = peer.peer.isolated

    def went_down(self, now_ns: int) -> None:
        if self.is_up:
            self.since_ns = now_ns
        self.phase = LinkPhase.WAITING
        self.rtt_s = None
        self.twin, self.twin_by_interest = "", 0

    def saw_twin(self, text: str, now_ns: int) -> None:
        """Another server with the same domain is there."""
        self.twin, self.twin_ns = text, now_ns

    def interest_of_twin_gone(self) -> None:
        """One subject less of those that tell of another server with this one's domain."""
        if self.twin_by_interest:
            self.twin_by_interest -= 1
            if not self.twin_by_interest:
                self.twin = ""

    def failed(self, error: str, remedy: str, now_ns: int) -> None:
        self.last_error = error
        self.remedy = remedy
        self.last_error_ns = now_ns
