"""The remotes of `leafnodes { remotes }`: one supervisor each, and the runner that turns an open stream into a link.

An attempt begins over the bare stream, because only the hub's first INFO tells whether TLS comes next. From then on the
link uses the same transports as every connection of the broker.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING

import trio
from msgspec.structs import replace

from eyot_daemon.auth.login import Peer
from eyot_daemon.config.check import account_names
from eyot_daemon.config.leaf import LeafUrl, RemoteOptions
from eyot_daemon.leaf.credentials import CredentialsError, credentials_for, out_of_date, token_expiry_s
from eyot_daemon.leaf.link import LeafConnection
from eyot_daemon.leaf.listener import leaf_limits
from eyot_daemon.leaf.sockets import limit_unsent
from eyot_daemon.net.counted_stream import CountedStream
from eyot_daemon.net.socket_transport import SocketTransport
from eyot_daemon.net.stream_transport import StreamTransport
from eyot_daemon.net.tls_checks import check_certificate
from eyot_daemon.net.tls_context import TlsError, client_context
from eyot_daemon.net.tls_transport import TlsTransport, records_of
from eyot_daemon.net.transport import CLIENT_CLOSED, INTERNAL_ERROR, READ_ERROR, SERVER_SHUTDOWN, Session, Transport
from eyot_daemon.net.websocket_upgrade import UpgradeError
from eyot_daemon.router.leaf_links import LeafLinks
from eyot_daemon.turn.backpressure import Gate
from eyot_serving.tls_alert import handshake
from eyot_sync.leaf.compression import LeafCompression
from eyot_sync.leaf.errors import AUTHORIZATION_VIOLATION, USER_EXPIRED
from eyot_sync.leaf.events import LeafEvent, LeafOptions, LeafTimes, Role, TlsRequired
from eyot_sync.leaf.session import LeafSession
from eyot_sync.leaf.state import State
from eyot_sync.link.dialer import Dialer, TcpDialer
from eyot_sync.link.ports import LinkEnd
from eyot_sync.link.state import LinkPhase, LinkState
from eyot_sync.link.supervisor import LinkSupervisor, RemoteSpec
from eyot_sync.link.urls import LinkAddress
from eyot_sync.policy.budget import CONNECTION_BYTES
from eyot_sync.policy.stream_gate import LOOK_AGAIN_S, Hold

if TYPE_CHECKING:
    from eyot_daemon.net.websocket_client import WebSocketClientStream

log = logging.getLogger("eyot.leaf")

_FIRST_READ_BYTES = 64 * 1024
_TLS_TIMEOUT_S = 2.0
# On top of the dial timeout: an HTTP request and its answer.
_WEBSOCKET_S = 2.0
WEBSOCKET_SCHEMES = ("ws", "wss")


class LeafRemotes:
    """All remotes of the server. `dialer` opens the streams (memory in tests)."""

    def __init__(
        self,
        links: LeafLinks[LeafConnection],
        dialer: Dialer | None = None,
        *,
        remotes: Iterable[RemoteOptions] | None = None,
    ) -> None:
        self.links = links
        broker = links.broker
        options = broker.options
        self._dialer = dialer or TcpDialer(broker.rng)
        self.supervisors: list[LinkSupervisor] = []
        self._scopes: dict[LinkSupervisor, trio.CancelScope] = {}
        self._remotes: dict[LinkSupervisor, RemoteOptions] = {}
        self._numbers: dict[LinkSupervisor, int] = {}
        for remote in options.leafnodes.remotes if remotes is None else remotes:
            self._add(remote)

    def _add(self, remote: RemoteOptions) -> LinkSupervisor:
        links = self.links
        broker = links.broker
        options = broker.options
        # The lowest free number: a remote that a reload changes keeps its name, which pages and metrics use.
        number = next(free for free in count() if free not in self._numbers.values())
        spec = RemoteSpec(
            name=f"{remote.account}@{remote.urls[0].host}:{remote.urls[0].port}#{number}",
            account=remote.account,
            addresses=tuple(LinkAddress(url.host, url.port, url.scheme, url.path) for url in remote.urls),
            randomize=not remote.no_randomize,
            ignore_discovered=remote.ignore_discovered_servers,
            dial_timeout_s=remote.dial_timeout_s,
            reconnect_s=options.leafnodes.reconnect_delay_s,
            error_reports=options.connect_error_reports,
        )
        runner = RemoteRunner(links, remote)
        supervisor = LinkSupervisor(
            spec,
            dialer=self._dialer,
            runner=runner,
            clock=broker.clock,
            rng=broker.rng,
            gate=lambda: self._hold(remote),
        )
        links.metered[spec.name] = lambda: broker.sync.metered_status(remote)
        if remote.credentials:
            links.token_expiry_s[spec.name] = lambda: token_expiry_s(remote.credentials)
        if remote.disabled:
            supervisor.state.phase = LinkPhase.DISABLED
        self._numbers[supervisor] = number
        self._remotes[supervisor] = remote
        self.supervisors.append(supervisor)
        links.remotes.append(supervisor.state)
        return supervisor

    def _hold(self, remote: RemoteOptions) -> Hold | None:
        """Return what keeps a remote from being dialled: its account was deleted, or a policy; None: nothing."""
        broker = self.links.broker
        if remote.account not in account_names(broker.options):
            return Hold(f"there is no account {remote.account}, push its JWT", LOOK_AGAIN_S)
        return broker.sync.remote_hold(remote)

    def start(self, nursery: trio.Nursery) -> None:
        """Begin to dial; each remote is a task of `nursery`."""
        for supervisor in self.supervisors:
            self._begin(supervisor, nursery)

    def _begin(self, supervisor: LinkSupervisor, nursery: trio.Nursery) -> None:
        if supervisor.state.phase is not LinkPhase.DISABLED:
            scope = self._scopes[supervisor] = trio.CancelScope()
            nursery.start_soon(self._supervise, supervisor, scope)

    async def _supervise(self, supervisor: LinkSupervisor, scope: trio.CancelScope) -> None:
        with scope:
            await supervisor.run()

    def update(self, remotes: Iterable[RemoteOptions], nursery: trio.Nursery) -> None:
        """Apply a reload: end links to removed or changed remotes, connect to new ones, leave the others alone."""
        wanted = list(remotes)
        for supervisor in tuple(self.supervisors):
            remote = self._remotes[supervisor]
            if remote in wanted:
                wanted.remove(remote)
                if supervisor.state.waiting:
                    supervisor.wake()  # the policy that made it wait may be gone
                continue
            scope = self._scopes.pop(supervisor, None)
            if scope is not None:
                scope.cancel()
            del self._remotes[supervisor], self._numbers[supervisor]
            self.supervisors.remove(supervisor)
            self.links.remotes.remove(supervisor.state)
            self.links.metered.pop(supervisor.state.name, None)
            self.links.token_expiry_s.pop(supervisor.state.name, None)
            log.info("Reloaded: LeafNode Remote %s removed", _spoken(remote))
        for remote in wanted:
            self._begin(self._add(remote), nursery)
            log.info("Reloaded: LeafNode Remote %s added", _spoken(remote))

    def stop(self) -> None:
        """End all links to hubs and connect no more."""
        for scope in self._scopes.values():
            scope.cancel()

    def accounts_changed(self) -> None:
        """Connect now where a supervisor waited for its account."""
        for supervisor in self.supervisors:
            if supervisor.state.waiting:
                supervisor.wake()

    def network_changed(self) -> None:
        """Connect now where a supervisor waits for the network."""
        for supervisor in self.supervisors:
            supervisor.network_changed()

    def reconnect(self, name: str) -> str:
        """Connect the remote of this name now, in place of its present link if it has one; return why not, "" if it does."""
        supervisor = next((each for each in self.supervisors if each.state.name == name), None)
        if supervisor is None:
            return "there is no remote of this name: only the side that connects can reconnect"
        state = supervisor.state
        if state.phase is LinkPhase.DISABLED:
            return "the configuration disables this remote"
        if state.waiting:
            return f"a policy keeps the link down: {state.waiting}"
        if state.phase in (LinkPhase.DIALING, LinkPhase.HANDSHAKE):
            return ""  # it is connecting
        for link in tuple(self.links.connections.values()):
            if link.state is state:
                link.end_for_now("an operator asked to reconnect")
        supervisor.wake()
        return ""


class RemoteRunner:
    """Runs the connections of one remote."""

    def __init__(self, links: LeafLinks[LeafConnection], remote: RemoteOptions) -> None:
        self.links = links
        self.remote = remote

    def _times(self) -> LeafTimes:
        """Return the session's times; a metered link sends PING as its policy configures."""
        times = self.links.times(first_info_s=self.remote.first_info_timeout_s)
        policy = self.links.broker.sync.remote(self.remote)
        if policy is None or policy.metered is None:
            return times
        interval_s = policy.metered.ping_interval_s
        return replace(times, ping_interval_s=interval_s, silence_max_s=3 * interval_s)

    @property
    def _is_metered(self) -> bool:
        policy = self.links.broker.sync.remote(self.remote)
        return policy is not None and policy.metered is not None

    async def run_link(
        self,
        stream: trio.abc.Stream,
        address: LinkAddress,
        state: LinkState,
        learn: Callable[[Iterable[str]], None],
    ) -> LinkEnd:
        """Run one connection until it ends. The stream is closed in any case."""
        try:
            link = self._open(stream, address, state, learn)
        except CredentialsError as error:
            await trio.aclose_forcefully(stream)
            return LinkEnd(str(error), established=False)
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        try:
            transport = await self._begin(link, stream, address)
            if transport is not None:
                await self._run(link, transport)
        except OSError as error:
            link.lost(error.strerror or str(error))
        except Exception:
            link.lost(INTERNAL_ERROR)
            raise
        except BaseException:
            link.lost(SERVER_SHUTDOWN)
            raise
        finally:
            try:
                await trio.aclose_forcefully(stream)
            finally:
                link.release()
        reason = link.end.reason
        if AUTHORIZATION_VIOLATION in reason or USER_EXPIRED in reason:
            late = out_of_date(self.remote, self.links.broker.clock.now_ns() / 1e9)
            reason += late and f" ({late})"
        return LinkEnd(reason, established=link.established, retry_after_s=link.end.retry_after_s)

    def _open(
        self, stream: trio.abc.Stream, address: LinkAddress, state: LinkState, learn: Callable[[Iterable[str]], None]
    ) -> LeafConnection:
        links, remote = self.links, self.remote
        broker = links.broker
        options = LeafOptions(
            role=Role.SOLICIT,
            client_id=broker.next_cid(),
            times=self._times(),
            message_bytes_max=broker.options.max_pending,
            compression=self._compression(address),
            isolate=remote.isolate,
            default_js_domains=dict(broker.options.default_js_domain),
            account=remote.account,
            is_system=links.account_named(remote.account).is_system,
            is_hub=remote.hub,
            credentials=credentials_for(remote, self._url(address)),
            deny_imports=remote.deny_imports,
            deny_exports=remote.deny_exports,
            request_isolation=remote.request_isolation,
            asks_for_quiet=self._is_metered,
            tls_required=remote.tls is not None or address.scheme == "tls",
            tls_done=self._tls_first or address.scheme in WEBSOCKET_SCHEMES,
            websocket=address.scheme in WEBSOCKET_SCHEMES,
        )
        session = LeafSession(links.identity(), options, broker.rng)
        peer = _peer_of(stream, address)
        return LeafConnection(links, session, peer, state, learn=learn, remote=remote)

    def _compression(self, address: LinkAddress) -> LeafCompression:
        """Return the compression mode. Over WebSocket there is none but the WebSocket's own (see `LeafServer.serve_stream`)."""
        if address.scheme in WEBSOCKET_SCHEMES:
            return LeafCompression()
        return self.remote.compression.effective()

    @property
    def _tls_first(self) -> bool:
        return self.remote.tls is not None and self.remote.tls.handshake_first

    def _url(self, address: LinkAddress) -> LeafUrl:
        """Return the configured URL of an address, the first one for addresses that the hub announced."""
        for url in self.remote.urls:
            if (url.host, url.port) == (address.host, address.port):
                return url
        return self.remote.urls[0]

    async def _begin(self, link: LeafConnection, stream: trio.abc.Stream, address: LinkAddress) -> Transport | None:
        """Start a link: the hub's INFO, and TLS if required. None: it ended before."""
        clock = self.links.broker.clock
        link.policies.on_wire(CONNECTION_BYTES)
        stream = CountedStream(stream, link.policies.on_wire)
        # A tls { } block means TLS for ws:// as well, as in nats-server.
        if self._tls_first or address.scheme == "wss" or (address.scheme == "ws" and self.remote.tls is not None):
            secured = await self._secure(link, stream, address)
            if secured is None:
                return None
            stream = secured
        if address.scheme in WEBSOCKET_SCHEMES:
            socket_stream = await self._shake_hands(link, stream, address)
            if socket_stream is None:
                return None
            stream = socket_stream
        link.session.start(clock.monotonic())
        events = await _first_events(link, stream)
        wants_tls = any(isinstance(event, TlsRequired) for event in events)
        link.handle([event for event in events if not isinstance(event, TlsRequired)])
        if link.closed:
            return None
        if wants_tls:
            secured = await self._secure(link, stream, address)
            if secured is None:
                return None
            stream = secured
            link.handle(link.session.tls_established(clock.monotonic()))
        return self._transport(link, stream)

    async def _shake_hands(
        self, link: LeafConnection, stream: trio.abc.Stream, address: LinkAddress
    ) -> WebSocketClientStream | None:
        """Return the opened WebSocket; None: the link has ended, by this or by a policy meanwhile."""
        from eyot_daemon.net.websocket_client import WebSocketClientStream  # loads its library only where it is used

        websocket = WebSocketClientStream(stream)
        try:
            with trio.fail_after(self.remote.dial_timeout_s + _WEBSOCKET_S):
                await websocket.open(
                    f"{address.host}:{address.port}", address.path, compress=self.remote.ws_compression
                )
        except trio.TooSlowError:
            link.lost("no answer to the WebSocket handshake")
        except (UpgradeError, trio.BrokenResourceError) as error:
            link.lost(str(error) or READ_ERROR)
        else:
            return None if link.closed else websocket
        return None

    def _transport(self, link: LeafConnection, stream: trio.abc.Stream) -> Transport:
        broker = self.links.broker
        limits = leaf_limits(self.links)
        link.policies.counts_beneath = not isinstance(stream, CountedStream)
        if isinstance(stream, CountedStream):
            stream = stream.stream
        if isinstance(stream, trio.SocketStream):
            plain = socket.socket(fileno=stream.socket.detach())
            link.output.on_slice = limit_unsent(plain)
            return _DialledTransport(lambda spawn: SocketTransport(plain, spawn, limits, broker))
        records, beneath = records_of(stream), _socket_beneath(stream)
        if records is not None and beneath is not None:
            sock = socket.socket(fileno=beneath.socket.detach())
            link.output.on_slice = limit_unsent(sock)
            crossed = link.policies.on_wire
            return _DialledTransport(
                lambda spawn: TlsTransport(
                    sock, records, spawn, limits, broker, crossed=crossed, why_broken=_alert_of_the_hub
                )
            )
        if isinstance(stream, trio.SSLStream):
            link.output.on_slice = _follow(stream.transport_stream)
        return _DialledStream(stream, limits, broker)

    async def _run(self, link: LeafConnection, transport: Transport) -> None:
        link.attach(transport)
        link.start()
        self.links.broker.flush()
        await transport.run(link)

    async def _secure(
        self, link: LeafConnection, stream: trio.abc.Stream, address: LinkAddress
    ) -> trio.SSLStream[trio.abc.Stream] | None:
        """Return the stream within TLS; None: the link has ended, by this or by a policy meanwhile."""
        options = self.remote.tls
        try:
            context = client_context(options)
            secured = trio.SSLStream(stream, context, server_hostname=self._tls_name(address), https_compatible=True)
            with trio.fail_after(options.timeout_s if options is not None else _TLS_TIMEOUT_S):
                await handshake(secured)
            if options is not None:
                check_certificate(options, secured)
        except trio.TooSlowError:
            link.lost("TLS handshake took too long")
        except (TlsError, trio.BrokenResourceError, ssl.SSLError, OSError) as error:
            link.lost(f"TLS handshake error: {error.__cause__ or error}")
        else:
            return None if link.closed else secured
        return None

    def _tls_name(self, address: LinkAddress) -> str:
        """Return the name for the hub's certificate: a configured host's own, else the first configured one."""
        configured = any(url.host == address.host for url in self.remote.urls)
        return address.host if configured else self.remote.urls[0].host


