"""What a client publishes: topic aliases, limits and windows, and the acknowledgements in the order of the publishes.

A publish of QoS 1 or 2 is acknowledged when it is on flash. Those behind it wait for their turn, so that a client gets its
acknowledgements in the order in which it published (MQTT 5, 4.6).
"""

from __future__ import annotations

import hashlib
from functools import partial
from typing import TYPE_CHECKING, Final

from eyot_daemon.mqtt.fifo import Fifo
from eyot_daemon.mqtt.plain_delivery import publish_mixed, publish_plain
from eyot_daemon.mqtt.publication import Publication, Result
from eyot_daemon.mqtt.publishing import publish, reason_of
from eyot_daemon.mqtt.stored_runs import publish_stored
from eyot_daemon.turn.backpressure import Gate
from eyot_wire.mqtt import encoder, topics
from eyot_wire.mqtt.errors import ProtocolError
from eyot_wire.mqtt.properties import Properties
from eyot_wire.mqtt.reason_codes import ReasonCode
from eyot_wire.mqtt.topic_aliases import InboundAliases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eyot_daemon.mqtt.sending import MqttSender
    from eyot_wire.jetstream.errors import ApiError
    from eyot_wire.mqtt.packets import Publish
    from eyot_wire.mqtt.plain_publishes import AckedPublishes, MixedPublishes, PlainPublishes
    from eyot_wire.mqtt.reader import Runs

#: Repetitions of one publish of QoS 2 that get an answer each when it is on flash.
WAITING_MAX: Final = 16
STORED: Final = Result(ReasonCode.SUCCESS)


class _Answer:
    """An acknowledgement in the order of the publishes: sent when all before it are."""

    __slots__ = ("packet_id", "qos", "result")

    def __init__(self, packet_id: int, qos: int) -> None:
        self.packet_id = packet_id
        self.qos = qos
        self.result: Result | None = None


class _RunAnswer:
    """The acknowledgements of a run of QoS 1. `outcomes`: None if all are on flash; `settled`: that is known."""

    __slots__ = ("outcomes", "packet_ids", "settled")

    def __init__(self, packet_ids: Sequence[int]) -> None:
        self.packet_ids = packet_ids
        self.settled = False
        self.outcomes: Sequence[ApiError | None] | None = None


