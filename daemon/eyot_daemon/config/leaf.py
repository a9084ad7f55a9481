"""`leafnodes { }` as typed values: the listener for leaf nodes and the remotes that this server connects to.

`config/leaf_read.py` reads them from a configuration.
"""

from __future__ import annotations

from msgspec import Struct

from eyot_daemon.config.accounts import GLOBAL_ACCOUNT, UserOptions
from eyot_daemon.config.tls import TlsOptions
from eyot_sync.leaf.compression import AUTO, OFF, THRESHOLDS_S, LeafCompression
from eyot_wire.archive.native import COMPILED

LEAF_PORT_DEFAULT = 7422
#: What an error about a URL adds; the URL itself may hold a password, so no error repeats it.
URL_RULES = "the port is a number up to 65535, and / ? # in a password are written as %2F %3F %23"


class LeafUrl(Struct, frozen=True, kw_only=True):
    """One URL of a remote. `scheme`: nats, tls, ws or wss. Its secrets stay out of repr and logs."""

    scheme: str
    host: str
    port: int
    user: str = ""
    password: str | None = None  # None: the URL had no `:password` part
    path: str = ""

    def __repr__(self) -> str:
        userinfo = "[REDACTED]@" if self.user else ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{userinfo}{host}:{self.port}{self.path}"

    __str__ = __repr__


class CompressionOptions(Struct, frozen=True, kw_only=True):
    """`compression`: the mode in nats-server's words, "": not configured; `thresholds_s`: the round-trip times of `s2_auto`."""

    mode: str = ""
    thresholds_s: tuple[float, ...] = THRESHOLDS_S

    def effective(self) -> LeafCompression:
        """Return the mode that a link offers.

        Without compiled code the default is none: checksums would cost more than it saves.
        """
        default = AUTO if COMPILED else OFF
        return LeafCompression(self.mode or default, self.thresholds_s)


class RemoteOptions(Struct, frozen=True, kw_only=True):
    """One entry of `leafnodes { remotes }`: a hub this server dials, bound to one local account."""

    urls: tuple[LeafUrl, ...]
    account: str = GLOBAL_ACCOUNT
    credentials: str = ""  # path of a creds file
    nkey: str = ""  # path of a seed file, or the seed itself
    tls: TlsOptions | None = None
    hub: bool = False
    deny_imports: tuple[bytes, ...] = ()
    deny_exports: tuple[bytes, ...] = ()
    no_randomize: bool = False
    ws_compression: bool = False
    ws_no_masking: bool = False
    isolate: bool = False
    request_isolation: bool = False
    compression: CompressionOptions = CompressionOptions()
    first_info_timeout_s: float = 1.0
    dial_timeout_s: float = 1.0
    disabled: bool = False
    ignore_discovered_servers: bool = False


class LeafAuthorization(Struct, frozen=True, kw_only=True):
    """`leafnodes { authorization { } }`: precedence is user/password, then `nkey`, then `users`, then the server's own."""

    user: str = ""
    password: str = ""
    nkey: str = ""
    account: str = ""  # account of the single user or nkey; "" = $G
    timeout_s: float = 2.0
    users: tuple[UserOptions, ...] = ()


class LeafNodesOptions(Struct, frozen=True, kw_only=True):
    """`leafnodes { }`. `port` None: no listener for leaf nodes; -1: any free port."""

    host: str = "0.0.0.0"
    port: int | None = None
    authorization: LeafAuthorization | None = None
    tls: TlsOptions | None = None
    advertise: str = ""
    no_advertise: bool = False
    min_version: str = ""
    compression: CompressionOptions = CompressionOptions()
    isolate_leafnode_interest: bool = False
    reconnect_delay_s: float = 1.0
    dial_timeout_s: float = 1.0
    write_deadline_s: float | None = None  # None: the server's
    remotes: tuple[RemoteOptions, ...] = ()
