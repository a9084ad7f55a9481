"""Enhanced authentication of MQTT 5 (4.12): users with nkeys, and JWTs that are not bearer tokens, sign a nonce.

The one method is `nats-nkey`. Its exchange is that of a NATS client, in AUTH packets:

| packet | authentication data |
|---|---|
| CONNECT, or AUTH 0x19 of a client that authenticates again | none; what is there is not read |
| AUTH 0x18 of the server | the nonce, text |
| AUTH 0x18 of the client | `{"nkey": …, "sig": …}` or `{"jwt": …, "sig": …}`: the members of a NATS CONNECT |
| CONNACK, or AUTH 0x00 of the server | none |

A client authenticates again to show a newer JWT before the present one expires: the connection goes on, with the
permissions of the new one. It must be the same user of the same account, since the session belongs to that user.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from eyot_daemon.auth.login import Deferred
from eyot_daemon.router.access import Access
from eyot_wire.info import ClientConnect
from eyot_wire.mqtt import encoder
from eyot_wire.mqtt.packet_types import NKEY_METHOD
from eyot_wire.mqtt.properties import Properties
from eyot_wire.mqtt.reason_codes import ReasonCode

if TYPE_CHECKING:
    from eyot_daemon.auth.login import Login
    from eyot_daemon.mqtt.sending import MqttSender
    from eyot_wire.mqtt.packets import Auth

log = logging.getLogger("eyot.mqtt")


class Answer(msgspec.Struct):
    """What a client answers to a challenge."""

    sig: str
    nkey: str = ""
    jwt: str = ""


_decode = msgspec.json.Decoder(Answer).decode


def answer_of(packet: Auth) -> Answer | None:
    """Return a client's answer to the challenge; None: it is none. Raises nothing: it is input from outside."""
    properties = packet.properties
    if properties is None or properties.authentication_data is None:
        return None
    try:
        return _decode(properties.authentication_data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def is_of_method(packet: Auth) -> bool:
    """Return whether an AUTH packet names the method, which all of an exchange must [MQTT-4.12.0-5]."""
    return packet.properties is not None and packet.properties.authentication_method == NKEY_METHOD


def challenge(nonce: str) -> bytes:
    """Return the AUTH packet that asks for a signature of `nonce`."""
    properties = Properties(authentication_method=NKEY_METHOD, authentication_data=nonce.encode())
    return encoder.auth(ReasonCode.CONTINUE_AUTHENTICATION, properties)


class Reauthentication:
    """The exchanges of one connection after its CONNACK, one at a time."""

    def __init__(self, connection: MqttSender) -> None:
        self._connection = connection
        #: the client has it to sign; "": no exchange is under way
        self._nonce = ""
        self._decision: Deferred | None = None

    def handle(self, packet: Auth) -> None:
        """Handle an AUTH packet of a client that logged in with the method."""
        connection = self._connection
        if not is_of_method(packet) or self._decision is not None:
            connection.refuse(ReasonCode.PROTOCOL_ERROR)
        elif packet.reason_code == ReasonCode.REAUTHENTICATE and not self._nonce:
            self._nonce = connection.clients.new_nonce()
            if self._nonce:
                connection.send_packet(challenge(self._nonce))
            else:  # a reload changed who may log in
                connection.refuse(ReasonCode.NOT_AUTHORIZED)
        elif packet.reason_code == ReasonCode.CONTINUE_AUTHENTICATION and self._nonce:
            self._answered(packet)
        else:
            connection.refuse(ReasonCode.PROTOCOL_ERROR)

    def _answered(self, packet: Auth) -> None:
        connection, nonce = self._connection, self._nonce
        self._nonce = ""
        answer = answer_of(packet)
        if answer is None:
            connection.refuse(ReasonCode.NOT_AUTHORIZED)
            return
        connect = ClientConnect(
            verbose=False, pedantic=False, headers=True, nkey=answer.nkey, jwt=answer.jwt, sig=answer.sig
        )
        authenticator = connection.clients.authenticator_for(connection.peer)
        decision = authenticator.client(connect, nonce, connection.peer, connection)
        if isinstance(decision, Deferred):
            self._decision = decision
            decision.when_done(lambda login: self._decided(connect, nonce, login))
        else:
            self._decided(connect, nonce, decision)

    def _decided(self, connect: ClientConnect, nonce: str, login: Login | None) -> None:
        self._decision = None
        connection = self._connection
        if connection.closed:
            return
        is_same = login is not None and (login.account, login.user) == (connection.account_name, connection.user)
        if login is None or not is_same:
            why = "of another user" if login is not None else "refused"
            log.error("%r - the new authentication is %s; this connection ends", connection, why)
            connection.refuse(ReasonCode.NOT_AUTHORIZED)
            return
        # What a reload checks again is what the client has shown last.
        connection.presented, connection.nonce = connect, nonce
        connection.external, connection.token = login.external, login.token
        connection.expire_in(login.expires_in_s)
        permissions = login.permissions
        connection.reauthorized(None if permissions is None or permissions.unrestricted else Access(permissions))
        if not connection.closed:
            properties = Properties(authentication_method=NKEY_METHOD)
            connection.send_packet(encoder.auth(ReasonCode.SUCCESS, properties))

    def abandon(self) -> None:
        """End with the connection."""
        if self._decision is not None:
            self._decision.abandoned = True
