"""Takes in what a bridge's remote publishes: each publish is on flash before its PUBACK or PUBREC leaves.

A publish goes the way of one of a local MQTT client (`mqtt/publishing.py`): one transaction for all streams, queues
and retained messages. It is stored with QoS 1 at least. What cannot be stored at present is not acknowledged; it is
tried again after a pause, and what came behind it waits. Packet identifiers of QoS 2 are on flash in a session of
the bridge's own, whose client id no device can have.
"""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import trio
from msgspec import Struct

from eyot_daemon.mqtt.publication import Publication, Result
from eyot_daemon.mqtt.publishing import Publisher, publish
from eyot_daemon.mqtt.session_record import NEVER
from eyot_daemon.mqtt.sessions import Opened, Opening
from eyot_wire.mqtt import topics
from eyot_wire.mqtt.reason_codes import ReasonCode
from eyot_wire.quoting import printable

if TYPE_CHECKING:
    from eyot_daemon.bridge.counters import BridgeCounters
    from eyot_daemon.config.bridges import BridgeOptions
    from eyot_daemon.mqtt.session import Session
    from eyot_daemon.mqtt.sessions import AccountSessions
    from eyot_daemon.router.account import Account
    from eyot_sync.bridge.connection import BridgeConnection
    from eyot_sync.bridge.topic_rules import InRules
    from eyot_sync.link.state import LinkState
    from eyot_wire.mqtt.packets import Publish

log = logging.getLogger("eyot.bridge")

#: Refusals that do not pass: the remote need not send the message again.
FINAL = frozenset({ReasonCode.NOT_AUTHORIZED, ReasonCode.TOPIC_NAME_INVALID, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR})
#: Between attempts to store what was refused, seconds.
AGAIN_S = 2.0
_QOS2 = 2
_V5 = 5


def own_id(bridge: str) -> str:
    """Return the publisher's id in messages that came in over a bridge; NUL keeps it apart from clients' ids."""
    return f"bridge\0{bridge}"


class IncomingContext(NamedTuple):
    """`sessions`: of the account; `wake`: there are answers to be sent."""

    account: Account
    sessions: AccountSessions
    options: BridgeOptions
    rules: InRules
    counters: BridgeCounters
    state: LinkState
    wake: Callable[[], None]


class _Pending(Struct, eq=False):
    """One publish that is not answered; `result` None: it is not stored yet."""

    connection: BridgeConnection
    packet: Publish
    publication: Publication | None
    result: Result | None = None
    #: handed to the store, which has not answered
    submitted: bool = False

    @property
    def held_id(self) -> int:
        """The identifier that is committed with it; 0: none is."""
        hold = self.publication.hold if self.publication is not None else None
        return 0 if hold is None else hold[0]


