"""Context that the client connections of a server share: options, authenticator, trace, and INFO.

INFO is built here, because most of it is the same for all.
"""

from __future__ import annotations

import secrets

import msgspec

from eyot_daemon.auth.login import WEBSOCKET, Authenticator, Peer
from eyot_daemon.client.trace import ClientTrace
from eyot_daemon.client.violations import ViolationLog
from eyot_daemon.config.options import Options
from eyot_daemon.router.account import Account
from eyot_daemon.router.broker import CLIENT_PROTO, Broker
from eyot_daemon.router.known_client import KnownClient
from eyot_daemon.version import API_LEVEL, VERSION
from eyot_wire.frames import encode_info
from eyot_wire.info import ServerInfo

#: How long the text of a nonce is, as nats-server's (11 random bytes in base64url).
NONCE_BYTES = 11


class ClientContext:
    """The server as its connections use it. `Clients` derives from it and knows the connections."""

    def __init__(self, broker: Broker, authenticator: Authenticator, port: int) -> None:
        self.broker = broker
        self.authenticator = authenticator
        self.websocket_authenticator: Authenticator | None = None  # None: the server's own
        self.mqtt_authenticator: Authenticator | None = None  # None: the server's own
        self.websocket_port = 0  # known once that listener is bound
        self.port = port  # INFO's port, known once the listener is bound
        self.lame_duck = False
        self.trace = ClientTrace(self.options) if self.options.trace else None
        self.violations = ViolationLog(broker.clock)
        self._info: ServerInfo | None = None

    @property
    def options(self) -> Options:
        """The broker's, which holds them."""
        return self.broker.options

    def max_payload_of(self, client: KnownClient, account: Account | None = None) -> int:
        """Return the largest message (header and payload, bytes) a client may send, in its present or future account."""
        account = account or client.account
        found = self.broker.options.max_payload
        if account is not None and 0 <= account.payload_max < found:
            found = account.payload_max
        if client.token is not None and 0 <= client.token.grant.payload < found:
            found = client.token.grant.payload
        return found

    # -- INFO ----------------------------------------------------------------------------------------------------

    def new_nonce(self) -> str:
        """Return a nonce to sign with an nkey; "" when no user needs one."""
        return secrets.token_urlsafe(NONCE_BYTES) if self.authenticator.wants_nonce else ""

    def authenticator_for(self, peer: Peer) -> Authenticator:
        """Return the authenticator of a connection: the listeners of WebSocket and MQTT may have users of their own."""
        if peer.is_mqtt:
            return self.mqtt_authenticator or self.authenticator
        if peer.connection_type == WEBSOCKET and self.websocket_authenticator is not None:
            return self.websocket_authenticator
        return self.authenticator

    def login_timeout_s(self, peer: Peer) -> float:
        """Return how long a peer may take to log in, seconds."""
        mqtt = self.options.mqtt
        if peer.is_mqtt and mqtt is not None and mqtt.authorization is not None:
            return mqtt.authorization.timeout_s
        return self.options.authorization.timeout_s

    def info_line(self, client: KnownClient) -> bytes:
        """INFO as the first line of a connection."""
        info = self._common_info(client)
        info.client_id = client.cid
        info.client_ip = client.peer.host
        info.nonce = client.nonce
        return encode_info(info)

    def connect_info_line(self, client: KnownClient) -> bytes:
        """Return the asynchronous INFO after the first PONG, which names the connection's account."""
        info = self._common_info(client)
        info.client_id = client.cid
        info.client_ip = client.peer.host
        info.nonce = client.nonce
        info.connect_info = True
        if client.account is not None:
            info.remote_account = client.account.name
            info.acc_is_sys = client.account.is_system
        return encode_info(info)

    def lame_duck_line(self, client: KnownClient) -> bytes:
        """Return the INFO that asks a client to reconnect to another server."""
        info = self._common_info(client)
        info.client_id = client.cid
        info.client_ip = client.peer.host
        info.ldm = True
        return encode_info(info)

    def _common_info(self, client: KnownClient) -> ServerInfo:
        if self._info is None:
            self._info = self._make_info(self.options)
        info = msgspec.structs.replace(self._info)
        if client.account is not None:
            info.max_payload = self.max_payload_of(client)
        if client.peer.connection_type == WEBSOCKET:
            self._as_websocket(info)
        return info

    def _as_websocket(self, info: ServerInfo) -> None:
        """Adjust INFO for clients of the WebSocket listener."""
        options = self.options.websocket
        assert options is not None
        info.host, info.port = advertised(options.advertise, options.host, self.websocket_port)
        info.tls_required, info.tls_available = options.tls is not None, False
        info.tls_verify = options.tls is not None and (options.tls.verify or options.tls.verify_and_map)
        if self.websocket_authenticator is not None:
            info.auth_required = self.websocket_authenticator.auth_required

    def _make_info(self, options: Options) -> ServerInfo:
        tls = options.tls
        host, port = advertised(options.client_advertise, options.host, self.port)
        return ServerInfo(
            server_id=self.broker.server_id,
            server_name=self.broker.server_name,
            version=VERSION,
            proto=CLIENT_PROTO,
            host=host,
            port=port,
            headers=not options.no_header_support,
            auth_required=self.authenticator.auth_required,
            tls_required=tls is not None and not options.allow_non_tls,
            tls_verify=tls is not None and (tls.verify or tls.verify_and_map),
            tls_available=tls is not None and options.allow_non_tls,
            max_payload=options.max_payload,
            jetstream=options.jetstream is not None,
            domain="" if options.jetstream is None else options.jetstream.domain,
            ldm=self.lame_duck,
            api_lvl=API_LEVEL,
            cluster=self.broker.cluster,
        )


def advertised(advertise: str, host: str, port: int) -> tuple[str, int]:
    """Host and port that INFO names: the configured advertisement (its port may be missing), else the listener's."""
    if not advertise:
        return host, port
    named, separator, digits = advertise.rpartition(":")
    if not separator or advertise.endswith("]"):
        return advertise.strip("[]"), port
    number = int(digits)
    return named.strip("[]"), number if number > 0 else port
