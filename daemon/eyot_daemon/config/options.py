"""All options of the daemon as one typed value.

`Options` holds every option of nats-server that applies to a single server with leaf links, plus Eyot's own in
`Options.eyot`, with nats-server's defaults. `config/read.py` fills it from a parsed configuration, `args.py` merges the
command line's flags over it, `config/check.py` checks what concerns several options. Sizes are bytes, times seconds.
"""

from __future__ import annotations

from msgspec import Struct

from eyot_daemon.config.accounts import (
    SYSTEM_ACCOUNT_DEFAULT,
    AccountOptions,
    AuthorizationOptions,
    MappingOptions,
    UserOptions,
)
from eyot_daemon.config.jetstream import EyotOptions, JetStreamOptions
from eyot_daemon.config.leaf import LeafNodesOptions
from eyot_daemon.config.mqtt import MqttOptions
from eyot_daemon.config.operator import OperatorOptions
from eyot_daemon.config.tls import TlsOptions

CLIENT_PORT_DEFAULT = 4222


#: Time limit for the upgrade of a WebSocket client.
HANDSHAKE_TIMEOUT_DEFAULT_S = 2.0


class WebsocketOptions(Struct, frozen=True, kw_only=True):
    """`websocket { }`: the listener for WebSocket clients and leaf nodes; `port` -1 = any free port."""

    host: str = "0.0.0.0"
    port: int = 0
    advertise: str = ""
    tls: TlsOptions | None = None
    no_tls: bool = False
    same_origin: bool = False
    allowed_origins: tuple[str, ...] = ()
    handshake_timeout_s: float = HANDSHAKE_TIMEOUT_DEFAULT_S
    compression: bool = False
    authorization: AuthorizationOptions | None = None
    jwt_cookie: str = ""
    user_cookie: str = ""
    pass_cookie: str = ""
    token_cookie: str = ""
    no_auth_user: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    ping_interval_s: float | None = None


class Options(Struct, frozen=True, kw_only=True):
    """Everything that can be configured. Frozen: a reload builds a new one."""

    config_file: str = ""
    config_digest: str = ""  # of the file's content, as nats-server's; "" without a file
    # listener for clients
    host: str = "0.0.0.0"
    port: int = CLIENT_PORT_DEFAULT  # -1: any free port
    server_name: str = ""  # "": the server id
    cluster_name: str = ""  # of mappings, leaf links and INFO; "": see `BrokerCore.cluster`
    client_advertise: str = ""
    # logging
    debug: bool = False
    trace: bool = False
    trace_verbose: bool = False
    trace_headers: bool = False
    logtime: bool = True
    logtime_utc: bool = False
    log_file: str = ""
    log_size_limit: int = 0
    log_max_num: int = 0
    syslog: bool = False
    remote_syslog: str = ""
    max_traced_msg_len: int = 0
    connect_error_reports: int = 3600
    reconnect_error_reports: int = 1
    # limits of the client protocol
    max_connections: int = 65_536  # 0 or less: nobody
    max_subscriptions: int = 0  # 0: no limit
    max_sub_tokens: int = 0
    max_control_line: int = 4096
    max_payload: int = 1024 * 1024
    max_pending: int = 64 * 1024 * 1024
    ping_interval_s: float = 120.0
    ping_max: int = 2
    write_deadline_s: float = 10.0
    write_timeout: str = "default"  # default | close | retry
    max_closed_clients: int = 10_000
    no_header_support: bool = False
    no_fast_producer_stall: bool = False
    disable_sublist_cache: bool = False
    proxy_protocol: bool = False
    lame_duck_duration_s: float = 120.0
    lame_duck_grace_period_s: float = 10.0
    # users and permissions
    authorization: AuthorizationOptions = AuthorizationOptions()
    accounts: tuple[AccountOptions, ...] = ()
    mappings: tuple[MappingOptions, ...] = ()  # of the global account
    no_auth_user: str = ""
    system_account: str = SYSTEM_ACCOUNT_DEFAULT  # "": no_system_account
    operator: OperatorOptions | None = None  # if set, tokens define `accounts`
    tls: TlsOptions | None = None
    allow_non_tls: bool = False
    # other rooms
    jetstream: JetStreamOptions | None = None
    default_js_domain: tuple[tuple[str, str], ...] = ()  # (account, domain)
    leafnodes: LeafNodesOptions = LeafNodesOptions()
    websocket: WebsocketOptions | None = None
    mqtt: MqttOptions | None = None
    http_host: str = ""  # "": `host`
    http_port: int = 0  # 0: no monitoring; -1: any free port
    https_port: int = 0
    http_base_path: str = "/"
    pid_file: str = ""
    ports_file_dir: str = ""
    server_tags: tuple[str, ...] = ()
    server_metadata: tuple[tuple[str, str], ...] = ()
    eyot: EyotOptions = EyotOptions()

    @property
    def users(self) -> tuple[UserOptions, ...]:
        """Users of `authorization` and of all accounts, in order of declaration."""
        return self.authorization.users + tuple(user for account in self.accounts for user in account.users)

    @property
    def auth_required(self) -> bool:
        """Whether a client must present credentials (nats-server's `auth_required` of INFO).

        As in nats-server, False if `no_auth_user` admits clients without credentials.
        """
        if self.operator is not None:
            return True
        authorization = self.authorization
        return bool(authorization.user or authorization.token or self.users) and not self.no_auth_user
