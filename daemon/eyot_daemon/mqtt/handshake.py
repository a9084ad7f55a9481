"""CONNECT and its answer: the client id, the login, the session, and what the server can do.

A table of the steps; each happens once, in this order, and `abandon` ends it anywhere:

| step | waits for |
|---|---|
| NEW | CONNECT |
| CHALLENGE | the client's signature (AUTH), if it asks for enhanced authentication |
| LOGIN | the authenticator |
| SESSION | the session, on flash if it is to be |
| COMPLETE | nothing: CONNACK was sent |
"""

from __future__ import annotations

import logging
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Final

from eyot_daemon.mqtt import authentication
from eyot_daemon.mqtt.login import connect_of
from eyot_daemon.mqtt.publishing import Publisher
from eyot_daemon.mqtt.session_record import NEVER, StoredWill
from eyot_daemon.mqtt.sessions import Opened, Opening
from eyot_daemon.mqtt.will import stored
from eyot_wire.mqtt import encoder, topics
from eyot_wire.mqtt.packet_types import NKEY_METHOD, V5, V311
from eyot_wire.mqtt.packets import Connack
from eyot_wire.mqtt.properties import Properties
from eyot_wire.mqtt.reason_codes import ReasonCode
from eyot_wire.nuid import nuid

if TYPE_CHECKING:
    from eyot_daemon.mqtt.sending import MqttSender
    from eyot_daemon.mqtt.sessions import AccountSessions
    from eyot_wire.mqtt.packets import Auth, Connect

log = logging.getLogger("eyot.mqtt")

LEVELS: Final = (3, 4, 5)
_BRIDGE_BIT: Final = 0x80
#: What a client of MQTT 5 takes at once unless it says otherwise [MQTT-3.1.2.11.3].
RECEIVE_MAXIMUM: Final = 65_535


class Step(Enum):
    NEW = auto()
    CHALLENGE = auto()
    LOGIN = auto()
    SESSION = auto()
    COMPLETE = auto()
    ABANDONED = auto()


