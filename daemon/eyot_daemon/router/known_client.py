"""A client as everybody else in the broker may know it: who it is, how far away, what it may get.

Imports, latency samples and message traces describe clients in these words; only what serves a connection needs all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eyot_daemon.router.subscription import Kind
from eyot_wire.native import OutBuffer

if TYPE_CHECKING:
    from eyot_daemon.auth.login import Peer, UserToken
    from eyot_daemon.router.access import Access


class KnownClient(OutBuffer):
    """Who a client is.

    `user`, `name`, `lang`, `version`  as it said at CONNECT; empty before.
    `rtt_s`       the last round trip in seconds, 0 before the first PONG; `started_ns`  when it connected, Unix time.
    `token`       in operator mode, what it came in by.
    `access`      what it may publish and receive (None: everything); `echo`  whether it gets what it publishes itself.
    """

    __slots__ = ("access", "cid", "echo", "lang", "name", "peer", "rtt_s", "started_ns", "token", "user", "version")

    kind = Kind.CLIENT

    def __init__(self, peer: Peer, cid: int, started_ns: int) -> None:
        super().__init__()
        self.peer = peer
        self.cid = cid
        self.access: Access | None = None
        self.token: UserToken | None = None
        self.user = ""
        self.name = ""
        self.lang = ""
        self.version = ""
        self.rtt_s = 0.0
        self.started_ns = started_ns
        self.echo = True  # what nats-server assumes until CONNECT says otherwise

    def token_members(self) -> dict[str, Any]:
        """In operator mode, how descriptions of a client name its token. The text of a bearer token is as good as a password, and
        not told."""
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