class ReceivedPublishes:
    """The publishes of one connection."""

    __slots__ = ("_aliases", "_answers", "_connection", "_refusing", "_unanswered", "_unreleased")

    def __init__(self, connection: MqttSender) -> None:
        self._connection = connection
        self._answers: Fifo[_Answer | _RunAnswer] = Fifo()
        #: publishes of QoS 1 and 2 whose answers these are
        self._unanswered = 0
        #: MQTT 5: publishes of QoS 2 that have their PUBREC and not their PUBCOMP; they count against the window
        self._unreleased: dict[int, None] = {}
        self._aliases = InboundAliases(connection.server.limits.aliases)
        #: a publish of 3.1.1 was refused, which has no answer: those behind it wait for the next connection, in their order
        self._refusing = False

    def end(self) -> None:
        """Forget what waits: the connection has ended."""
        self._answers.clear()
        self._unanswered = 0
        self._unreleased.clear()

    def run(self, run: PlainPublishes) -> None:
        """Publish a run as a whole, or packet by packet where it is not plain."""
        if self._is_plain(run) and publish_plain(self._connection.publisher, run):
            self._count_in(run, 0)
        else:
            self._publish_each(run)

    def mixed_run(self, run: MixedPublishes) -> None:
        """Publish a run of several topics as a whole, or topic by topic."""
        connection = self._connection
        if self._is_plain(run) and publish_mixed(connection.publisher, run):
            self._count_in(run, 0)
            return
        for part in run.runs():
            if not connection.closed:
                self.run(part)

    def acked_run(self, run: AckedPublishes) -> None:
        """Publish a run of QoS 1 as a whole, or packet by packet where it is not only stored."""
        connection = self._connection
        room = connection.server.limits.inflight_in - self._unanswered - len(self._unreleased)
        if run.count <= room and not self._refusing and self._is_plain(run):
            answer = _RunAnswer(run.packet_ids)
            if publish_stored(connection.publisher, run, partial(self._stored, answer)):
                self._answers.append(answer)
                self._unanswered += run.count
                self._count_in(run, 1)
                return
        self._publish_each(run)

    def _is_plain(self, run: Runs) -> bool:
        """Return whether a run needs no look at its packets."""
        connection = self._connection
        return connection.clients.trace is None and run.payload_max <= connection.clients.max_payload_of(connection)

    def _publish_each(self, run: PlainPublishes | AckedPublishes) -> None:
        for packet in run.publishes():
            if self._connection.closed:
                return
            self.publish(packet)

    def _count_in(self, run: Runs, qos: int) -> None:
        connection = self._connection
        count, size = run.count, run.payload_bytes
        connection.in_msgs += count
        connection.in_bytes += size
        connection.traffic.received[qos] += count
        connection.traffic.payload_in += size
        assert connection.account is not None
        connection.account.count_in(count, size)

    def publish(self, packet: Publish) -> None:
        """Publish one packet, or refuse it."""
        connection = self._connection
        try:
            topic = self._aliases.resolve(packet) if connection.is_v5 else packet.topic
        except ProtocolError as error:
            connection.refuse(error.reason_code)
            return
        connection.in_msgs += 1
        connection.in_bytes += len(packet.payload)
        connection.traffic.received[packet.qos] += 1
        connection.traffic.payload_in += len(packet.payload)
        assert connection.account is not None
        connection.account.count_in(1, len(packet.payload))
        if self._refusing and packet.qos:
            return
        if packet.qos == 2 and self._is_held(packet, topic):
            return
        if not self._accepts(packet):
            return
        answer = _Answer(packet.packet_id, packet.qos)
        if packet.qos:
            self._wait_with(answer)
        subject = topics.to_subject(topic)
        if subject is None:
            self._published(
                answer, Result(ReasonCode.TOPIC_NAME_INVALID, "too long, or too many levels, for a subject")
            )
            return
        hold = None
        if packet.qos == 2:
            held = (packet.packet_id, digest_of(packet, topic))
            connection.session.held.hold(*held)
            hold = held if connection.session.persistent else None  # else nothing of the session is on flash
        packet_id = packet.packet_id if packet.qos == 1 else 0
        publication = Publication(
            topic, subject, packet.payload, packet.qos, packet.retain, packet.properties, hold, packet_id, packet.dup
        )
        publish(connection.publisher, publication, connection, partial(self._published, answer))

    def _wait_with(self, answer: _Answer) -> None:
        self._answers.append(answer)
        self._unanswered += 1

    def _accepts(self, packet: Publish) -> bool:
        """Check size, quality of service and the window [MQTT-3.3.4-9]; answer a PUBLISH that is refused.

        The window counts a publish of QoS 2 until its PUBCOMP, on this connection alone (MQTT 5, 4.9).
        """
        connection = self._connection
        limits = connection.server.limits
        if len(packet.payload) > connection.clients.max_payload_of(connection):
            connection.refuse(ReasonCode.PACKET_TOO_LARGE)
            return False
        if packet.qos == 2 and connection.server.options.reject_qos2_publish:
            connection.refuse(ReasonCode.QOS_NOT_SUPPORTED)
            return False
        if packet.qos and self._unanswered + len(self._unreleased) >= limits.inflight_in:
            if connection.is_v5:
                connection.refuse(ReasonCode.RECEIVE_MAXIMUM_EXCEEDED)
                return False
            self._wait_for_answers()
        return True

    def _wait_for_answers(self) -> None:
        """Read no more of a client of 3.1.1 until what it published is on flash: it cannot be told a maximum."""
        connection = self._connection
        if connection.gate is None:
            limit = connection.server.limits.inflight_in
            connection.gate = Gate(
                connection.clients.broker.timers,
                lambda: self._unanswered >= limit and not connection.closed,
            )
        connection.transport.hold(connection.gate)

    def _is_held(self, packet: Publish, topic: str) -> bool:
        """Answer a PUBLISH of QoS 2 that came before; False: it is a new one."""
        connection = self._connection
        held = connection.session.held.get(packet.packet_id)
        if held is None or held.digest != digest_of(packet, topic):
            return False
        if held.committed:
            if connection.is_v5:
                self._unreleased[packet.packet_id] = None
            connection.send_packet(encoder.pubrec(connection.level, packet.packet_id))
        elif len(held.waiting) < WAITING_MAX:
            answer = _Answer(packet.packet_id, 2)
            self._wait_with(answer)
            held.waiting.append(partial(self._published, answer))
        return True

    def _published(self, answer: _Answer, result: Result) -> None:
        """Answer a publish that has its result, and those behind it that wait for their turn."""
        connection = self._connection
        if answer.qos == 2:
            for waiting in connection.session.held.settled(answer.packet_id, kept=result.reason < 0x80):
                waiting(result)
        if connection.closed:
            return
        if not answer.qos:
            if result.reason >= 0x80:
                self._refused_without_answer(result)
            return
        answer.result = result
        self._answer_in_order()

    def _stored(self, answer: _RunAnswer, outcomes: Sequence[ApiError | None] | None) -> None:
        """Answer a run of QoS 1, and those behind it that wait for their turn."""
        connection, answers = self._connection, self._answers
        if outcomes is None and not connection.closed and answers.holds_only(answer):
            answers.clear()  # nobody else waits
            self._unanswered = 0
            self._answer_run(answer)
            self._open_gate()
            return
        if outcomes is not None:
            for outcome in outcomes:
                if outcome is not None:
                    connection.sessions.drops.count("refused")
        if not connection.closed:
            answer.outcomes, answer.settled = outcomes, True
            self._answer_in_order()

    def _answer_in_order(self) -> None:
        """Answer what has its result, up to the first that has not."""
        answers = self._answers
        while answers:
            first = answers.first
            if type(first) is _RunAnswer:
                if not first.settled:
                    break
                answers.popleft()
                self._unanswered -= len(first.packet_ids)
                self._answer_run(first)
            else:
                assert type(first) is _Answer
                if first.result is None:
                    break
                answers.popleft()
                self._unanswered -= 1
                self._answer(first)
        self._open_gate()

    def _answer_run(self, run: _RunAnswer) -> None:
        if run.outcomes is None:
            self._connection.send_packet(encoder.pubacks(run.packet_ids), len(run.packet_ids))
            return
        for packet_id, outcome in zip(run.packet_ids, run.outcomes, strict=True):
            answer = _Answer(packet_id, 1)
            answer.result = STORED if outcome is None else Result(reason_of(outcome), outcome.description)
            if not self._connection.closed:
                self._answer(answer)

    def _open_gate(self) -> None:
        connection = self._connection
        if connection.gate is not None and not connection.gate.is_shut:
            gate, connection.gate = connection.gate, None
            gate.open()

    def _answer(self, answer: _Answer) -> None:
        connection = self._connection
        result = answer.result
        assert result is not None
        reason = result.reason
        if not connection.is_v5:
            if reason >= 0x80 and reason is not ReasonCode.NOT_AUTHORIZED:
                self._refused_without_answer(result)
                return
            reason = ReasonCode.SUCCESS
        properties = None
        if result.text and reason >= 0x80 and connection.tells_problems:
            properties = Properties(reason_string=result.text)
        if answer.qos == 2 and reason < 0x80 and connection.is_v5:
            self._unreleased[answer.packet_id] = None
        encode = encoder.puback if answer.qos == 1 else encoder.pubrec
        packet = encode(connection.level, answer.packet_id, reason, properties)
        if properties is not None and not connection.fits(packet):
            packet = encode(connection.level, answer.packet_id, reason)  # [MQTT-3.4.2-2], [MQTT-3.5.2-2]
        connection.send_packet(packet)

    def _refused_without_answer(self, result: Result) -> None:
        """Log a refusal that the protocol cannot tell; QoS 1 and 2 of 3.1.1 end the connection after a pause."""
        connection = self._connection
        connection.server.tell_refusal(connection, result)
        if result.reason is ReasonCode.TOPIC_NAME_INVALID and not connection.is_v5:
            connection.close("Protocol Violation", linger=True)
        elif not connection.is_v5 and result.reason is not ReasonCode.NOT_AUTHORIZED and not self._refusing:
            self._refusing = True
            connection.clients.broker.timers.call_later(
                connection.server.limits.refusal_pause_s,
                partial(connection.close, "Store Refused", linger=True),
            )

    def released(self, packet_id: int) -> None:
        """PUBREL: the client will not send the message again; its identifier is forgotten on flash before PUBCOMP."""
        connection = self._connection
        session = connection.session
        held = session.held.get(packet_id)
        if held is None:
            self._unreleased.pop(packet_id, None)
            connection.send_packet(encoder.pubcomp(connection.level, packet_id, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND))
        elif held.committed:
            session.held.release(packet_id, partial(self._forgotten, packet_id))

    def _forgotten(self, packet_id: int, error: str) -> None:
        connection = self._connection
        if not error and not connection.closed:
            self._unreleased.pop(packet_id, None)
            connection.send_packet(encoder.pubcomp(connection.level, packet_id))


def digest_of(packet: Publish, topic: str) -> bytes:
    """Return what tells a message of QoS 2 from another one with its packet identifier: 16 bytes."""
    return hashlib.blake2b(packet.payload, digest_size=16, key=hashlib.sha256(topic.encode()).digest()).digest()
