"""A leaf link as a state machine without I/O, for both roles.

Bytes go in with `receive`, time with `tick` (at `next_deadline`), both return events; what is to be written comes out of
`data_to_send`. The order of a handshake:

    accept                                        solicit
    INFO (nonce, client_id, leafnode_urls)  --->
                                                  [TlsRequired -> tls_established]
                                            <---  CONNECT
    ConnectReceived -> accept_connect / reject
    INFO (connect_info, account, permissions) -->
    Established; LS+ ...                    --->
                                            <---  Established; LS+ ...

The soliciting side is the spoke and the accepting side the hub, unless CONNECT says `is_hub`. The roles differ in who enforces what:
a spoke keeps quiet about interest it may not have and ignores what it should not have been sent, a hub closes the link on forbidden
literal interest and on forbidden messages. S2 compression is never offered and never taken.

The session knows nothing of an account's subscriptions: `add_interest` and `remove_interest` say what crosses, `sender` what
leaves, and the link's rules (`leaf_rules.py`) stand between.
"""

from __future__ import annotations

import math
import random

import msgspec

from eyot_sync import leaf_errors as errors
from eyot_sync import leaf_handshake as handshake
from eyot_sync.leaf_events import (
    Closed,
    ConnectReceived,
    Established,
    InterestComplete,
    LeafEvent,
    LeafIdentity,
    LeafOptions,
    PeerError,
    PermissionsChanged,
    Role,
    State,
    TlsRequired,
    UrlsDiscovered,
    UserRules,
)
from eyot_sync.leaf_interest import LeafInterest, LinkPeer
from eyot_sync.leaf_liveness import Liveness, Pulse
from eyot_sync.leaf_outbox import LeafOutbox
from eyot_sync.leaf_permissions import UNCHECKED_INTEREST, UNCHECKED_MESSAGES
from eyot_sync.leaf_replies import AllowedReplies
from eyot_sync.leaf_rules import link_rules, open_rules
from eyot_sync.leaf_sender import LeafSender
from eyot_sync.link_window import LinkWindow
from eyot_wire.frames import (
    PING,
    PONG,
    Connect,
    Err,
    Info,
    LeafMsg,
    LsAdd,
    LsDel,
    Op,
    Ping,
    Pong,
    ProtocolError,
    encode_err,
)
from eyot_wire.info import LeafConnect, LeafInfo, decode
from eyot_wire.leaf_scanner import LeafScanner
from eyot_wire.subject import is_valid


