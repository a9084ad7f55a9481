"""What the router sees of a leaf link: the interest that it announces, what may leave over it, and what waits for it."""

from __future__ import annotations

from eyot_daemon.leaf.policies import LinkPolicies
from eyot_daemon.leaf.request_info import REQUEST_INFO, with_remote_account
from eyot_daemon.router.account import Account
from eyot_daemon.router.room import Room
from eyot_daemon.router.subscription import Kind, Origin, Subscription
from eyot_sync.leaf.events import Role
from eyot_sync.leaf.interest import InterestOrigin, crosses, may_forward
from eyot_sync.leaf.registry import LinkIdentity
from eyot_sync.leaf.session import LeafSession
from eyot_sync.link.state import LinkState
from eyot_sync.policy.stream_gate import Hold
from eyot_wire.first_deliveries import FirstDeliveries
from eyot_wire.frames import FrameLine


class LinkDestination:
    """One link as a destination of messages and interest. `account` is None until the peer is authenticated."""

    __slots__ = (
        "account",
        "closed",
        "dirty",
        "interest_origin",
        "link_identity",
        "out",
        "policies",
        "room",
        "session",
        "state",
    )

    kind = Kind.LEAF
    mqtt_client = ""

    #: The slice that the transport sends next.
    out: bytearray
    policies: LinkPolicies

    def __init__(self, session: LeafSession, state: LinkState) -> None:
        self.session = session
        self.state = state
        self.account: Account | None = None
        self.interest_origin = InterestOrigin(is_leaf=True)
        self.link_identity = LinkIdentity("", "", "", solicited=session.options.role is Role.SOLICIT)
        self.room = Room()
        self.closed = False
        self.dirty = False

    def _mark_dirty(self) -> None:
        """Have what waits written at the end of the turn."""
        raise NotImplementedError

    # -- interest towards the peer ---------------------------------------------------------------------------------

    def offer(self, subject: bytes, queue: bytes, weight: int, origin: InterestOrigin) -> None:
        """Announce a new subscription of the account, if it may cross the link."""
        session = self.session
        if crosses(origin, session.peer, subject) and session.may_announce(subject):
            session.add_interest(subject, queue, weight)
            self._mark_dirty()

    def withdraw(self, subject: bytes, queue: bytes, weight: int, origin: InterestOrigin) -> None:
        session = self.session
        if crosses(origin, session.peer, subject) and session.may_announce(subject):
            session.remove_interest(subject, queue, weight)
            self._mark_dirty()

    @property
    def receives_all_interest(self) -> bool:
        """Whether this is a leaf node without permissions of its own: all of these receive the same interest."""
        return not self.link_identity.solicited and not self.session.is_spoke and self.session.rules.receive.is_open

    def peer_may_receive(self, subject: bytes) -> bool:
        """May the peer get messages on this subject?"""
        return self.session.rules.receive.permits(subject)

    @property
    def traces(self) -> bool:
        return self.session.peer.traces

    @property
    def cluster(self) -> str:
        return self.session.peer.cluster

    @property
    def isolated(self) -> bool:
        return self.session.peer.isolated

    def told(self, lines: bytes) -> None:
        """Send interest protocol lines that many links share."""
        if lines:
            self.session.outbox.put_interest(lines)
            self._mark_dirty()

    def await_interest(self, waits: bool) -> None:
        """Hold messages back while more of the first interest is to come."""
        self.session.outbox.awaits_interest = waits
        if not waits:
            self._mark_dirty()

    # -- policies --------------------------------------------------------------------------------------------------

    def hold(self, stream: bytes) -> Hold | None:
        """Return the reason that holds back deliveries of a stream; None: there is none."""
        return self.policies.hold(stream)

    def allowance(self, stream: bytes) -> int:
        """Return the bytes of a stream that may be queued before `hold` is called again."""
        return self.policies.allowance(stream)

    # -- deliveries ------------------------------------------------------------------------------------------------

    def accepts(self, subject: bytes, origin: Origin | None) -> bool:
        """Return whether a message on `subject` from `origin` may leave over this link."""
        if self.closed or not self.session.may_send(subject):
            return False
        if origin is None or origin.kind is not Kind.LEAF:
            return True
        assert isinstance(origin, LinkDestination)
        return origin is not self and may_forward(origin.interest_origin, self.session.peer)

    @property
    def backlog(self) -> int:
        """Bytes of messages that wait for the link."""
        outbox = self.session.outbox
        return outbox.waiting_bytes + len(self.out)

    def deliver_leaf(
        self,
        subject: bytes,
        reply: bytes,
        header: bytes,
        payload: bytes,
        queues: tuple[bytes, ...],
        origin: Origin | None,
    ) -> bool:
        """Queue one LMSG/HMSG that `accepts` has approved."""
        if header and not payload and self.policies.spares(subject, header):
            return True
        if header and reply and self.session.remote_account:
            header = with_remote_account(header, self.session.remote_account)
        if not self.session.sender.send(subject, reply, header, payload, queues):
            return False
        self._count_out(1, len(header) + len(payload))
        return True

    def deliver_all_of(self, stream: bytes, subject: bytes, messages: list[tuple[bytes, bytes, bytes]]) -> int:
        """Queue deliveries of one stream that `accepts` has approved: reply, header and payload of each."""
        remote_account = self.session.remote_account
        if remote_account:
            messages = [(reply, with_remote_account(header, remote_account), body) for reply, header, body in messages]
        sent = self.session.sender.send_deliveries(stream, subject, messages)
        if sent:
            self._count_out(sent, sum(len(header) + len(payload) for _, header, payload in messages[:sent]))
        return sent

    def deliver_stored(self, stream: bytes, subject: bytes, messages: FirstDeliveries) -> tuple[int, int] | None:
        """Queue stored messages of one stream, approved by `accepts`, as first deliveries.

        Returns how many were queued and their bytes; None if they need `deliver_all_of`.
        """
        session = self.session
        if session.remote_account and messages.header_holds(REQUEST_INFO):
            return None
        sent = session.sender.send_stored(stream, subject, messages)
        if sent is not None and sent[0]:
            self._count_out(*sent)
        return sent

    def deliver_run(self, subject: bytes, line: FrameLine, tails: list[bytes]) -> int:
        """Queue messages that a client published with one control line, approved by `accepts`.

        Returns how many were queued; -1 if they need `deliver_leaf`.
        """
        if line.header_size and line.reply and self.session.remote_account:
            return -1  # each may hold request info
        sent = self.session.sender.send_run(subject, line.reply, line.total, tails, with_header=line.header_size > 0)
        if sent > 0:
            self._count_out(sent, sent * line.total)
        return sent

    def deliver(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> bool:
        """Deliver a message to one subscription, outside the router."""
        queues = (sub.queue,) if sub.queue else ()
        return self.accepts(subject, origin) and self.deliver_leaf(subject, reply, header, payload, queues, origin)

    def _count_out(self, msgs: int, size: int) -> None:
        """Messages wait for the end of the turn."""
        self.state.traffic.sent(msgs, size)
        if not self.dirty:
            self._mark_dirty()
