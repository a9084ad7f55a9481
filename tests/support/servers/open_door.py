"""An authenticator for brokers that have no users."""

from __future__ import annotations

from msgspec import Struct

from eyot_daemon.auth.login import Applicant, Deferred, Login, Peer, UserToken
from eyot_daemon.config.accounts import GLOBAL_ACCOUNT
from eyot_daemon.config.permissions import Permissions
from eyot_wire.info import ClientConnect


class _OpenLogin(Struct, frozen=True):
    account: str = GLOBAL_ACCOUNT
    user: str = ""
    permissions: Permissions | None = None
    external: bool = False
    expires_in_s: float = 0.0
    token: UserToken | None = None


class OpenDoor:
    """No configured authentication: every connection is in the global account."""

    auth_required = False
    wants_nonce = False

    def client(
        self, connect: ClientConnect, nonce: str, peer: Peer, applicant: Applicant | None = None
    ) -> Login | Deferred | None:
        return _OpenLogin()

    def anonymous(self, peer: Peer) -> Login | None:
        return _OpenLogin()
