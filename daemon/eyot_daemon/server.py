"""The running daemon: its parts, the order they start and stop in, and what signals do to them."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import trio

from eyot_daemon.auth.account_tokens import TokenStoreError
from eyot_daemon.auth.authenticators import Authenticators, trust_of
from eyot_daemon.auth.callout import Callout, new_id, server_key
from eyot_daemon.client.clients import Clients
from eyot_daemon.client.lame_duck import let_clients_go
from eyot_daemon.client.listener import ClientListener
from eyot_daemon.config.flags import UsageError
from eyot_daemon.config.options import Options
from eyot_daemon.config.read import Loaded
from eyot_daemon.leaf.service import LeafService
from eyot_daemon.monitor.service import MonitoringService
from eyot_daemon.monitor.system_services import SystemServices
from eyot_daemon.net import early_listen
from eyot_daemon.net.cert_dates import out_of_date
from eyot_daemon.net.listener import TcpListener
from eyot_daemon.net.tls_context import TlsError, server_context
from eyot_daemon.process.banner import log_banner
from eyot_daemon.process.collector import settle
from eyot_daemon.process.logs import Logs
from eyot_daemon.process.notify import Notifier
from eyot_daemon.process.ports_file import Ports, urls
from eyot_daemon.process.signals import watch_signals
from eyot_daemon.process.start_error import StartError, cannot_listen
from eyot_daemon.process.state_files import StateFiles
from eyot_daemon.reload.apply import apply_options
from eyot_daemon.reload.changes import LOGGING, ReloadError, applied_lines, changed_fields
from eyot_daemon.router.account_setup import set_up_accounts
from eyot_daemon.router.broker import Broker
from eyot_wire.conf import ConfError
from eyot_wire.status import ReloadReport

if TYPE_CHECKING:
    from eyot_daemon.auth.account_fetch import AccountFetcher
    from eyot_daemon.auth.trust import Trust
    from eyot_daemon.client.websocket_listener import WebSocketListener
    from eyot_daemon.jetstream.service import JetStreamService
    from eyot_daemon.reload.claims_apply import ClaimsKeeper

log = logging.getLogger("eyot")

#: How long connections get to take their last words when the daemon stops.
CLOSING_S = 1.0
#: bcrypt checks that run at once.
BCRYPT_THREADS = 2
_POLL_S = 0.02


class Contexts(NamedTuple):
    """The TLS contexts of the listeners, made before anything of a new configuration is applied."""

    clients: ssl.SSLContext | None
    leaf_links: ssl.SSLContext | None
    websocket: ssl.SSLContext | None


class Server:
    """One daemon. `reload` reads the configuration anew, `env` is the process's environment."""

    def __init__(self, loaded: Loaded, logs: Logs, *, reload: Callable[[], Loaded], env: Mapping[str, str]) -> None:
        trust = trust_of(loaded.options)
        # In operator mode the accounts are what their tokens say.
        self.options = loaded.options if trust is None else trust.options(loaded.options)
        self._reading = loaded.reading
        self._logs = logs
        self._load_again = reload
        self._notifier = Notifier(env)
        self._stopping = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._connections: trio.Nursery | None = None
        self._client_listener: ClientListener | None = None
        self._websocket: WebSocketListener | None = None
        self._bcrypts = trio.CapacityLimiter(BCRYPT_THREADS)
        self._listeners: list[TcpListener] = []
        self._files = StateFiles()
        self.ports = Ports()
        self._lame_duck = False
        self._env = env
        self._jetstream: JetStreamService | None = None
        signs = self.options.authorization.auth_callout is not None or trust is not None
        signer = server_key() if signs else None
        self.broker = Broker(self.options, server_id=new_id() if signer is None else signer.public_key)
        self._callout = None if signer is None else Callout(self.broker, signer)
        set_up_accounts(self.broker, self.options)
        self._authenticators = Authenticators(
            self.options, trust, self._callout, self._in_background, self._account_fetcher(trust)
        )
        self.clients = Clients(self.broker, self._authenticators.clients)
        self.clients.websocket_authenticator = self._authenticators.websocket
        self._monitoring = MonitoringService(self.clients)
        self._services = SystemServices(self.clients, self)
        self._services.start()
        self._claims: ClaimsKeeper | None = None
        if trust is not None:
            self._keep_claims()
        self._leaf_service = LeafService(self.broker.links, self._authenticators.leaf)
        self._leaf_service.provide(self.broker.providers)

    async def run(self) -> None:
        """Start, serve until told to stop, stop. Raises StartError."""
        failure: StartError | None = None
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await nursery.start(watch_signals, self)
            nursery.start_soon(self.broker.timers.run, self.broker.end_own_turn)
            nursery.start_soon(self.broker.readers.run)
            try:
                async with trio.open_nursery() as connections:
                    self._connections = connections
                    self._start(nursery, connections)
                    await self._stopping.wait()
                    await self._stop(connections)
                    connections.cancel_scope.cancel()
            except* StartError as group:
                failure = _first(group)
            finally:
                self._release()
                nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        log.info("Server Exiting..")

    # -- start -----------------------------------------------------------------------------------------------------

    def _start(self, nursery: trio.Nursery, connections: trio.Nursery) -> None:
        log_banner(self.broker, self._reading)
        ports = self.ports
        self._monitoring.start(self.options, nursery, ports, self.options.eyot.control_path(self._env))
        self._start_jetstream()
        self._start_leaf_service(nursery, connections, ports)
        self._start_clients(connections, ports)
        early_listen.release()
        self._open_listeners()
        self._look_at_certificates()
        self._write_files(ports)
        log.info("Server is ready")
        self._services.events.begin_figures()
        if self._claims is not None:
            self._claims.start()
        self._start_status()
        self._notifier.ready()
        settle()
        nursery.start_soon(self._notifier.run_watchdog, lambda: True)

    def _start_status(self) -> None:
        status = self.options.eyot.status
        if status is not None:
            from eyot_daemon.monitor.device_status import StatusPublisher

            StatusPublisher(self.broker, status).start()

    def _start_jetstream(self) -> None:
        if self.options.jetstream is None:
            return
        # JetStream and the store are a third of what there is to load: only who uses them waits for them.
        from eyot_daemon.jetstream.service import JetStreamService
        from eyot_daemon.jetstream.status import provide, provide_failed
        from eyot_store.errors import StoreError

        part = JetStreamService(self.broker, self.options.jetstream, self.options.eyot.store, self._env)
        try:
            part.start()
        except OSError as error:
            text = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
            raise StartError(f"Can't start JetStream: {text}") from error
        except StoreError as error:
            if error.reason != "corrupt":
                raise StartError(f"Can't start JetStream: {error}") from error
            # Clients that need no JetStream are served; whoever watches over the server is told.
            log.error("Can't start JetStream: %s. Core NATS is served; see `eyot-check --repair %s`", error, part.path)
            part.abandon()
            provide_failed(str(part.path), str(error), self.broker.providers)
            return
        self._jetstream = part
        provide(part, self.broker.providers)

    def _start_leaf_service(self, nursery: trio.Nursery, connections: trio.Nursery, ports: Ports) -> None:
        if self._jetstream is not None:
            self.broker.sync.keep_in(self._jetstream.path)
            nursery.start_soon(self.broker.sync.run)  # not one of those that a stop waits for
        try:
            self._leaf_service.start(connections, lambda host, port: self._listen(host, port, "leafnode "))
        except TlsError as error:
            raise StartError(str(error)) from error
        if self._leaf_service.port is not None:
            ports.leafnodes = urls("nats", self.options.leafnodes.host, self._leaf_service.port)

    def _start_clients(self, connections: trio.Nursery, ports: Ports) -> None:
        listener = self._listen(self.options.host, self.options.port, "")
        self.clients.port = listener.port
        ports.nats = urls("nats", self.options.host, listener.port)
        try:
            context = None if self.options.tls is None else server_context(self.options.tls)
        except TlsError as error:
            raise StartError(str(error)) from error
        server = self._client_listener = ClientListener(self.clients, connections, context)
        self._start_websocket(connections, server, ports)
        connections.start_soon(listener.run, server.serve, connections)
        log.info("Listening for client connections on %s:%d", self.options.host, listener.port)

    def _start_websocket(self, connections: trio.Nursery, clients: ClientListener, ports: Ports) -> None:
        options = self.options.websocket
        if options is None:
            return
        # The library is loaded only where it is used.
        from eyot_daemon.client.websocket_listener import WebSocketListener

        listener = self._listen(options.host, options.port, "websocket ")
        self.clients.websocket_port = self.broker.bound["websocket"] = listener.port
        try:
            context = None if options.tls is None else server_context(options.tls)
        except TlsError as error:
            raise StartError(str(error)) from error
        leaf_links = self._leaf_service.server
        server = self._websocket = WebSocketListener(
            clients, options, tls=context, serve_leaf=None if leaf_links is None else leaf_links.serve_stream
        )
        connections.start_soon(listener.run, server.serve, connections)
        scheme = "ws" if context is None else "wss"
        ports.websocket = urls(scheme, options.host, listener.port)
        log.info("Listening for websocket clients on %s://%s:%d", scheme, options.host, listener.port)
        if context is None:
            log.warning("Websocket not configured with TLS. DO NOT USE IN PRODUCTION!")

    def _listen(self, host: str, port: int, what: str) -> TcpListener:
        try:
            listener = TcpListener.reserve(host, port)
        except OSError as error:
            raise cannot_listen(what, host, port, error) from error
        self._listeners.append(listener)
        return listener

    def _open_listeners(self) -> None:
        """Everything is there: who connects from now on is served. A TCP connection that comes about means that."""
        for listener in self._listeners:
            try:
                listener.listen()
            except OSError as error:
                raise cannot_listen("", listener.host, listener.port, error) from error
        self._monitoring.open()

    def _write_files(self, ports: Ports) -> None:
        try:
            self._files.write(self.options, ports)
        except OSError as error:
            raise StartError(f"Could not write pidfile: open {self.options.pid_file}: {error.strerror}") from error

    # -- stop ------------------------------------------------------------------------------------------------------

    async def _stop(self, connections: trio.Nursery) -> None:
        log.info("Initiating Shutdown...")
        self._services.events.shutting_down()
        self.broker.flush()
        self._notifier.stopping()
        for listener in self._listeners:
            listener.close()
        self._leaf_service.stop()
        self._stop_jetstream()
        self.clients.close_all()
        with trio.move_on_after(CLOSING_S):
            while connections.child_tasks:
                await trio.sleep(_POLL_S)

    def _release(self) -> None:
        if self._jetstream is not None:
            self._jetstream.close()
        self._monitoring.close()
        self._files.remove()

    # -- signals ---------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """INT or TERM, which mean nothing while clients are being let go."""
        if not self._lame_duck:
            self._stopping.set()

    def reopen_log(self) -> None:
        self._logs.reopen()

    def lame_duck(self) -> None:
        """USR2: take no new clients, let the old ones go one after the other, then stop."""
        if self._lame_duck or self._nursery is None:
            return
        self._lame_duck = True
        log.info("Entering lame duck mode, stop accepting new clients")
        self._services.events.lame_duck()
        for listener in self._listeners:
            listener.close()
        self._stop_jetstream()
        self._nursery.start_soon(self._let_clients_go)

    async def _let_clients_go(self) -> None:
        await let_clients_go(self.clients)
        self._stopping.set()

    def reload(self) -> str:
        """HUP: take the configuration anew, as a whole or not at all. Returns what is wrong with it, "" if nothing is."""
        wrong = ""
        self._notifier.reloading()
        try:
            loaded = self._load_again()
            trust = trust_of(loaded.options)
            if trust is not None:
                trust.keep_fetched(self._authenticators.trust)
                loaded = Loaded(trust.options(loaded.options), loaded.reading)
            changed = changed_fields(self.options, loaded.options)
            if loaded.options.authorization.auth_callout is not None and self._callout is None:
                raise ReloadError("config reload not supported for AuthCallout: it has to be there at the start")
            contexts = self._contexts(loaded.options)
            if LOGGING.intersection(changed):
                self._logs.configure(loaded.options)
        except (ConfError, UsageError, ReloadError, TlsError, TokenStoreError, OSError) as error:
            wrong = str(error)
            log.error("Failed to reload server configuration: %s", wrong)
        else:
            self._apply(loaded, trust, changed, contexts)
        self.broker.reloads = ReloadReport(os.getpid(), self.broker.reloads.count + 1, wrong)
        self._notifier.ready()
        return wrong

    def _contexts(self, new: Options) -> Contexts:
        """Certificates are read anew at every reload, for their files may have changed. Raises TlsError."""
        leaf_tls = None if new.leafnodes.port is None else new.leafnodes.tls
        websocket_tls = None if new.websocket is None else new.websocket.tls
        return Contexts(
            clients=None if new.tls is None else server_context(new.tls),
            leaf_links=None if leaf_tls is None else server_context(leaf_tls),
            websocket=None if websocket_tls is None else server_context(websocket_tls),
        )

    def _apply(self, loaded: Loaded, trust: Trust | None, changed: list[str], contexts: Contexts) -> None:
        old, new = self.options, loaded.options
        if new.port == -1:
            new = msgspec.structs.replace(new, port=old.port)
        self.options = new
        self._authenticators.take(new, trust)
        if self._client_listener is not None:
            self._client_listener.tls = contexts.clients
        if self._websocket is not None and new.websocket is not None:
            self._websocket.options, self._websocket.tls = new.websocket, contexts.websocket
        self._monitoring.renew(new)
        self.clients.websocket_authenticator = self._authenticators.websocket
        apply_options(self.clients, self._authenticators.clients, old, new)
        self._apply_jetstream(old, new)
        if self._claims is not None:
            self._claims.start()
        if self._connections is not None:
            self._leaf_service.reload(self._connections, contexts.leaf_links)
        self._files.follow(new, self.ports)
        self.broker.flush()
        for line in applied_lines(changed, new):
            log.info("%s", line)
        self._look_at_certificates()
        self.broker.config_loaded_ns = self.broker.clock.now_ns()
        digest = f" ({new.config_digest})" if new.config_digest else ""
        log.info("Reloaded server configuration%s", digest)

    def _look_at_certificates(self) -> None:
        """Warn of certificates that are out of date: peers refuse them, and that is known here only when they do."""
        now = datetime.fromtimestamp(self.broker.clock.now_ns() / 1e9, UTC)
        for line in out_of_date(self.options, now):
            log.warning("%s", line)

    def _apply_jetstream(self, old: Options, new: Options) -> None:
        if new.jetstream is None:
            self._stop_jetstream()
        elif self._jetstream is not None:
            self._jetstream.reload(new.jetstream)
        else:
            try:
                self._start_jetstream()
            except StartError as error:
                log.error("%s", error)

    def _stop_jetstream(self) -> None:
        part, self._jetstream = self._jetstream, None
        if part is not None:
            log.info("Initiating JetStream Shutdown...")
            part.stop()
            self.broker.providers.withdraw_jetstream()
            log.info("JetStream Shutdown")

    # -- operator mode ---------------------------------------------------------------------------------------------

    def _keep_claims(self) -> None:
        """Follow what becomes of the accounts' tokens."""
        # Loaded only where it is used, as everything of operator mode.
        from eyot_daemon.auth.claims_services import ClaimsServices
        from eyot_daemon.auth.operator import OperatorAuthenticator
        from eyot_daemon.reload.claims_apply import ClaimsKeeper

        def trust() -> Trust:
            assert self._authenticators.trust is not None
            return self._authenticators.trust

        self.broker.providers.account_claims = lambda name: trust().accounts.get(name)
        self._claims = ClaimsKeeper(self.clients, trust, lambda: OperatorAuthenticator(trust()), self._accounts_changed)
        if self.broker.system_account is not None:
            info = self._services.server_info
            ClaimsServices(trust, info, self._claims.changed).start(self.broker.system_account)

    def _account_fetcher(self, trust: Trust | None) -> AccountFetcher | None:
        """Who asks for accounts that are not known, if the resolver does that. A reload does not change the resolver."""
        resolver = None if trust is None else trust.operator.resolver
        if resolver is None or not resolver.fetches:
            return None
        from eyot_daemon.auth.account_fetch import AccountFetcher, PeersAsk, UrlAsk

        def known() -> Trust:
            assert self._authenticators.trust is not None
            return self._authenticators.trust

        def learned(names: list[str]) -> None:
            assert self._claims is not None
            self._claims.changed(names)

        ask = UrlAsk(resolver, self._in_background) if resolver.kind == "url" else PeersAsk(self.broker)
        return AccountFetcher(known, ask, learned)

    def _accounts_changed(self, options: Options) -> None:
        self.options = options
        if self._jetstream is not None and options.jetstream is not None:
            self._jetstream.reload(options.jetstream)

    # -- checks beside the loop ------------------------------------------------------------------------------------

    def _in_background(self, check: Callable[[], bool], then: Callable[[bool], None]) -> None:
        """Run `check` in a thread, then `then` in a turn of its own."""
        assert self._nursery is not None
        self._nursery.start_soon(self._run_in_background, check, then)

    async def _run_in_background(self, check: Callable[[], bool], then: Callable[[bool], None]) -> None:
        then(await trio.to_thread.run_sync(check, limiter=self._bcrypts))
        self.broker.flush()


def _first(group: BaseExceptionGroup[StartError]) -> StartError:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
