"""Forwards one stream over a bridge: reads its log from the last acknowledgement on, and records the new one.

The position is a downstream's (`jetstream/downstream`): what the remote acknowledged, without gaps. It is written
soon after the acknowledgement. Messages of QoS 2 are sent when their packet identifiers are on flash, and released
when it is on flash that the remote has them. So a restart sends them again with the same identifiers.

A message that the remote refuses is sent again after a pause; the stream waits. Refusals for good are passed over
where the configuration says so, and recorded as never arrived.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from eyot_daemon.mqtt import message as nats_message
from eyot_store.errors import StoreError
from eyot_sync.bridge.window import Entry, Phase, Progress, Window
from eyot_wire.mqtt.reason_codes import ReasonCode
from eyot_wire.quoting import printable

if TYPE_CHECKING:
    from eyot_daemon.bridge.counters import BridgeCounters
    from eyot_daemon.config.bridges import BridgeOptions
    from eyot_daemon.jetstream.stream.stream import Stream
    from eyot_daemon.router.broker import Broker
    from eyot_daemon.turn.timers import TimerHandle
    from eyot_store import StoredMessage, Txn
    from eyot_sync.bridge.topic_rules import OutRules
    from eyot_sync.link.state import LinkState

log = logging.getLogger("eyot.bridge")

#: An acknowledgement is recorded within this time, seconds.
RECORD_WITHIN_S = 0.25
#: What is read of the log at once.
READ_MESSAGES = 128
READ_BYTES = 256 * 1024
READS_PER_TURN = 4
#: After so many messages that are not for the remote the position is written, so that a restart need not pass them again.
UNMATCHED_MAX = 10_000
#: After the store failed, seconds.
STORE_PAUSE_S = 1.0
#: Refusals that pass: quota, rate, a busy or restarting server.
PASSING = frozenset(
    {
        ReasonCode.QUOTA_EXCEEDED,
        ReasonCode.MESSAGE_RATE_TOO_HIGH,
        ReasonCode.RECEIVE_MAXIMUM_EXCEEDED,
        ReasonCode.SERVER_BUSY,
        ReasonCode.SERVER_UNAVAILABLE,
        ReasonCode.SERVER_SHUTTING_DOWN,
        ReasonCode.PACKET_IDENTIFIER_IN_USE,
    }
)
_QOS2 = 2
#: In place of the identifier: the message is settled, and one before it is not.
_SETTLED = 0

#: What is on flash of an entry of QoS 2: packet identifier, sequence, whether the remote has it.
_Stored = tuple[int, int, bool]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[_Stored]).decode


class ForwardContext(NamedTuple):
    """What the forwarders of one bridge share. `own_id`: the publisher's id in messages that came in over this bridge."""

    broker: Broker
    options: BridgeOptions
    rules: OutRules
    window: Window
    counters: BridgeCounters
    state: LinkState
    own_id: str
    #: there is something to send
    wake: Callable[[], None]
    #: identifiers of these entries are on flash: PUBLISH and PUBREL may be sent
    written: Callable[[list[Entry]], None]


