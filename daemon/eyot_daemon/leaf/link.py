"""A leaf link as the broker sees it: a destination that drives a `LeafSession` over a transport.

Bytes arrive in `received`. This module carries out the session's events: the peer's interest becomes subscriptions of
the bound account, and its messages are published there with this link as origin. Messages for the peer arrive through
`deliver_leaf`, once per message however many subscriptions match, and wait in the session's lanes. The transport gets
one slice at a time (`leaf/output.py`), so that urgent messages overtake everything that was not passed on yet.

A message never returns over the link it came from, nor over another link of the same cluster, nor from one upstream hub
to another.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import cast

from msgspec.structs import replace

from eyot_daemon.auth.login import Login, Peer, UserToken
from eyot_daemon.config.leaf import RemoteOptions
from eyot_daemon.leaf.destination import LinkDestination
from eyot_daemon.leaf.dispatch import publish_all
from eyot_daemon.leaf.held_events import HeldEvents
from eyot_daemon.leaf.login import Authenticate, LeafLogin, admit, payload_max
from eyot_daemon.leaf.output import SlicedOutput
from eyot_daemon.leaf.peer_interest import PeerInterest
from eyot_daemon.leaf.policies import LinkPolicies
from eyot_daemon.leaf.stale_request_refuser import StaleRequestRefuser
from eyot_daemon.leaf.timer import SessionTimer
from eyot_daemon.net.transport import INTERNAL_ERROR, Transport
from eyot_daemon.router.leaf_account import AccountLinks
from eyot_daemon.router.leaf_links import LeafLinks
from eyot_sync.leaf import errors
from eyot_sync.leaf.broadcast import Source
from eyot_sync.leaf.events import (
    EVENTS_OF_A_TURN,
    Closed,
    ConnectReceived,
    Established,
    InterestComplete,
    LeafEvent,
    PeerError,
    PermissionsChanged,
    UrlsDiscovered,
)
from eyot_sync.leaf.interest import InterestOrigin
from eyot_sync.leaf.registry import LinkIdentity
from eyot_sync.leaf.replication_subjects import denied_downstream, denied_sourcing
from eyot_sync.leaf.session import LeafSession
from eyot_sync.link.state import LinkState
from eyot_sync.sourcing.stale_requests import REFUSAL, compares_identities
from eyot_wire.frames import LeafMsg, LsAdd, LsDel, Ping
from eyot_wire.jetstream.native import content_bytes, other_kind

log = logging.getLogger("eyot.leaf")

#: The largest decompressed WebSocket message of a leaf node, in multiples of max_payload: as in nats-server.
LEAF_MESSAGE_MULTIPLE = 8

#: Interval at which a leaf node is sent the error that another one claims its domain, nanoseconds.
TWIN_NOTICE_EVERY_NS = 60_000_000_000


class LeafConnection(LinkDestination):
    """One link, from the open transport to its end.

    `authenticate` is for accepted links, `learn` (addresses that the hub announces) for solicited ones.
    """

    __slots__ = (
        "__weakref__",
        "_account_links",
        "_held",
        "_is_counted",
        "_is_released",
        "_learn",
        "_login",
        "_timer",
        "_wakeups",
        "account_name",
        "cid",
        "counts_at_start",
        "end",
        "established",
        "external",
        "links",
        "output",
        "peer",
        "peer_interest",
        "source",
        "started_ns",
        "token",
        "transport",
        "user",
    )

    def __init__(
        self,
        links: LeafLinks[LeafConnection],
        session: LeafSession,
        peer: Peer,
        state: LinkState,
        *,
        authenticate: Authenticate | None = None,
        learn: Callable[[tuple[str, ...]], None] | None = None,
        remote: RemoteOptions | None = None,
    ) -> None:
        super().__init__(session, state)
        self.links = links
        self.peer = peer
        self.cid = session.options.client_id
        self.account_name = session.options.account
        self.user = ""
        self.external = False  # a reload does not authorize it again
        self.token: UserToken | None = None
        self.source = Source(self, "")
        #: whether some of the peer's interest is still in the account
        self._is_counted = False
        self._is_released = False
        self.output = SlicedOutput(self._next_slice, links.broker.clock)
        self.out = self.output.out
        self.established = False
        self.end = Closed("closed")
        self.counts_at_start = replace(state.traffic)
        self.started_ns = links.broker.clock.now_ns()
        self.transport: Transport | None = None
        broker = links.broker
        self._login = (
            None
            if authenticate is None
            else LeafLogin(self, authenticate, broker.timers, broker.wall_timers, self._authenticated)
        )
        self._learn = learn
        self._timer = SessionTimer(session, broker.timers, broker.clock.monotonic, self._tick, self._input_waits)
        self._account_links: AccountLinks[LeafConnection] | None = None
        self._held = HeldEvents(broker, self._carry_out, self.lost)
        self._wakeups = StaleRequestRefuser(broker.timers, self._refuse_stale)
        self.peer_interest = PeerInterest(
            self,
            session,
            state,
            self._wakeups,
            clock=broker.clock,
            later_turns=broker.later_turns,
            domain=links.domain,
            remotes=links.remotes,
            close=self.close,
        )
        self.policies = LinkPolicies(broker, session, self.account_name, remote, self.end_for_now)
        session.sender.delivering = self.policies.gate.delivering
        links.opened(self)

    def __repr__(self) -> str:
        return f"{self.peer.host}:{self.peer.port} - lid:{self.cid}"

    @property
    def nonce(self) -> str:
        """The nonce that the peer signs with its nkey."""
        return self.session.nonce

    # -- life cycle --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start watching the session's deadlines, and write its first output."""
        self._timer.follow()
        self._mark_dirty()

    def attach(self, transport: Transport) -> None:
        self.transport = transport
        if self.established:
            self._admit()
        self._mark_dirty()

    def _admit(self) -> None:
        """Raise the limits for the authenticated peer."""
        if self.transport is not None:
            self.transport.admit(LEAF_MESSAGE_MULTIPLE * self.links.broker.options.max_payload)

    def close(self, text: str = "", *, reason: str = "") -> None:
        """End the link, with -ERR `text` if given."""
        if not self.closed:
            self._finish(self.session.close(text, reason=reason))

    def end_for_now(self, reason: str) -> None:
        """End the link for a policy, until the policy lets its remote connect again."""
        self._finish(self.session.close(reason=reason, retry_after_s=0.0))
        self.state.waiting = reason

    def _finish(self, end: Closed) -> None:
        if self.closed:
            return
        self.closed = True
        self.end = end
        self._held.stop()
        self._wakeups.stop()
        self._timer.stop()
        self.policies.stop()
        if self._login is not None:
            self._login.stop()
        self._leave()
        self._note_counts()
        self.out += self.session.data_to_send()
        if self.transport is not None:
            self.transport.close(linger=bool(self.out))
        self.links.closed(self)
        broker = self.links.broker
        if self.established:
            log.info("%r - Leafnode connection closed: %s - Account: %s", self, end.reason, self.account_name)
        elif not self.link_identity.solicited:
            log.info("%r - Leafnode connection refused: %s", self, end.reason)
        self.state.went_down(broker.clock.now_ns())

    def release(self) -> None:
        """Drop references in a circle, when the transport has ended and nobody calls the link any more.

        Python frees what is left at once, without its garbage collector.
        """
        self.session.release()
        self.transport = None
        self._login = None
        del self._timer, self._wakeups, self.peer_interest, self.policies, self.output
        if self._is_counted:
            self._is_released = True  # what is removed in later turns still tells its source
        else:
            self._release_source()

    def _release_source(self) -> None:
        del self.source

    def _leave(self) -> None:
        account, account_links = self.account, self._account_links
        if account is None or account_links is None:
            return
        account_links.leave(self)
        self._is_counted = True
        self.peer_interest.clear(self._interest_gone)

    def _interest_gone(self) -> None:
        self._is_counted = False
        if self._is_released:
            self._release_source()

    # -- transport's session ---------------------------------------------------------------------------------------

    @property
    def close_reason(self) -> str:
        """Why the link ended, for its transport."""
        return self.end.reason

    def received(self, data: bytes | bytearray | memoryview) -> None:
        """Bytes from the peer; the transport ends the turn afterwards."""
        broker = self.links.broker
        if self.established:
            self._timer.heard()
        self.state.traffic.wire_in_bytes += len(data)
        self.state.last_heard_ns = broker.clock.now_ns()
        self.policies.crossed(len(data))
        self.handle(self.session.receive(data, broker.clock.monotonic()))
        if not self.established and self._login is not None:
            self._login.hold(self.transport)

    def _tick(self, now: float) -> None:
        """Run the session's due deadline."""
        self.handle(self.session.tick(now))
        self.note_rtt()

    def _input_waits(self) -> bool:
        return self.transport is not None and self.transport.input_waits()

    def handle(self, events: list[LeafEvent]) -> None:
        """Carry out the session's events, those beyond `EVENTS_OF_A_TURN` in later turns."""
        if self._held:
            self._held.add(events, self.transport)
            self._after()
        else:
            self._carry_out(events)

    def _carry_out(self, events: list[LeafEvent]) -> None:
        """Carry out events of one turn. Messages between two others are published together."""
        at = 0
        left = EVENTS_OF_A_TURN
        while at < len(events):
            end = other_kind(events, at, LeafMsg)
            if end > at and not self.closed:
                self._publish(cast(list[LeafMsg], events[at:end]))
            if end == len(events):
                break
            if self.closed:
                return
            if not left:
                self._held.add(events[end:], self.transport)
                break
            self._event(events[end])
            at = end + 1
            left -= 1
        if self.peer_interest.api_seen and not self.closed:
            self.peer_interest.api_seen = False
            self.links.usable(self)
        self._after()

    def _publish(self, messages: list[LeafMsg]) -> None:
        account = self.account
        assert account is not None
        if not self._wakeups.done:
            self._wakeups.heard(messages)
        self._count_in(len(messages), content_bytes(messages))
        publish_all(account, messages, self)

    def lost(self, reason: str) -> None:
        """Handle the end of the transport."""
        if not self.closed:
            if reason != INTERNAL_ERROR and (messages := self._held.messages()):
                self._publish(messages)  # they came before the end
            self._finish(self.session.connection_lost(reason))

    def slow_consumer(self, reason: str) -> None:
        """Handle a peer that does not read what is sent to it."""
        if self.closed:
            return
        self.links.broker.slow_consumers += 1
        if self.account is not None:
            self.account.slow_consumers += 1
        self._finish(self.session.connection_lost(reason))

    def refill(self) -> bool:
        """Append the next slice, after the transport sent one that had to wait."""
        more = self.output.refill()
        self._tell_room()
        return more

    def renew_out(self) -> None:
        """Keep `out`, which never holds more than a slice."""
        self.out.clear()

    def flush(self) -> None:
        """Pass on slices at the end of the turn, until the transport has enough or none is left."""
        self.dirty = False
        transport = self.transport
        if transport is None:
            return
        while not self.out and self.output.fill():
            transport.send()
            if not self.session.wants_write:
                break
        self._tell_room()

    def _tell_room(self) -> None:
        if self.room and self.policies.has_room:
            self.room.made()

    def _next_slice(self, bytes_max: int) -> bytes:
        outbox, account_links = self.session.outbox, self._account_links
        if account_links is not None and outbox.has_messages and account_links.pending:
            account_links.distribute()  # no message goes before the interest that was there before it
        data = self.session.data_to_send(bytes_max, self.links.broker.clock.monotonic())
        self.state.traffic.wire_out_bytes += len(data)
        self.policies.crossed(len(data))
        if not data and outbox:
            self._timer.follow()  # waiting data may find space before the next answer
        return data

    # -- writing and waiting ---------------------------------------------------------------------------------------

    def _mark_dirty(self) -> None:
        if not self.dirty:
            self.dirty = True
            self.links.broker.mark_dirty(self)

    def _after(self) -> None:
        """After anything that changed the session: write, and watch its next deadline."""
        self.session.events_wait = bool(self._held)
        if self.closed:
            return
        if self.session.wants_write:
            self._mark_dirty()
        self._timer.follow()

    # -- events of the session ---------------------------------------------------------------------------------------

    def _event(self, event: LeafEvent) -> None:
        match event:
            case LsAdd():
                self.peer_interest.added(event)
            case LsDel(subject=subject, queue=queue):
                self.peer_interest.removed(subject, queue)
            case Ping():
                self.session.pong()
            case ConnectReceived():
                assert self._login is not None
                self._login.authenticate(event, self.peer)
                self._login.hold(self.transport)
            case Established():
                self._establish(event)
            case InterestComplete():
                self.note_rtt()
                now = self.links.broker.clock.monotonic()
                self._wakeups.complete(now, self.state.peer_version, self.session.rtt_s or 0.0)
                self.peer_interest.api_seen = True
                self._say_what_is_denied()
            case PermissionsChanged():
                self._announce_again()
                self._say_what_is_denied()
            case UrlsDiscovered(urls=urls):
                if self._learn is not None:
                    self._learn(urls)
            case PeerError(text=text):
                log.error("%r - Leafnode Error '%s'", self, text)
                if errors.is_duplicate_domain(text) and self.established:
                    self.state.saw_twin(text, self.links.broker.clock.now_ns())
            case Closed():
                self._finish(event)
            case _:
                raise AssertionError(f"{event!r} belongs to the handshake")

    def _refuse_stale(self, inboxes: list[bytes]) -> None:
        """Refuse requests that the peer's mirrors and sources sent before the link was up, if a downstream of ours is missing."""
        if self.account is None:
            return
        if not self.links.messages_missed(self.account, compares_identities(self.state.peer_version)):
            return
        inboxes = [inbox for inbox in inboxes if self.accepts(inbox, None)]
        for inbox in inboxes:
            self.deliver_leaf(inbox, b"", b"", REFUSAL, (), None)
        if inboxes:
            log.info(
                "%r - %d consumer requests were sent before the link was up: refused, so that they are repeated",
                self,
                len(inboxes),
            )

    # -- binding ---------------------------------------------------------------------------------------------------

    def _authenticated(self, event: ConnectReceived, login: Login | None) -> None:
        """Continue with an authenticated peer, or refuse an unknown one."""
        if self.closed:
            return
        broker, session = self.links.broker, self.session
        admission = admit(login, self.links.account_named)
        account = admission.account
        if account is None:
            log.error("%r - %s: leafnode %r, user %r", self, admission.refusal, event.connect.name, event.connect.user)
            self.handle(session.reject(admission.refusal))
            return
        self.user, self.token, self.external = admission.user, admission.token, admission.external
        self.account_name = account.name
        if self.token is not None:
            self.peer_interest.subs_max = self.token.grant.subs
        assert self._login is not None
        self._login.expire_in(admission.expires_in_s, lambda: self.close(errors.USER_EXPIRED))
        self.handle(
            session.accept_connect(
                broker.clock.monotonic(), account=account.name, is_system=account.is_system, user=admission.rules
            )
        )

    def limits_changed(self) -> None:
        """Apply the limits of the account, which may have changed."""
        if self.account is not None and not self.state.solicited:
            self.session.limit_payload(payload_max(self.account, self.token))

    def _establish(self, event: Established) -> None:
        """Both sides know each other: enter the account."""
        session, broker = self.session, self.links.broker
        account = self.links.account_named(self.account_name)
        solicited = self.link_identity.solicited
        self.link_identity = LinkIdentity(
            event.server_name,
            event.peer.cluster,
            event.remote_account,
            solicited,
            domain=event.domain if event.jetstream else "",
            is_cluster=event.peer.cluster not in ("", event.server_name),
        )
        self.interest_origin = InterestOrigin(is_leaf=True, from_upstream=session.is_spoke, cluster=event.peer.cluster)
        self.source = Source(self, event.peer.cluster)
        account_links = self.links.of(account)
        registry = account_links.registry
        if registry.closes_circle(self.link_identity):
            self._finish(session.close(errors.loop_detected(account.name)))
            return
        same = registry.same_domain_as(self.link_identity)
        if same is not None:
            self._refuse_twin(same)
            return
        former = registry.duplicate_of(self.link_identity)
        if former is not None:
            former.close(errors.DUPLICATE)
        self.account = account
        self._account_links = account_links
        self.peer_interest.bind(account, registry.is_own_loop)
        self.established = True
        self._admit()
        self.policies.bind(account.name)
        self.state.came_up(broker.clock.now_ns())
        self.state.met(event, self.account_name, is_spoke=session.is_spoke)
        account_links.join(self)
        self.links.arrived(self)
        log.info("%r - Leafnode connection created for account: %s", self, account.name)

    def _refuse_twin(self, holder: LeafConnection) -> None:
        """Refuse a leaf node whose domain another one has; inform both."""
        domain, now_ns = self.link_identity.domain, self.links.broker.clock.now_ns()
        ours, others = holder.link_identity.server_name, self.link_identity.server_name
        if not holder.state.twin or now_ns - holder.state.twin_ns > TWIN_NOTICE_EVERY_NS:
            holder.session.report(errors.duplicate_domain(domain, others))
            holder._mark_dirty()
            log.error(
                "%r - leafnodes %r and %r have the same JetStream domain %r: the second is refused",
                self,
                ours,
                others,
                domain,
            )
        holder.state.saw_twin(errors.duplicate_domain(domain, others), now_ns)
        self._finish(self.session.close(errors.duplicate_domain(domain, ours)))

    @property
    def denied_downstream(self) -> list[str]:
        """Return the subjects that the link's permissions deny and without which the peer cannot replicate streams from here."""
        if self.account is None or self.account.is_system or self.state.peer_domain == self.links.domain:
            return []
        session = self.session
        return denied_downstream(session.rules, self.links.domain, may_reply=session.sender.replies is not None)

    @property
    def denied_sourcing(self) -> list[str]:
        """Return the subjects that the link's permissions deny and without which this server cannot replicate the peer's streams."""
        if self.account is None or self.account.is_system or self.state.peer_domain == self.links.domain:
            return []
        return denied_sourcing(self.session.rules, self.state.peer_domain)

    def _say_what_is_denied(self) -> None:
        """Log denied subjects once: otherwise the link is up and replication silently stops."""
        if not self.link_identity.solicited:
            return
        if denied := ", ".join(sorted(self.denied_downstream)):
            log.warning("%r - this link does not carry %s: the hub cannot copy streams of this server", self, denied)
        if denied := ", ".join(sorted(self.denied_sourcing)):
            # A device whose streams the hub copies may well lack these: `eyot doctor` tells of a mirror or source that needs them.
            log.info("%r - this link does not carry %s: no mirror or source here can copy from the hub", self, denied)

    def _announce_again(self) -> None:
        """Announce interest again after a change of what may be announced: the peer receives the difference."""
        self.session.interest.forget_wanted()
        if self._account_links is not None:
            self._account_links.announce_all(self)

    # -- counting --------------------------------------------------------------------------------------------------

    def _count_in(self, msgs: int, size: int) -> None:
        self.state.traffic.received(msgs, size)
        if self.account is not None:
            self.account.count_in(msgs, size)

    def note_rtt(self) -> None:
        """Bring the record's round-trip time up to date."""
        if self.established and not self.closed:
            self.state.rtt_s = self.session.rtt_s

    def _note_counts(self) -> None:
        """Add the session's counters to the link's record, which outlives it."""
        session = self.session
        self.state.traffic.lost(session.outbox.dropped_msgs, session.sender.refused_too_large, session.refused_inbound)
