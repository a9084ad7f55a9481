"""One bridge: its link to the remote, the streams that it forwards, and the topics that it takes in.

The link's supervisor (`eyot_sync.link`) dials as for leaf links: back-off, windows, budgets. A connection is two tasks: one
reads, one writes. Each entry from outside is a turn. What is on its way (`window`) outlives connections.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import trio

from eyot_daemon.bridge.counters import BridgeCounters
from eyot_daemon.bridge.forwarder import ForwardContext, Forwarder
from eyot_daemon.bridge.incoming import Incoming, IncomingContext, own_id
from eyot_daemon.bridge.login import LoginError, login_of
from eyot_daemon.bridge.transport import TransportError, open_transport
from eyot_daemon.net.counted_stream import CountedStream
from eyot_daemon.router.sync_control import LinkGate
from eyot_sync.bridge.closings import Closings
from eyot_sync.bridge.connection import V5, V311, BridgeConnection, ConnectionOptions
from eyot_sync.bridge.errors import remedy
from eyot_sync.bridge.events import Arrived, Ended, Established, Event, FilterRefused, Released, Settled
from eyot_sync.bridge.topic_rules import EVERYTHING, InRules, OutRules, subscription_of
from eyot_sync.bridge.turns import Turns
from eyot_sync.bridge.window import Entry, Phase, Window
from eyot_sync.link.pacing import SliceSizer
from eyot_sync.link.ports import LinkEnd
from eyot_sync.link.supervisor import LinkSupervisor, RemoteSpec
from eyot_sync.link.urls import LinkAddress
from eyot_sync.policy.budget import CONNECTION_BYTES
from eyot_sync.policy.stream_gate import LOOK_AGAIN_S
from eyot_wire.mqtt.reason_codes import ReasonCode
from eyot_wire.quoting import printable

if TYPE_CHECKING:
    from eyot_daemon.config.bridges import BridgeOptions
    from eyot_daemon.jetstream.account import JetStreamAccount
    from eyot_daemon.mqtt.sessions import AccountSessions
    from eyot_daemon.router.broker import Broker
    from eyot_sync.link.dialer import Dialer
    from eyot_sync.link.state import LinkState

log = logging.getLogger("eyot.bridge")

_READ_BYTES = 64 * 1024
#: Room for topic and properties beside the largest payload.
_PACKET_OVERHEAD = 64 * 1024
#: What may be on its way without acknowledgement, bytes.
INFLIGHT_BYTES_MAX = 4 << 20
#: How often a bridge looks for streams that were created or deleted, seconds.
LOOK_FOR_STREAMS_S = 1.0
#: The last words of a connection leave within this time, seconds.
_LAST_WORDS_S = 1.0
_QOS2 = 2
_JETSTREAM_CHANGED = "JetStream of the account went off or on"
#: A remote that does not let the bridge in is asked again after this many times the usual interval.
REFUSED_PAUSES = 10
LOGIN_REFUSED = frozenset(
    {
        ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
        ReasonCode.BAD_USER_NAME_OR_PASSWORD,
        ReasonCode.NOT_AUTHORIZED,
        ReasonCode.BANNED,
        ReasonCode.BAD_AUTHENTICATION_METHOD,
    }
)


class Bridge:
    """One entry of `eyot { bridges { } }`. `LinkRunner` for its supervisor.

    `jetstream` finds JetStream of the account, `sessions` the MQTT sessions of the account (for incoming topics only).
    """

    def __init__(
        self,
        broker: Broker,
        options: BridgeOptions,
        dialer: Dialer,
        *,
        env: Mapping[str, str],
        jetstream: Callable[[], JetStreamAccount | None],
        sessions: Callable[[], AccountSessions],
    ) -> None:
        self.options = options
        self.broker = broker
        self.counters = BridgeCounters()
        self._env = env
        self._jetstream = jetstream
        self._window = Window(options.inflight_max, INFLIGHT_BYTES_MAX, broker.rng.randrange(1 << 16))
        self._turns = Turns()
        self._sizer = SliceSizer()
        self._gate = LinkGate(broker.sync, options.account, options.remote)
        self._level = V311 if options.protocol_version == "3.1.1" else V5
        self._connection: BridgeConnection | None = None
        self._wake = trio.Event()
        self._resend: deque[Entry] = deque()
        self._outstanding = 0
        self._closings = Closings()
        self._ended: Ended | None = None
        self._scope: trio.CancelScope | None = None
        self._closed = False
        self.supervisor = self._supervisor(dialer)
        self.state: LinkState = self.supervisor.state
        context = ForwardContext(
            broker,
            options,
            OutRules(options.out or (EVERYTHING,)),
            self._window,
            self.counters,
            self.state,
            own_id(options.name),
            self.wake,
            self._written,
        )
        self._forwarders = {name: Forwarder(context, name) for name in options.streams}
        self._sessions = sessions
        self._incoming = self._new_incoming() if options.incoming else None
        self._look_for_streams()

    def _new_incoming(self) -> Incoming:
        options = self.options
        account, rules = self.broker.accounts[options.account], InRules(options.incoming)
        context = IncomingContext(account, self._sessions(), options, rules, self.counters, self.state, self.wake)
        return Incoming(context)

    def _supervisor(self, dialer: Dialer) -> LinkSupervisor:
        options, broker = self.options, self.broker
        spec = RemoteSpec(
            name=f"bridge:{options.name}",
            account=options.account,
            addresses=tuple(LinkAddress(url.host, url.port, url.scheme, url.path) for url in options.urls),
            dial_timeout_s=options.dial_timeout_s,
            reconnect_s=options.reconnect_s,
            error_reports=broker.options.connect_error_reports,
            title=f"Bridge {options.name}",
        )
        return LinkSupervisor(
            spec,
            dialer=dialer,
            runner=self,
            clock=broker.clock,
            rng=broker.rng,
            gate=lambda: broker.sync.remote_hold(options.remote),
            remedy=remedy,
        )

    # -- life cycle ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the bridge linked until it is closed."""
        with trio.CancelScope() as self._scope:
            if not self._closed:
                await self.supervisor.run()

    def close(self) -> None:
        """End: record what is acknowledged, and leave the streams."""
        self._closed = True
        for forwarder in self._forwarders.values():
            forwarder.leave()
        if self._scope is not None:
            self._scope.cancel()

    def _look_for_streams(self) -> None:
        """Follow streams that are created and deleted."""
        if self._closed:
            return
        jetstream = self._jetstream()
        for name, forwarder in self._forwarders.items():
            if forwarder.follow(None if jetstream is None else jetstream.streams.get(name)):
                self._resend = deque(entry for entry in self._resend if entry.stream != name)
        self.broker.timers.call_later(LOOK_FOR_STREAMS_S, self._look_for_streams)

    def missing(self) -> list[str]:
        """Return the streams that do not exist at present."""
        jetstream = self._jetstream()
        there = () if jetstream is None else jetstream.streams
        return [name for name, forwarder in self._forwarders.items() if not forwarder.attached and name not in there]

    @property
    def queued_bytes(self) -> int:
        """Bytes that wait to be written."""
        return 0 if self._connection is None else self._connection.out_bytes

    def wake(self) -> None:
        """Have the writing task look for something to send."""
        self._wake.set()

    @property
    def _takes_in_no_more(self) -> bool:
        return self._incoming is not None and self._incoming.is_over(self.broker.accounts.get(self.options.account))

    def jetstream_changed(self) -> None:
        """End a connection that can take in nothing any more; the next one takes in with JetStream as it is then."""
        connection = self._connection
        if self._takes_in_no_more and connection is not None and not connection.ended:
            self.handle(connection, self._end(connection, _JETSTREAM_CHANGED))
            self.wake()

    # -- a connection --------------------------------------------------------------------------------------------------

    async def run_link(
        self,
        stream: trio.abc.Stream,
        address: LinkAddress,
        state: LinkState,
        learn: Callable[[Iterable[str]], None],
    ) -> LinkEnd:
        """Run one connection until it ends. The stream is closed in any case."""
        established = False
        try:
            self._ended = None
            self._gate.crossed(CONNECTION_BYTES)
            counted = CountedStream(stream, self._crossed)
            login = login_of(self.options, self._env)
            await self._ready_to_take_in()
            opened = await open_transport(counted, address, self.options)
            if self._takes_in_no_more:
                raise TransportError(_JETSTREAM_CHANGED)
            connection = self.begin_connection(login.user, login.password)
            await self._serve(opened, connection)
            established = connection.established
            self._choose_level(connection)
            self._look_for_refused()
            reason = self._ended.text if self._ended is not None else "the connection ended"
        except (LoginError, TransportError) as error:
            reason = str(error)
        finally:
            self.connection_over()
            await trio.aclose_forcefully(stream)
        refused = self._ended is not None and self._ended.reason in LOGIN_REFUSED
        pause_s = REFUSED_PAUSES * self.options.reconnect_s if refused and not established else None
        return LinkEnd(printable(reason), established=established, retry_after_s=pause_s)

    async def _ready_to_take_in(self) -> None:
        if self._incoming is None:
            return
        if self._takes_in_no_more and self.options.account in self.broker.accounts:
            self._incoming = self._new_incoming()
        await self._incoming.ready.wait()
        if self._incoming.failure:
            raise TransportError(f"nothing can be taken in: {self._incoming.failure}")

    def begin_connection(self, user: str | None, password: bytes | None) -> BridgeConnection:
        """Return a new connection, which has sent CONNECT."""
        connection = self._connection = self._connect(user, password)
        connection.start(self.broker.clock.monotonic())
        return connection

    def _connect(self, user: str | None, password: bytes | None) -> BridgeConnection:
        options, server = self.options, self.broker.options
        policy = self.broker.sync.remote(options.remote)
        keep_alive_s = options.keep_alive_s
        if policy is not None and policy.metered is not None:
            keep_alive_s = max(keep_alive_s, int(policy.metered.ping_interval_s))
        connection_options = ConnectionOptions(
            client_id=options.client_id_at(self.broker.server_name),
            level=self._level,
            username=user,
            password=password,
            keep_alive_s=keep_alive_s,
            session_expiry_s=options.session_expiry_s,
            subscriptions=tuple(
                (subscription_of(rule), rule.qos if rule.qos >= 0 else options.qos) for rule in options.incoming
            ),
            receive_maximum=options.inflight_max,
            packet_bytes_max=server.max_payload + _PACKET_OVERHEAD,
        )
        return BridgeConnection(connection_options, self._window.next_id, self._window.free_id)

    async def _serve(self, stream: trio.abc.Stream, connection: BridgeConnection) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read, stream, connection)
            await self._write(stream, connection)
            nursery.cancel_scope.cancel()

    async def _read(self, stream: trio.abc.Stream, connection: BridgeConnection) -> None:
        while not connection.ended:
            if self._incoming is not None and self._incoming.full and connection.options.level != V5:
                await self._incoming.room()
            try:
                data = await stream.receive_some(_READ_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
                self.handle(connection, connection.lost(_why_broken(error), by_remote=True))
            else:
                if data:
                    self.state.last_heard_ns = self.broker.clock.now_ns()
                    self.state.traffic.wire_in_bytes += len(data)
                    self.handle(connection, connection.receive(data, self.broker.clock.monotonic()))
                else:
                    self.handle(connection, connection.lost("the remote closed the connection", by_remote=True))
            self.broker.end_own_turn()

    async def _write(self, stream: trio.abc.Stream, connection: BridgeConnection) -> None:
        """Send until the connection ends; everything that waits for time is looked at here."""
        clock = self.broker.clock
        while True:
            self._wake = trio.Event()
            now = clock.monotonic()
            if self._incoming is not None and self._incoming.full:
                connection.heard(now)
            self.handle(connection, connection.tick(now))
            hold = self._gate.link_hold()
            if hold is not None:
                self.handle(connection, self._end(connection, hold.reason))
            wait_s = self.pump(connection)
            self.broker.end_own_turn()
            data = connection.take_output()
            if data:
                await self._send(stream, connection, data)
                continue
            if connection.ended:
                return
            wait_s = min(wait_s, max(0.0, connection.next_deadline - now), self._look_again_s())
            with trio.move_on_after(wait_s):
                await self._wake.wait()

    async def _send(self, stream: trio.abc.Stream, connection: BridgeConnection, data: bytes) -> None:
        clock = self.broker.clock
        connection.sent(clock.monotonic())
        self.state.traffic.wire_out_bytes += len(data)
        began = clock.monotonic()
        try:
            with trio.move_on_after(_LAST_WORDS_S if connection.ended else float("inf")):
                await stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            self.handle(connection, connection.lost(_why_broken(error)))
        self._sizer.sent(len(data), clock.monotonic() - began)

    def _look_again_s(self) -> float:
        """Return when policies are checked again: windows close, and configurations change."""
        if not self._gate.is_restricted:
            return LOOK_AGAIN_S
        return min(LOOK_AGAIN_S, max(0.1, self._gate.ends_at_s() - self.broker.clock.now_ns() / 1e9))

    def _end(self, connection: BridgeConnection, reason: str) -> list[Event]:
        """End the connection for a reason of ours, such as a policy that holds the link."""
        if connection.established and not connection.ended:
            connection.disconnect()
        return connection.lost(reason)

    def _crossed(self, size: int) -> None:
        """Count bytes on the wire, below TLS and WebSocket."""
        if self._gate.crossed(size) is not None:
            self.wake()

    def connection_over(self) -> None:
        """Note that the connection ended."""
        self._connection = None
        self._window.connection_ended()
        # The window has what has an identifier; the next connection sends the rest behind it.
        self._resend = deque(entry for entry in self._resend if not entry.packet_id)
        self._outstanding = 0
        if self._incoming is not None:
            self._incoming.ended()
        self.broker.end_own_turn()

    def _choose_level(self, connection: BridgeConnection) -> None:
        """Fall back to 3.1.1 if the remote does not speak 5, and the other way round if neither is answered."""
        if connection.established or self.options.protocol_version != "auto":
            return
        reason = self._ended.reason if self._ended is not None else None
        if reason in (None, ReasonCode.UNSUPPORTED_PROTOCOL_VERSION):
            # Old brokers close without an answer.
            self._level = V311 if self._level == V5 else V5
            log.info("Bridge %s: tries MQTT %s next", self.options.name, "5.0" if self._level == V5 else "3.1.1")

    def _look_for_refused(self) -> None:
        """Treat the message on which the remote closes the connection, again and again, as refused."""
        if self._ended is None or not self._ended.by_remote or not self._closings.closed(self._outstanding):
            return
        entry = next((each for each in self._window if each.dup and each.phase is Phase.SENT), None)
        forwarder = None if entry is None else self._forwarders.get(entry.stream)
        if entry is not None and forwarder is not None:
            self._window.remove(entry.packet_id)
            forwarder.refused(entry, ReasonCode.UNSPECIFIED_ERROR, "it closes the connection")

    # -- events --------------------------------------------------------------------------------------------------------

    def handle(self, connection: BridgeConnection, events: list[Event]) -> None:
        """Do what events of a connection ask for."""
        for event in events:
            if isinstance(event, Settled):
                self._settled(connection, event)
            elif isinstance(event, Arrived):
                assert self._incoming is not None or not self.options.incoming
                if self._incoming is not None:
                    self._incoming.arrived(connection, event.publish)
                else:
                    self._unwanted(connection, event)
            elif isinstance(event, Released):
                if self._incoming is not None:
                    self._incoming.released(connection, event.packet_id)
                else:
                    connection.pubcomp(event.packet_id)
            elif isinstance(event, Established):
                self._established(connection, event)
            elif isinstance(event, FilterRefused):
                self._filter_refused(event)
            else:
                self._ended = event
        if events:
            self.wake()

    def _established(self, connection: BridgeConnection, event: Established) -> None:
        options, state = self.options, self.state
        state.came_up(self.broker.clock.now_ns())
        version = "5.0" if connection.options.level == V5 else "3.1.1"
        state.peer_name, state.peer_version = options.name, f"MQTT {version}"
        state.account = options.account
        session = "resumes its session" if event.session_present else "new session"
        log.info("Bridge %s: connected to %s, MQTT %s, %s", options.name, state.address, version, session)
        self._closings.began()
        self._window.receive_maximum = 1 if self._closings.one_at_a_time else event.limits.receive_maximum
        self._resend.extendleft(reversed(self._window.resume(session_present=event.session_present)))
        self._outstanding = 0
        if self._incoming is not None:
            self._incoming.began(session_present=event.session_present)

    def _unwanted(self, connection: BridgeConnection, event: Arrived) -> None:
        """Acknowledge what an earlier configuration subscribed to, and drop it, counted."""
        self.counters.refused += 1
        packet = event.publish
        if packet.qos == 1:
            connection.puback(packet.packet_id)
        elif packet.qos:
            connection.pubrec(packet.packet_id)

    def _filter_refused(self, event: FilterRefused) -> None:
        words = f"{event.reason.name.replace('_', ' ').lower()} (0x{event.reason:02X})"
        text = f"the remote refuses the subscription to {event.filter}: {words} {event.text}".rstrip()
        log.error("Bridge %s: %s", self.options.name, printable(text))
        self.state.failed(printable(text), "allow it at the remote")

    def _settled(self, connection: BridgeConnection, event: Settled) -> None:
        self._closings.progressed()
        self._window.receive_maximum = connection.limits.receive_maximum
        entry = self._window.get(event.packet_id)
        failed = event.reason >= ReasonCode.UNSPECIFIED_ERROR
        if event.kind == "pubrec" and (entry is None or entry.qos != _QOS2):
            if not failed:
                connection.pubrel(event.packet_id)  # clears an identifier that means nothing here
            return
        if entry is None or (event.kind == "puback") != (entry.qos == 1):
            return
        forwarder = self._forwarders.get(entry.stream)
        if event.kind == "pubrec" and not failed:
            entry.phase = Phase.RECEIVED
            if forwarder is not None:
                forwarder.plan(entry)
            return
        self._window.remove(event.packet_id)
        self._outstanding = max(0, self._outstanding - 1)
        if forwarder is None:
            return
        if failed and event.kind != "pubcomp":
            forwarder.refused(entry, event.reason, event.text)
        else:
            forwarder.done(entry)

    # -- sending -------------------------------------------------------------------------------------------------------

    def pump(self, connection: BridgeConnection) -> float:
        """Fill the output with what may be sent; return when to look again, seconds."""
        now = self.broker.clock.monotonic()
        if not connection.established or connection.ended:
            return float("inf")
        self._pump_again(connection)
        wait_s = float("inf")
        while not self._resend and self._window.room and connection.out_bytes < self._sizer.slice_bytes:
            ready: list[tuple[str, int]] = []
            wait_s = float("inf")
            for name, forwarder in self._forwarders.items():
                if not forwarder.has_next(now):
                    forwarder.held = ""
                    wait_s = min(wait_s, forwarder.wait_s(now))
                    continue
                key = name.encode()
                hold = self._gate.hold(key)
                forwarder.held = "" if hold is None else hold.reason
                if hold is None:
                    ready.append((name, self._gate.stream(key).policy.priority))
                else:
                    wait_s = min(wait_s, max(hold.wait_s, 0.01), LOOK_AGAIN_S)
            if not ready:
                break
            name = self._turns.pick(ready)
            entry = self._forwarders[name].next()
            if entry is not None:
                entry.qos = min(entry.qos, connection.limits.qos_max)
                self._turns.sent(name, entry.size)
                self._gate.delivering(name.encode(), entry.size)
                self._begin(connection, entry)
        return wait_s

    def _pump_again(self, connection: BridgeConnection) -> None:
        """Send what an earlier connection left, as far as the remote takes it, before anything new."""
        while self._resend and connection.out_bytes < self._sizer.slice_bytes:
            if self._outstanding >= self._window.receive_maximum:
                return
            entry = self._resend.popleft()
            if not entry.packet_id and entry.topic is None:
                forwarder = self._forwarders.get(entry.stream)
                if forwarder is not None:
                    forwarder.done(entry)
            elif not entry.packet_id:
                entry.qos = min(entry.qos, connection.limits.qos_max)
                self._begin(connection, entry)
            elif self._window.get(entry.packet_id) is not entry:
                continue
            elif not entry.durable:
                continue  # it is sent when its identifier is on flash
            elif entry.phase is Phase.RECEIVED:
                self._outstanding += 1
                connection.pubrel(entry.packet_id)
            else:
                self._publish(connection, entry)

    def _begin(self, connection: BridgeConnection, entry: Entry) -> None:
        """Send a message for the first time."""
        if entry.qos:
            self._window.add(entry)
        if entry.qos == _QOS2:
            self._forwarders[entry.stream].plan(entry)
        else:
            self._publish(connection, entry)

    def _publish(self, connection: BridgeConnection, entry: Entry) -> None:
        forwarder = self._forwarders[entry.stream]
        assert entry.topic is not None
        sent = connection.publish(
            entry.packet_id,
            entry.topic,
            entry.payload,
            qos=entry.qos,
            retain=entry.retain,
            dup=entry.dup,
            properties=entry.properties,
        )
        if not sent:
            self._window.remove(entry.packet_id)
            forwarder.too_large(entry)
            return
        entry.phase, entry.dup = Phase.SENT, True
        self.state.traffic.sent(1, len(entry.payload))
        if entry.qos:
            self._outstanding += 1
            self._closings.sent()
        else:
            forwarder.done(entry)

    def _written(self, entries: list[Entry]) -> None:
        """Send what waited for its identifier to be on flash: PUBLISH, or PUBREL."""
        connection = self._connection
        is_up = connection is not None and connection.established and not connection.ended
        for entry in entries:
            if self._window.get(entry.packet_id) is not entry:
                continue
            entry.durable = True
            if connection is None or not is_up:
                continue  # the next connection sends it
            if entry.phase is Phase.RECEIVED:
                connection.pubrel(entry.packet_id)
            elif entry.phase is Phase.PLANNED:
                self._publish(connection, entry)
        self.wake()


def _why_broken(error: Exception) -> str:
    """Return a broken transport's reason; with TLS 1.3 a refused certificate shows here."""
    cause = error.__cause__
    reason = getattr(cause, "reason", None)
    if isinstance(reason, str) and "ALERT_" in reason:
        return f"TLS alert of the remote: {reason.split('ALERT_', 1)[1].replace('_', ' ').lower()}"
    if isinstance(cause, OSError) and cause.strerror:
        return f"connection lost: {cause.strerror}"
    return "connection lost"