class Forwarder:
    """One stream of a bridge. `BridgeReader` for the stream's tracker."""

    def __init__(self, context: ForwardContext, name: str) -> None:
        self.name = name
        self._context = context
        self._stream: Stream | None = None
        self._progress = Progress(0)
        self._buffer: deque[StoredMessage] = deque()
        self._next = 1
        #: refused by the remote, to be sent again
        self._again: deque[Entry] = deque()
        self._paused_until = 0.0
        self._losses: list[tuple[str, int]] = []
        self._recorded = 0
        self._unrecorded = 0
        self._recording = False
        self._timer: TimerHandle | None = None
        self._ids_changed: list[Entry] = []
        self._ids_stale = False
        self._dirty = False
        self._trouble = ("", "")
        self._logged_at = -1e9
        #: the policy that holds the stream back; "": none
        self.held = ""

    # -- BridgeReader --------------------------------------------------------------------------------------------------

    @property
    def delivered_sseq(self) -> int:
        return self._next - 1

    @property
    def linked(self) -> bool:
        return self._context.state.is_up

    @property
    def acknowledged(self) -> bool:
        return self._context.options.qos > 0 and all(rule.qos != 0 for rule in self._context.options.out)

    @property
    def waiting(self) -> str:
        return self.held if self.linked else self._context.state.waiting

    @property
    def trouble(self) -> tuple[str, str]:
        state = self._context.state
        if not self.linked:
            return (state.last_error, state.remedy) if state.last_error else ("", "")
        return self._trouble

    def read_again(self) -> None:
        self._buffer.clear()
        self._next = self._progress.confirmed + 1
        self._context.wake()

    # -- the stream ----------------------------------------------------------------------------------------------------

    @property
    def attached(self) -> bool:
        return self._stream is not None

    def follow(self, stream: Stream | None) -> bool:
        """Use the stream that has the name at present, None: there is none. Return whether it is another one."""
        if stream is self._stream and (stream is None or stream.live):
            return False
        self.leave()
        if stream is not None and stream.live:
            self._attach(stream)
        return True

    def _attach(self, stream: Stream) -> None:
        context = self._context
        begins_after = stream.log.committed_seq if context.options.start == "new" else 0
        filters = context.rules.filters
        after = stream.downstream.bridges.begin(context.options.name, filters, self, begins_after)
        self._stream = stream
        self._progress = Progress(after)
        self._recorded = after
        self._next = after + 1
        self._restore_ids(stream, after)
        stream.when_stored.append(self._stored)
        log.info("Bridge %s: forwards %s from sequence %d on", context.options.name, printable(self.name), self._next)
        context.wake()

    def leave(self) -> None:
        """Stop reading: the stream ended, or the bridge does. What is acknowledged is recorded."""
        stream = self._stream
        if stream is None:
            return
        if stream.live:
            self._record()
        if self._stored in stream.when_stored:
            stream.when_stored.remove(self._stored)
        stream.downstream.bridges.left(self._context.options.name)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._context.window.drop_stream(self.name)
        self._stream = None
        self._buffer.clear()
        self._again.clear()
        self._losses = []
        self._ids_changed = []
        self._unrecorded, self._recording = 0, False

    def _stored(self) -> None:
        if self.linked:
            self._context.wake()

    # -- reading -------------------------------------------------------------------------------------------------------

    def has_next(self, now: float) -> bool:
        """Return whether there is a message to be sent at present."""
        if self._stream is None or now < self._paused_until:
            return False
        return bool(self._again or self._buffer) or self._fill()

    def wait_s(self, now: float) -> float:
        """Return when a refused message may be sent again; infinity: nothing waits for time."""
        return self._paused_until - now if now < self._paused_until else float("inf")

    def next(self) -> Entry | None:
        """Return the next message to be sent; None if what was read is not for the remote."""
        if self._again:
            return self._again.popleft()
        if not self._buffer:
            return None
        message = self._buffer.popleft()
        entry = None if self._progress.knows(message.seq) else self._entry_of(message)
        if entry is not None:
            self._progress.begin(message.seq)
        self._progress.passed(message.seq if self._buffer else self._next - 1)
        return entry

    def _fill(self) -> bool:
        """Read on; return whether there is something. A long way without a match is walked in several turns."""
        stream = self._stream
        assert stream is not None
        for _ in range(READS_PER_TURN):
            if self._buffer or self._next > stream.log.committed_seq:
                break
            try:
                read = stream.log.read(
                    self._next,
                    max_messages=READ_MESSAGES,
                    max_bytes=READ_BYTES,
                    filters=self._context.rules.filters,
                )
            except StoreError as failure:
                self._unreadable(failure)
                return False
            self._buffer.extend(read.messages)
            self._next = read.next_seq
            if not self._buffer:
                self._progress.passed(self._next - 1)
        else:
            self._context.wake()
        if self._progress.confirmed - self._recorded > UNMATCHED_MAX and not self._recording:
            self._note()
        return bool(self._buffer)

    def _unreadable(self, failure: StoreError) -> None:
        """Pass over a damaged message, and count it; after another failure try again soon."""
        self._log_trouble(f"{printable(self.name)} cannot be read: {failure}")
        if failure.reason == "corrupt" and failure.seq >= self._next:
            if not self._progress.knows(failure.seq):
                self._lose("damage", failure.seq)
            self._next = failure.seq + 1
            self._progress.passed(failure.seq)
            self._context.wake()
        else:
            self._pause(STORE_PAUSE_S)

    def _entry_of(self, stored: StoredMessage) -> Entry | None:
        """Return a stored message as a publish; None: it is not for the remote, and counted."""
        context = self._context
        header = stored.header
        if nats_message.client_of(header) == context.own_id:
            context.counters.skipped["own"] += 1
            self._note()
            return None
        now_ns = context.broker.clock.now_ns()
        expires_ns = nats_message.expires_ns(header)
        if expires_ns and expires_ns <= now_ns:
            self._lose("expired", stored.seq)
            return None
        converted = context.rules.convert(stored.subject)
        if converted is None:
            self._lose("no_topic", stored.seq)
            return None
        rule = converted.rule
        return Entry(
            stream=self.name,
            seq=stored.seq,
            qos=rule.qos if rule.qos >= 0 else context.options.qos,
            topic=converted.topic,
            payload=stored.payload,
            properties=nats_message.properties_of(header, "", now_ns),
            retain=rule.retain,
        )

    # -- results -------------------------------------------------------------------------------------------------------

    def done(self, entry: Entry) -> None:
        """Note that the remote has a message; with QoS 0, that it was sent."""
        self._progress.done(entry.seq)
        if not self._again:
            self._trouble = ("", "")
        if entry.qos == _QOS2:
            self._ids_stale = True
        self._note()

    def refused(self, entry: Entry, reason: ReasonCode, text: str) -> None:
        """Note that the remote refused a message: send it again after a pause, or pass it over."""
        options = self._context.options
        words = f"{reason.name.replace('_', ' ').lower()} (0x{reason:02X}){f': {text}' if text else ''}"
        why = f"the remote refuses message {entry.seq} on topic {printable(entry.topic or '')}: {printable(words)}"
        self._set_back(entry, why, gives_up=reason not in PASSING and options.refused == "skip", as_reason="refused")

    def too_large(self, entry: Entry) -> None:
        """Note that a message is larger than the remote takes."""
        why = f"message {entry.seq} is larger than the remote takes: {entry.size} bytes"
        gives_up = self._context.options.refused == "skip"
        self._set_back(entry, why, gives_up=gives_up, as_reason="too_large")

    def _set_back(self, entry: Entry, why: str, *, gives_up: bool, as_reason: str) -> None:
        if entry.qos == _QOS2:
            self._ids_stale = True
        if gives_up:
            self._progress.done(entry.seq)
            self._lose(as_reason, entry.seq)
            self._log_trouble(f"{printable(self.name)}: {why}; it is passed over")
            return
        entry.packet_id, entry.dup, entry.phase = 0, False, Phase.PLANNED
        self._again = deque(sorted((*self._again, entry), key=lambda each: each.seq))
        self._context.counters.retried += 1
        self._trouble = (why, "allow it at the remote, or let the bridge pass such messages over: refused: skip")
        self._log_trouble(f"{printable(self.name)}: {why}; it is sent again in {self._context.options.retry_s:g} s")
        self._pause(self._context.options.retry_s)

    def _pause(self, seconds: float) -> None:
        self._paused_until = self._context.broker.clock.monotonic() + seconds
        self._context.wake()

    def _lose(self, why: str, seq: int) -> None:
        self._context.counters.skipped[why] += 1
        self._losses.append((why, seq))
        self._note()

    def _log_trouble(self, text: str) -> None:
        """Log at most one line in ten seconds."""
        now = self._context.broker.clock.monotonic()
        if now - self._logged_at >= 10.0:
            self._logged_at = now
            log.error("Bridge %s: %s", self._context.options.name, text)

    # -- the position --------------------------------------------------------------------------------------------------

    def _note(self) -> None:
        """Have the position recorded soon; at once when half of a window is acknowledged."""
        self._unrecorded += 1
        if 2 * self._unrecorded >= self._context.options.inflight_max:
            self._mark()
        elif self._timer is None:
            self._timer = self._context.broker.timers.call_later(RECORD_WITHIN_S, self._record)

    def _mark(self) -> None:
        if not self._dirty:
            self._dirty = True
            self._context.broker.mark_dirty(self)

    def flush(self) -> None:
        """End of the turn: write identifiers that were planned, or the position."""
        self._dirty = False
        if self._stream is None or not self._stream.live:
            return
        if self._ids_changed:
            planned, self._ids_changed = self._ids_changed, []
            self._ids_stale = True
            self._commit(self._stream, planned)
        elif 2 * self._unrecorded >= self._context.options.inflight_max:
            self._record()

    def _record(self) -> None:
        """Write the position with what was passed over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        stream, seq = self._stream, self._progress.confirmed
        if stream is None or not stream.live or (seq <= self._recorded and not self._losses):
            return
        if self._recording:
            self._timer = self._context.broker.timers.call_later(RECORD_WITHIN_S, self._record)
        else:
            self._commit(stream, [])

    def _commit(self, stream: Stream, planned: list[Entry]) -> None:
        """Write the position, what was passed over, and the identifiers; all in one transaction.

        A message of QoS 2 that left the table of identifiers is confirmed by the same transaction, or it would be sent
        again as a new one after a power cut.
        """
        seq = self._progress.confirmed
        losses, self._losses = self._losses, []
        self._unrecorded = 0
        self._recording = True

        def settled(failure: StoreError | None) -> None:
            if self._stream is not stream:
                return
            self._recording = False
            if failure is None:
                self._recorded = max(self._recorded, seq)
                if planned:
                    self._context.written(planned)
                return
            self._losses = losses + self._losses
            self._ids_stale = True
            self._log_trouble(f"the position in {printable(self.name)} cannot be written: {failure}")
            self._context.broker.timers.call_later(STORE_PAUSE_S, lambda: self._commit_again(stream, planned))

        stream.downstream.bridges.confirmed(self._context.options.name, seq, losses, self._stage_ids, settled)

    def _commit_again(self, stream: Stream, planned: list[Entry]) -> None:
        if self._stream is stream and stream.live:
            self._commit(stream, planned)

    # -- identifiers of QoS 2 ------------------------------------------------------------------------------------------

    @property
    def _ids_key(self) -> bytes:
        return b"eyot.bridge." + self._context.options.name.encode()

    def plan(self, entry: Entry) -> None:
        """Write an entry's identifier and phase to flash; `written` is called when they are there."""
        entry.durable = False
        self._ids_changed.append(entry)
        self._mark()

    def _stage_ids(self, txn: Txn) -> None:
        if not self._ids_stale:
            return
        self._ids_stale = False
        assert self._stream is not None
        stored = [
            (entry.packet_id, entry.seq, entry.phase is Phase.RECEIVED)
            for entry in self._context.window
            if entry.qos == _QOS2 and entry.stream == self.name
        ]
        stored += [(_SETTLED, seq, True) for seq in self._progress.settled_ahead]
        if stored:
            self._stream.log.put_position(txn, self._ids_key, _encode(stored))
        else:
            self._stream.log.delete_position(txn, self._ids_key)

    def _restore_ids(self, stream: Stream, after: int) -> None:
        """Take up the entries of QoS 2 that were on their way when the daemon ended."""
        stored = stream.log.positions().get(self._ids_key)
        if stored is None:
            return
        for packet_id, seq, received in _decode(stored):
            if packet_id == _SETTLED:
                self._progress.done(seq)
                continue
            message = stream.log.get_readable(seq) if seq > after else None
            if message is None and not received and seq > after and stream.log.holds(seq):
                self._lose("damage", seq)
            entry = self._entry_of(message) if message is not None else None
            if entry is None:
                # It is acknowledged, or no longer stored: its identifier is cleared at the remote.
                entry = Entry(stream=self.name, seq=seq, qos=_QOS2, topic=None)
            entry.qos, entry.packet_id, entry.dup = _QOS2, packet_id, True
            entry.phase = Phase.RECEIVED if received or entry.topic is None else Phase.SENT
            if seq > after:
                self._progress.begin(seq)
            self._context.window.add(entry)
