"""A client as other parts of the broker see it: identity, round trip, permissions.

Imports, latency samples and message traces describe clients in these terms; only the code that serves a connection
needs all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eyot_daemon.router.subscription import Kind
from eyot_wire.native import OutBuffer

if TYPE_CHECKING:
    from eyot_daemon.auth.login import Peer, UserToken
    from eyot_daemon.router.access import Access
    from eyot_daemon.router.account import Account


class KnownClient(OutBuffer):
    """The identity of a client.

    `user`, `name`, `lang`, `version`: as in CONNECT; empty before. `rtt_s`: the last round trip in seconds, 0 before
    the first PONG. `started_ns`: connection time, Unix time. `token`: its JWT in operator mode. `account`: its account,
    None before authentication and after the end. `nonce`: what it signs with its nkey. `access`: its permissions
    (None: everything). `echo`: whether it receives its own messages.
    """

    __slots__ = (
        "access",
        "account",
        "cid",
        "echo",
        "lang",
        "name",
        "nonce",
        "peer",
        "rtt_s",
        "started_ns",
        "token",
        "user",
        "version",
    )

    kind = Kind.CLIENT

    def __init__(self, peer: Peer, cid: int, started_ns: int) -> None:
        super().__init__()
        self.peer = peer
        self.cid = cid
        self.nonce = ""
        self.account: Account | None = None
        self.access: Access | None = None
        self.token: UserToken | None = None
        self.user = ""
        self.name = ""
        self.lang = ""
        self.version = ""
        self.rtt_s = 0.0
        self.started_ns = started_ns
        self.echo = True  # nats-server's assumption until CONNECT

    def token_members(self) -> dict[str, Any]:
        """Return the token's members for descriptions of a client, in operator mode.

        The text of a bearer token is equivalent to a password, and left out.
        """
        token = self.token
        if token is None:
            return {}
        told = {
            "jwt": "" if token.grant.bearer_token else token.text,
            "issuer_key": token.claims.iss,
            "name_tag": token.claims.name,
            "tags": list(token.claims.all_tags),
        }
        return {name: value for name, value in told.items() if value}
