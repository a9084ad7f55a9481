"""The interface between connections and authentication.

Connections (clients, and leaf links that use the server's own users) ask an `Authenticator`, which answers with an
account, a user name and permissions. auth/configured.py and its siblings implement it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.structs import replace

from eyot_daemon.config.permissions import Permissions
from eyot_daemon.net.websocket_upgrade import Cookies
from eyot_wire.info import ClientConnect

if TYPE_CHECKING:
    import trio

    from eyot_wire.trust.jwt import Claims, UserGrant
    from eyot_wire.trust.jwt_account import ScopedKey

#: A connection type of `allowed_connection_types`.
WEBSOCKET = "WEBSOCKET"
#: MQTT over TCP or TLS, and over WebSocket.
MQTT = "MQTT"
MQTT_WS = "MQTT_WS"


class Peer(Struct, frozen=True, kw_only=True):
    """The other end of a connection, as far as the transport knows it."""

    host: str = ""
    port: int = 0
    connection_type: str = "STANDARD"  # a name of `allowed_connection_types`
    tls_version: str = ""
    tls_cipher: str = ""
    certificate: bytes = b""  # DER of the client's verified certificate
    cookies: Cookies | None = None  # credentials a browser sent with the upgrade

    @property
    def client_type(self) -> str:
        """The kind of connection in the words of events and pages."""
        if self.is_mqtt:
            return "mqtt"
        return "websocket" if self.connection_type == WEBSOCKET else "nats"

    @property
    def is_mqtt(self) -> bool:
        """Whether the client speaks MQTT."""
        return self.connection_type in (MQTT, MQTT_WS)

    def secured_by(self, stream: trio.SSLStream[trio.SocketStream]) -> Peer:
        """Return this end with what the handshake of `stream` agreed on and showed."""
        cipher = stream.cipher()
        return replace(
            self,
            tls_version=stream.version() or "",
            tls_cipher=cipher[0] if cipher else "",
            certificate=stream.getpeercert(binary_form=True) or b"",
        )


class UserToken(Struct, frozen=True, kw_only=True):
    """The JWT that a user presented, and the scope of its signer at that time."""

    text: str
    claims: Claims
    grant: UserGrant  # the user's own, or that of the signing key's scope
    scope: ScopedKey | None = None

    def __repr__(self) -> str:
        return f"UserToken({self.claims.sub})"


class Login(Protocol):
    """A successful authentication."""

    @property
    def account(self) -> str: ...

    @property
    def user(self) -> str: ...

    @property
    def permissions(self) -> Permissions | None: ...

    @property
    def external(self) -> bool:
        """Whether an external service (an auth callout) decided: a reload then does not authorize again."""
        ...

    @property
    def expires_in_s(self) -> float:
        """How long it holds; 0: without end."""
        ...

    @property
    def token(self) -> UserToken | None:
        """The user's token, in operator mode."""
        ...


class Deferred:
    """A decision that takes longer than a turn: a bcrypt check in a thread, an auth callout. The connection waits.

    The decider calls `settle` once, within a turn of the broker; the connection calls `when_done`. `abandoned`: the
    connection ended or ran into its timeout, so the result is no longer needed. `at_work`: this server computes the result and will
    end soon, so the time that it takes is not the peer's. `has_clock`: the decider settles in any case, after the time that the
    peer had for its credentials.
    """

    __slots__ = ("_done", "_outcome", "_settled", "abandoned", "at_work", "has_clock")

    def __init__(self) -> None:
        self.abandoned = False
        self.at_work = False
        self.has_clock = False
        self._settled = False
        self._outcome: Login | None = None
        self._done: Callable[[Login | None], None] | None = None

    def settle(self, login: Login | None) -> None:
        if self._settled:
            return
        self._settled = True
        self._outcome = login
        if self._done is not None and not self.abandoned:
            self._done(login)

    @property
    def settled(self) -> bool:
        return self._settled

    @property
    def outcome(self) -> Login | None:
        """The result, once settled."""
        return self._outcome

    def when_done(self, done: Callable[[Login | None], None]) -> None:
        if self._settled:
            done(self._outcome)
        else:
            self._done = done


class Applicant(Protocol):
    """The connection to authenticate, as an auth callout describes it."""

    @property
    def cid(self) -> int: ...

    @property
    def nonce(self) -> str: ...

    @property
    def mqtt_client(self) -> str:
        """The client id of MQTT; "": another protocol."""
        ...


class Authenticator(Protocol):
    """Decides which connections are admitted. Runs within a turn of the broker: slow decisions return a `Deferred`."""

    @property
    def auth_required(self) -> bool:
        """INFO's `auth_required`: CONNECT must come first, unless `anonymous` allows otherwise."""
        ...

    @property
    def wants_nonce(self) -> bool:
        """Whether any user must sign a nonce."""
        ...

    def client(
        self, connect: ClientConnect, nonce: str, peer: Peer, applicant: Applicant | None = None
    ) -> Login | Deferred | None:
        """Return the login for these credentials; None: Authorization Violation."""
        ...

    def anonymous(self, peer: Peer) -> Login | None:
        """Return the login of a connection that publishes or subscribes before CONNECT; None: refused."""
        ...
