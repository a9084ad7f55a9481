"""The control socket's reports (`/eyot/status`, `/eyot/syncz`, `/eyot/reloadz`) and the device status, as msgspec Structs.

`eyot` and scripts read them. Times are RFC 3339 (UTC) or, where the name ends in `_s`, seconds; sizes are bytes. An unknown
member is null, never an estimate. The release before reads `StatusReport` while it watches an upgrade over the air
(`eyot_cli.upgrade.install.health`): its members stay.
"""

from __future__ import annotations

from msgspec import Struct


class MeteredStatus(Struct, kw_only=True):
    """The monthly budget of a metered remote. Bytes include estimated packet headers."""

    #: what the link may carry in a month
    budget_bytes: int
    spent_bytes: int
    #: bytes of the budget kept for streams of priority 8 and 9
    reserve_bytes: int = 0
    #: start of the next month
    resets: str = ""


class LinkStatus(Struct, kw_only=True):
    """One link: a remote of this daemon's configuration, a leaf node that connected to it, or a bridge."""

    name: str
    account: str
    #: `spoke`: a remote configured here; `hub`: a leaf node that connected; `bridge`
    role: str
    #: `up`, `connecting`, `waiting` (for the next attempt) or `disabled`
    state: str
    url: str = ""
    #: start of the present state
    since: str | None = None
    age_s: float | None = None
    attempts: int = 0
    next_attempt_in_s: float | None = None
    rtt_ms: float | None = None
    last_error: str | None = None
    remedy: str | None = None
    peer_domain: str | None = None
    in_msgs: int = 0
    out_msgs: int = 0
    in_bytes: int = 0
    out_bytes: int = 0
    wire_in_bytes: int = 0
    wire_out_bytes: int = 0
    queued_bytes: int = 0
    #: messages that were not sent, by reason
    dropped: dict[str, int] = {}
    #: messages that the peer was not allowed to send
    refused: int = 0
    #: the present mode of this side, in nats-server's words
    compression: str | None = None
    #: the policy that the link waits for (`budget used up until 1 December`)
    waiting: str | None = None
    metered: MeteredStatus | None = None
    #: another server that has the peer's JetStream domain, or this server's
    twin: str | None = None
    remote_account: str | None = None
    peer_name: str | None = None
    #: when the token that is presented to the hub expires, and how long that is from now (negative: expired)
    credentials_expire: str | None = None
    credentials_left_s: float | None = None
    #: subjects that the link's permissions deny, without which the peer cannot mirror or source streams from here
    denied_downstream: list[str] = []
    #: subjects that the link's permissions deny, without which this server cannot mirror or source the peer's streams
    denied_sourcing: list[str] = []


class StreamStatus(Struct, kw_only=True):
    """One stream of this daemon."""

    account: str
    name: str
    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    #: last sequence that is on flash; <= last_seq
    committed_seq: int
    last_time: str | None = None
    consumers: int = 0
    storage: str = "file"
    #: messages refused because too many waited for a commit
    refused: int = 0


class SourcingStatus(Struct, kw_only=True):
    """One mirror or source of a stream here."""

    account: str
    stream: str
    #: `mirror` or `source`
    kind: str
    origin: str
    api_prefix: str
    phase: str
    deliver_prefix: str = ""
    #: recent messages per second
    rate: float = 0.0
    eta_s: float | None = None
    #: the policy that the mirror or source waits for
    waiting: str | None = None
    remedy: str | None = None
    #: messages that the origin has and this stream lacks, as of `heard_s_ago`; null before the origin first answered
    backlog: int | None = None
    last_seq: int = 0
    committed_seq: int = 0
    copied: int = 0
    requests: int = 0
    gaps: int = 0
    heard_s_ago: float | None = None
    error: str | None = None


class NeverArrivedStatus(Struct, kw_only=True):
    """Messages that left a stream before a downstream had confirmed them, and that did not arrive there."""

    #: `max_msgs`, `max_bytes`, `max_msgs_per_subject`, `max_age`, `ttl`, `purge`, `rollup`, `schedule` or `deleted`
    reason: str
    messages: int
    #: `101-600` or `7`, ascending; of very many ranges, neighbours are joined and then include messages that arrived
    sequences: list[str] = []


