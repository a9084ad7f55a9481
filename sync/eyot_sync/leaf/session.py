"""A leaf link as a state machine without I/O, for both roles.

Bytes go in with `receive`, time with `tick` (at `next_deadline`), both return events; bytes to write come out of
`data_to_send`. The order of a handshake:

    accept                                        solicit
    INFO (nonce, client_id, leafnode_urls)  --->
                                                  [TlsRequired -> tls_established]
                                            <---  CONNECT
    ConnectReceived -> accept_connect / reject
    INFO (connect_info, account, permissions) -->
    Established; LS+ ...                    --->
                                            <---  Established; LS+ ...

Two sides that agree on compression (`leaf/compression.py`) speak S2 after the first INFO: the soliciting side answers it with an INFO of
its own, its last words in clear, and the accepting side begins again with an INFO in S2, upon which CONNECT follows.

The soliciting side is the spoke and the accepting side the hub, unless CONNECT says `is_hub`. The roles differ in who enforces what:
a spoke keeps quiet about interest it may not have and ignores what it should not have been sent, a hub closes the link on forbidden
literal interest and on forbidden messages.

The session knows nothing of an account's subscriptions: `add_interest` and `remove_interest` say what crosses, `sender` what
leaves, and the link's rules (`leaf/rules.py`) stand between.
"""

from __future__ import annotations

import math
import random
from typing import cast

from eyot_sync.leaf import errors
from eyot_sync.leaf.codec import LeafCodec
from eyot_sync.leaf.events import (
    EVENTS_OF_A_TURN,
    Closed,
    Established,
    InterestComplete,
    LeafEvent,
    LeafIdentity,
    LeafOptions,
    PeerError,
    Role,
    UserRules,
)
from eyot_sync.leaf.handshake import LeafHandshake
from eyot_sync.leaf.interest import LeafInterest, LinkPeer
from eyot_sync.leaf.liveness import Liveness, Pulse
from eyot_sync.leaf.outbox import LeafOutbox
from eyot_sync.leaf.permissions import UNCHECKED_INTEREST, UNCHECKED_MESSAGES
from eyot_sync.leaf.replies import AllowedReplies
from eyot_sync.leaf.rules import link_rules, open_rules
from eyot_sync.leaf.sender import LeafSender
from eyot_sync.leaf.state import TRANSITIONS, State
from eyot_sync.leaf.window import LinkWindow
from eyot_wire.archive.errors import ArchiveError
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
from eyot_wire.jetstream.native import other_kind
from eyot_wire.leaf_scanner import LeafScanner
from eyot_wire.subject import is_valid

#: The longest argument of an unauthenticated peer, that of CONNECT.
FIRST_CONTROL_LINE = 24 * 1024
#: The most bytes after CONNECT from a peer whose authentication is pending; it is read slowly meanwhile.
EARLY_BYTES_MAX = 48 * 1024