class _DialledStream(StreamTransport):
    """A TLS stream that reports late refusals: with TLS 1.3, a hub refuses a certificate after the handshake, seen by reads only."""

    __slots__ = ()

    def why_broken(self, error: Exception) -> str:
        cause = error.__cause__
        return _alert_of_the_hub(cause) if isinstance(cause, ssl.SSLError) else super().why_broken(error)


def _alert_of_the_hub(error: ssl.SSLError) -> str:
    """Return why TLS ended: the hub's alert, if it sent one."""
    reason = getattr(error, "reason", None)
    if isinstance(reason, str) and "ALERT_" in reason:
        return f"TLS alert of the hub: {reason.split('ALERT_', 1)[1].replace('_', ' ').lower()}"
    return CLIENT_CLOSED


Spawn = Callable[[Callable[[], Awaitable[None]]], None]


class _DialledTransport:
    """A `SocketTransport` with a nursery of its own for its tasks."""

    def __init__(self, make: Callable[[Spawn], SocketTransport]) -> None:
        self._nursery: trio.Nursery | None = None
        self._inner = make(self._spawn)

    @property
    def backlog(self) -> int:
        return self._inner.backlog

    def input_waits(self) -> bool:
        return self._inner.input_waits()

    def send(self) -> None:
        self._inner.send()

    def close(self, *, linger: bool) -> None:
        self._inner.close(linger=linger)

    def hold(self, gate: Gate) -> None:
        self._inner.hold(gate)

    def admit(self, message_bytes_max: int) -> None:
        self._inner.admit(message_bytes_max)

    async def run(self, session: Session) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await self._inner.run(session)
            nursery.cancel_scope.cancel()

    def _spawn(self, fn: Callable[[], Awaitable[None]]) -> None:
        assert self._nursery is not None
        self._nursery.start_soon(fn)


