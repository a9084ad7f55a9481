"""A backup in progress: a stream's messages and consumers, sent as chunks of an archive to a subject.

The loop reads a slice of the log, a thread encodes it (`stream_archive.py`), the loop sends complete chunks; then the next
slice follows. Each chunk requests an answer on `$JS.SNAPSHOT.ACK.<stream>.<id>.<size>.<n>`. A window limits the unanswered
bytes, so a slow receiver slows the reading. Memory holds a slice, a block and a chunk.

`jsck` requests a check before: every record is read and its checksum verified.

The end is an empty message: `204` in its header if a whole chunk preceded it (as in nats-server), `408` when the
receiver is disconnected or does not answer, `500` when the stream cannot be read.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from eyot_daemon.jetstream.backup.advisories import ArchiveAdvisories
from eyot_daemon.jetstream.backup.stream_archive import StreamArchive
from eyot_daemon.jetstream.deliver_subject import has_interest
from eyot_daemon.router.subscription import Kind, Origin, Subscription
from eyot_store.errors import StoreError
from eyot_wire.nuid import nuid

if TYPE_CHECKING:
    from eyot_daemon.jetstream.api_request import ApiRequest
    from eyot_daemon.jetstream.stream.stream import Stream
    from eyot_daemon.jetstream.stream_core import StreamCore
    from eyot_daemon.turn.timers import TimerHandle
    from eyot_wire.jetstream.requests import SnapshotRequest

log = logging.getLogger("eyot.jetstream")

CHUNK_BYTES, CHUNK_BYTES_MIN, CHUNK_BYTES_MAX = 128 << 10, 1 << 10, 1 << 20
WINDOW_BYTES, WINDOW_BYTES_MAX = 8 << 20, 32 << 20
#: How long a full window may wait for an answer.
FLOW_WAIT_S = 5.0
#: Longest wait for interest in the deliver subject.
INTEREST_WAIT_S = 2.0

_DONE = b"NATS/1.0 204\r\n\r\n"
_NO_INTEREST = b"NATS/1.0 408 No Interest\r\n\r\n"
_NO_FLOW = b"NATS/1.0 408 No Flow Response\r\n\r\n"


class Snapshot:
    """One backup. Call `begin` after the request was answered; `ended` is called once, with any result."""

    kind = Kind.JETSTREAM

    def __init__(
        self, request: "ApiRequest", stream: "Stream", asked: "SnapshotRequest", ended: Callable[[], None]
    ) -> None:
        self.stream = stream
        archive = StreamArchive(stream, with_consumers=not asked.no_consumers)
        self.state = archive.state
        self._account = stream.account
        self._timers = stream.broker.timers
        self._beside = request.jsa.server.beside
        self._advisories = ArchiveAdvisories(request.jsa, stream.name, request.origin)
        self._ended = ended
        self._deliver = asked.deliver_subject.encode()
        self._chunk = min(max(asked.chunk_size or CHUNK_BYTES, CHUNK_BYTES_MIN), CHUNK_BYTES_MAX)
        window = min(max(asked.window_size or WINDOW_BYTES, CHUNK_BYTES_MIN), WINDOW_BYTES_MAX)
        self._slots = max(window, self._chunk) // self._chunk
        self._jobs = archive.jobs()
        self._ready = bytearray()
        self._working = False
        self._made = False  # nothing is left to do but to send
        self._sent = 0
        self._interest = False
        self._over = False
        self._ack_head = f"$JS.SNAPSHOT.ACK.{stream.name}.{nuid()}".encode()
        self._subscription: Subscription | None = None
        self._timer: TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<Snapshot {self._account.name}/{self.stream.name}>"

    # -- life cycle --------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start sending as soon as the deliver subject has a subscriber."""
        log.info("Starting snapshot for stream '%s > %s'", self._account.name, self.stream.name)
        self._advisories.snapshot_created(self.state)
        self._subscription = self._account.subscribe(self._ack_head + b".>", self)
        self._account.add_interest_listener(self)
        self._interest = self._has_receiver()
        if self._interest:
            self._set_timer(FLOW_WAIT_S, self._flow_late)
            self._go_on()
        else:
            self._set_timer(INTEREST_WAIT_S, self._go_blind)

    def stop(self) -> None:
        """Stop with the daemon, or with JetStream of the account."""
        self._end(b"NATS/1.0 500 Server Shutdown\r\n\r\n", "server shutdown")

    def _end(self, header: bytes, error: str) -> None:
        if self._over:
            return
        self._over = True
        self._jobs.close()
        if self._subscription is not None:
            self._account.unsubscribe(self._subscription)
            self._account.remove_interest_listener(self)
        if self._timer is not None:
            self._timer.cancel()
        self._account.publish(self._deliver, header=header)
        self._advisories.snapshot_complete(error)
        outcome = f"failed: {error}" if error else "is complete"
        log.log(
            logging.WARNING if error else logging.INFO,
            "Snapshot of stream '%s > %s' %s (%d bytes)",
            self._account.name,
            self.stream.name,
            outcome,
            self.state.bytes,
        )
        self._ended()

    # -- interest --------------------------------------------------------------------------------------------------

    def sub_added(self, sub: Subscription) -> None:
        if sub.subject != self._deliver or self._over:
            return
        if not self._interest and self._has_receiver():
            # In a turn of its own, as below.
            self._interest = True
            self._timers.call_later(0, self._heard)

    def sub_removed(self, sub: Subscription) -> None:
        # The account is notifying all listeners: end in a turn of its own.
        if sub.subject == self._deliver and self._interest and not self._over and not self._has_receiver():
            self._interest = False
            self._timers.call_later(0, lambda: self._end(_NO_INTEREST, "no interest"))

    def weight_changed(self, sub: Subscription, previous: int) -> None:
        pass

    def _has_receiver(self) -> bool:
        """Return whether a subscription is on the deliver subject itself.

        A client's inbox for all its requests (`_INBOX.x.*`) matches before the client has subscribed to the subject;
        nats-server does not count such a wildcard either.
        """
        return has_interest(self._account, self._deliver, b"", copied=False)

    def _heard(self) -> None:
        if not self._over:
            self._set_timer(FLOW_WAIT_S, self._flow_late)
            self._go_on()

    def _go_blind(self) -> None:
        """Send without a subscriber until the window is full, as nats-server does."""
        self._interest = True
        self._heard()

    # -- answers ---------------------------------------------------------------------------------------------------

    def deliver(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> bool:
        """Process a chunk's acknowledgement."""
        if not self._over:
            self._slots += 1
            self._account.broker.mark_dirty(self)
        return True

    def flush(self) -> None:
        if not self._over:
            self._go_on()

    def _flow_late(self) -> None:
        """End after the time limit without progress."""
        if self._slots <= 0:
            self._end(_NO_FLOW, "no flow response")
        else:
            self._set_timer(FLOW_WAIT_S, self._flow_late)

    def _set_timer(self, seconds: float, fn: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timers.call_later(seconds, fn)

    # -- sending ---------------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Send what can be sent; start encoding when there is less than a chunk."""
        while len(self._ready) >= self._chunk and self._slots > 0:
            self._send_chunk()
        if len(self._ready) >= self._chunk or self._working or not self._interest:
            return
        if not self._made:
            self._make_more()
        elif self._slots > 0:
            if self._ready:
                self._account.publish(self._deliver, payload=bytes(self._ready))
            self._end(_DONE if self._sent else b"", "")

    def _send_chunk(self) -> None:
        chunk = bytes(self._ready[: self._chunk])
        del self._ready[: self._chunk]
        self._slots -= 1
        self._sent += 1
        reply = b"%b.%d.%d" % (self._ack_head, len(chunk), self._sent)
        self._account.publish(self._deliver, reply, payload=chunk)
        self._set_timer(FLOW_WAIT_S, self._flow_late)

    def _make_more(self) -> None:
        try:
            job = next(self._jobs, None)
        except StoreError as failure:
            self._end(_failed(failure.message), failure.message)
            return
        if job is None:
            self._made = True
            self._go_on()
            return
        self._working = True
        self._beside.run(job, self._job_done)

    def _job_done(self, data: bytes, failure: StoreError | None) -> None:
        self._working = False
        if self._over:
            return
        if failure is not None:
            self._end(_failed(failure.message), failure.message)
            return
        self._ready += data
        self._go_on()


def _failed(text: str) -> bytes:
    """Return a status line with `text` on one line."""
    return b"NATS/1.0 500 %b\r\n\r\n" % " ".join(text.split()).encode()


CHECKED_MESSAGES = 1024
CHECKED_BYTES = 512 << 10


def check_messages(stream: "StreamCore", done: Callable[[str], None]) -> None:
    """Check all messages, a slice per turn; `done` receives the problem, or ""."""
    timers = stream.timers
    last = stream.log.committed_seq
    bad = 0

    def look(seq: int) -> None:
        nonlocal bad
        try:
            read = stream.log.read(seq, max_messages=CHECKED_MESSAGES, max_bytes=CHECKED_BYTES, up_to=last)
            seq = max(read.next_seq, seq + 1)
        except StoreError as failure:
            if failure.reason != "corrupt":
                done(f"snapshot check failed: {failure.message}")
                return
            bad += 1
            seq = failure.seq + 1
        if seq <= last:
            timers.call_later(0, lambda: look(seq))
        else:
            done(f"snapshot check detected {bad} bad messages" if bad else "")

    timers.call_later(0, lambda: look(1))
