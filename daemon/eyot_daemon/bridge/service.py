"""Bridges as a service of the daemon; nothing of them is loaded without one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from eyot_daemon.config.bridges import BridgeOptions
from eyot_daemon.config.options import Options
from eyot_daemon.net.tls_context import client_context
from eyot_daemon.process.service import ReloadSteps, Runtime
from eyot_daemon.process.start_error import OptionsError
from eyot_daemon.router.providers import HealthzQuery, Unhealthy

if TYPE_CHECKING:
    import trio

    from eyot_daemon.bridge.bridge import Bridge
    from eyot_daemon.jetstream.account import JetStreamAccount
    from eyot_daemon.mqtt.sessions import AccountSessions
    from eyot_daemon.router.broker import Broker

log = logging.getLogger("eyot.bridge")

Prepared = tuple[BridgeOptions, ...]


class BridgeService:
    """The bridges of one daemon. `jetstream` finds JetStream of an account, `sessions` the MQTT sessions of one."""

    name = "bridges"

    def __init__(
        self,
        broker: Broker,
        env: Mapping[str, str],
        *,
        jetstream: Callable[[str], tuple[JetStreamAccount, Any] | None],
        sessions: Callable[[str], AccountSessions],
    ) -> None:
        self._broker = broker
        self._env = env
        self._jetstream = jetstream
        self._sessions = sessions
        self._nursery: trio.Nursery | None = None
        self.bridges: dict[str, Bridge] = {}
        #: those that wait for their account: a token may bring it
        self._without_account: list[BridgeOptions] = []
        leaf_links = broker.providers.links
        broker.providers.links = lambda: [*leaf_links(), *self._statuses()]

    def _statuses(self) -> list[Any]:
        if not self.bridges:
            return []
        from eyot_daemon.bridge.status import bridge_status

        return [bridge_status(bridge) for bridge in self.bridges.values()]

    def _missing_streams(self) -> list[Any]:
        if not self.bridges:
            return []
        from eyot_daemon.bridge.status import missing_streams

        return [each for bridge in self.bridges.values() for each in missing_streams(bridge)]

    def configure(self, options: Options) -> Prepared:
        """Check the options and the certificates. Raises OptionsError, TlsError."""
        check_bridges(options)
        return options.eyot.bridges

    def start(self, prepared: Prepared, runtime: Runtime) -> None:
        """Begin to dial, each bridge in a task of its own."""
        self._nursery = runtime.connections
        providers = self._broker.providers
        of_streams = providers.downstream  # JetStream's, which runs by now
        providers.downstream = lambda: [*of_streams(), *self._missing_streams()]
        self._begin(prepared)

    def _begin(self, wanted: Sequence[BridgeOptions]) -> None:
        self._without_account = []
        for options in wanted:
            if options.disabled:
                continue
            # Loaded only where a bridge is configured.
            from eyot_daemon.bridge.bridge import Bridge
            from eyot_sync.link.dialer import TcpDialer

            account = options.account
            if account not in self._broker.accounts:
                log.error("Bridge %s: there is no account %s", options.name, account)
                self._without_account.append(options)
                continue

            def jetstream(account: str = account) -> JetStreamAccount | None:
                found = self._jetstream(account)
                return None if found is None else found[0]

            def sessions(account: str = account) -> AccountSessions:
                return self._sessions(account)

            dialer = TcpDialer(self._broker.rng)
            bridge = Bridge(self._broker, options, dialer, env=self._env, jetstream=jetstream, sessions=sessions)
            self.bridges[options.name] = bridge
            assert self._nursery is not None
            self._nursery.start_soon(bridge.run)

    def reload(self, prepared: Prepared, steps: ReloadSteps) -> None:
        """End bridges that are gone or changed, begin new ones, and leave the others alone."""
        steps.last(lambda: self._update(prepared))

    def _update(self, prepared: Prepared) -> None:
        wanted = {options.name: options for options in prepared if not options.disabled}
        for name, bridge in list(self.bridges.items()):
            if wanted.get(name) == bridge.options:
                del wanted[name]
                if bridge.state.waiting:
                    bridge.supervisor.wake()  # the policy that made it wait may be gone
                bridge.wake()
                bridge.jetstream_changed()
                continue
            bridge.close()
            del self.bridges[name]
            log.info("Reloaded: bridge %s %s", name, "changed" if name in wanted else "removed")
        for name in wanted:
            log.info("Reloaded: bridge %s begins", name)
        self._begin(list(wanted.values()))

    def jetstream_changed(self) -> None:
        """JetStream went off or on in accounts, or a token made one."""
        for bridge in self.bridges.values():
            bridge.jetstream_changed()
        waiting = [options for options in self._without_account if options.account in self._broker.accounts]
        if waiting:
            self._begin(self._without_account)

    def network_changed(self) -> None:
        """Connect now where a bridge waits for the network."""
        for bridge in self.bridges.values():
            bridge.supervisor.network_changed()

    def health(self, query: HealthzQuery) -> Unhealthy | None:
        """Return None: being offline is normal. `/eyot/status` and `/eyot/syncz` show it."""
        return None

    def stop(self) -> None:
        """End all bridges; what is acknowledged is recorded."""
        for bridge in self.bridges.values():
            bridge.close()


def check_bridges(options: Options) -> None:
    """Check what concerns bridges and others, and their certificates. Raises OptionsError, TlsError."""
    for bridge in options.eyot.bridges:
        if options.jetstream is None:
            raise OptionsError(f"bridge {bridge.name}: needs JetStream, where it keeps its position")
        if not bridge.client_id and not options.server_name:
            raise OptionsError(f"bridge {bridge.name}: needs a client_id, or a server_name to make it of")
        if bridge.tls is not None:
            client_context(bridge.tls)
