"""The running daemon: its services, the order they start and stop in, and what signals do to them."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from eyot_daemon.auth.account_tokens import TokenStoreError
from eyot_daemon.auth.authenticators import trust_of
from eyot_daemon.auth.callout import Callout, new_id, server_key
from eyot_daemon.bridge.service import BridgeService
from eyot_daemon.client.lame_duck import let_clients_go
from eyot_daemon.client.service import ClientService, WebSocketService
from eyot_daemon.config.flags import UsageError
from eyot_daemon.config.mqtt import MqttOptions
from eyot_daemon.config.options import Options
from eyot_daemon.config.read import Loaded
from eyot_daemon.jetstream.service import JetStreamService
from eyot_daemon.leaf.service import LeafService
from eyot_daemon.leaf.sync_service import SyncService
from eyot_daemon.monitor.device_answers import DeviceAnswers
from eyot_daemon.monitor.device_status import StatusService
from eyot_daemon.monitor.expiry import ExpiryService
from eyot_daemon.monitor.flash import FlashService
from eyot_daemon.monitor.page.controls import Controls
from eyot_daemon.monitor.page.service import PageService
from eyot_daemon.monitor.page.support_bundle import SupportBundle
from eyot_daemon.monitor.service import MonitoringService
from eyot_daemon.monitor.status_line import status_line
from eyot_daemon.monitor.system_services import SystemServices
from eyot_daemon.mqtt.service import MqttService, Speaker
from eyot_daemon.net import early_listen
from eyot_daemon.net.heap import give_back
from eyot_daemon.net.tls_context import TlsError, TlsSettingError
from eyot_daemon.process.banner import log_banner, log_warnings
from eyot_daemon.process.collector import Collector
from eyot_daemon.process.log_service import LogService
from eyot_daemon.process.logs import Logs
from eyot_daemon.process.network_service import NetworkService
from eyot_daemon.process.notify import Notifier
from eyot_daemon.process.ports_file import Ports
from eyot_daemon.process.service import Runtime, Service, reload_all
from eyot_daemon.process.service_status import ServiceStatus
from eyot_daemon.process.signals import watch_signals
from eyot_daemon.process.start_error import Cause, StartError
from eyot_daemon.process.state_files import StateFiles
from eyot_daemon.process.timeout_extension import TimeoutExtension
from eyot_daemon.process.watchdog import Watchdog
from eyot_daemon.reload.accounts import AccountService
from eyot_daemon.reload.changes import ReloadError, applied_lines, changed_fields
from eyot_daemon.router.broker import Broker
from eyot_wire.conf import ConfError
from eyot_wire.status import ReloadReport
from eyot_wire.transform import TransformError

if TYPE_CHECKING:
    from eyot_daemon.mqtt.listener import Make
    from eyot_daemon.mqtt.server import MqttServer
    from eyot_daemon.mqtt.sessions import AccountSessions

log = logging.getLogger("eyot")

#: Time for connections to read their last bytes when the daemon stops, seconds.
CLOSING_S = 1.0
#: bcrypt checks that run at once.
BCRYPT_THREADS = 2
_POLL_S = 0.02
#: What a reload is refused with; anything else is a mistake of ours, and refused too.
RELOAD_REFUSED = (ConfError, UsageError, ReloadError, TlsError, TokenStoreError, StartError, TransformError, OSError)


class Server:
    """One daemon. `reload` reads the configuration again, `env` is the process's environment."""

    def __init__(self, loaded: Loaded, logs: Logs, *, reload: Callable[[], Loaded], env: Mapping[str, str]) -> None:
        trust = trust_of(loaded.options)
        # In operator mode the accounts are what their tokens say.
        options = loaded.options if trust is None else trust.options(loaded.options)
        self._reading = loaded.reading
        self._logs = logs
        self._load_again = reload
        self._notifier = Notifier(env)
        self._stopping = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._runtime: Runtime | None = None
        self._bcrypts = trio.CapacityLimiter(BCRYPT_THREADS)
        self.ports = Ports()
        self._lame_duck = False
        signs = options.authorization.auth_callout is not None or trust is not None
        signer = server_key() if signs else None
        broker = self.broker = Broker(options, server_id=new_id() if signer is None else signer.public_key)
        callout = None if signer is None else Callout(broker, signer)
        self._jetstream = JetStreamService(broker, env)
        accounts = AccountService(broker, trust, callout, self._in_background, self._accounts_changed)
        self.clients = accounts.clients
        self._system = SystemServices(self.clients, self)
        self._system.start()
        accounts.keep_claims(self._system.server_info)
        leaf_links = LeafService(broker.links, accounts.authenticators.leaf)
        clients = ClientService(self.clients)
        self._leaf_links = leaf_links
        jetstream = self._jetstream
        controls = Controls(leaf_links.reconnect, jetstream.forget_downstreams, jetstream.back_up, self._in_background)
        bundle = SupportBundle(self.clients, lambda: None if page.answers is None else page.answers.day())
        page = PageService(self.clients, lambda: self._jetstream.path, controls, bundle)
        self._device_answers = DeviceAnswers(self.clients, bundle, leaf_links.reconnect)
        # These outlive the connections.
        self._frame: list[Service[Any]] = [
            accounts,
            LogService(logs, options),
            bundle,
            MonitoringService(self.clients, env, lambda: page.answers, bundle),
            StateFiles(),
        ]
        mqtt = self._mqtt = MqttService(clients, self._speak_mqtt)
        self._mqtt_server: MqttServer | None = None
        self._bridges = BridgeService(broker, env, jetstream=self._jetstream.account, sessions=self._mqtt_sessions)
        # A stop ends links first, then JetStream, which still answers clients.
        self._serving: list[Service[Any]] = [
            clients,
            WebSocketService(
                clients,
                lambda: None if leaf_links.server is None else leaf_links.server.serve_stream,
                lambda: None if mqtt.listener is None else mqtt.listener.serve_stream,
            ),
            self._jetstream,
            mqtt,
            SyncService(broker.sync, lambda: self._jetstream.path),
            leaf_links,
            self._bridges,
            FlashService(broker, lambda: self._jetstream.path, self._jetstream.set_group_window),
            NetworkService((leaf_links.network_changed, self._bridges.network_changed)),
            ExpiryService(broker),
            StatusService(broker),
            self._device_answers,
            page,
        ]
        #: In the order in which they start and reload; they stop in the reverse.
        self.services = [*self._frame, *self._serving]
        broker.providers.health_checks += [service.health for service in self.services]

    @property
    def options(self) -> Options:
        """The broker's, which holds them."""
        return self.broker.options

    async def run(self) -> None:
        """Start, serve until told to stop, stop. Raises StartError."""
        failure: StartError | None = None
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await nursery.start(watch_signals, self)
            self.broker.clock.use_present_run()
            nursery.start_soon(self.broker.timers.run, self.broker.end_own_turn)
            nursery.start_soon(self.broker.readers.run)
            try:
                async with trio.open_nursery() as connections:
                    self._start(Runtime(nursery, connections, self.ports))
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

    def _start(self, runtime: Runtime) -> None:
        """Start all services. Raises StartError."""
        log_banner(self.broker, self._reading)
        self._runtime = runtime
        try:
            prepared = [(service, service.configure(self.options)) for service in self.services]
        except TlsError as error:
            is_setting = isinstance(error, TlsSettingError)
            raise StartError(str(error), Cause.TLS_SETTING if is_setting else Cause.CERTIFICATE) from error
        with TimeoutExtension(self._notifier, "Starting: the store is recovered"):
            for service, each in prepared:
                service.start(each, runtime)
        early_listen.release()
        runtime.open()
        log.info("Server is ready")
        self._system.events.begin_figures()
        self._notifier.ready()
        collector = Collector()
        collector.settle()
        give_back()
        runtime.nursery.start_soon(collector.run)
        watchdog = Watchdog(self._notifier, lambda: self._jetstream.store)
        runtime.nursery.start_soon(watchdog.run)
        runtime.nursery.start_soon(ServiceStatus(self._notifier, watchdog, lambda: status_line(self.broker)).run)

    # -- stop ------------------------------------------------------------------------------------------------------

    async def _stop(self, connections: trio.Nursery) -> None:
        log.info("Initiating Shutdown...")
        self._system.events.shutting_down()
        self.broker.flush()
        self._notifier.stopping()
        assert self._runtime is not None
        self._runtime.close_listeners()
        with TimeoutExtension(self._notifier, "Stopping: what is under way is committed"):
            for service in reversed(self._serving):
                service.stop()
        with trio.move_on_after(CLOSING_S):
            while connections.child_tasks:
                await trio.sleep(_POLL_S)

    def _release(self) -> None:
        """Close the store and remove the daemon's files, after any failure."""
        with TimeoutExtension(self._notifier, "Stopping: what is under way is committed"):
            self._jetstream.close()
        for service in reversed(self._frame):
            service.stop()

    def _speak_mqtt(self, options: MqttOptions) -> tuple[Make, Speaker]:
        # Loaded only where it is used.
        from eyot_daemon.mqtt.connection import MqttConnection

        server = self._shared_mqtt(options)
        return partial(MqttConnection, server=server), server

    def _shared_mqtt(self, options: MqttOptions) -> MqttServer:
        """Return what clients of MQTT and bridges share, made on first use."""
        from eyot_daemon.mqtt.api import endpoints
        from eyot_daemon.mqtt.server import MqttServer

        if self._mqtt_server is None:
            self._mqtt_server = MqttServer(self.broker, options, self._jetstream.account)
            self._jetstream.answer_also(endpoints(self._mqtt_server.opened))
        return self._mqtt_server

    def _accounts_changed(self) -> None:
        """Account tokens changed: accounts may have come and gone, and JetStream may have gone off or on."""
        self._jetstream.accounts_changed()
        if self._mqtt_server is not None:
            self._mqtt_server.jetstream_changed()
        self._bridges.jetstream_changed()
        self._leaf_links.accounts_changed()
        self._device_answers.accounts_changed()

    def _mqtt_sessions(self, account: str) -> AccountSessions:
        """Return the MQTT sessions of an account: bridges take topics in without a listener, too."""
        server = self._shared_mqtt(self.options.mqtt or MqttOptions())
        return server.sessions_of(self.broker.accounts[account])

    # -- signals ---------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """INT or TERM, which mean nothing while clients are being let go."""
        if not self._lame_duck:
            self._stopping.set()

    def reopen_log(self) -> None:
        self._logs.reopen()

    def lame_duck(self) -> None:
        """USR2: accept no new clients, close the present ones one after the other, then stop."""
        if self._lame_duck or self._runtime is None:
            return
        self._lame_duck = True
        log.info("Entering lame duck mode, stop accepting new clients")
        self._system.events.lame_duck()
        self._runtime.close_listeners()
        self._bridges.stop()
        self._mqtt.stop()  # its sessions are in JetStream
        self._jetstream.stop()
        self._runtime.nursery.start_soon(self._let_clients_go)

    async def _let_clients_go(self) -> None:
        await let_clients_go(self.clients)
        self._stopping.set()

    def reload(self) -> str:
        """Reload the configuration as a whole or not at all (HUP); return the error, "" for success."""
        self._notifier.reloading()
        wrong = self._try_reload()
        if wrong:
            log.error("Failed to reload server configuration: %s", wrong)
        self.broker.flush()
        self.broker.reloads = ReloadReport(os.getpid(), self.broker.reloads.count + 1, wrong)
        self._notifier.ready()
        return wrong

    def _try_reload(self) -> str:
        old = self.options
        try:
            loaded = self._load_again()
            reload_all(self.services, loaded.options)
        except RELOAD_REFUSED as error:
            return str(error)
        except Exception as error:
            log.exception("The new configuration could not be applied")
            return f"{type(error).__name__}: {error}"
        new = self.options
        for line in applied_lines(changed_fields(old, new), old, new):
            log.info("%s", line)
        log_warnings(loaded.reading, known=self._reading)
        self._reading = loaded.reading
        self.broker.config_loaded_ns = self.broker.clock.now_ns()
        digest = f" ({new.config_digest})" if new.config_digest else ""
        log.info("Reloaded server configuration%s", digest)
        return ""

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