def _spoken(remote: RemoteOptions) -> str:
    """Return a remote's name for the log; URLs hide their secrets themselves."""
    urls = " ".join(f'"{url}"' for url in remote.urls)
    return f'urls=[{urls}], account="{remote.account}"'


async def _first_events(link: LeafConnection, stream: trio.abc.Stream) -> list[LeafEvent]:
    """Read until the hub's first INFO was processed, or the attempt failed."""
    session = link.session
    clock = link.links.broker.clock
    events: list[LeafEvent] = []
    try:
        while session.state is State.WAIT_INFO:
            with trio.move_on_at(session.next_deadline) as scope:
                data = await stream.receive_some(_FIRST_READ_BYTES)
            if scope.cancelled_caught:
                events += session.tick(clock.monotonic())
            elif not data:
                events.append(session.connection_lost("the peer closed the connection"))
            else:
                events += session.receive(bytes(data), clock.monotonic())
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        events.append(session.connection_lost(READ_ERROR))
    return events


def _peer_of(stream: trio.abc.Stream, address: LinkAddress) -> Peer:
    if isinstance(stream, trio.SocketStream):
        with suppress(OSError):  # reset meanwhile: the first read reports it
            host, port = stream.socket.getpeername()[:2]
            return Peer(host=host, port=port, connection_type="LEAFNODE")
    return Peer(host=address.host, port=address.port, connection_type="LEAFNODE")


def _socket_beneath(stream: trio.abc.Stream) -> trio.SocketStream | None:
    """Return the socket right below TLS, None where there is something between or no TLS."""
    if not isinstance(stream, trio.SSLStream):
        return None
    beneath = stream.transport_stream
    inner = beneath.stream if isinstance(beneath, CountedStream) else beneath
    return inner if isinstance(inner, trio.SocketStream) else None


def _follow(stream: trio.abc.Stream) -> Callable[[int], None] | None:
    """`limit_unsent` for a socket that stays Trio's: a duplicate descriptor shares its options."""
    inner = stream.stream if isinstance(stream, CountedStream) else stream
    if not isinstance(inner, trio.SocketStream):
        return None
    try:
        return limit_unsent(socket.socket(fileno=socket.dup(inner.socket.fileno())))
    except OSError:
        return None  # no descriptor is left: the link works without
