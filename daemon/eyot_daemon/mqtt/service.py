"""MQTT as a service of the daemon: its listener, and what its connections share."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from eyot_daemon.client.service import ClientService
from eyot_daemon.config.mqtt import MqttOptions
from eyot_daemon.config.options import Options
from eyot_daemon.net.listener import TcpListener
from eyot_daemon.net.tls_context import server_context
from eyot_daemon.process.ports_file import urls
from eyot_daemon.process.service import ReloadSteps, Runtime
from eyot_daemon.process.start_error import OptionsError
from eyot_daemon.router.providers import HealthzQuery, Unhealthy

if TYPE_CHECKING:
    from eyot_daemon.mqtt.listener import Make, MqttListener

log = logging.getLogger("eyot")


class Speaker(Protocol):
    """What the connections of MQTT share: sessions, retained messages, limits."""

    def bring_back(self) -> None:
        """Take up the sessions that are on flash: wills fall due, and sessions expire, before any client comes."""
        ...

    def jetstream_changed(self) -> None:
        """JetStream went off or on in accounts."""
        ...

    def set_options(self, options: MqttOptions) -> None:
        """Use changed options, and the broker's `eyot { mqtt { } }`. It cannot fail, and is called again to take them back."""
        ...

    def stop(self) -> None:
        """End: all connections are closed."""
        ...


class MqttConfiguration(NamedTuple):
    """`mqtt { }`, and its certificates as they are on disk now."""

    options: MqttOptions | None
    tls: ssl.SSLContext | None


class MqttService:
    """MQTT, if it is configured; nothing of it is loaded otherwise.

    `speak` loads the protocol, once JetStream runs: what makes connections, and what these share.
    """

    name = "mqtt"

    def __init__(self, clients: ClientService, speak: Callable[[MqttOptions], tuple[Make, Speaker]]) -> None:
        self._clients = clients
        self._speak = speak
        self.speaker: Speaker | None = None
        #: serves streams, too: WebSockets
        self.listener: MqttListener | None = None
        self._socket: TcpListener | None = None
        self._options: MqttOptions | None = None

    def configure(self, options: Options) -> MqttConfiguration:
        """Check the options and read the certificates. Raises OptionsError, TlsError."""
        mqtt = options.mqtt
        if mqtt is None:
            return MqttConfiguration(None, None)
        check_mqtt(options, mqtt)
        return MqttConfiguration(mqtt, None if mqtt.tls is None else server_context(mqtt.tls))

    def start(self, prepared: MqttConfiguration, runtime: Runtime) -> None:
        """Start the listener. Raises StartError."""
        options, context = prepared
        if options is None:
            return
        # Loaded only where it is used.
        from eyot_daemon.mqtt.listener import MqttListener

        clients = self._clients.clients
        self._options = options
        make, speaker = self._speak(options)
        self.speaker = speaker
        listener = self._socket = runtime.bind("mqtt ", options.host, options.port)
        clients.broker.bound["mqtt"] = listener.port
        self.listener = MqttListener(clients, make, runtime.connections, options, context)
        runtime.connections.start_soon(listener.run, self.listener.serve, runtime.connections)
        scheme = "mqtt" if context is None else "tls"  # nats-server's words
        runtime.ports.mqtt = urls("mqtt" if context is None else "mqtts", options.host, listener.port)

        def opened() -> None:
            log.info("Listening for MQTT clients on %s://%s:%d", scheme, options.host, listener.port)
            speaker.bring_back()

        runtime.when_open(opened)

    def reload(self, prepared: MqttConfiguration, steps: ReloadSteps) -> None:
        """Use the new options, for sessions and connections, and certificates for new connections."""
        listener, speaker, before = self.listener, self.speaker, self._options
        if listener is None or speaker is None or before is None or prepared.options is None:
            return
        tls = listener.tls

        def use(options: MqttOptions, context: ssl.SSLContext | None) -> None:
            self._options = listener.options = options
            listener.tls = context
            speaker.set_options(options)

        steps.undo(lambda: use(before, tls))
        use(prepared.options, prepared.tls)
        steps.last(speaker.jetstream_changed)

    def health(self, query: HealthzQuery) -> Unhealthy | None:
        """Return None: the listener closes with that of the clients, whose service reports it."""
        return None

    def stop(self) -> None:
        """Accept no more clients, and end those that are here while JetStream still stores what their end causes."""
        if self._socket is not None:
            self._socket.close()
        speaker, self.speaker = self.speaker, None
        if speaker is None:
            return
        clients = self._clients.clients
        for client in tuple(clients.connections.values()):
            if client.peer.is_mqtt:
                client.close("Server Shutdown", linger=True)
        clients.broker.flush()
        speaker.stop()


def check_mqtt(options: Options, mqtt: MqttOptions) -> None:
    """Check what concerns MQTT and others (nats-server's `validateMQTTOptions`). Raises OptionsError."""
    if options.jetstream is None:
        raise OptionsError("mqtt requires JetStream to be enabled if running in standalone mode")
    if mqtt.js_domain and mqtt.js_domain != options.jetstream.domain:
        own = f'"{options.jetstream.domain}"' if options.jetstream.domain else "not set"
        raise OptionsError(
            f'mqtt: js_domain "{mqtt.js_domain}" is not the domain of this server ({own}): '
            "eyotd keeps sessions and retained messages on its own disk"
        )
    own_login = mqtt.authorization
    if own_login is not None and options.users:
        for name, value in (("username", own_login.user), ("token", own_login.token)):
            if value:
                raise OptionsError(f"mqtt authentication {name} not compatible with presence of users/nkeys")
    if mqtt.no_auth_user:
        if not options.users:
            raise OptionsError(f'no_auth_user: "{mqtt.no_auth_user}" present, but users/nkeys are not defined')
        if all(mqtt.no_auth_user not in (user.user, user.nkey) for user in options.users):
            raise OptionsError(
                f'no_auth_user: "{mqtt.no_auth_user}" not present as user or nkey in authorization block '
                "or account configuration"
            )
    if mqtt.ack_wait_s < 0:
        raise OptionsError("ack wait must be a positive value")
    if mqtt.api_timeout_s < 0:
        raise OptionsError("JS API timeout must be a positive value")