class LeafSession:
    """One link from the first byte to the last. Not reusable."""

    def __init__(self, identity: LeafIdentity, options: LeafOptions, rng: random.Random) -> None:
        self.options = options
        self.state = State.NEW
        self.interest = LeafInterest()
        self.outbox = LeafOutbox(self.interest, options.message_bytes_max)
        self.sender = LeafSender(self.outbox)
        self.rules = open_rules()
        # The peer, filled in by its INFO or CONNECT.
        self.peer = LinkPeer(is_upstream=False)
        self.remote_account = ""
        self.account = options.account
        # Messages refused because the rules forbid them.
        self.refused_inbound = 0
        self._identity = identity
        self._payload_max = identity.max_payload  # of the peer's messages
        self._rng = rng
        self._liveness: Liveness | None = None  # None: not established yet
        self._scanner = self._new_scanner()
        self._is_spoke = (options.role is Role.SOLICIT) != options.is_hub
        self._is_system = options.is_system
        self._deny_pub: tuple[bytes, ...] = ()
        self.codec = LeafCodec(options.compression)
        self.deadline = math.inf  # of the handshake
        self._handshake = LeafHandshake(self, identity)
        self.window = LinkWindow()
        self._interest_complete = False
        # Bytes after CONNECT while authentication is pending: unpacked ones, and later ones as received.
        self._early = b""
        self._early_packed = bytearray()
        self._last_peer_error = ""
        #: the driver has not carried out all events yet: PING is one of them until it has
        self.events_wait = False

    # ---------------------------------------------------------------- queries of the driver

    @property
    def is_spoke(self) -> bool:
        """Return whether this side is the spoke and the peer is upstream. Final once the link is established."""
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
        if self.codec.is_behind and self.state is not State.CLOSED:
            return self.sender.now
        if self._liveness is not None and self.state is State.OPEN:
            due, room_at = self._liveness.next_deadline, self.window.room_at
            return min(due, room_at) if self.outbox and room_at > self.sender.now else due
        return self.deadline

    @property
    def rtt_s(self) -> float | None:
        return self.window.rtt_s

    @property
    def max_payload(self) -> int:
        """The largest message that the peer accepts, in bytes; 0: unknown."""
        return self.sender.max_payload

    @property
    def wants_write(self) -> bool:
        return self.outbox.has_control or self.codec.has_clear or (self.state is State.OPEN and bool(self.outbox))

    def data_to_send(self, bytes_max: int = 1 << 20, now: float | None = None) -> bytes:
        """Return the next slice to write, whole frames; b"" when there is nothing, or when the allowed bulk is in flight."""
        codec, window = self.codec, self.window
        if codec.has_clear:
            return codec.take_clear()
        if self.state is not State.OPEN:
            return codec.pack(self.outbox.take(bytes_max, handshake_done=False), self._distance_s)
        at = self.sender.now if now is None else now
        bulk_max = int(window.room(at) * codec.ratio)
        parts = self.outbox.take(int(bytes_max * codec.ratio), handshake_done=True, bulk_max=bulk_max)
        data = codec.pack(parts, self._distance_s)
        if data and window.sent(len(data), at):
            window.marked(at)
            data += codec.pack([PING], self._distance_s)
        return data

    @property
    def _distance_s(self) -> float | None:
        """Return the round trip without the queueing on the link."""
        return None if self.window.rtt_s is None else self.window.rtt_min_s

    @property
    def compression(self) -> str:
        """The present compression of this side, in nats-server's words."""
        return self.codec.level(self._distance_s)

    # ---------------------------------------------------------------- state

    def enter(self, state: State, deadline: float = math.inf) -> None:
        """Change to `state`, which must be left before `deadline` (monotonic seconds). The only place where the state changes."""
        assert state in TRANSITIONS[self.state], f"{self.state.name} does not lead to {state.name}"
        self.state, self.deadline = state, deadline

    # ---------------------------------------------------------------- handshake, called by the driver

    def start(self, now: float) -> None:
        """Start on an open transport."""
        self._handshake.start(now)

    def tls_established(self, now: float) -> list[LeafEvent]:
        """Solicit: continue after the TLS handshake that `TlsRequired` requested."""
        assert self.state is State.WAIT_TLS
        return self._handshake.negotiate(now)

    @property
    def nonce(self) -> str:
        """The nonce that the soliciting side signs with its nkey."""
        return self._handshake.nonce.decode()

    def accept_connect(self, now: float, *, account: str, is_system: bool, user: UserRules) -> list[LeafEvent]:
        """Accept: the peer is authenticated and bound to `account`. Returns `Established` and the events received meanwhile."""
        if self.state is not State.WAIT_VERDICT:
            return []
        connect = self._handshake.connect
        self.account = account
        self.limit_payload(user.payload_max)
        self._is_system = is_system
        refused = self._handshake.welcome(account, user, is_system=is_system)
        if refused is not None:
            return [refused]
        self._is_spoke = connect.is_hub
        self._deny_pub = tuple(subject.encode() for subject in connect.deny_pub)
        self.sender.headers = connect.headers
        self.remote_account = connect.remote_account
        self.sender.replies = None if user.replies is None else AllowedReplies(user.replies)
        events = self.establish(now, user, isolated=connect.isolate)
        early, packed = self._early, self._early_packed
        self._drop_early()
        self._scan(early, events, now)
        self._unpack(packed, events, now)
        return events

    def limit_payload(self, most: int) -> None:
        """Accept: limit the peer's messages to `most` bytes, -1: to `max_payload`. A larger one ends the link."""
        own = self._identity.max_payload
        self._payload_max = min(most, own) if most >= 0 else own
        if self._liveness is not None:
            self._scanner.max_payload = self._payload_max

    def reject(self, text: str = errors.AUTHORIZATION_VIOLATION) -> list[LeafEvent]:
        """Accept: the peer is refused with these words."""
        return [] if self.state is State.CLOSED else [self.close(text)]

    def close(self, text: str = "", *, reason: str = "", retry_after_s: float | None = None) -> Closed:
        """End the link, with -ERR `text` if given. Waiting messages are lost."""
        self.outbox.drop_messages()
        if text and self.state is not State.CLOSED:
            self.outbox.put_control(encode_err(text))
        self.enter(State.CLOSED)
        self.sender.is_open = False
        self._drop_early()
        self._scanner = self._new_scanner()  # an incomplete frame is of no use any more
        said = text or reason or "closed"
        return Closed(said, errors.retry_delay_s(said) if retry_after_s is None else retry_after_s)

    def release(self) -> None:
        """Drop references in a circle, when the link has ended and nobody calls the session any more.

        Python frees what is left at once, without its garbage collector.
        """
        self._handshake.release()

    def report(self, text: str) -> None:
        """Send the peer an error that does not end the link."""
        self.outbox.put_control(encode_err(text))

    def connection_lost(self, reason: str) -> Closed:
        """Handle the end of the transport. The peer's last -ERR, if any, is the better reason."""
        return self.close(reason=self._last_peer_error or reason)

    # ---------------------------------------------------------------- bytes and time

    def receive(self, data: bytes | bytearray | memoryview, now: float) -> list[LeafEvent]:
        """Process bytes of the peer. After a `Closed` event nothing more is accepted."""
        events: list[LeafEvent] = []
        if self.state is State.CLOSED:
            return events
        self.sender.now = now
        if self._liveness is not None:
            self._liveness.heard(now)
        if self.state is State.WAIT_VERDICT:
            self._early_packed += data
            if len(self._early) + len(self._early_packed) > EARLY_BYTES_MAX:
                events.append(self.close(errors.AUTHORIZATION_VIOLATION))
        else:
            self._unpack(data, events, now)
        return events

    @property
    def held_bytes(self) -> int:
        """Bytes of the peer that were read and not dealt with yet."""
        return self._scanner.pending + self.codec.pending + len(self._early) + len(self._early_packed)

    def _drop_early(self) -> None:
        self._early, self._early_packed = b"", bytearray()

    def _new_scanner(self) -> LeafScanner:
        """Return a scanner; an unauthenticated peer may send no payloads and nothing long."""
        if self.options.role is Role.ACCEPT and self._liveness is None:
            return LeafScanner(max_payload=0, max_control_line=FIRST_CONTROL_LINE)
        return LeafScanner(max_payload=self._payload_max)

    def _scan_early(self, data: bytes, events: list[LeafEvent], now: float) -> None:
        """Scan bytes of an unauthenticated peer: what follows CONNECT waits for the decision."""
        at = 0
        while at < len(data) and not self.is_closed:
            if self.state is State.WAIT_VERDICT:
                self._early = data[at:]
                return
            scanner = self._scanner
            end = data.find(b"\n", at) + 1 or len(data)
            self._scan(data[at:end], events, now)
            at = end
            if self._scanner is not scanner and at < len(data) and not self.is_closed:
                # S2 begins with the peer's next byte.
                events.append(self.close(errors.AUTHORIZATION_VIOLATION))

    def _scan(self, data: bytes | bytearray | memoryview, events: list[LeafEvent], now: float) -> None:
        failed: tuple[str, str] | None = None  # not the error: that holds this frame, and all it was sent
        try:
            ops = self._scanner.feed(data)
        except ProtocolError as error:
            failed, ops = (error.text, error.detail), error.ops
        self._dispatch(ops, events, now)
        if failed is not None and not self.is_closed:
            events.append(self._protocol_failure(*failed))

    def _unpack(self, data: bytes | bytearray | memoryview, events: list[LeafEvent], now: float) -> None:
        if self.is_closed:
            return
        try:
            for part in self.codec.unpack(data):
                if self.state is State.WAIT_CONNECT:
                    self._scan_early(bytes(part), events, now)
                else:
                    self._scan(part, events, now)
                if self.is_closed or self.state is State.WAIT_VERDICT:
                    return
        except ArchiveError as error:
            events.append(self.close(reason=str(error)))

    def tick(self, now: float) -> list[LeafEvent]:
        """Time has passed."""
        self.sender.now = now
        if self.codec.is_behind and not self.is_closed:
            behind: list[LeafEvent] = []
            self._unpack(b"", behind, now)
            return behind
        if self.state is State.OPEN:
            assert self._liveness is not None
            pulse = self._liveness.tick(now, self.window.patience_s)
            if pulse is Pulse.PING:
                self._ping(now)
            elif pulse is Pulse.STALE:
                return [self.close(errors.STALE_CONNECTION)]
            return []
        if now < self.deadline or self.state is State.CLOSED:
            return []
        return [self._handshake.late()]

    def pong(self) -> None:
        """Answer a PING."""
        self.outbox.put_control(PONG)

    def _ping(self, now: float) -> None:
        self.outbox.put_control(PING)
        self.window.marked(now)

    # ---------------------------------------------------------------- interest and messages

    def add_interest(self, subject: bytes, queue: bytes = b"", weight: int = 1) -> None:
        """Add a subscription that crosses. The next slice announces it, if the rules allow."""
        self.interest.add(subject, queue, weight)

    def remove_interest(self, subject: bytes, queue: bytes = b"", weight: int = 1) -> None:
        self.interest.remove(subject, queue, weight)

    def may_announce(self, subject: bytes) -> bool:
        """Return whether the rules allow to announce this interest."""
        return self.rules.may_announce(subject)

    def may_send(self, subject: bytes) -> bool:
        """Return whether the link is open and its rules allow a message on this literal subject."""
        return self.state is State.OPEN and self.rules.send.permits(subject)

    # ---------------------------------------------------------------- operations

    def _dispatch(self, ops: list[Op], events: list[LeafEvent], now: float) -> None:
        receive = self.rules.receive
        if receive.is_open and self.state is State.OPEN and other_kind(ops, 0, LeafMsg) == len(ops):
            events += cast(list[LeafMsg], ops)
            return
        scanner = self._scanner
        for index, op in enumerate(ops):
            if type(op) is LeafMsg and self.state is State.OPEN:
                if receive.permits(op.subject) or self._tolerates(op.subject, events):
                    events.append(op)
            else:
                self._operation(op, events, now)
                receive = self.rules.receive
            if self.state is State.CLOSED:
                return
            if self._scanner is not scanner:
                # S2 begins with the peer's next byte.
                if ops[index + 1 :]:
                    events.append(self.close(errors.AUTHORIZATION_VIOLATION))
                return

    def _operation(self, op: Op, events: list[LeafEvent], now: float) -> None:
        match op:
            case Ping():
                if self.state is State.WAIT_CONNECT:
                    events.append(self.close(errors.AUTHORIZATION_VIOLATION))
                elif self.events_wait or len(events) >= EVENTS_OF_A_TURN:
                    events.append(op)
                else:
                    self.pong()
            case Pong():
                if self.window.answered(now) is not None and not self._interest_complete:
                    self._interest_complete = True
                    events.append(InterestComplete())
            case Err(text=text):
                self._peer_error(text, events)
            case Info():
                self._handshake.heard_info(op, events, now)
            case Connect() if self.state is State.WAIT_CONNECT:
                self._handshake.heard_connect(op, events)
            case Connect() if not self._handshake.accepts:
                # The accepting side presents no credentials.
                events.append(self.close(errors.AUTHORIZATION_VIOLATION))
            case LsAdd() if self.state is State.OPEN:
                self._interest_added(op, events)
            case LsDel() if self.state is State.OPEN:
                events.append(op)
            case _ if self.state is State.WAIT_CONNECT:
                events.append(self.close(errors.AUTHORIZATION_VIOLATION))
            case _ if self.state is not State.OPEN:
                events.append(self.close(reason=f"{type(op).__name__} while {self.state.value}"))
            case _:
                # +OK and a second CONNECT of a leaf on an open link change nothing.
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
        """Handle a forbidden message: accepted as a reply, ignored by a spoke, the end of the link on a hub."""
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
        if errors.is_loop(text):
            events.append(self.close(reason=text))

    def _protocol_failure(self, text: str, detail: str) -> Closed:
        if self.state is State.WAIT_CONNECT:
            return self.close(errors.AUTHORIZATION_VIOLATION)
        if self.state in (State.WAIT_INFO, State.WAIT_ACCOUNT):
            return self.close(reason=f"{errors.WRONG_PORT_SERVER}: {detail}")
        return self.close(text, reason=detail)

    # ---------------------------------------------------------------- from the handshake to the open link

    def rescan(self) -> None:
        """Start a new scanner: the peer's next bytes are a stream of their own."""
        self._scanner = self._new_scanner()

    def establish(self, now: float, user: UserRules, *, isolated: bool) -> list[LeafEvent]:
        """Establish the link with an authenticated peer: interest and messages flow."""
        times, handshake = self.options.times, self._handshake
        self.peer = LinkPeer(
            is_upstream=self._is_spoke,
            cluster=handshake.cluster,
            isolated=isolated or self.options.isolate,
            traces=handshake.traces,
        )
        self.apply_rules(user)
        self._liveness = Liveness(
            now,
            ping_interval_s=times.ping_interval_s,
            ping_max=times.ping_max,
            silence_max_s=handshake.silence_max_s,
            always_ping=self._is_spoke,
            rng=self._rng,
        )
        if self._handshake.accepts:
            self._scanner = self._new_scanner()
        self.enter(State.OPEN)
        self.sender.is_open = True
        self.codec.established()
        # The first PING is sent at once: its answer follows the peer's initial interest and measures the first round
        # trip.
        self._liveness.pinged(now)
        self._ping(now)
        return [
            Established(
                *handshake.who, remote_account=self.remote_account, peer=self.peer, jetstream=handshake.jetstream
            )
        ]

    def apply_rules(self, user: UserRules) -> None:
        """Apply the link's permissions, initially and after a change."""
        self.rules = link_rules(
            self.options,
            self._identity,
            user,
            account=self.account,
            is_system=self._is_system,
            is_spoke=self._is_spoke,
            peer_domain=self._handshake.domain,
            deny_pub=self._deny_pub,
        )
