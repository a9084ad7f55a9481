"""One session of MQTT: its subscriptions, and the messages of QoS 1 and 2 that are on their way to its client.

A session outlives its connection if the client asked for that (MQTT 5: an expiry interval; 3.1.1: clean session 0).
Such a persistent session gets messages of QoS 1 and 2 through its queue on flash, one copy each, in the order of the
stream; they are acknowledged there when the client has acknowledged them. Other sessions end with their connection and
get them from memory.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from eyot_daemon.mqtt import message
from eyot_daemon.mqtt.counters import Drops
from eyot_daemon.mqtt.fifo import Fifo
from eyot_daemon.mqtt.flight import LAST_ID, QUEUED_IDS, Flight, Phase, Source
from eyot_daemon.mqtt.held_publishes import HeldPublishes
from eyot_daemon.mqtt.session_link import BACKLOG_BYTES, Outgoing, Queued, SessionLink
from eyot_daemon.mqtt.session_record import SessionRecord, SubOptions
from eyot_wire.mqtt import topics
from eyot_wire.mqtt.packets import Puback, Pubcomp, Pubrec
from eyot_wire.mqtt.reason_codes import ReasonCode
from eyot_wire.subject import matches

if TYPE_CHECKING:
    from eyot_daemon.mqtt.session_queue import QueueMember, SessionQueue
    from eyot_daemon.mqtt.store import MqttStore
    from eyot_daemon.router.access import Access

log = logging.getLogger("eyot.mqtt")

#: The most bytes that a queue may hand over before the client has read what was sent.
PULL_BYTES: Final = 1 << 20


class SessionLimits(NamedTuple):
    """Bounds of one session: messages on their way, and messages and bytes that wait in memory."""

    window: int
    messages: int
    bytes: int


class Session:
    """`drops` counts what is not delivered; `topic_of` converts a subject, "" where it cannot be a topic."""

    __slots__ = (
        "_limits",
        "_lowest_id",
        "_next_id",
        "_now_ns",
        "_received_seqs",
        "_sent_upto",
        "_stalled",
        "_store",
        "_topic_of",
        "_unsent",
        "_waiting",
        "_waiting_bytes",
        "_waiting_shared",
        "drops",
        "flights",
        "held",
        "link",
        "persistent",
        "queue",
        "record",
        "shared",
    )

    def __init__(
        self,
        record: SessionRecord,
        store: MqttStore,
        *,
        persistent: bool,
        limits: SessionLimits,
        drops: Drops,
        now_ns: Callable[[], int],
        topic_of: Callable[[bytes], str],
    ) -> None:
        self.record = record
        self.persistent = persistent
        self.link: SessionLink | None = None
        self.queue: SessionQueue | None = None
        self._store = store
        self._limits = limits
        #: what was not delivered, by reason
        self.drops = drops
        self._now_ns = now_ns
        self._topic_of = topic_of
        #: by packet identifier, in the order in which they were sent
        self.flights: dict[int, Flight] = {}
        #: messages from memory that wait for room in the window, bounded by `limits`
        self._waiting: Fifo[Outgoing] = Fifo()
        self._waiting_bytes = 0
        #: the last identifier of a message from memory; without a queue all are free for these
        self._next_id = self._lowest_id = QUEUED_IDS if persistent else 0
        #: messages from memory that a new connection gets again once its window has room, by packet identifier
        self._unsent: OrderedDict[int, Flight] = OrderedDict()
        #: queued messages that wait for room in the window, or for their identifier, which an older one has
        self._stalled: Fifo[Queued] = Fifo()
        #: the shared subscriptions of QoS 1 and 2, by filter
        self.shared: dict[str, QueueMember] = {}
        #: messages of these that wait for room in the window
        self._waiting_shared: Fifo[tuple[QueueMember, int, Outgoing]] = Fifo()
        #: QoS 2 publishes of the client that are not released
        self.held = HeldPublishes(record, store if persistent else None)
        #: queued messages of QoS 2 that the client has, but the queue does not know that yet: packet identifier by sequence
        self._received_seqs: dict[int, int] = {}
        #: queued messages up to this sequence may have been sent before a crash: deliveries are noted after the sending
        self._sent_upto = 0

    def __repr__(self) -> str:
        return f"<Session {self.record.client_id!r}>"

    @property
    def client_id(self) -> str:
        return self.record.client_id

    @property
    def backlog(self) -> tuple[int, int]:
        """Messages of QoS 1 and 2 that wait for the client or its acknowledgement, and their bytes; without shared ones."""
        messages, size = (0, 0) if self.queue is None else self.queue.backlog
        return messages + len(self._waiting), size + self._waiting_bytes

    @property
    def refused(self) -> int:
        """Publishes that were refused because the queue was full."""
        return 0 if self.queue is None else self.queue.refused

    # -- subscriptions ---------------------------------------------------------------------------------------------

    def queued_subjects(self) -> list[bytes]:
        """Return the subjects whose messages of QoS 1 and 2 go into the queue."""
        found = dict.fromkeys(
            subject
            for options in self.record.subs.values()
            if options.qos and not options.group
            for subject in options.subjects
        )
        return list(found)

    def options_for(self, subject: bytes, sseq: int) -> Iterator[SubOptions]:
        """Return the options of each filter that takes a queued message; `sseq`: its sequence."""
        dollar, link = subject.startswith(b"$"), self.link
        if link is not None and not link.may_receive(subject):
            return
        for topic_filter, options in self.record.subs.items():
            if not options.qos or options.group or options.since >= sseq or (dollar and options.ignores_dollar):
                continue
            if not any(matches(pattern, subject) for pattern in options.subjects):
                continue
            if link is None or link.allows(topic_filter):
                yield options

    # -- messages to the client --------------------------------------------------------------------------------------

    def send(self, outgoing: Outgoing) -> bool:
        """Send a message from memory, or keep it until the window has room. False: dropped, and counted."""
        link = self.link
        if link is None:
            return False
        if not outgoing.qos:
            if link.backlog > BACKLOG_BYTES:
                self.drops.count("slow")
                return False
            return self._sent(link.send_publish(outgoing, 0, dup=False))
        if self._waiting or len(self.flights) >= self.window:
            return self._keep(outgoing)
        return self._launch(outgoing, self._free_id())

    @property
    def window(self) -> int:
        """How many messages of QoS 1 and 2 may be on their way."""
        link = self.link
        return 0 if link is None else min(link.receive_maximum, self._limits.window)

    def set_limits(self, limits: SessionLimits) -> None:
        """Use other bounds from now on; what is on its way or waits stays."""
        self._limits = limits
        self._room_made()

    @property
    def has_waiting(self) -> bool:
        """Whether messages from memory wait for room in the window."""
        return bool(self._waiting)

    def _keep(self, outgoing: Outgoing) -> bool:
        size = outgoing.size
        if len(self._waiting) >= self._limits.messages or self._waiting_bytes + size > self._limits.bytes:
            self.drops.count("full")
            return False
        self._waiting.append(outgoing)
        self._waiting_bytes += size
        return True

    def _launch(
        self, outgoing: Outgoing, packet_id: int, sseq: int = 0, source: Source | None = None, *, dup: bool = False
    ) -> bool:
        assert self.link is not None
        until = message.expires_ns(outgoing.header)
        if until and until <= self._now_ns():
            self.drops.count("expired")
            return False
        if not self._sent(self.link.send_publish(outgoing, packet_id, dup=dup)):
            return False
        self.flights[packet_id] = Flight(packet_id, outgoing, sseq, source)
        return True

    def _sent(self, sent: bool) -> bool:
        if not sent:
            self.drops.count("too_large")
        return sent

    def _free_id(self) -> int:
        """Return an identifier for a message from memory; the window is smaller than their number."""
        while True:
            self._next_id = self._next_id + 1 if self._next_id < LAST_ID else self._lowest_id + 1
            if self._next_id not in self.flights:
                return self._next_id

    # -- messages from the queue -------------------------------------------------------------------------------------

    def pull(self) -> None:
        """Let the queue hand over as much as the client takes now."""
        link = self.link
        if link is None or (self.queue is None and not self.shared):
            return
        room = max(0, self.window - len(self.flights) - len(self._waiting))
        if self._stalled or self._waiting_shared or link.backlog > BACKLOG_BYTES:
            room = 0
        if self.queue is not None:
            self.queue.pull(room, PULL_BYTES)
        for member in self.shared.values():
            member.pull(room, PULL_BYTES)

    def from_queue(self, queued: Queued) -> None:
        """Process a message that the queue handed over, in the order of the stream."""
        flight = self.flights.get(queued.sseq % QUEUED_IDS + 1)
        if queued.sseq in self._received_seqs and self.queue is not None:
            packet_id = self._received_seqs.pop(queued.sseq)
            self.queue.skip(queued.sseq)
            if flight is None:  # PUBCOMP came, too
                self._forget_pubrel(packet_id, queued.sseq)
            return
        if flight is not None and flight.sseq == queued.sseq and self.queue is not None and flight.source is self.queue:
            self.queue.skip(queued.sseq, ack=False)
            return  # the note that the client has it is on the way to flash
        if self._stalled or not self._takes(queued):
            self._stalled.append(queued)
            return
        self._deliver_queued(queued)

    def _takes(self, queued: Queued) -> bool:
        """Return whether the window has room, and the message's identifier is free.

        The queue hands over what was asked for when there was room, and messages from memory may have come since.
        """
        return len(self.flights) < self.window and queued.sseq % QUEUED_IDS + 1 not in self.flights

    def _deliver_queued(self, queued: Queued) -> None:
        queue, link = self.queue, self.link
        assert queue is not None
        if link is None:
            return  # the queue took it back when the connection ended
        options = [each for each in self.options_for(queued.subject, queued.sseq) if not self._is_echo(each, queued)]
        topic = self._topic_of(queued.subject)
        if options and topic:
            qos = min(message.qos_of(queued.header), max(each.qos for each in options))
            retain = message.RETAIN in queued.header and any(each.retain_as_published for each in options)
            identifiers = tuple(each.identifier for each in options if each.identifier)
            context = link.context_of(queued) if any(each.context for each in options) else None
            outgoing = Outgoing(topic, b"", queued.header, queued.payload, qos, retain, identifiers, context)
            packet_id = queued.sseq % QUEUED_IDS + 1
            dup = queued.deliveries > 1 or queued.sseq <= self._sent_upto
            if qos and self._launch(outgoing, packet_id, queued.sseq, queue, dup=dup):
                return
            if not qos:
                self.send(outgoing)
        queue.skip(queued.sseq)

    def from_shared(self, topic_filter: str, queued: Queued) -> None:
        """Process a message that the queue of a shared subscription handed over: others of the group do not get it."""
        member, options = self.shared.get(topic_filter), self.record.subs.get(topic_filter)
        if member is None or self.link is None:
            return
        topic = self._topic_of(queued.subject)
        if options is None or not topic:
            member.skip(queued.sseq)
            return
        if not self.may_receive(queued.subject):  # nor may any other member
            self.drops.count("denied")
            member.skip(queued.sseq)
            return
        qos = min(message.qos_of(queued.header), options.qos)
        retain = message.RETAIN in queued.header and options.retain_as_published
        identifiers = (options.identifier,) if options.identifier else ()
        context = self.link.context_of(queued) if options.context else None
        outgoing = Outgoing(topic, b"", queued.header, queued.payload, qos, retain, identifiers, context)
        if qos and len(self.flights) >= self.window:
            self._waiting_shared.append((member, queued.sseq, outgoing))
        else:
            self._launch_shared(member, queued.sseq, outgoing)

    def may_receive(self, subject: bytes) -> bool:
        """Return whether the client is here, and nothing denies it messages on a subject."""
        return self.link is not None and self.link.may_receive(subject)

    def drop_forbidden(self, access: Access | None) -> None:
        """Drop the messages that wait for room in the window and that the client's permissions no longer allow."""
        if access is None:
            return

        def is_allowed(outgoing: Outgoing) -> bool:
            subject = topics.to_subject(outgoing.topic)
            allowed = subject is None or access.may_subscribe(subject)
            if not allowed:
                self.drops.count("denied")
            return allowed

        waiting, self._waiting, self._waiting_bytes = self._waiting, Fifo(), 0
        while waiting:
            outgoing = waiting.popleft()
            if is_allowed(outgoing):
                self._waiting.append(outgoing)
                self._waiting_bytes += outgoing.size
        waiting_shared, self._waiting_shared = self._waiting_shared, Fifo()
        while waiting_shared:
            member, sseq, outgoing = waiting_shared.popleft()
            if is_allowed(outgoing):
                self._waiting_shared.append((member, sseq, outgoing))
            else:
                member.skip(sseq)

    def _launch_shared(self, member: QueueMember, sseq: int, outgoing: Outgoing) -> None:
        if not outgoing.qos:
            self.send(outgoing)
        elif self._launch(outgoing, self._free_id(), sseq, member):
            return
        member.skip(sseq)

    def _is_echo(self, options: SubOptions, queued: Queued) -> bool:
        return options.no_local and message.client_of(queued.header) == self.client_id

    # -- answers of the client ---------------------------------------------------------------------------------------

    def breaks(self, kind: type[Puback | Pubrec | Pubcomp], packet_id: int) -> bool:
        """Return whether this answer contradicts the message that was sent with the identifier (a protocol error).

        A PUBACK answers QoS 1 alone, a PUBREC QoS 2, and a PUBCOMP a PUBREL. No answer contradicts an unknown
        identifier: it may have come twice.
        """
        flight = self.flights.get(packet_id)
        if flight is None:
            return False
        is_once = flight.message is not None and flight.message.qos == 1
        if kind is Pubcomp:
            return flight.phase is not Phase.PUBREL
        return is_once if kind is Pubrec else not is_once

    def puback(self, packet_id: int) -> None:
        """PUBACK: the client has a message of QoS 1. Unknown identifiers are passed over: it may have come twice."""
        flight = self.flights.get(packet_id)
        if flight is not None:
            self._unsent.pop(packet_id, None)
            self._done(flight)

    def pubrec(self, packet_id: int, reason: int) -> ReasonCode | None:
        """PUBREC: the client owns a message of QoS 2, which is noted on flash before PUBREL goes out.

        Returns the reason code of a PUBREL to send at once; None: it follows, or none does.
        """
        flight = self.flights.get(packet_id)
        if flight is None:
            # A PUBREC that refuses ends the flow: nothing is released [MQTT-4.3.3-4].
            return ReasonCode.PACKET_IDENTIFIER_NOT_FOUND if reason < 0x80 else None
        if flight.phase is Phase.PUBREL:
            return ReasonCode.SUCCESS
        self._unsent.pop(packet_id, None)
        if reason >= 0x80:
            self._done(flight)
        elif flight.phase is Phase.PUBLISH:
            flight.phase = Phase.RECEIVED
            if not self.persistent:
                self._received(flight)
            else:
                own = flight.sseq if flight.source is self.queue else 0
                self._store.put_pubrel(self.record, packet_id, own, lambda error: self._noted(flight, error))
        return None

    def _noted(self, flight: Flight, error: str) -> None:
        if self.flights.get(flight.packet_id) is not flight:
            return
        if error:
            flight.phase = Phase.PUBLISH  # sent again when the client comes back
            return
        if flight.source is not None and not flight.source.ack(flight.sseq):
            queue = self.queue
            if flight.source is queue and queue is not None and queue.owes(flight.sseq):
                self._received_seqs[flight.sseq] = flight.packet_id
        self._received(flight)

    def _received(self, flight: Flight) -> None:
        flight.phase, flight.message = Phase.PUBREL, None
        if self.link is not None:
            self.link.send_pubrel(flight.packet_id)

    def pubcomp(self, packet_id: int) -> None:
        """PUBCOMP: a message of QoS 2 is through."""
        flight = self.flights.get(packet_id)
        if flight is None:
            return
        del self.flights[packet_id]
        if self.persistent and flight.sseq not in self._received_seqs:
            self._forget_pubrel(packet_id, flight.sseq if flight.source is self.queue else 0)
        self._room_made()

    def _forget_pubrel(self, packet_id: int, sseq: int) -> None:
        """Remove the note of a PUBREL; for a queued message not before the queue's own note is on flash."""
        if sseq and self.queue is not None:
            self.queue.when_written(lambda: self._store.remove_pubrel(self.record, packet_id, sseq))
        else:
            self._store.remove_pubrel(self.record, packet_id, 0)

    def _done(self, flight: Flight) -> None:
        del self.flights[flight.packet_id]
        if flight.source is not None:
            flight.source.ack(flight.sseq)
        self._room_made()

    def _room_made(self) -> None:
        self._send_again()
        while self._stalled and self._takes(self._stalled.first):
            self._deliver_queued(self._stalled.popleft())
        while self._waiting and self.link is not None and len(self.flights) < self.window:
            outgoing = self._waiting.popleft()
            self._waiting_bytes -= outgoing.size
            self._launch(outgoing, self._free_id())
        while self._waiting_shared and self.link is not None and len(self.flights) < self.window:
            self._launch_shared(*self._waiting_shared.popleft())
        self.pull()

    # -- connections ---------------------------------------------------------------------------------------------------

    def attach(self, link: SessionLink) -> None:
        """Continue over a new connection: what is on its way is sent again, in the same order [MQTT-4.4.0-1]."""
        self.link = link
        for flight in list(self.flights.values()):
            if flight.phase is Phase.PUBREL:
                link.send_pubrel(flight.packet_id)
            elif flight.phase is Phase.PUBLISH:
                self._unsent[flight.packet_id] = flight
        self._room_made()

    def _send_again(self) -> None:
        """Send what an earlier connection was sent from memory, as far as the client takes it now [MQTT-3.3.4-9]."""
        while self._unsent and self.link is not None and len(self.flights) - len(self._unsent) < self.window:
            _, flight = self._unsent.popitem(last=False)
            assert flight.message is not None, "it was not acknowledged"
            if not self._sent(self.link.send_publish(flight.message, flight.packet_id, dup=True)):
                del self.flights[flight.packet_id]
                if flight.source is not None:
                    flight.source.ack(flight.sseq)

    def detach(self) -> None:
        """End without a connection: the queue takes back what the client has not acknowledged, to hand it over first next time.

        A message of QoS 2 that a group's queue handed over and that was sent stays here: no other member of the group may
        get it [MQTT-4.8.2-4].
        """
        self.link = None
        self._stalled.clear()
        self._unsent.clear()
        self._waiting_shared.clear()
        for flight in list(self.flights.values()):
            if flight.sseq and flight.phase is Phase.PUBLISH and not self._is_bound(flight):
                del self.flights[flight.packet_id]
        if self.queue is not None:
            self.queue.give_back()
        for member in self.shared.values():
            if self.persistent:
                member.give_back(self._bound_to(member))
            else:
                self.complete_shared(member)
                member.give_back()

    def _is_bound(self, flight: Flight) -> bool:
        """Return whether a message of a group's queue goes to this client or to nobody: it was begun with QoS 2."""
        own = flight.source is None or flight.source is self.queue
        return not own and (flight.message is None or flight.message.qos == 2)

    def _bound_to(self, member: QueueMember) -> set[int]:
        """Return the sequences of what was begun with QoS 2 for this member of a group."""
        return {flight.sseq for flight in self.flights.values() if flight.source is member and self._is_bound(flight)}

    def complete_shared(self, member: QueueMember) -> None:
        """Have a group's queue forget what was begun with QoS 2: this session leaves the group, or ends [MQTT-4.8.2-5]."""
        for sseq in sorted(self._bound_to(member)):
            member.ack(sseq)

    def restore(self, pubrels: dict[int, int], held: dict[int, bytes], *, sent_upto: int) -> None:
        """Take up the flows that were on flash when the daemon started.

        `sent_upto`: the last sequence that may have been sent without a note of it on flash [MQTT-3.3.1-1].
        """
        self._sent_upto = sent_upto
        self.held.restore(held)
        for packet_id, sseq in pubrels.items():
            source = self.queue if sseq else None
            self.flights[packet_id] = Flight(packet_id, None, sseq, source, Phase.PUBREL)
            if self.queue is not None and self.queue.owes(sseq):
                self._received_seqs[sseq] = packet_id