class Incoming:
    """The incoming direction of one bridge."""

    def __init__(self, context: IncomingContext) -> None:
        self._context = context
        self._publisher = Publisher(own_id(context.options.name), context.account, None, context.sessions)
        self._session: Session | None = None
        self._pending: deque[_Pending] = deque()
        #: identifiers of QoS 2 that are not released: digest by packet identifier
        self._held: dict[int, bytes] = {}
        #: those on their way to flash, each with its digest and who sent it again meanwhile
        self._committing: dict[int, tuple[bytes, list[BridgeConnection]]] = {}
        self._blocked = False
        self._room = trio.Event()
        self._logged_at = -1e9
        #: why nothing can be taken in; None: not known yet
        self.failure: str | None = None
        self.ready = trio.Event()
        self._open()

    def _open(self) -> None:
        if all(rule.qos != _QOS2 for rule in self._context.rules.rules) and self._context.options.qos != _QOS2:
            self._context.sessions.when_open(self._is_ready)
            return
        opening = Opening(own_id(self._context.options.name), "\0bridge", _V5, False, NEVER, None)
        self._context.sessions.open(opening, self._opened)

    def _opened(self, opened: Opened) -> None:
        self._session = opened.session
        if opened.session is not None:
            self._held = self._context.sessions.store.held_ids(opened.session.record)
        self._is_ready(opened.text if opened.session is None else "")

    def _is_ready(self, failure: str) -> None:
        self.failure = failure
        self.ready.set()

    def is_over(self, account: Account | None) -> bool:
        """Nothing can be taken in any more: JetStream went off, or `account`, which has the name now, is another one."""
        return self._context.sessions.over or account is not self._context.account

    # -- connections ---------------------------------------------------------------------------------------------------

    def began(self, *, session_present: bool) -> None:
        """Note a new connection. Without the remote's session its identifiers mean nothing any more."""
        if not session_present:
            for packet_id in list(self._held):
                self._release(packet_id, lambda error: None)

    def ended(self) -> None:
        """Forget what is not answered: the remote sends it again."""
        for pending in self._pending:
            if not pending.submitted:
                self._committing.pop(pending.held_id, None)
        self._pending.clear()
        self._blocked = False
        self._room.set()

    @property
    def full(self) -> bool:
        """Whether the remote has to wait. MQTT 5 is told how many publishes it may send; 3.1.1 is not read."""
        return len(self._pending) >= self._context.options.inflight_max

    async def room(self) -> None:
        """Wait until it is no longer full."""
        while self.full:
            self._room = trio.Event()
            await self._room.wait()

    # -- publishes -----------------------------------------------------------------------------------------------------

    def arrived(self, connection: BridgeConnection, packet: Publish) -> None:
        """Store a publish, and answer it."""
        context = self._context
        context.state.traffic.received(1, len(packet.payload))
        context.account.count_in(1, len(packet.payload))
        if packet.qos == _QOS2 and self._is_repeated(connection, packet):
            return
        pending = _Pending(connection, packet, None)
        converted = context.rules.convert(packet.topic)
        subject = topics.to_subject(converted.topic) if converted is not None else None
        if converted is None or subject is None:
            text = "no rule takes it in" if converted is None else "too long, or too many levels, for a subject"
            pending.result = Result(ReasonCode.TOPIC_NAME_INVALID, text)
        elif len(packet.payload) > context.account.broker.options.max_payload:
            pending.result = Result(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, "larger than max_payload")
        else:
            hold = None
            if packet.qos == _QOS2 and self._session is not None:
                hold = (packet.packet_id, _digest(packet))
            pending.publication = Publication(
                converted.topic,
                subject,
                packet.payload,
                max(packet.qos, 1),
                packet.retain,
                packet.properties,
                hold,
                packet.packet_id if packet.qos == 1 else 0,
                packet.dup,
            )
        self._pending.append(pending)
        if pending.publication is not None and not self._blocked:
            self._publish(pending)
        self._answer_those_in_front()

    def _is_repeated(self, connection: BridgeConnection, packet: Publish) -> bool:
        """Answer a QoS 2 publish that is on flash, or wait for the one that is under way; False: it is new."""
        digest = _digest(packet)
        committing = self._committing.get(packet.packet_id)
        if committing is not None and committing[0] == digest:
            committing[1].append(connection)
            return True
        if self._held.get(packet.packet_id) == digest:
            connection.pubrec(packet.packet_id)
            self._context.wake()
            return True
        return False

    def _publish(self, pending: _Pending) -> None:
        assert pending.publication is not None
        pending.submitted = True
        if pending.held_id:
            digest = _digest(pending.packet)
            self._committing[pending.held_id] = digest, []
        publish(self._publisher, pending.publication, self._publisher, partial(self._stored, pending))

    def _stored(self, pending: _Pending, result: Result) -> None:
        pending.submitted = False
        goes_on = result.reason < ReasonCode.UNSPECIFIED_ERROR
        digest, waiting = self._committing.pop(pending.held_id, (b"", []))
        if digest and goes_on:
            self._held[pending.held_id] = digest
            for connection in waiting:
                if not connection.ended:
                    connection.pubrec(pending.held_id)
                    self._context.wake()
        if pending not in self._pending:
            return  # of a connection that ended
        if not goes_on and result.reason not in FINAL:
            self._tell(pending, result, "it is tried again")
            if not self._blocked:
                self._blocked = True
                self._context.account.broker.timers.call_later(AGAIN_S, self._try_again)
            return
        pending.result = result
        self._answer_those_in_front()

    def _try_again(self) -> None:
        """Store what was refused, and what waits behind it."""
        self._blocked = False
        for pending in tuple(self._pending):
            if pending.result is None and not pending.submitted:
                self._publish(pending)

    def _answer_those_in_front(self) -> None:
        """Answer in the order of the publishes."""
        pending = self._pending
        while pending and pending[0].result is not None:
            self._answer(pending.popleft())
        if not self.full:
            self._room.set()

    def _answer(self, pending: _Pending) -> None:
        connection, packet, result = pending.connection, pending.packet, pending.result
        assert result is not None
        reason = result.reason
        if reason >= ReasonCode.UNSPECIFIED_ERROR:
            self._context.counters.refused += 1
            self._tell(pending, result, "it is refused")
            if connection.options.level != _V5:
                reason = ReasonCode.SUCCESS  # 3.1.1 has no refusal
        elif reason is ReasonCode.NO_MATCHING_SUBSCRIBERS:
            reason = ReasonCode.SUCCESS
        if not packet.qos:
            return
        (connection.puback if packet.qos == 1 else connection.pubrec)(packet.packet_id, reason)
        self._context.wake()

    def _tell(self, pending: _Pending, result: Result, what: str) -> None:
        """Log at most one line in ten seconds."""
        now = self._context.account.broker.clock.monotonic()
        if now - self._logged_at >= 10.0:
            self._logged_at = now
            log.error(
                "Bridge %s: a publish on topic '%s' cannot be stored, %s: %s",
                self._context.options.name,
                printable(pending.packet.topic),
                what,
                printable(result.text or result.reason.name),
            )

    # -- QoS 2 ---------------------------------------------------------------------------------------------------------

    def released(self, connection: BridgeConnection, packet_id: int) -> None:
        """PUBREL: forget the identifier on flash, then answer."""

        def gone(error: str) -> None:
            if not error and not connection.ended:
                connection.pubcomp(packet_id)
                self._context.wake()

        self._release(packet_id, gone)

    def _release(self, packet_id: int, done: Callable[[str], None]) -> None:
        if self._held.pop(packet_id, None) is None or self._session is None:
            done("")
            return
        self._context.sessions.store.release(self._session.record, packet_id, done)


def _digest(packet: Publish) -> bytes:
    """Return what tells a message from another one with its packet identifier: 16 bytes."""
    key = hashlib.sha256(packet.topic.encode()).digest()
    return hashlib.blake2b(packet.payload, digest_size=16, key=key).digest()
