"""The handshake of a link: authentication, and the settings that both sides agree on before interest and messages flow.

It belongs to the session (`leaf/session.py`, which shows the order of a handshake) and moves it from one waiting state
to the next, up to `establish`.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from eyot_sync.leaf import errors, handshake_messages
from eyot_sync.leaf.codec import LeafCodec
from eyot_sync.leaf.compression import UnknownMode
from eyot_sync.leaf.events import (
    Closed,
    ConnectReceived,
    LeafEvent,
    LeafIdentity,
    LeafOptions,
    PermissionsChanged,
    Role,
    TlsRequired,
    UrlsDiscovered,
    UserRules,
)
from eyot_sync.leaf.outbox import LeafOutbox
from eyot_sync.leaf.sender import LeafSender
from eyot_sync.leaf.state import State
from eyot_wire.frames import Connect, Info
from eyot_wire.info import LeafConnect, LeafInfo, decode

#: The longest silence that a leaf node may request.
SILENCE_ASKED_MAX_S = 3600.0

_LATE = {
    State.WAIT_INFO: "no INFO from the peer in time",
    State.WAIT_S2: "no INFO in S2 from the peer in time",
    State.WAIT_TLS: "TLS handshake took too long",
}


class HandshakeSession(Protocol):
    """The session (`LeafSession`) as its handshake uses it."""

    options: LeafOptions
    codec: LeafCodec
    outbox: LeafOutbox
    sender: LeafSender
    remote_account: str

    @property
    def state(self) -> State: ...
    @property
    def deadline(self) -> float: ...
    @property
    def is_open(self) -> bool: ...
    def enter(self, state: State, deadline: float) -> None: ...
    def rescan(self) -> None: ...
    def establish(self, now: float, user: UserRules, *, isolated: bool) -> list[LeafEvent]: ...
    def apply_rules(self, user: UserRules) -> None: ...
    def close(self, text: str = "", *, reason: str = "") -> Closed: ...


class LeafHandshake:
    """The handshake of one session."""

    def __init__(self, session: HandshakeSession, identity: LeafIdentity) -> None:
        #: The hub's INFO; empty on the accepting side.
        self.info = LeafInfo()
        #: The leaf node's CONNECT; empty on the soliciting side.
        self.connect = LeafConnect()
        #: The nonce that the soliciting side signs.
        self.nonce = b""
        self._session = session
        self._identity = identity
        self._options = session.options

    def release(self) -> None:
        """Drop the session, which holds the handshake, when the link has ended."""
        del self._session

    # -- results ---------------------------------------------------------------------------------------------------

    @property
    def accepts(self) -> bool:
        return self._options.role is Role.ACCEPT

    @property
    def domain(self) -> str:
        """The peer's JetStream domain."""
        return self.connect.domain if self.accepts else self.info.domain

    @property
    def jetstream(self) -> bool:
        """Whether the peer has JetStream."""
        return self.connect.jetstream if self.accepts else self.info.jetstream

    @property
    def cluster(self) -> str:
        """The peer's cluster."""
        return self.connect.cluster if self.accepts else self.info.cluster

    @property
    def traces(self) -> bool:
        """Whether the peer supports message traces."""
        return (self.connect.protocol if self.accepts else self.info.proto) >= handshake_messages.TRACES

    @property
    def silence_max_s(self) -> float:
        """How long the peer may be silent: a leaf node with a metered link asks for more."""
        ours = self._options.times.silence_max_s
        return max(ours, min(self.connect.eyot_silence_s, SILENCE_ASKED_MAX_S)) if ours else ours

    @property
    def who(self) -> tuple[str, str, str, str]:
        """The peer's server id, name, version and domain."""
        return (
            handshake_messages.accepted_peer(self.connect)
            if self.accepts
            else handshake_messages.solicited_peer(self.info)
        )

    # -- both sides ------------------------------------------------------------------------------------------------

    def start(self, now: float) -> None:
        """Start the handshake on an open transport."""
        times = self._options.times
        if not self.accepts:
            self._session.enter(State.WAIT_INFO, now + times.first_info_s)
            return
        self.nonce = handshake_messages.new_nonce()
        self._say_info(handshake_messages.first_info(self._identity, self._options, self.nonce))
        self._session.enter(State.WAIT_CONNECT, now + times.auth_s)

    def late(self) -> Closed:
        """End the link after a missed deadline."""
        session = self._session
        reason = _LATE.get(session.state)
        if reason is not None:
            return session.close(reason=reason)
        waits_for_account = session.state is State.WAIT_ACCOUNT
        return session.close(errors.STALE_HANDSHAKE if waits_for_account else errors.AUTHENTICATION_TIMEOUT)

    def heard_info(self, op: Info, events: list[LeafEvent], now: float) -> None:
        """Process an INFO, at any time."""
        session = self._session
        if self.accepts:
            if session.state is State.WAIT_CONNECT:
                self._compression_asked(op, events)
            return
        try:
            info = decode(op.json, LeafInfo)
        except msgspec.DecodeError as error:
            first = session.state in (State.WAIT_INFO, State.WAIT_S2)
            where = f"{errors.WRONG_PORT_SERVER}: " if first else ""
            events.append(session.close(reason=f"{where}unreadable INFO: {error}"))
            return
        match session.state:
            case State.WAIT_INFO | State.WAIT_S2:
                self._first_info(info, events, now)
            case State.WAIT_ACCOUNT if info.connect_info:
                self._learn_urls(info, events)
                # The account or the user may have a limit of its own.
                session.sender.max_payload = info.max_payload or session.sender.max_payload
                session.remote_account = info.remote_account
                self.info.domain = info.domain or self.info.domain
                events += session.establish(now, handshake_messages.user_rules(info), isolated=False)
            case State.WAIT_ACCOUNT | State.OPEN:
                self._learn_urls(info, events)
                if session.is_open and info.connect_info:
                    session.apply_rules(handshake_messages.user_rules(info))
                    events.append(PermissionsChanged())
            case _:
                pass

    def _say_info(self, info: LeafInfo) -> None:
        self._session.outbox.put_control(handshake_messages.encode_info(info))

    # -- solicit ---------------------------------------------------------------------------------------------------

    def _first_info(self, info: LeafInfo, events: list[LeafEvent], now: float) -> None:
        session = self._session
        if handshake_messages.wrong_port(info):
            events.append(session.close(reason=errors.WRONG_PORT_SERVER))
            return
        self.info = info
        session.sender.headers = info.headers
        session.sender.max_payload = info.max_payload
        self.nonce = info.nonce.encode()
        self._learn_urls(info, events)
        if session.state is State.WAIT_S2:
            events += self._send_connect(now)
        elif (info.tls_required or self._options.tls_required) and not self._options.tls_done:
            self._session.enter(State.WAIT_TLS, now + self._options.times.connect_s)
            events.append(TlsRequired())
        else:
            events += self.negotiate(now)

    def negotiate(self, now: float) -> list[LeafEvent]:
        """Start the exchange with the hub: agree on compression."""
        session = self._session
        try:
            agreed = session.codec.agree(self.info.compression)
        except UnknownMode as error:
            return [session.close(str(error))]
        if not agreed:
            return self._send_connect(now)
        told = LeafInfo(client_id=self._options.client_id, compression=session.codec.told)
        session.codec.say_in_clear(handshake_messages.encode_info(told))
        session.rescan()
        self._session.enter(State.WAIT_S2, now + self._options.times.connect_s)
        return []

    def _send_connect(self, now: float) -> list[LeafEvent]:
        session = self._session
        connect = handshake_messages.connect_for(self._identity, self._options, self.nonce)
        connect.headers = self._identity.headers and self.info.headers
        connect.compress_mode = session.codec.mode
        session.outbox.put_control(handshake_messages.encode_connect(connect))
        if not self.info.info_on_connect:
            return session.establish(now, UserRules(), isolated=False)
        self._session.enter(State.WAIT_ACCOUNT, now + self._options.times.connect_s)
        return []

    def _learn_urls(self, info: LeafInfo, events: list[LeafEvent]) -> None:
        urls = info.ws_connect_urls if self._options.websocket else info.leafnode_urls
        if urls:
            events.append(UrlsDiscovered(tuple(urls)))

    # -- accept ----------------------------------------------------------------------------------------------------

    def _compression_asked(self, op: Info, events: list[LeafEvent]) -> None:
        """Process an INFO of the peer that requests S2."""
        session, codec = self._session, self._session.codec
        if not codec.is_offered:
            events.append(session.close(errors.AUTHORIZATION_VIOLATION))
            return
        try:
            agreed = codec.agree(decode(op.json, LeafInfo).compression)
        except msgspec.DecodeError as error:
            events.append(session.close(reason=f"unreadable INFO: {error}"))
        except UnknownMode as error:
            events.append(session.close(str(error)))
        else:
            if agreed:
                info = handshake_messages.first_info(self._identity, self._options, self.nonce)
                info.compression = codec.told
                self._say_info(info)
                session.rescan()

    def heard_connect(self, op: Connect, events: list[LeafEvent]) -> None:
        session = self._session
        try:
            connect = decode(op.json, LeafConnect)
        except msgspec.DecodeError as error:
            events.append(session.close(reason=f"unreadable CONNECT: {error}"))
            return
        refusal = handshake_messages.connect_refusal(connect, self._identity)
        if refusal:
            events.append(session.close(refusal))
            return
        self.connect = connect
        session.codec.heard_login(connect.compress_mode)
        session.enter(State.WAIT_VERDICT, session.deadline)
        events.append(ConnectReceived(connect, self.nonce))

    def welcome(self, account: str, user: UserRules, *, is_system: bool) -> Closed | None:
        """Answer the CONNECT of an authenticated peer; return the end of the link if the peer's version is too old."""
        answer = handshake_messages.second_info(
            self._identity, self._options, account=account, is_system=is_system, user=user
        )
        self._say_info(answer)
        minimum = self._options.min_version
        if minimum and handshake_messages.version_below(self.connect.version, minimum):
            return self._session.close(errors.min_version_required(minimum))
        return None
