"""A client of MQTT on a blocking socket: connects, publishes, subscribes, and acknowledges what it gets.

`wait` is the only place that waits. It reads what the server sent, answers it, and sends PINGREQ when it is due. `take`
returns the messages that came; a message that nobody takes is not acknowledged, and comes again to a persistent session.
"""

from __future__ import annotations

import select
import ssl
import time
from collections import deque
from typing import Final, NamedTuple

import msgspec

from eyot_cli.connection.refusals import said
from eyot_cli.connection.target import TIMEOUT_S
from eyot_cli.mqtt.login import Listener, Login
from eyot_cli.terminal.failure import Failure
from eyot_wire.mqtt import encoder
from eyot_wire.mqtt.errors import MqttError
from eyot_wire.mqtt.packet_types import NKEY_METHOD, V5
from eyot_wire.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscriptionRequest,
)
from eyot_wire.mqtt.properties import Properties
from eyot_wire.mqtt.reason_codes import SUBACK_FAILURE, ReasonCode
from eyot_wire.mqtt.server_packets import ServerPacket, ServerPacketReader
from eyot_wire.mqtt.topics import is_valid_filter

#: The largest packet of MQTT.
PACKET_BYTES_MAX: Final = 268_435_460
READ_BYTES: Final = 64 * 1024
#: Publishes that wait for their acknowledgement at once, unless the server takes fewer.
WINDOW: Final = 100
_LAST_ID: Final = 65_535
#: What an operator can do about a CONNACK that refuses.
REMEDIES: Final = {
    ReasonCode.NOT_AUTHORIZED: "check user and password (-u, -P), and whether the user may use MQTT (allowed_connection_types)",
    ReasonCode.BAD_USER_NAME_OR_PASSWORD: "check user and password (-u, -P)",
    ReasonCode.UNSUPPORTED_PROTOCOL_VERSION: "try another one with -V",
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID: "give another one with -i",
    ReasonCode.BAD_AUTHENTICATION_METHOD: "this server has no users with nkeys: leave --creds and --nkey out",
    ReasonCode.SERVER_UNAVAILABLE: "the account needs JetStream, see docs/mqtt.md",
}


class Session(NamedTuple):
    """What a client asks of its session. `expiry_s`: how long it outlives the connection."""

    client_id: str
    clean: bool = True
    expiry_s: int = 0