class SyncStatus(Struct, kw_only=True):
    """What a downstream has confirmed of a stream of this server.

    A downstream is a mirror or source elsewhere that replicates the stream.
    """

    account: str
    stream: str
    #: name of the downstream's server or of its cluster
    peer: str
    peer_domain: str = ""
    kind: str = "source"
    #: the downstream's stream; "" when its requests do not name it (nats-server before 2.14)
    target: str = ""
    filters: list[str] = []
    linked: bool = False
    #: highest sequence that the downstream has confirmed (an Eyot downstream: on its flash); survives restarts
    confirmed_seq: int = 0
    confirmed_at: str | None = None
    #: the confirmation may be out of date: the downstream is linked and has not resumed yet, has withdrawn a confirmation,
    #: or lost messages that this server could not record before it lost power
    uncertain: bool = False
    last_seq: int = 0
    #: messages that the downstream has not confirmed
    backlog: int = 0
    #: exact up to 1,000 messages, beyond that estimated from the stream's average
    backlog_bytes: int = 0
    #: age of the oldest unconfirmed message
    oldest_s: float | None = None
    #: messages per second between the last two confirmations
    rate: float = 0.0
    eta_s: float | None = None
    #: why the backlog does not shrink: the state of the link, no consumer, no confirmation for long, or filters
    error: str | None = None
    remedy: str | None = None
    #: the policy that the downstream waits for
    waiting: str | None = None
    #: messages that limits, ages, purges and deletions removed before the downstream confirmed them
    never_arrived: int = 0
    #: the same messages by reason and sequence
    lost: list[NeverArrivedStatus] = []
    #: messages stored in the stream that match no filter of any mirror or source
    unmatched: int = 0

    @property
    def is_synced(self) -> bool:
        """Whether the downstream certainly has every message that can still reach it."""
        return not self.backlog and not self.uncertain


def all_synced(out: list[SyncStatus]) -> bool:
    """Return whether there is a downstream, and all of them have every message that can still reach them."""
    return bool(out) and all(each.is_synced for each in out)


class PeerTotals(Struct, kw_only=True):
    """The sums over all downstreams of one server in one account."""

    account: str
    peer: str
    linked: bool
    streams: int
    backlog: int
    backlog_bytes: int
    #: age of the oldest unconfirmed message
    oldest_s: float | None = None
    rate: float = 0.0
    #: the longest time to arrival of its downstreams
    eta_s: float | None = None
    error: str | None = None
    remedy: str | None = None
    waiting: str | None = None
    never_arrived: int = 0


class SyncReport(Struct, kw_only=True):
    """`/eyot/syncz`: what downstreams have of this server's streams, and this server's own mirrors and sources."""

    server_name: str
    now: str
    #: there is a downstream, and every message that can still arrive is confirmed
    synced: bool
    #: one entry per downstream
    out: list[SyncStatus] = []
    #: `out` summed by server and account
    peers: list[PeerTotals] = []
    #: the mirrors and sources of this server
    copies: list[SourcingStatus] = []
    #: remotes that are not linked, with the last error
    links_down: list[LinkStatus] = []
    #: sum over `out`
    never_arrived: int = 0
    #: messages that match no filter of any downstream, over all streams
    unmatched: int = 0


#: What `StoreStatus.error` begins with while more room on the disk would mend it.
NO_ROOM = "no room left"


#: Free bytes below which a store that cannot write is taken for full, whatever the error's words.
FULL_BELOW_BYTES = 64 << 20


class StoreStatus(Struct, kw_only=True):
    """The store: commits, free space, and damage."""

    path: str
    last_commit: str | None = None
    commits: int = 0
    flush_ms: float | None = None
    backlog_bytes: int = 0
    #: messages refused because too much waited for a commit, or because a commit failed
    refused: int = 0
    #: times that publishers were paused because too much waited for a commit
    held_back: int = 0
    #: why the store cannot commit at present
    error: str | None = None
    #: what brings back a store that could not be opened
    remedy: str | None = None
    #: damage found at the start
    damaged: list[str] = []
    #: streams out of service because of damage, with the reason
    offline: list[str] = []
    #: free space of the file system
    free_bytes: int | None = None
    #: size of the file system
    total_bytes: int | None = None


#: `FlashStatus.reserve` of a device that has most of its reserved blocks
RESERVE_NORMAL = "normal"


