"""What `/eyot/status` says: the truth about links, streams and copies, for `eyot status` and for scripts.

Times are RFC 3339 (UTC) or, where the name ends in `_s`, seconds; sizes are bytes. A member that is not known is null, never
a guess.
"""

from __future__ import annotations

from msgspec import Struct


class MeteredStatus(Struct, kw_only=True):
    """A metered remote's month: what it may carry, what it has carried (with estimated packet headers), and when the next begins."""

    budget_bytes: int
    spent_bytes: int
    reserve_bytes: int = 0
    resets: str = ""


class LinkStatus(Struct, kw_only=True):
    """One leaf link: a remote of this daemon's configuration (`role` spoke) or a leaf that dialled in (`role` hub).

    `state` is `up`, `connecting`, `waiting` (for the next attempt) or `disabled`; `since` is when that state began. `waiting` says what a
    policy makes the link wait for (`budget used up until 1 December`). `dropped` counts messages that were not sent by reason, `refused`
    those that the peer should not have sent. `compression` is what this side does at the moment, in nats-server's words.
    `denied_downstream` names subjects that the link's permissions keep back and without which the peer cannot copy streams of this server,
    `denied_sourcing` those without which this server cannot copy streams of the peer.
    `twin` says that another server has the peer's JetStream domain, or this server's.
    """

    name: str
    account: str
    role: str
    state: str
    url: str = ""
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
    dropped: dict[str, int] = {}
    refused: int = 0
    compression: str | None = None
    waiting: str | None = None
    metered: MeteredStatus | None = None
    twin: str | None = None
    remote_account: str | None = None
    peer_name: str | None = None
    denied_downstream: list[str] = []
    denied_sourcing: list[str] = []


class StreamStatus(Struct, kw_only=True):
    """One stream of this daemon. `committed_seq` is the last sequence that is on flash; `refused` counts messages that were refused
    because too much was on its way there."""

    account: str
    name: str
    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    committed_seq: int
    last_time: str | None = None
    consumers: int = 0
    storage: str = "file"
    refused: int = 0


class CopyStatus(Struct, kw_only=True):
    """One mirror or source of a stream here. `backlog` counts messages that the origin is known to have and that are not
    here; it is null until the origin has been heard of, and as old as `heard_s_ago` says. `rate` is messages per second lately,
    `waiting` says what a policy makes it wait for."""

    account: str
    stream: str
    kind: str
    origin: str
    api_prefix: str
    phase: str
    deliver_prefix: str = ""
    rate: float = 0.0
    eta_s: float | None = None
    waiting: str | None = None
    remedy: str | None = None
    backlog: int | None = None
    last_seq: int = 0
    committed_seq: int = 0
    copied: int = 0
    requests: int = 0
    gaps: int = 0
    heard_s_ago: float | None = None
    error: str | None = None


class NeverArrivedStatus(Struct, kw_only=True):
    """Messages that left a stream before a mirror or source elsewhere had confirmed them, and did not arrive there.

    `reason`: `max_msgs`, `max_bytes`, `max_msgs_per_subject`, `max_age`, `ttl`, `purge`, `rollup`, `schedule` or `deleted`. `sequences`:
    `101-600` or `7`, ascending; where there are many ranges the closest are joined, and span messages that arrived.
    """

    reason: str
    messages: int
    sequences: list[str] = []