class MqttClient:
    """One connection. `level`: 4 (3.1.1) or 5; `keep_alive_s`: 0 for none. Raises Failure for all that goes wrong."""

    def __init__(self, listener: Listener, login: Login, session: Session, *, level: int, keep_alive_s: int) -> None:
        self._listener = listener
        self._level = level
        self._keep_alive_s = keep_alive_s
        self._inbox: deque[Publish] = deque()
        #: publishes that are not acknowledged yet: QoS by packet identifier
        self._unacked: dict[int, int] = {}
        #: messages of QoS 2 that came and were not released by the server
        self._received: set[int] = set()
        self._last_id = 0
        self._window = WINDOW
        #: answers to CONNECT and SUBSCRIBE
        self._answers: deque[Connack | Suback] = deque()
        self._reader = ServerPacketReader(level, PACKET_BYTES_MAX)
        #: what the first refused publish was answered with
        self.refused = ""
        try:
            self._sock = listener.connect()
        except OSError as error:
            raise Failure(
                f"cannot connect to {listener.shown}: {said(error)}: is `mqtt {{ listen }}` configured there? "
                "Another listener is named with --url mqtt://HOST:PORT"
            ) from error
        self._sent_at = time.monotonic()
        self._pinged_at: float | None = None
        #: answers to PINGREQ since `await_read` sent one
        self._pongs = 0
        self.present = False
        try:
            self._connect(login, session)
        except BaseException:
            self._sock.close()
            raise

    # -- the connection --------------------------------------------------------------------------------------------------

    def _connect(self, login: Login, session: Session) -> None:
        self._credentials = login.credentials
        properties = None
        if self._level == V5:
            properties = Properties(
                session_expiry_interval=session.expiry_s or None,
                authentication_method=None if login.credentials is None else NKEY_METHOD,
            )
        asked = Connect(
            self._level,
            session.client_id,
            session.clean,
            self._keep_alive_s,
            login.username,
            login.password,
            properties=properties,
        )
        self._send(encoder.connect(asked))
        answer = self._await()
        assert isinstance(answer, Connack)
        if answer.reason_code is not ReasonCode.SUCCESS:
            remedy = REMEDIES.get(answer.reason_code, "")
            text = f"{self._listener.shown} refuses the connection: {words(answer.reason_code, answer.properties)}"
            raise Failure(f"{text}: {remedy}" if remedy else text)
        self.present = answer.session_present
        if answer.properties is not None:
            self._window = min(self._window, answer.properties.receive_maximum or WINDOW)
            if answer.properties.server_keep_alive is not None:
                self._keep_alive_s = answer.properties.server_keep_alive

    def close(self) -> None:
        """Send DISCONNECT, and close."""
        try:
            self._sock.settimeout(TIMEOUT_S)
            self._sock.sendall(encoder.DISCONNECT)
            self._sock.close()
        except OSError:
            pass  # it is gone anyway

    # -- publishing --------------------------------------------------------------------------------------------------------

    @property
    def unacked(self) -> int:
        return len(self._unacked)

    @property
    def has_room(self) -> bool:
        """Whether another publish of QoS 1 or 2 may be sent now."""
        return len(self._unacked) < self._window

    def publish(self, topic: str, payload: bytes, *, qos: int, retain: bool, properties: Properties | None) -> None:
        """Send PUBLISH; for QoS 1 and 2 see `has_room` before and `unacked` after."""
        packet_id = self._next_id() if qos else 0
        if qos:
            self._unacked[packet_id] = qos
        made = encoder.publish(
            self._level,
            topic,
            payload,
            qos=qos,
            retain=retain,
            packet_id=packet_id,
            properties=properties if self._level == V5 else None,
        )
        self._send(made)

    def await_read(self) -> None:
        """Wait until the server has read everything. What it says against a publish of QoS 0 raises Failure: it ends the connection."""
        self._send(encoder.PINGREQ)
        deadline = time.monotonic() + TIMEOUT_S
        self._pongs = 0
        while not self._pongs:
            left = deadline - time.monotonic()
            if left <= 0:
                raise Failure(f"{self._listener.shown} does not answer any more")
            self.wait(left)

    def _next_id(self) -> int:
        while True:
            self._last_id = self._last_id % _LAST_ID + 1
            if self._last_id not in self._unacked:
                return self._last_id

    # -- subscribing -------------------------------------------------------------------------------------------------------

    def subscribe(self, filters: list[SubscriptionRequest], properties: Properties | None = None) -> None:
        """Subscribe, and wait for SUBACK. Raises Failure when a filter is refused."""
        self._send(encoder.subscribe(self._level, Subscribe(self._next_id(), filters, properties)))
        answer = self._await()
        assert isinstance(answer, Suback)
        for asked, reason in zip(filters, answer.reason_codes, strict=False):
            if reason >= SUBACK_FAILURE:
                why = words(reason, answer.properties) if self._level == V5 else "refused"
                if not is_valid_filter(asked.filter):
                    raise Failure(f"{asked.filter}: {why}: + and # stand alone between /, and # at the end")
                raise Failure(
                    f"{asked.filter}: {why}: see the server's log; `plant/#` needs permission to subscribe to "
                    "`plant` and `plant.>`"
                )

    def take(self) -> Publish | None:
        """Return and acknowledge the next message that came; None: none did."""
        if not self._inbox:
            return None
        packet = self._inbox.popleft()
        if packet.qos == 1:
            self._send(encoder.puback(self._level, packet.packet_id))
        elif packet.qos == 2:
            self._send(encoder.pubrec(self._level, packet.packet_id))
        return packet

    # -- waiting -----------------------------------------------------------------------------------------------------------

    def wait(self, timeout_s: float | None, beside: int | None = None) -> bool:
        """Wait until the server sent something, or `beside` (a file descriptor) can be read; return whether the latter is so.

        Returns after `timeout_s` at the latest (None: no limit), and after a keep-alive was sent.
        """
        pending = isinstance(self._sock, ssl.SSLSocket) and self._sock.pending() > 0
        wanted: list[int] = [self._sock.fileno()] + ([] if beside is None else [beside])
        ready, _, _ = select.select(wanted, [], [], 0.0 if pending else self._patience(timeout_s))
        if pending or self._sock.fileno() in ready:
            self._read()
        self._keep_alive()
        return beside is not None and beside in ready

    def _patience(self, timeout_s: float | None) -> float | None:
        """Return how long nothing needs to be done, seconds; None: for ever."""
        if not self._keep_alive_s:
            return timeout_s
        now = time.monotonic()
        due = self._sent_at + self._keep_alive_s if self._pinged_at is None else self._pinged_at + self._keep_alive_s
        left = max(0.0, due - now)
        return left if timeout_s is None else min(left, timeout_s)

    def _keep_alive(self) -> None:
        if not self._keep_alive_s:
            return
        now = time.monotonic()
        if self._pinged_at is not None and now >= self._pinged_at + self._keep_alive_s:
            raise Failure(f"{self._listener.shown} does not answer any more")
        if self._pinged_at is None and now >= self._sent_at + self._keep_alive_s:
            self._send(encoder.PINGREQ)
            self._pinged_at = now

    def _await(self) -> Connack | Suback:
        """Wait for the answer to CONNECT or SUBSCRIBE."""
        deadline = time.monotonic() + TIMEOUT_S
        while not self._answers:
            left = deadline - time.monotonic()
            if left <= 0:
                raise Failure(f"no answer from {self._listener.shown} within {TIMEOUT_S:g} s: does it speak MQTT?")
            self.wait(left)
        return self._answers.popleft()

    def _read(self) -> None:
        try:
            data = self._sock.recv(READ_BYTES)
        except ssl.SSLWantReadError:
            return
        except OSError as error:
            raise Failure(f"the connection to {self._listener.shown} is gone: {said(error)}") from error
        if not data:
            raise Failure(f"{self._listener.shown} closed the connection: its log says why")
        self._pinged_at = None
        try:
            for packet in self._reader.feed(data):
                self._handle(packet)
        except MqttError as error:
            raise Failure(f"{self._listener.shown} does not speak MQTT: {error}") from error

    def _handle(self, packet: ServerPacket) -> None:
        if isinstance(packet, Publish):
            self._received_publish(packet)
        elif isinstance(packet, Auth):
            self._sign(packet)
        elif isinstance(packet, Connack | Suback):
            self._answers.append(packet)
        elif isinstance(packet, Puback):
            self._settled(packet.packet_id, packet.reason_code, packet.properties)
        elif isinstance(packet, Pubrec):
            if packet.reason_code >= SUBACK_FAILURE:
                self._settled(packet.packet_id, packet.reason_code, packet.properties)
            else:
                self._send(encoder.pubrel(self._level, packet.packet_id))
        elif isinstance(packet, Pubcomp):
            self._settled(packet.packet_id, 0, None)
        elif isinstance(packet, Pubrel):
            self._received.discard(packet.packet_id)
            self._send(encoder.pubcomp(self._level, packet.packet_id))
        elif isinstance(packet, Pingresp):
            self._pongs += 1
        elif isinstance(packet, Disconnect):
            raise Failure(f"{self._listener.shown} ends the connection: {words(packet.reason_code, packet.properties)}")

    def _sign(self, packet: Auth) -> None:
        """Answer the server's challenge."""
        credentials, properties = self._credentials, packet.properties
        if credentials is None or properties is None or properties.authentication_data is None:
            raise Failure(f"{self._listener.shown} wants an authentication that was not offered")
        nonce = properties.authentication_data.decode("utf-8", "replace")
        answer = {"sig": credentials.sign(nonce)}
        answer |= {"jwt": credentials.jwt} if credentials.jwt else {"nkey": credentials.public_key()}
        properties = Properties(authentication_method=NKEY_METHOD, authentication_data=msgspec.json.encode(answer))
        self._send(encoder.auth(ReasonCode.CONTINUE_AUTHENTICATION, properties))

    def _received_publish(self, packet: Publish) -> None:
        if packet.qos == 2:
            if packet.packet_id in self._received:
                self._send(encoder.pubrec(self._level, packet.packet_id))
                return
            self._received.add(packet.packet_id)
        self._inbox.append(packet)

    def _settled(self, packet_id: int, reason: int, properties: Properties | None) -> None:
        self._unacked.pop(packet_id, None)
        if reason >= SUBACK_FAILURE and not self.refused:
            self.refused = words(reason, properties)

    def _send(self, data: bytes) -> None:
        try:
            self._sock.sendall(data)
        except OSError as error:
            raise Failure(f"the connection to {self._listener.shown} is gone: {said(error)}") from error
        self._sent_at = time.monotonic()


def words(reason: int, properties: Properties | None) -> str:
    """Return a reason code in words, with the server's own where it gives them: `not authorized (0x87): ...`."""
    try:
        name = ReasonCode(reason).name.lower().replace("_", " ")
    except ValueError:
        name = "error"
    text = f"{name} (0x{reason:02x})"
    return f"{text}: {properties.reason_string}" if properties is not None and properties.reason_string else text