class FlashStatus(Struct, kw_only=True):
    """Bytes written to the flash that holds the store, and its estimated life."""

    #: the disk, as the kernel names it; null: the store is not on a disk of its own
    device: str | None = None
    #: what this daemon has written since its start, as the kernel counts it
    written_bytes: int | None = None
    #: what anybody has written to the disk since the machine started
    device_written_bytes: int | None = None
    #: time over which the two rates are measured: at most a day
    over_s: float = 0.0
    #: of this daemon; null in its first ten minutes
    written_per_day: int | None = None
    device_written_per_day: int | None = None
    #: used part of the device's life by its own estimate, the upper bound of its step of ten; over 100: exceeded
    used_percent: int | None = None
    #: state of the device's reserved blocks
    reserve: str | None = None
    #: what can be written in the device's whole life
    endurance_bytes: int | None = None
    #: `endurance_bytes` follows from the size of the disk: no endurance is configured
    endurance_assumed: bool = False
    #: how long the rest of the endurance lasts at the present rate of the disk; at most 36,500
    lifetime_days: int | None = None
    #: what this daemon should write in a day; null: no budget is configured
    budget_bytes: int | None = None
    #: how long commits of streams that allow it wait for others, to keep to the budget
    window_s: float = 0.0


class CertificateStatus(Struct, frozen=True, kw_only=True):
    """A certificate of this server's own. `trouble`: what is wrong with its dates, null if nothing is."""

    file: str
    not_after: str | None = None
    trouble: str | None = None

    @property
    def is_invalid(self) -> bool:
        """Whether peers refuse it now: a certificate that ends soon is still good."""
        return self.trouble is not None and not self.trouble.startswith("expires soon")


class StatusReport(Struct, kw_only=True):
    """`/eyot/status`: the daemon's state at one moment."""

    server_name: str
    server_id: str
    version: str
    domain: str = ""
    now: str
    uptime_s: float
    links: list[LinkStatus] = []
    streams: list[StreamStatus] = []
    copies: list[SourcingStatus] = []
    store: StoreStatus | None = None
    flash: FlashStatus | None = None
    #: the first to expire first; empty from releases that do not tell
    certificates: list[CertificateStatus] = []
    #: the system says that its clock is synchronized; null: not told
    clock_synchronized: bool | None = None


class ReloadReport(Struct):
    """`/eyot/reloadz`: the reloads of process `pid`."""

    pid: int
    #: reloads requested since the start
    count: int = 0
    #: why the last reload failed; "": it succeeded
    error: str = ""


class DeviceStreamStatus(Struct, kw_only=True, omit_defaults=True):
    """One stream in a device's status, and the downstream of it that is furthest behind.

    `backlog`, `backlog_bytes` and `oldest_s` are null without a downstream.
    """

    account: str = "$G"
    name: str
    messages: int
    last_seq: int
    #: the downstream's server or cluster; "": nobody replicates the stream
    peer: str = ""
    confirmed_seq: int | None = None
    backlog: int | None = None
    backlog_bytes: int | None = None
    oldest_s: float | None = None
    eta_s: float | None = None
    #: summed over all downstreams of the stream
    never_arrived: int = 0
    error: str | None = None


class DeviceStatus(Struct, kw_only=True):
    """What a device publishes about itself (`eyot { status { } }`), for `eyot-fleet` and the hub's job `fleet`.

    `backlog`, `backlog_bytes` and `oldest_s` describe the downstream that is furthest behind; null without any downstream.
    """

    #: the server's name
    device: str
    domain: str = ""
    at: str
    every_s: float
    #: id of this start of the daemon, and the status's number since then, from 1: they tell one status from another
    boot: str = ""
    number: int = 0
    version: str
    uptime_s: float
    linked: bool = False
    rtt_ms: float | None = None
    attempts: int = 0
    in_bytes: int = 0
    out_bytes: int = 0
    synced: bool = False
    backlog: int | None = None
    backlog_bytes: int | None = None
    oldest_s: float | None = None
    #: the longest time to arrival of its downstreams
    eta_s: float | None = None
    never_arrived: int = 0
    messages: int = 0
    store_error: str | None = None
    link_error: str | None = None
    #: streams that need somebody first; at most `eyot { status { streams } }`
    streams: list[DeviceStreamStatus] = []
    streams_left_out: int = 0
    disk_free_bytes: int | None = None
    disk_total_bytes: int | None = None
    flash_used_percent: int | None = None
    flash_lifetime_days: int | None = None
    #: resident memory of the daemon, and what the machine has left
    memory_bytes: int | None = None
    memory_free_bytes: int | None = None
    #: the first of its own certificates and of the tokens for its hubs to expire
    certificate_expires: str | None = None
    token_expires: str | None = None
    #: the system says that its clock is synchronized
    clock_synchronized: bool | None = None
