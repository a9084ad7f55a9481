"""The inputs of a leaf session about itself and its peer, and the events that it returns.

Operations of an established link (`LsAdd`, `LsDel`, `LeafMsg`) are events as received; the others are defined here. `Ping` is
one only behind events that may wait for a later turn: its answer says that they were carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from msgspec import Struct, field

from eyot_sync.leaf.compression import LeafCompression
from eyot_sync.leaf.interest import LinkPeer
from eyot_sync.leaf.permissions import ALLOW_ALL, SubjectRule
from eyot_wire.frames import LeafMsg, LsAdd, LsDel, Ping
from eyot_wire.info import LeafConnect

#: Events of one link in one turn; messages between two others count as one. 512 take 5 to 10 ms, and others wait meanwhile.
EVENTS_OF_A_TURN = 512


class Role(Enum):
    """The role of a side. The soliciting side is the spoke unless it asks to be the hub."""

    SOLICIT = "solicit"
    ACCEPT = "accept"


class LeafIdentity(Struct, frozen=True):
    """The identity of this server on every link."""

    server_id: str
    server_name: str
    version: str
    host: str = "0.0.0.0"
    port: int = 0
    # Empty on a server without remotes: such a hub belongs to no cluster and nothing can collide with it.
    cluster: str = ""
    domain: str = ""
    jetstream: bool = False
    headers: bool = True
    max_payload: int = 1024 * 1024
    api_level: int = 0


class LeafCredentials(Struct, frozen=True):
    """The soliciting side's credentials. repr() and logs leave secrets out.

    `sign` turns the nonce's bytes into a raw ed25519 signature; it belongs to `jwt` or to the public `nkey`.
    """

    user: str = ""
    password: str | None = None
    token: str = ""
    jwt: str = ""
    nkey: str = ""
    sign: Callable[[bytes], bytes] | None = None

    def __repr__(self) -> str:
        return f"LeafCredentials(user={self.user!r}, nkey={self.nkey!r})"


class LeafTimes(Struct, frozen=True):
    """Waits and intervals of a link, in seconds."""

    first_info_s: float = 1.0
    connect_s: float = 2.0
    auth_s: float = 2.0
    ping_interval_s: float = 120.0
    ping_max: int = 2
    # After this long without a byte, although PING was sent, the link is stale. 0: only ping_interval and ping_max
    # apply.
    silence_max_s: float = 12.0


class LeafOptions(Struct, frozen=True):
    """Options of one link. Fields for one role only say so.

    `account`/`is_system`: the local account of a soliciting link (an accepting one gets it with `accept_connect`).
    """

    role: Role
    client_id: int
    times: LeafTimes = LeafTimes()
    message_bytes_max: int = 64 * 1024 * 1024
    compression: LeafCompression = field(default_factory=LeafCompression)
    # Leaf interest is not announced to this peer.
    isolate: bool = False
    default_js_domains: Mapping[str, str] = field(default_factory=dict)
    # Solicit
    account: str = ""
    is_system: bool = False
    is_hub: bool = False
    credentials: LeafCredentials = LeafCredentials()
    deny_imports: tuple[bytes, ...] = ()
    deny_exports: tuple[bytes, ...] = ()
    request_isolation: bool = False
    # The hub is asked for the same patience as this side's (its link is metered).
    asks_for_quiet: bool = False
    tls_required: bool = False
    # TLS was done before the first INFO (handshake_first).
    tls_done: bool = False
    # The link runs over WebSocket: of the hub's addresses, those for WebSocket concern us.
    websocket: bool = False
    # Accept
    leafnode_urls: tuple[str, ...] = ()
    tls_verify: bool = False
    min_version: str = ""


class TlsRequired(Struct, frozen=True):
    """Solicit: start TLS as the client now, then call `tls_established`."""


class ConnectReceived(Struct, frozen=True):
    """Accept: the peer sent CONNECT; answer with `accept_connect` or `reject`. `nonce` is what it had to sign."""

    connect: LeafConnect
    nonce: bytes


class Established(Struct, frozen=True):
    """Both sides are authenticated; interest and messages may flow.

    `remote_account`: the peer's account; empty when the peer did not send it.
    """

    server_id: str
    server_name: str
    version: str
    domain: str
    remote_account: str
    peer: LinkPeer
    jetstream: bool = False


class InterestComplete(Struct, frozen=True):
    """The peer answered the first PING: its initial interest has arrived completely."""


class UrlsDiscovered(Struct, frozen=True):
    """Solicit: the hub's other addresses, `host:port`; they replace the ones discovered before."""

    urls: tuple[str, ...]


class PermissionsChanged(Struct, frozen=True):
    """Solicit: the hub changed the link's permissions; announced interest must be checked again."""


class PeerError(Struct, frozen=True):
    """The peer sent -ERR. The link continues unless `Closed` follows."""

    text: str


class Closed(Struct, frozen=True):
    """The session is over: write the rest of `data_to_send`, then close the transport.

    `retry_after_s`: how long a soliciting side must wait; None: ordinary backoff.
    """

    reason: str
    retry_after_s: float | None = None


class ReplyRule(Struct, frozen=True):
    """`allow_responses`: how often, and for how many seconds, the reply subject of a message may be answered. Negative: no limit."""

    max_messages: int
    expires_s: float


class UserRules(Struct, frozen=True):
    """Permissions of the leaf node's user, from its side: what it may publish, and what it may subscribe to."""

    publish: SubjectRule = ALLOW_ALL
    subscribe: SubjectRule = ALLOW_ALL
    replies: ReplyRule | None = None
    #: the largest message that it may publish, bytes; -1: the server's `max_payload`
    payload_max: int = -1


LeafEvent = (
    LeafMsg
    | LsAdd
    | LsDel
    | Ping
    | TlsRequired
    | ConnectReceived
    | Established
    | InterestComplete
    | UrlsDiscovered
    | PermissionsChanged
    | PeerError
    | Closed
)
