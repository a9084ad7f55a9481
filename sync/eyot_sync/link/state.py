"""The present state and the history of a link, for status pages.

One `LinkState` per remote lives as long as the remote; one per accepted link as long as the link. The supervisor and
the code that runs the connection write it, monitoring reads it. Times are wall clock, nanoseconds since the epoch.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct, field

from eyot_sync.leaf.events import Established


class LinkPhase(Enum):
    """The phase of a link."""

    WAITING = "waiting"
    DIALING = "dialing"
    HANDSHAKE = "handshake"
    UP = "up"
    DISABLED = "disabled"


class LinkTraffic(Struct):
    """Messages and their bytes (header and payload) over all connections of a link."""

    in_msgs: int = 0
    in_bytes: int = 0
    out_msgs: int = 0
    out_bytes: int = 0
    # Not sent because the lane was full or the message too large for the peer; not accepted because rules forbid it.
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
        """Add the losses of a connection that ended."""
        self.dropped_full += dropped_full
        self.dropped_too_large += dropped_too_large
        self.refused_inbound += refused_inbound


class LinkState(Struct):
    """One link. `name` is unique among the server's links and free of secrets.

    `since_ns`: when the link came up, or went down (for a remote that was never up: the first attempt). `attempts`:
    attempts since the link was last up. `connects`: how often it came up.
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
    remedy: str = ""
    next_attempt_ns: int = 0
    last_heard_ns: int = 0
    rtt_s: float | None = None
    peer_name: str = ""
    peer_version: str = ""
    peer_domain: str = ""
    peer_cluster: str = ""
    remote_account: str = ""
    is_spoke: bool = False
    is_isolated: bool = False
    #: The policy that the link waits for; "": none.
    waiting: str = ""
    #: The error about another server with this one's or the peer's JetStream domain, "": none; and when it was last
    #: seen.
    twin: str = ""
    twin_ns: int = 0
    #: The peer announces interest in the API of this server's domain: another server there serves the domain, too.
    twin_by_interest: int = 0
    traffic: LinkTraffic = field(default_factory=LinkTraffic)

    @property
    def is_up(self) -> bool:
        return self.phase is LinkPhase.UP

    @property
    def peer_group(self) -> str:
        """The peer's identity, whichever server of a cluster it is: the cluster's name, or that of a single server."""
        return self.peer_cluster or self.peer_name

    @property
    def is_cluster(self) -> bool:
        """Whether the peer belongs to a cluster. A single server with remotes announces a cluster of its own name."""
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
        """Record the peer, and the link's local account. `is_spoke`: the peer is upstream."""
        self.account = account
        self.peer_name = peer.server_name
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
        """Record another server with the same domain."""
        self.twin, self.twin_ns = text, now_ns

    def interest_of_twin_gone(self) -> None:
        """Count one subject less of the interest that reveals another server with this domain."""
        if self.twin_by_interest:
            self.twin_by_interest -= 1
            if not self.twin_by_interest:
                self.twin = ""

    def failed(self, error: str, remedy: str) -> None:
        self.last_error = error
        self.remedy = remedy
