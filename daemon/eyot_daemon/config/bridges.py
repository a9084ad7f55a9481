"""`eyot { bridges { } }` as typed values: the MQTT brokers that streams are forwarded to, and topics taken in from.

`config/bridges_read.py` reads them from a configuration.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from eyot_daemon.config.accounts import GLOBAL_ACCOUNT
from eyot_daemon.config.leaf import LeafUrl, RemoteOptions
from eyot_daemon.config.tls import TlsOptions
from eyot_sync.bridge.topic_rules import TopicRule

#: Ports by the scheme of a URL.
PORTS = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}


class BridgeOptions(Struct, frozen=True, kw_only=True):
    """One bridge. Times in seconds. Its secrets stay out of repr and logs."""

    name: str
    urls: tuple[LeafUrl, ...]
    account: str = GLOBAL_ACCOUNT
    #: "": made of the server's name and the bridge's
    client_id: str = ""
    user: str = ""
    password: str | None = None
    password_file: str = ""
    tls: TlsOptions | None = None
    alpn: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    out: tuple[TopicRule, ...] = ()
    incoming: tuple[TopicRule, ...] = ()
    qos: int = 1
    #: where a stream begins that was never forwarded
    start: Literal["all", "new"] = "all"
    protocol_version: Literal["auto", "5.0", "3.1.1"] = "auto"
    keep_alive_s: int = 60
    session_expiry_s: int = 30 * 86_400
    #: publishes that the remote has not acknowledged, in each direction
    inflight_max: int = 100
    #: what becomes of a message that the remote refuses for good
    refused: Literal["retry", "skip"] = "retry"
    retry_s: float = 10.0
    reconnect_s: float = 1.0
    dial_timeout_s: float = 10.0
    disabled: bool = False

    def __repr__(self) -> str:
        return f"<bridge {self.name}>"

    @property
    def remote(self) -> RemoteOptions:
        """The bridge as `eyot { sync { remotes } }` sees it."""
        return RemoteOptions(urls=self.urls, account=self.account)

    def client_id_at(self, server_name: str) -> str:
        """Return the client id that the remote sees."""
        return self.client_id or f"{server_name}-{self.name}"
