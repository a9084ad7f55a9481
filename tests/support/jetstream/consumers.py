"""A fixture (`fixture.py`) with consumers: subscribers that remember, pull requests, acknowledgements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from eyot_daemon.client.publish import publish
from eyot_daemon.jetstream.consumer.consumer import Consumer
from eyot_daemon.router.account import Account
from eyot_daemon.router.subscription import Kind, Origin, Subscription
from eyot_wire.frames import Msg, encode_pub
from eyot_wire.jetstream.ack import AckReply, decode_ack_reply
from eyot_wire.native import OutBuffer, Publishes
from eyot_wire.scanner import Scanner
from support.clients.destinations import Got, Recorder
from support.jetstream.fixture import Fixture


class Box(Recorder):
    """A subscriber. Messages and status lines apart."""

    sub: Subscription

    @property
    def messages(self) -> list[Got]:
        return [got for got in self.got if got.reply.startswith(b"$JS.ACK.")]

    @property
    def statuses(self) -> list[str]:
        """First lines of what came without being a message, `NATS/1.0 ` left out."""
        lines = [got.header.split(b"\r\n", 1)[0].decode() for got in self.got if not got.reply.startswith(b"$JS.ACK.")]
        return [line.removeprefix("NATS/1.0 ") for line in lines]

    @property
    def acks(self) -> list[AckReply]:
        """What the acknowledgement subjects of the messages say."""
        decoded = [decode_ack_reply(got.reply) for got in self.messages]
        assert all(decoded)
        return [ack for ack in decoded if ack is not None]

    @property
    def seqs(self) -> list[int]:
        """Stream sequences delivered, in order."""
        return [ack.stream_seq for ack in self.acks]

    def take(self) -> list[Got]:
        """The messages so far, which are forgotten here."""
        messages, self.got = self.messages, []
        return messages


class ClientBox(OutBuffer, Box):  # type: ignore[misc]
    """A subscriber that is a client's connection: what consumers write into its buffer is scanned when the turn ends."""

    def __init__(self) -> None:
        OutBuffer.__init__(self)
        Box.__init__(self, kind=Kind.CLIENT)
        self.headers = True
        self._scanner = Scanner("client")
        self.written = 0  # frames that were not delivered one by one

    def deliver(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> bool:
        self.flush()
        return Box.deliver(self, sub, subject, reply, header, payload, origin)

    def flush(self) -> None:
        self.dirty = False
        data = bytes(self.out)
        self.out.clear()
        for op in self._scanner.feed(data):
            assert isinstance(op, Msg)
            assert op.sid == self.sub.sid
            self.written += 1
            self.got.append(Got(op.subject, op.reply, op.header, op.payload, self.sub))


class AckingClient(OutBuffer):
    """As much of a connection as publishing needs."""

    kind = Kind.CLIENT
    verbose = pedantic = no_responders = False
    access = None

    def __init__(self, account: Account) -> None:
        super().__init__()
        self.account = account
        self.headers = True


class ConsumerFixture(Fixture):
    """`pull` and `listen` make subscribers; everything commits unless `hold` says otherwise.

    With `clients` they are connections, to which consumers may write.
    """

    def __init__(self, path: Path, *, clients: bool = False, **options: Any) -> None:
        self._box_type = ClientBox if clients else Box
        super().__init__(path, **options)
        self._boxes = 0

    def consumer(self, name: str = "C", stream: str = "S") -> Consumer:
        consumer = self.stream(stream).consumers[name]
        assert isinstance(consumer, Consumer)
        return consumer

    def add(self, name: str = "C", stream: str = "S", **config: Any) -> Any:
        """Create a consumer of that name (durable unless the configuration names it) and return the answer."""
        if "name" not in config:
            config["durable_name"] = name
        return self.request(f"CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": config})

    def add_ephemeral(self, stream: str = "S", **config: Any) -> Any:
        return self.request(f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": config})

    def info(self, name: str = "C", stream: str = "S") -> Any:
        return self.request(f"CONSUMER.INFO.{stream}.{name}")

    def fill(self, count: int, subject: bytes = b"s.x", size: int = 4) -> None:
        """Publish `count` messages and commit them."""
        for i in range(count):
            self.account.publish(subject, payload=b"%0*d" % (size, i), origin=self.client)
        self.commit()

    def listen(self, subject: bytes, queue: bytes = b"") -> Box:
        """A subscriber on `subject`."""
        box = self._box_type()
        box.sub = self.account.subscribe(subject, box, queue=queue, sid=b"7")
        self.commit()
        return box

    def leave(self, box: Box) -> None:
        self.account.unsubscribe(box.sub)
        self.commit()

    def pull(self, name: str = "C", stream: str = "S", box: Box | None = None, body: bytes = b"", **wanted: Any) -> Box:
        """A pull request; its box is new unless given."""
        if box is None:
            self._boxes += 1
            box = self.listen(b"pull.%d" % self._boxes)
        data = msgspec.json.encode(wanted) if wanted else body
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}".encode()
        self.account.publish(subject, box.sub.subject, b"", data, origin=self.client)
        self.commit()
        return box

    def answer_to(self, got: Got, payload: bytes = b"", reply: bytes = b"") -> None:
        """Acknowledge (or the like); nothing is committed before `commit`."""
        self.account.publish(got.reply, reply, b"", payload, origin=self.client)

    def ack(self, *messages: Got) -> None:
        if self._box_type is ClientBox:
            self._ack_in_a_row(messages)
        else:
            for got in messages:
                self.answer_to(got)
        self.commit()

    def _ack_in_a_row(self, messages: Sequence[Got]) -> None:
        """As they come from a client, in one read."""
        data = b"".join(encode_pub(got.reply, payload=b"+ACK") for got in messages)
        if data:
            [row] = Scanner("server", batches=True).feed(data)
            assert isinstance(row, Publishes)
            publish(AckingClient(self.account), row)  # type: ignore[arg-type]

    def advance(self, seconds: float, step_s: float = 0.0) -> None:
        """Time passes; in steps, so that timers that set the next one run too."""
        step_s = step_s or seconds
        while seconds > 1e-9:
            super().advance(min(step_s, seconds))
            seconds -= step_s
        # What a timer asked for at once runs in the same moment.
        for _ in range(50):
            if not self.broker.timers.run_due(self.clock.monotonic()):
                break
            self.commit()

    def restart(self) -> ConsumerFixture:
        self.js.stop()
        self.store.close()
        return self._again()

    def crash(self) -> ConsumerFixture:
        self.store.crash()
        return self._again()

    def _again(self) -> ConsumerFixture:
        clients = self._box_type is ClientBox
        sourcing = type(self.js.sourcing)()
        return ConsumerFixture(self.path, clients=clients, options=self.js.options, sourcing=sourcing, clock=self.clock)
