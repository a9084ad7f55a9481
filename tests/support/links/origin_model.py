"""A model of the other end of a mirror or source: a stream and its consumers, as nats-server behaves, without I/O.

It answers the requests of a `SourceConsumer`, delivers with consumer sequences, asks for flow control, beats when idle, forgets consumers
without interest. `Wire` carries what both say; it can lose what is under way, as a cut link does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from eyot_sync.sourcing import stored_times
from eyot_sync.sourcing.actions import (
    Action,
    Answer,
    FetchLastMessage,
    Identify,
    Request,
    Skip,
    Subscribe,
    Unsubscribe,
)
from eyot_sync.sourcing.source_consumer import SourceConsumer
from eyot_wire import headers
from eyot_wire.go.time import ns_to_rfc3339, rfc3339_to_ns
from eyot_wire.jetstream.copied_run import CopiedMessage
from eyot_wire.jetstream.errors import ApiError

WINDOW = 5
FULL = ApiError(code=503, err_code=10047, description="insufficient storage resources available")


@dataclass
class ModelConsumer:
    name: str
    deliver: bytes
    next_seq: int
    consumer_seq: int = 0
    unanswered: int = 0
    flow_id: int = 0
    #: The flow-control request whose answer it waits for, and what the answer confirms: all up to this sequence.
    awaited: bytes = b""
    awaited_upto: int = 0
    #: Its deliveries before that request: an answer that names fewer confirms nothing, since some were lost.
    awaited_cseq: int = 0
    #: The last sequence that it delivered, or after which it begins.
    sent_upto: int = 0


@dataclass
class ModelOrigin:
    """Messages by sequence; sequences may be missing (deleted, expired)."""

    messages: dict[int, bytes] = field(default_factory=dict)
    last_seq: int = 0
    consumers: dict[bytes, ModelConsumer] = field(default_factory=dict)
    made: int = 0
    tells_times: bool = False
    restored: int = 0
    timelines: dict[int, int] = field(default_factory=dict)
    created: str = "2026-01-01T00:00:00Z"
    #: Stored while the next consumer is made, which begins after it (nats-server 2.9).
    amid: bytes = b""

    def recreate(self) -> None:
        """Deleted and made again: nothing of it is left."""
        self.messages.clear()
        self.consumers.clear()
        self.last_seq = 0
        self.created = self.created.replace("2026", str(int(self.created[:4]) + 1))

    def info(self) -> bytes:
        first_seq = min(self.messages, default=self.last_seq + 1)
        state = {"messages": len(self.messages), "first_seq": first_seq, "last_seq": self.last_seq}
        return json.dumps({"created": self.created, "state": state}).encode()

    def message(self, seq: int) -> bytes:
        """The answer to STREAM.MSG.GET."""
        if seq not in self.messages:
            return json.dumps({"error": {"code": 404, "err_code": 10037, "description": "no message found"}}).encode()
        return json.dumps({"message": {"seq": seq, "data": "", "time": ns_to_rfc3339(self.time_of(seq))}}).encode()

    def time_of(self, seq: int) -> int:
        """When it was stored, ns since 1970; another time in each timeline."""
        return seq * 1000 + self.timelines.get(seq, 0) if seq in self.messages else 0

    def set_back(self, last_seq: int) -> None:
        """Restored from a backup: what comes after `last_seq` never was."""
        for seq in range(last_seq + 1, self.last_seq + 1):
            self.messages.pop(seq, None)
        self.consumers.clear()
        self.last_seq = last_seq
        self.restored += 1

    def publish(self, payload: bytes) -> None:
        self.last_seq += 1
        self.messages[self.last_seq] = payload
        self.timelines[self.last_seq] = self.restored * 1_000_000_000

    def delete(self, seq: int) -> None:
        self.messages.pop(seq, None)

    def create(self, body: bytes) -> bytes:
        config = json.loads(body)["config"]
        self.made += 1
        first = min(self.messages, default=self.last_seq + 1)
        start = max(config.get("opt_start_seq", 1), first)
        if config["deliver_policy"] == "by_start_time":
            after_ns = rfc3339_to_ns(config["opt_start_time"])
            start = min((seq for seq in self.messages if self.time_of(seq) >= after_ns), default=self.last_seq + 1)
        start = min(start, self.last_seq + 1)
        late = bool(self.amid) and start == self.last_seq + 1
        if self.amid:
            self.publish(self.amid)
            self.amid = b""
        asked = config.get("metadata", {}).get(stored_times.KEY)
        if asked is not None and self.tells_times:
            config["metadata"][stored_times.KEY] = stored_times.answer(asked, self.time_of)
        consumer = ModelConsumer(f"c{self.made}", config["deliver_subject"].encode(), start + late, sent_upto=start - 1)
        self.consumers[consumer.deliver] = consumer
        return json.dumps(
            {
                "type": "io.nats.jetstream.api.v1.consumer_create_response",
                "stream_name": "ORIGIN",
                "name": consumer.name,
                "config": config,
                "delivered": {"consumer_seq": 0, "stream_seq": start - 1},
                "ack_floor": {"consumer_seq": 0, "stream_seq": 0},
                "num_pending": sum(1 for seq in self.messages if seq >= start + late),
            }
        ).encode()

    def deliver(self, consumer: ModelConsumer) -> tuple[bytes, bytes, bytes, bytes] | None:
        """(reply, subject, header, payload) of the next thing this consumer sends, or None while it is stalled or idle."""
        if consumer.unanswered >= WINDOW:
            return None
        waiting = sorted(seq for seq in self.messages if seq >= consumer.next_seq)
        if not waiting:
            return None
        seq = waiting[0]
        consumer.next_seq, consumer.sent_upto = seq + 1, seq
        consumer.consumer_seq += 1
        consumer.unanswered += 1
        reply = f"$JS.ACK.ORIGIN.{consumer.name}.1.{seq}.{consumer.consumer_seq}.{self.time_of(seq)}.{len(waiting) - 1}"
        return reply.encode(), b"readings.x", b"", self.messages[seq]

    def flow_control(self, consumer: ModelConsumer) -> tuple[bytes, bytes, bytes, bytes]:
        consumer.flow_id += 1
        consumer.awaited = f"$JS.FC.ORIGIN.{consumer.name}.{consumer.flow_id}".encode()
        consumer.awaited_upto, consumer.awaited_cseq = consumer.sent_upto, consumer.consumer_seq
        return consumer.awaited, b"", b"NATS/1.0 100 FlowControl Request\r\n\r\n", b""

    def heartbeat(self, consumer: ModelConsumer) -> tuple[bytes, bytes, bytes, bytes]:
        header = (
            f"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: {consumer.consumer_seq}\r\nNats-Last-Stream: 1\r\n"
        ).encode()
        if consumer.awaited:
            header += b"Nats-Consumer-Stalled: %b\r\n" % consumer.awaited
        return b"", b"", header + b"\r\n", b""

    def answered(self, subject: bytes, header: bytes) -> int:
        """Return the sequence up to which an answer to flow control confirms everything; 0: it confirms nothing."""
        for consumer in self.consumers.values():
            if subject == consumer.awaited:
                consumer.unanswered, consumer.awaited = 0, b""
                told = int(headers.get(header, b"Nats-Last-Consumer") or b"0")
                return consumer.awaited_upto if told >= consumer.awaited_cseq else 0
        return 0


@dataclass
class ModelTarget:
    """The stream that copies: what is on flash, and what is still on its way there."""

    stored: list[tuple[int, bytes]] = field(default_factory=list)
    position: int = 0
    waiting: list[tuple[list[CopiedMessage], int, bytes]] = field(default_factory=list)


class Wire:
    """Owner of a copier: carries out its actions against the model, keeps what is under way."""

    def __init__(self, source_consumer: SourceConsumer, origin: ModelOrigin, target: ModelTarget) -> None:
        self.source_consumer = source_consumer
        self.origin = origin
        self.target = target
        self.up = True
        self.under_way: list[tuple[bytes, tuple[bytes, bytes, bytes, bytes]]] = []
        self.responses: list[tuple[bytes, bytes]] = []
        self.listening: set[bytes] = set()
        self.asked_from: list[str] = []
        #: Messages of the next batch that the target, which is full then, takes; None: all.
        self.room: int | None = None

    def do(self, actions: list[Action], now: float) -> None:
        for action in actions:
            match action:
                case Subscribe(deliver=deliver):
                    self.listening.add(deliver)
                case Unsubscribe(deliver=deliver):
                    self.listening.discard(deliver)
                    if self.up:
                        self.origin.consumers.pop(deliver, None)
                case Request(_, reply, body):
                    self.asked_from.append(json.loads(body)["config"]["deliver_policy"])
                    if self.up:
                        self.responses.append((reply, self.origin.create(body)))
                    else:
                        self.do(self.source_consumer.unreachable(now), now)
                case Identify(_, reply):
                    if self.up:
                        self.responses.append((reply, self.origin.info()))
                    else:
                        self.do(self.source_consumer.unidentified(now), now)
                case FetchLastMessage(_, reply, body):
                    if self.up:
                        self.responses.append((reply, self.origin.message(json.loads(body)["seq"])))
                    else:
                        self.do(self.source_consumer.unproven(now), now)
                case Answer(subject, header):
                    if self.up:
                        assert self.origin.answered(subject, header) <= self.target.position, (
                            "what is answered is on flash"
                        )
                case Skip():
                    pass

    def gather(self, now: float = 0.0) -> None:
        """The end of a turn: what the copier took becomes a transaction that is not on flash yet, as far as there is room."""
        batch, mark = self.source_consumer.take_batch()
        room, self.room = (self.room, None) if batch else (None, self.room)
        taken = batch[:room]
        if taken:
            self.target.waiting.append((taken, mark, self.source_consumer.request.reply))
        if len(taken) < len(batch):
            self.do(self.source_consumer.refused(taken[-1].origin_seq if taken else 0, FULL, now), now)
        self.do(self.source_consumer.passed_on(now), now)

    def commit(self, now: float) -> None:
        """The oldest transaction reaches the flash."""
        if not self.target.waiting:
            return
        batch, mark, deliver = self.target.waiting.pop(0)
        self.target.stored += [(each.origin_seq, each.payload) for each in batch]
        self.target.position = batch[-1].origin_seq
        self.do(self.source_consumer.committed(mark, self.target.position, len(batch), deliver), now)

    def cut(self, now: float) -> None:
        self.up = False
        self.under_way.clear()
        self.responses.clear()
        self.origin.consumers.clear()
        self.do(self.source_consumer.link_down(now), now)

    def restore(self, now: float) -> None:
        self.up = True
        self.do(self.source_consumer.link_up(now), now)