class SyncStatus(Struct, kw_only=True):
    """What has reached a mirror or source elsewhere that copies a stream of this server, as far as it has confirmed.

    `peer` is the name of the reader's server, or of the cluster it belongs to. `target` is the stream there that copies, "" where the reader does not say (nats-server before 2.14).
    `confirmed_seq` is the last sequence that it has (an Eyot reader: on flash), known across restarts and while the link is down.
    `backlog` counts what it has not confirmed, `backlog_bytes` is exact up to 1,000 messages and reckoned from the stream's average
    beyond; `oldest_s` is the age of the oldest of them. `rate` is messages per second between the last two confirmations.
    `error` and `remedy` are of the account's link, while the reader is not linked, and else say that it does not read, has confirmed
    nothing for long, or passes over what is stored here (then no `eta_s`). `waiting` says what a policy makes it wait for.
    `uncertain`: it is linked and has not asked since, or has just taken back what it had confirmed; or it has lost something, and this
    server lost power before it could write that down (then nothing counts as confirmed until it asks again).
    `never_arrived` counts the messages that limits, ages, purges and deletions took before it had them; `lost` names them by reason.
    `unmatched` counts the messages stored in the stream that match the filters of no mirror or source at all.
    """

    account: str
    stream: str
    peer: str
    peer_domain: str = ""
    kind: str = "source"
    target: str = ""
    filters: list[str] = []
    linked: bool = False
    confirmed_seq: int = 0
    confirmed_at: str | None = None
    uncertain: bool = False
    last_seq: int = 0
    backlog: int = 0
    backlog_bytes: int = 0
    oldest_s: float | None = None
    rate: float = 0.0
    eta_s: float | None = None
    error: str | None = None
    remedy: str | None = None
    waiting: str | None = None
    never_arrived: int = 0
    lost: list[NeverArrivedStatus] = []
    unmatched: int = 0

    @property
    def is_synced(self) -> bool:
        """Is it certain that it has all that can still reach it?"""
        return not self.backlog and not self.uncertain


def all_synced(out: list[SyncStatus]) -> bool:
    """Does somebody copy, and have all of them what can still reach them?"""
    return bool(out) and all(each.is_synced for each in out)


class PeerTotals(Struct, kw_only=True):
    """All that one server copies from here in one account, summed: the oldest of the oldest, the longest of the ETAs."""

    account: str
    peer: str
    linked: bool
    streams: int
    backlog: int
    backlog_bytes: int
    oldest_s: float | None = None
    rate: float = 0.0
    eta_s: float | None = None
    error: str | None = None
    remedy: str | None = None
    waiting: str | None = None
    never_arrived: int = 0


class SyncReport(Struct, kw_only=True):
    """`/eyot/syncz`: what others have of this server's streams (`out`, and `peers` summed), and its own mirrors and sources
    (`copies`). `links_down`: remotes that are not linked, with the last error.

    `synced`: somebody copies from here, and everything that can still reach them is confirmed. `never_arrived`: what left the streams
    before it was confirmed, over all of `out`. `unmatched`: what matches no filter, over all streams.
    """

    server_name: str
    now: str
    synced: bool
    out: list[SyncStatus] = []
    peers: list[PeerTotals] = []
    copies: list[CopyStatus] = []
    links_down: list[LinkStatus] = []
    never_arrived: int = 0
    unmatched: int = 0


class StoreStatus(Struct, kw_only=True):
    """The store: when it last committed, and how; what is free on its file system, and its size. `refused` counts messages refused
    because too much was on its way to flash or flash failed, `held_back` how often a publisher was not read for a while because much was.
    `error`: why nothing can be stored at present. `damaged`: what was found damaged at the start. `offline`: streams that are not
    served because they are damaged, and why."""

    path: str
    last_commit: str | None = None
    commits: int = 0
    flush_ms: float | None = None
    backlog_bytes: int = 0
    refused: int = 0
    held_back: int = 0
    error: str | None = None
    damaged: list[str] = []
    offline: list[str] = []
    free_bytes: int | None = None
    total_bytes: int | None = None


class StatusReport(Struct, kw_only=True):
    """Everything at one moment."""

    server_name: str
    server_id: str
    version: str
    domain: str = ""
    now: str
    uptime_s: float
    links: list[LinkStatus] = []
    streams: list[StreamStatus] = []
    copies: list[CopyStatus] = []
    store: StoreStatus | None = None


class ReloadReport(Struct):
    """`/eyot/reloadz`: reloads that process `pid` was asked for since its start, and what was wrong with the last ("": nothing)."""

    pid: int
    count: int = 0
    error: str = ""


class DeviceStatus(Struct, kw_only=True):
    """What a device publishes about itself (`eyot { status { } }`), for the hub's job `fleet`.

    `device` is the server's name. `linked`: a leaf link to a hub is up. `backlog`, `backlog_bytes` and `oldest_s` are of the copy
    that is furthest behind; null while nobody copies from here. `rtt_ms` is the slowest hub link's.
    """

    device: str
    domain: str = ""
    at: str
    every_s: float
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
    never_arrived: int = 0
    messages: int = 0
    store_error: str | None = None
    link_error: str | None = None