class LeafSession:
    """One link from the first byte to the last. Not reusable."""

    def __init__(self, identity: LeafIdentity, options: LeafOptions, rng: random.Random) -> None:
        self.options = options
        self.state = State.NEW
        self.interest = LeafInterest()
        self.outbox = LeafOutbox(self.interest, options.message_bytes_max)
        self.sender = LeafSender(self.outbox)
        self.rules = open_rules()
        # What is known of the other side; filled in by its INFO or CONNECT.
        self.peer = LinkPeer(is_upstream=False)
        self.remote_account = ""
        self.account = options.account
        # Messages refused because the rules forbid them.
        self.refused_inbound = 0
        self._identity = identity
        self._rng = rng
        self._scanner = LeafScanner(max_payload=identity.max_payload)
        self._is_spoke = (options.role is Role.SOLICIT) != options.is_hub
        self._is_system = options.is_system
        self._deny_pub: tuple[bytes, ...] = ()
        self._peer_info = LeafInfo()
        self._peer_connect = LeafConnect()
        self._nonce = b""
        self._deadline = math.inf
        self._liveness: Liveness | None = None
        self.window = LinkWindow()
        self._interest_complete = False
        self._held: list[Op] = []
        self._last_peer_error = ""

    # ---------------------------------------------------------------- what the driver asks

    @property
    def is_spoke(self) -> bool:
        """This side is the spoke: the peer is upstream. Final once the link is established."""
        return self._is_spoke

    @property
    def is_open(self) -> bool:
        return self.state is State.OPEN

    @property
    def is_closed(self) -> bool:
        return self.state is State.CLOSED

    @property
    def next_deadline(self) -> float:
        """Monotonic seconds at which `tick` must be called; infinity when there is nothing to wait for."""
        if self._liveness is not None and self.state is State.OPEN:
            return self._liveness.next_deadline
        return self._deadline

    @property
    def rtt_s(self) -> float | None:
        return self.window.rtt_s

    @property
    def max_payload(self) -> int:
        """The largest message the peer takes, in bytes; 0 when it did not say."""
        return self.sender.max_payload

    @property
    def wants_write(self) -> bool:
        return self.outbox.has_control or (self.state is State.OPEN and bool(self.outbox))

    def data_to_send(self, bytes_max: int = 1 << 20, now: float | None = None) -> bytes:
        """The next slice to write, whole frames; b"" when there is nothing, or when as much bulk is under way as may be."""
        if self.state is not State.OPEN:
            return self.outbox.take(bytes_max, handshake_done=False)
        window = self.window
        data = self.outbox.take(bytes_max, handshake_done=True, bulk_max=window.room)
        if data and window.sent(len(data)):
            window.marked(self.sender.now if now is None else now)
            data += PING
        return data

    # ---------------------------------------------------------------- handshake, called by the driver

    def start(self, now: float) -> None:
        """The transport is there."""
        times = self.options.times
        if self.options.role is Role.SOLICIT:
            self.state = State.WAIT_INFO
            self._deadline = now + times.first_info_s
            return
        self._nonce = handshake.new_nonce(self._rng)
        self.outbox.put_control(handshake.encode_info(handshake.first_info(self._identity, self.options, self._nonce)))
        self.state = State.WAIT_CONNECT
        self._deadline = now + times.auth_s

    def tls_established(self, now: float) -> list[LeafEvent]:
        """Solicit: the TLS handshake that `TlsRequired` asked for is done."""
        assert self.state is State.WAIT_TLS
        return self._send_connect(now)

    @property
    def nonce(self) -> str:
        """What the soliciting side signs with its nkey."""
        return self._nonce.decode()

    def accept_connect(self, now: float, *, account: str, is_system: bool, user: UserRules) -> list[LeafEvent]:
        """Accept: the peer is who it says, and bound to `account`. Returns `Established` and what came in meanwhile."""
        if self.state is not State.WAIT_VERDICT:
            return []
        connect = self._peer_connect
        self.account = account
        self._is_system = is_system
        answer = handshake.second_info(self._identity, self.options, account=account, is_system=is_system, user=user)
        self.outbox.put_control(handshake.encode_info(answer))
        minimum = self.options.min_version
        if minimum and handshake.version_below(connect.version, minimum):
            return [self.close(errors.min_version_required(minimum))]
        self._is_spoke = connect.is_hub
        self._deny_pub = tuple(subject.encode() for subject in connect.deny_pub)
        self.sender.headers = connect.headers
        self.remote_account = connect.remote_account
        self.sender.replies = None if user.replies is None else AllowedReplies(user.replies)
        events = self._establish(now, user, isolated=connect.isolate)
        held, self._held = self._held, []
        self._dispatch(held, events, now)
        return events

    def reject(self, text: str = errors.AUTHORIZATION_VIOLATION) -> list[LeafEvent]:
        """Accept: the peer is refused with these words."""
        return [] if self.state is State.CLOSED else [self.close(text)]

    def close(self, text: str = "", *, reason: str = "", retry_after_s: float | None = None) -> Closed:
        """End the link, with -ERR `text` if given. What waits in the message lane is lost."""
        self.outbox.drop_messages()
        if text and self.state is not State.CLOSED:
            self.outbox.put_control(encode_err(text))
        self.state = State.CLOSED
        self.sender.is_open = False
        self._deadline = math.inf
        self._held.clear()
        said = text or reason or "closed"
        return Closed(said, errors.retry_delay_s(said) if retry_after_s is None else retry_after_s)

    def report(self, text: str) -> None:
        """Tell the peer of an error that does not end the link."""
        self.outbox.put_control(encode_err(text))

    def connection_lost(self, reason: str) -> Closed:
        """The transport ended. The peer's last -ERR, if any, is the better reason."""
        return self.close(reason=self._last_peer_error or reason)

    # ---------------------------------------------------------------- bytes and time

    def receive(self, data: bytes | bytearray | memoryview, now: float) -> list[LeafEvent]:
        """Bytes from the peer. After a `Closed` event nothing more is taken."""
        events: list[LeafEvent] = []
        if self.state is State.CLOSED:
            return events
        self.sender.now = now
        if self._liveness is not None:
            self._liveness.heard(now)
        failure: ProtocolError | None = None
        try:
            ops = self._scanner.feed(data)
        except ProtocolError as error:
            failure = error
            ops = error.ops
        self._dispatch(ops, events, now)
        if failure is not None and not self.is_closed:
            events.append(self._protocol_failure(failure))
        return events

    def tick(self, now: float) -> list[LeafEvent]:
        """Time has passed."""
        self.sender.now = now
        if self.state is State.OPEN:
            assert self._liveness is not None
            pulse = self._liveness.tick(now, self.window.patience_s)
            if pulse is Pulse.PING:
                self._ping(now)
            elif pulse is Pulse.STALE:
                return [self.close(errors.STALE_CONNECTION)]
            return []
        if now < self._deadline or self.state is State.CLOSED:
            return []
        match self.state:
            case State.WAIT_INFO:
                return [self.close(reason="no INFO from the peer in time")]
            case State.WAIT_ACCOUNT:
                return [self.close(errors.STALE_HANDSHAKE)]
            case State.WAIT_TLS:
                return [self.close(reason="TLS handshake took too long")]
            case _:
                return [self.close(errors.AUTHENTICATION_TIMEOUT)]

    def _ping(self, now: float) -> None:
        self.outbox.put_control(PING)
        self.window.marked(now)

    # ---------------------------------------------------------------- interest and messages

    def add_interest(self, subject: bytes, queue: bytes = b"", weight: int = 1) -> None:
        """A subscription that crosses appeared. The peer hears of it with the next slice, if the rules let it."""
        self.interest.add(subject, queue, weight)

    def remove_interest(self, subject: bytes, queue: bytes = b"", weight: int = 1) -> None:
        self.interest.remove(subject, queue, weight)

    def may_announce(self, subject: bytes, queue: bytes = b"") -> bool:
        """Do the rules let the peer hear of this interest?"""
        return self.rules.may_announce(subject, queue)

    def may_send(self, subject: bytes) -> bool:
        """Is the link open, and do its rules let a message on this literal subject out?"""
        return self.state is State.OPEN and self.rules.send.permits(subject)

    # ---------------------------------------------------------------- operations

    def _dispatch(self, ops: list[Op], events: list[LeafEvent], now: float) -> None:
        receive = self.rules.receive
        for index, op in enumerate(ops):
            if type(op) is LeafMsg and self.state is State.OPEN:
                if receive.permits(op.subject) or self._tolerates(op.subject, events):
                    events.append(op)
            elif self.state is State.WAIT_VERDICT:
                self._held.extend(ops[index:])
                return
            else:
                self._operation(op, events, now)
                receive = self.rules.receive
            if self.state is State.CLOSED:
                return

    def _operation(self, op: Op, events: list[LeafEvent], now: float) -> None:
        match op:
            case Ping():
                if self.state is State.WAIT_CONNECT:
                    events.append(self.close(errors.AUTHORIZATION_VIOLATION))
                else:
                    self.outbox.put_control(PONG)
            case Pong():
                if self.window.answered(now) is not None and not self._interest_complete:
                    self._interest_complete = True
                    events.append(InterestComplete())
            case Err(text=text):
                self._peer_error(text, events)
            case Info():
                self._info(op, events, now)
            case Connect() if self.state is State.WAIT_CONNECT:
                self._connect(op, events)
            case LsAdd() if self.state is State.OPEN:
                self._interest_added(op, events)
            case LsDel() if self.state is State.OPEN:
                events.append(op)
            case _ if self.state is State.WAIT_CONNECT:
                events.append(self.close(errors.AUTHORIZATION_VIOLATION))
            case _ if self.state is not State.OPEN:
                events.append(self.close(reason=f"{type(op).__name__} while {self.state.value}"))
            case _:
                # +OK and a second CONNECT on an open link change nothing.
                pass

    def _interest_added(self, op: LsAdd, events: list[LeafEvent]) -> None:
        if not is_valid(op.subject):
            self.outbox.put_control(encode_err(errors.INVALID_SUBSCRIPTION))
            return
        if (
            not self._is_spoke
            and not op.subject.startswith(UNCHECKED_INTEREST)
            and self.rules.send.refuses_literal(op.subject)
        ):
            events.append(self.close(errors.subscription_violation(op.subject)))
            return
        events.append(op)

    def _tolerates(self, subject: bytes, events: list[LeafEvent]) -> bool:
        """A message that the rules forbid: passed if it is a reply, ignored by a spoke, the end of the link on a hub."""
        if subject.startswith(UNCHECKED_MESSAGES):
            return True
        if self.sender.replies is not None and self.sender.replies.take(subject, self.sender.now):
            return True
        self.refused_inbound += 1
        if not self._is_spoke:
            events.append(self.close(errors.publish_violation(subject)))
        return False

    def _peer_error(self, text: str, events: list[LeafEvent]) -> None:
        self._last_peer_error = text
        events.append(PeerError(text))
        # The peer closes after nearly all of these. A loop is closed from both ends, for the peer may be one that does not.
        if "Loop detected" in text:
            events.append(self.close(reason=text))

    def _protocol_failure(self, failure: ProtocolError) -> Closed:
        if self.state is State.WAIT_CONNECT:
            return self.close(errors.AUTHORIZATION_VIOLATION)
        if self.state in (State.WAIT_INFO, State.WAIT_ACCOUNT):
            return self.close(reason=f"{errors.WRONG_PORT_SERVER}: {failure.detail}")
        return self.close(failure.text, reason=failure.detail)

    # ---------------------------------------------------------------- handshake

    def _info(self, op: Info, events: list[LeafEvent], now: float) -> None:
        if self.options.role is Role.ACCEPT:
            if self.state is State.WAIT_CONNECT:
                # Only a peer that wants to switch to S2 opens with INFO, and it was not offered.
                events.append(self.close(errors.AUTHORIZATION_VIOLATION))
            return
        try:
            info = decode(op.json, LeafInfo)
        except msgspec.DecodeError as error:
            events.append(self.close(reason=f"{errors.WRONG_PORT_SERVER}: unreadable INFO: {error}"))
            return
        match self.state:
            case State.WAIT_INFO:
                self._first_info(info, events, now)
            case State.WAIT_ACCOUNT if info.connect_info:
                self._learn_urls(info, events)
                self.remote_account = info.remote_account
                self._peer_info.domain = info.domain or self._peer_info.domain
                events += self._establish(now, handshake.user_rules(info), isolated=False)
            case State.WAIT_ACCOUNT | State.OPEN:
                self._learn_urls(info, events)
                if self.state is State.OPEN and info.connect_info:
                    self._apply_rules(handshake.user_rules(info))
                    events.append(PermissionsChanged())
            case _:
                pass

    def _first_info(self, info: LeafInfo, events: list[LeafEvent], now: float) -> None:
        if handshake.wrong_port(info):
            events.append(self.close(reason=errors.WRONG_PORT_SERVER))
            return
        self._peer_info = info
        self.sender.headers = info.headers
        self.sender.max_payload = info.max_payload
        self._nonce = info.nonce.encode()
        self._learn_urls(info, events)
        if (info.tls_required or self.options.tls_required) and not self.options.tls_done:
            self.state = State.WAIT_TLS
            self._deadline = now + self.options.times.connect_s
            events.append(TlsRequired())
            return
        events += self._send_connect(now)

    def _send_connect(self, now: float) -> list[LeafEvent]:
        connect = handshake.connect_for(self._identity, self.options, self._nonce)
        connect.headers = self._identity.headers and self._peer_info.headers
        self.outbox.put_control(handshake.encode_connect(connect))
        if not self._peer_info.info_on_connect:
            return self._establish(now, UserRules(), isolated=False)
        self.state = State.WAIT_ACCOUNT
        self._deadline = now + self.options.times.connect_s
        return []

    def _connect(self, op: Connect, events: list[LeafEvent]) -> None:
        try:
            connect = decode(op.json, LeafConnect)
        except msgspec.DecodeError as error:
            events.append(self.close(reason=f"unreadable CONNECT: {error}"))
            return
        refusal = handshake.connect_refusal(connect, self._identity)
        if refusal:
            events.append(self.close(refusal))
            return
        self._peer_connect = connect
        self.state = State.WAIT_VERDICT
        events.append(ConnectReceived(connect, self._nonce))

    def _establish(self, now: float, user: UserRules, *, isolated: bool) -> list[LeafEvent]:
        times = self.options.times
        accepted = self.options.role is Role.ACCEPT
        connect, info = self._peer_connect, self._peer_info
        self.peer = LinkPeer(
            is_upstream=self._is_spoke,
            cluster=connect.cluster if accepted else info.cluster,
            isolated=isolated or self.options.isolate,
        )
        self._apply_rules(user)
        self._liveness = Liveness(
            now,
            ping_interval_s=times.ping_interval_s,
            ping_max=times.ping_max,
            silence_max_s=times.silence_max_s,
            always_ping=self._is_spoke,
            rng=self._rng,
        )
        self.state = State.OPEN
        self.sender.is_open = True
        # The first PING goes out at once: its answer comes behind the peer's initial interest and gives the first round trip.
        self._liveness.pinged(now)
        self._ping(now)
        who = handshake.accepted_peer(connect) if accepted else handshake.solicited_peer(info)
        return [Established(*who, remote_account=self.remote_account, peer=self.peer)]

    @property
    def _peer_domain(self) -> str:
        return self._peer_connect.domain if self.options.role is Role.ACCEPT else self._peer_info.domain

    def _apply_rules(self, user: UserRules) -> None:
        self.rules = link_rules(
            self.options,
            self._identity,
            user,
            account=self.account,
            is_system=self._is_system,
            is_spoke=self._is_spoke,
            peer_domain=self._peer_domain,
            deny_pub=self._deny_pub,
        )

    def _learn_urls(self, info: LeafInfo, events: list[LeafEvent]) -> None:
        urls = info.ws_connect_urls if self.options.websocket else info.leafnode_urls
        if urls:
            events.append(UrlsDiscovered(tuple(urls)))
