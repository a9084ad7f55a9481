"""JetStream on a real broker and a real store, with a clock that tests move and commits that tests ask for.

The store commits only in `commit()`, so what must not happen before a flush can be seen not to happen.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from eyot_daemon.config.accounts import AccountJetStreamOptions, AccountOptions
from eyot_daemon.config.jetstream import JetStreamOptions
from eyot_daemon.config.options import Options
from eyot_daemon.jetstream.engine import JetStream
from eyot_daemon.jetstream.stream.stream import Stream
from eyot_daemon.router.account import Account
from eyot_daemon.router.broker import Broker
from eyot_store import Store, StoreOptions
from support.clients.destinations import Client, Recorder
from support.manual_clock import ManualClock

OPTIONS = StoreOptions(inline=True, flush=False, map_size=8 << 20)


class Fixture:
    """One server. `client` publishes as a client would; replies are kept by inbox."""

    def __init__(
        self,
        path: Path,
        *,
        domain: str = "",
        limits: AccountJetStreamOptions | None = None,
        options: JetStreamOptions | None = None,
        store_options: StoreOptions = OPTIONS,
        sourcing: Any = None,
        clock: ManualClock | None = None,
    ) -> None:
        self.path = path
        self.clock = clock or ManualClock()
        accounts = (AccountOptions(name="A", jetstream=limits),) if limits is not None else ()
        self.broker = Broker(Options(accounts=accounts, server_name="world"), clock=self.clock)
        self.account: Account = self.broker.add_account("A" if accounts else "$G")
        self.store = Store.open(path, notify=lambda fn: fn(), options=store_options)
        js_options = options or JetStreamOptions(domain=domain)
        self.js = JetStream(self.broker, self.store, js_options, sourcing=sourcing)
        self.js.start()
        self.client = Client()
        self.inbox = Recorder()
        self.account.subscribe(b"_INBOX.>", self.inbox)
        self._inboxes = count(1)

    @property
    def jsa(self) -> Any:
        return self.js.accounts[self.account.name]

    def commit(self) -> None:
        """Commit everything that is under way, and what follows from it."""
        self.broker.flush()
        while self.store.commit_now():
            self.broker.flush()
        self.broker.flush()

    def run_on(self, turns: int = 100) -> None:
        """Let what goes on by itself in later turns do so, without time passing."""
        for _ in range(turns):
            if not self.broker.timers.run_due(self.clock.monotonic()):
                return
            self.commit()

    def run_out(self) -> int:
        """Let everything that is due come to its end, one timer a turn; return how many turns that took."""
        count = 0
        while (deadline := self.broker.timers.next_deadline) is not None and deadline <= self.clock.monotonic():
            self.broker.timers.run_due(self.clock.monotonic(), limit=1)
            self.commit()
            count += 1
        return count

    def publish(self, subject: bytes, payload: bytes = b"", header: dict[str, str] | bytes = b"") -> bytes:
        """Publish with a reply subject; returns it. Nothing is taken in before the turn ends (`commit`)."""
        reply = b"_INBOX.%d" % next(self._inboxes)
        self.account.publish(subject, reply, header_block(header), payload, origin=self.client)
        return reply

    def answer(self, reply: bytes) -> bytes | None:
        """What arrived on an inbox."""
        return next((got.payload for got in self.inbox.got if got.subject == reply), None)

    def put(self, subject: bytes, payload: bytes = b"", header: dict[str, str] | bytes = b"") -> Any:
        """Publish, commit, and return the decoded PubAck."""
        reply = self.publish(subject, payload, header)
        self.commit()
        return self._decoded(reply)

    def _decoded(self, reply: bytes) -> Any:
        answer = self.answer(reply)
        return None if answer is None else msgspec.json.decode(answer)

    def request(
        self, words: str, body: Any = b"", header: dict[str, str] | bytes = b"", prefix: str = "$JS.API"
    ) -> Any:
        """One request of the API and its decoded answer; None when there is none."""
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        reply = self.publish(f"{prefix}.{words}".encode(), data, header)
        self.commit()
        if self.answer(reply) is None:
            self.run_on()  # on a slow machine a search ends in a later turn
        return self._decoded(reply)

    def messages(self, words: str, body: Any = b"") -> list[tuple[bytes, bytes]]:
        """A request whose answers are messages: (header, payload) of each."""
        reply = self.publish(f"$JS.API.{words}".encode(), msgspec.json.encode(body) if body else b"")
        self.commit()
        self.run_on()  # on a slow machine a search ends in a later turn
        return [(got.header, got.payload) for got in self.inbox.got if got.subject == reply]

    def create(self, name: str = "S", **config: Any) -> Any:
        """Create a stream and return the answer."""
        config.setdefault("subjects", [f"{name.lower()}.>"])
        return self.request(f"STREAM.CREATE.{name}", {"name": name, **config})

    def stream(self, name: str = "S") -> Stream:
        stream = self.jsa.streams[name]
        assert isinstance(stream, Stream)
        return stream

    def held(self, name: str = "S") -> list[tuple[int, bytes]]:
        """(sequence, payload) of everything in a stream."""
        log = self.stream(name).log
        read = log.read(1, max_messages=100_000, max_bytes=1 << 30)
        return [(message.seq, message.payload) for message in read.messages]

    def advance(self, seconds: float) -> None:
        """Time passes and due timers run."""
        self.clock.advance(seconds)
        self.broker.timers.run_due(self.clock.monotonic())
        self.commit()

    def restart(self) -> Fixture:
        """Stop this server and start another on its store."""
        self.js.stop()
        self.store.close()
        return Fixture(self.path, options=self.js.options, clock=self.clock)

    def crash(self) -> Fixture:
        """Lose what was not committed and start again."""
        self.store.crash()
        return Fixture(self.path, options=self.js.options, clock=self.clock)


def header_block(header: dict[str, str] | bytes) -> bytes:
    if isinstance(header, bytes):
        return header
    lines = "".join(f"{name}: {value}\r\n" for name, value in header.items())
    return f"NATS/1.0\r\n{lines}\r\n".encode()