class Handshake:
    """The handshake of one connection. `publishes_will`: what the end of the connection means, until DISCONNECT says otherwise."""

    __slots__ = (
        "_connect",
        "_connection",
        "_has_method",
        "_step",
        "publishes_will",
    )

    def __init__(self, connection: MqttSender) -> None:
        self._connection = connection
        self._step = Step.NEW
        self._connect: Connect | None = None
        self._has_method = False
        self.publishes_will = True

    @property
    def complete(self) -> bool:
        return self._step is Step.COMPLETE

    @property
    def begun(self) -> bool:
        """CONNECT came."""
        return self._step is not Step.NEW

    @property
    def challenged(self) -> bool:
        """The client is to answer with AUTH."""
        return self._step is Step.CHALLENGE

    @property
    def authenticates(self) -> bool:
        """Whether the client logged in by the method of `authentication.py`."""
        return self._has_method

    @property
    def waiting(self) -> bool:
        """CONNECT came and is not answered yet: what follows it waits."""
        return self._step in (Step.LOGIN, Step.SESSION)

    def abandon(self) -> None:
        """End with the connection."""
        if self._step is not Step.ABANDONED:
            self._step, self._connect = Step.ABANDONED, None
            del self._connection  # each would keep the other

    # -- CONNECT -------------------------------------------------------------------------------------------------------

    def begin(self, connect: Connect) -> None:
        """Check CONNECT and log its client in."""
        connection = self._connection
        connection.level = connect.protocol_level if connect.protocol_level in LEVELS else 0
        self._connect = connect
        refused = self._wrong(connect)
        if refused is not None:
            self.refuse(*refused)
            return
        connection.client_id = connect.client_id or nuid(connection.clients.broker.ids)
        connection.name = ""
        connection.mqtt_client = connection.client_id
        if _method(connect) is not None:
            self._has_method = True
            self._step = Step.CHALLENGE
            connection.send_packet(authentication.challenge(connection.nonce))
            return
        self._step = Step.LOGIN
        password = connect.password or b""
        connection.log_in(connect_of(connect.username or "", password, connection.client_id))

    def answered(self, packet: Auth) -> None:
        """Log in a client that answers the challenge."""
        connection, connect = self._connection, self._connect
        assert connect is not None
        if not authentication.is_of_method(packet) or packet.reason_code != ReasonCode.CONTINUE_AUTHENTICATION:
            self.refuse(ReasonCode.PROTOCOL_ERROR, "not an answer to the challenge")
            return
        answer = authentication.answer_of(packet)
        if answer is None:
            self.refuse(ReasonCode.NOT_AUTHORIZED, "the authentication data is not JSON with a signature")
            return
        self._step = Step.LOGIN
        credentials = connect_of(connect.username or "", connect.password or b"", connection.client_id)
        credentials.nkey, credentials.jwt, credentials.sig = answer.nkey, answer.jwt, answer.sig
        connection.log_in(credentials)

    def _wrong(self, connect: Connect) -> tuple[ReasonCode, str] | None:
        """Return why a CONNECT is refused before its login; None: it is not."""
        if connect.protocol_level not in LEVELS:
            return ReasonCode.UNSUPPORTED_PROTOCOL_VERSION, f"protocol level {connect.protocol_level}"
        is_v5 = connect.protocol_level == V5
        if not connect.client_id and not is_v5 and (connect.protocol_level == 3 or not connect.clean_start):
            return (
                ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
                "a persistent session needs a client id, and so does MQTT 3.1",
            )
        method = _method(connect)
        if method is not None and (method != NKEY_METHOD or not self._connection.nonce):
            return ReasonCode.BAD_AUTHENTICATION_METHOD, "no such authentication method"
        if connect.username == "" and not is_v5:
            return ReasonCode.BAD_USER_NAME_OR_PASSWORD, "the user name is empty"
        will = connect.will
        if will is not None and topics.to_subject(will.topic) is None:
            return ReasonCode.TOPIC_NAME_INVALID, "the will's topic is too long, or has too many levels, for a subject"
        if will is not None and will.qos == 2 and self._connection.server.options.reject_qos2_publish:
            return ReasonCode.QOS_NOT_SUPPORTED, "a will of QoS 2"
        return None

    # -- the login -------------------------------------------------------------------------------------------------------

    def logged_in(self) -> None:
        """Continue in the account that the client belongs to: find its session."""
        connection, connect = self._connection, self._connect
        assert connection.account is not None
        if self.complete:
            return
        assert connect is not None
        connection.sessions = connection.server.sessions_of(connection.account)
        connection.traffic = connection.sessions.traffic
        connection.publisher = Publisher(
            connection.client_id, connection.account, connection.access, connection.sessions
        )
        self._step = Step.SESSION
        connection.sessions.open(self._opening(connect), partial(self._opened, connection.sessions))
        if self._step is Step.SESSION and not connection.closed:
            connection.wait_at_door(lambda: self.waiting)

    def _opening(self, connect: Connect) -> Opening:
        connection = self._connection
        return Opening(
            client_id=connection.client_id,
            owner=connection.user,
            level=connect.protocol_level,
            clean=connect.clean_start,
            expiry_s=self._expiry(connect),
            will=self._will(connect),
        )

    def _expiry(self, connect: Connect) -> int:
        """Return how long the session outlives its connection, seconds, as far as the server allows."""
        if connect.protocol_level != V5:
            return 0 if connect.clean_start else self._connection.server.session_expiry(NEVER)
        asked = connect.properties.session_expiry_interval if connect.properties is not None else None
        return self._connection.server.session_expiry(asked or 0)

    def _will(self, connect: Connect) -> StoredWill | None:
        """Return the will, if the client may publish it."""
        connection, will = self._connection, connect.will
        if will is None:
            return None
        subject = topics.to_subject(will.topic)
        if subject is None or not connection.publisher.may_publish(subject):
            log.error("%r - no permission to publish the will; it is dropped", connection)
            return None
        return stored(will)

    def refused(self) -> None:
        """Answer a failed login."""
        self.refuse(ReasonCode.NOT_AUTHORIZED, "not authorized")

    def answer_fault(self, reason: ReasonCode) -> None:
        """Tell a client of MQTT 5 what is wrong with its first CONNECT; the caller closes."""
        if not self.begun:
            self._connection.send_packet(encoder.connack(V5, Connack(False, reason)))

    def refuse(self, reason: ReasonCode, text: str) -> None:
        """Answer CONNECT with an error and close."""
        connection = self._connection
        log.error("%r - CONNECT refused: %s", connection, text)
        connection.server.note_refused(reason)
        level = connection.level or _level_of_refusal(self._connect)
        connection.send_packet(encoder.connack(level, Connack(False, reason)))
        connection.close(
            "Authentication Failure" if reason is ReasonCode.NOT_AUTHORIZED else "Protocol Violation", linger=True
        )

    # -- the session -----------------------------------------------------------------------------------------------------

    def _opened(self, sessions: AccountSessions, opened: Opened) -> None:
        session = opened.session
        if self._step is Step.ABANDONED:
            if session is not None and session.link is None:
                sessions.connection_ended(session, None, publishes_will=False)
            return
        connection, connect = self._connection, self._connect
        assert connect is not None
        if session is None:
            self.refuse(opened.reason, opened.text)
            connection.go_on()
            return
        if session.link is not None:
            # Another connection of this client was opened at the same time, and was faster.
            session.link.taken_over()
            connection.sessions.open(self._opening(connect), partial(self._opened, connection.sessions))
            return
        session.link, connection.session = connection, session
        self._step = Step.COMPLETE
        connection.traffic.client_came()
        properties = connect.properties or Properties()
        asked_maximum = properties.receive_maximum
        connection.settle(
            receive_maximum=RECEIVE_MAXIMUM if asked_maximum is None else asked_maximum,
            packet_max=properties.maximum_packet_size or 0,
            aliases=properties.topic_alias_maximum or 0,
            tells_problems=properties.request_problem_information != 0,
        )
        keep_alive = self._keep_alive(connect)
        connack = encoder.connack(connection.level, self._connack(connect, opened, keep_alive))
        if not connection.fits(connack):
            log.error("%r - CONNACK has %d bytes, more than the client takes", connection, len(connack))
            self.publishes_will = False
            connection.close("Protocol Violation", linger=False)
            return
        connection.send_packet(connack)
        connection.keep_alive(keep_alive)
        connection.subscriber.restore()
        session.attach(connection)
        connection.go_on()

    def _keep_alive(self, connect: Connect) -> int:
        most = self._connection.server.limits.keep_alive_s
        if connect.protocol_level != V5 or not most:
            return connect.keep_alive
        return min(connect.keep_alive or most, most)

    def _connack(self, connect: Connect, opened: Opened, keep_alive: int) -> Connack:
        """Return CONNACK; MQTT 5 also gets what the server limits."""
        connection = self._connection
        if connection.level != V5:
            return Connack(opened.present, ReasonCode.SUCCESS)
        limits, options = connection.server.limits, connection.server.options
        asked = connect.properties.session_expiry_interval if connect.properties is not None else None
        expiry = connection.session.record.expiry_s
        properties = Properties(
            receive_maximum=limits.inflight_in,
            maximum_packet_size=limits.packet_bytes,
            topic_alias_maximum=limits.aliases,
            session_expiry_interval=expiry if expiry != (asked or 0) else None,
            assigned_client_identifier=None if connect.client_id else connection.client_id,
            server_keep_alive=keep_alive if keep_alive != connect.keep_alive else None,
            maximum_qos=1 if options.reject_qos2_publish else None,
            authentication_method=NKEY_METHOD if self._has_method else None,
        )
        return Connack(opened.present, ReasonCode.SUCCESS, properties)


def _method(connect: Connect) -> str | None:
    """Return the authentication method that a CONNECT names; None: it names none."""
    return connect.properties.authentication_method if connect.properties is not None else None


def _level_of_refusal(connect: Connect | None) -> int:
    """Return the level in whose words a level that is not known is refused: 5 for a later one, else 3.1.1 [MQTT-3.1.2-2].

    mosquitto's bridges set the highest bit of their level, and clear it at a refusal by 3.1.1.
    """
    return V5 if connect is not None and V5 < connect.protocol_level < _BRIDGE_BIT else V311
