"""Auth callout: a service in one account decides about clients that the configuration does not know.

Users of the configuration come first (the service itself connects as one of `auth_users`). Everybody else's CONNECT is
described in a signed request on `$SYS.REQ.USER.AUTH`; the connection waits for the answer, at most its authentication
timeout. No service, no answer in time, or an answer that cannot be believed: Authorization Violation.
"""

from __future__ import annotations

import logging
import os
import secrets
import ssl
from collections.abc import Callable

from eyot_daemon.auth.claims_permissions import permissions_of
from eyot_daemon.auth.configured import AuthResult, ConfigAuthenticator
from eyot_daemon.auth.login import Applicant, Deferred, Login, Peer
from eyot_daemon.config.accounts import GLOBAL_ACCOUNT, AuthCalloutOptions
from eyot_daemon.config.check import account_names
from eyot_daemon.config.options import Options
from eyot_daemon.router.broker import Broker
from eyot_daemon.router.subscription import CallbackDest, Kind, Origin, Subscription
from eyot_daemon.turn.timers import TimerHandle
from eyot_daemon.version import VERSION
from eyot_wire.headers import set_field
from eyot_wire.info import ClientConnect, LeafConnect
from eyot_wire.trust import nkey
from eyot_wire.trust.auth_callout import (
    SUBJECT,
    XKEY_HEADER,
    CalloutRequest,
    ClientInformation,
    ClientTls,
    ConnectOptions,
    CurveKey,
    ServerIdentity,
    decode_response,
    encode_request,
)
from eyot_wire.trust.jwt import JwtError

log = logging.getLogger("eyot.auth")

#: Connections that wait for an answer; more are refused at once.
WAITING_MAX = 4096
_TYPES = {"STANDARD": "nats", "WEBSOCKET": "websocket"}


class _Asked:
    """One question on its way."""

    __slots__ = ("applicant", "deferred", "peer", "timer", "user", "user_nkey")

    def __init__(self, deferred: Deferred, peer: Peer, user_nkey: str, user: str) -> None:
        self.deferred = deferred
        self.peer = peer
        self.user_nkey = user_nkey
        self.user = user
        self.timer: TimerHandle | None = None


class Callout:
    """Asks the service; one for the server's life. `signer` is the key whose public part is the server's id."""

    def __init__(self, broker: Broker, signer: nkey.Signer) -> None:
        self.broker = broker
        self._signer = signer
        self._curve = CurveKey(os.urandom(32))
        self._waiting: dict[bytes, _Asked] = {}
        self._subscription: Subscription | None = None
        self._prefix = b"$SYS._INBOX." + secrets.token_hex(4).encode() + b"."

    def ask(
        self, options: Options, connect: ClientConnect, peer: Peer, applicant: Applicant | None, deferred: Deferred
    ) -> None:
        """Settle `deferred` with what the service says."""
        configured = options.authorization.auth_callout
        account = None if configured is None else self.broker.accounts.get(configured.account)
        if configured is None or account is None or len(self._waiting) >= WAITING_MAX:
            deferred.settle(None)
            return
        if self._subscription is None or self._subscription.account is not account:
            self._subscription = account.subscribe(
                self._prefix + b"*", CallbackDest(self._answered, Kind.SYSTEM, "auth callout")
            )
        user = nkey.encode_public("U", os.urandom(32))
        now_s = self.broker.clock.now_ns() // 10**9
        timeout_s = options.authorization.timeout_s
        payload = encode_request(
            self._describe(configured, connect, peer, applicant, user),
            self._signer,
            issued_s=now_s,
            expires_s=now_s + max(1, round(timeout_s)),
        )
        header = b""
        if configured.xkey:
            payload = self._curve.seal(payload, configured.xkey)
            header = set_field(b"", XKEY_HEADER, self._curve.public_key.encode())
        token = secrets.token_hex(8).encode()
        asked = self._waiting[token] = _Asked(deferred, peer, user, connect.user)
        asked.timer = self.broker.timers.call_later(timeout_s, lambda: self._give_up(token))
        if not account.publish(SUBJECT, self._prefix + token, header, payload):
            log.error("No auth callout service in account %s", account.name)
            self._give_up(token)

    def _give_up(self, token: bytes) -> None:
        asked = self._waiting.pop(token, None)
        if asked is not None:
            if asked.timer is not None:
                asked.timer.cancel()
            asked.deferred.settle(None)

    def _describe(
        self,
        configured: AuthCalloutOptions,
        connect: ClientConnect,
        peer: Peer,
        applicant: Applicant | None,
        user_nkey: str,
    ) -> CalloutRequest:
        options = self.broker.options
        tls = None
        if peer.tls_version:
            certs = (ssl.DER_cert_to_PEM_cert(peer.certificate),) if peer.certificate else ()
            tls = ClientTls(
                version=peer.tls_version.removeprefix("TLSv"),
                cipher=peer.tls_cipher,
                verified_chains=(certs,) if certs else (),
            )
        return CalloutRequest(
            server_id=ServerIdentity(
                name=self.broker.server_name,
                host=options.host,
                id=self.broker.server_id,
                version=VERSION,
                tags=options.server_tags,
                xkey=self._curve.public_key if configured.xkey else "",
            ),
            user_nkey=user_nkey,
            client_info=ClientInformation(
                host=peer.host,
                id=0 if applicant is None else applicant.cid,
                user=connect.user or connect.nkey,
                name=connect.name,
                kind="Leafnode" if peer.connection_type.startswith("LEAFNODE") else "Client",
                type=_TYPES.get(peer.connection_type, ""),
                nonce="" if applicant is None else applicant.nonce,
            ),
            connect_opts=ConnectOptions(
                jwt=connect.jwt,
                nkey=connect.nkey,
                sig=connect.sig,
                auth_token=connect.auth_token,
                user=connect.user,
                password=connect.password,
                name=connect.name,
                lang=connect.lang,
                version=connect.version,
                protocol=connect.protocol,
            ),
            client_tls=tls,
        )

    def _answered(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> None:
        token = subject.rpartition(b".")[2]
        asked = self._waiting.pop(token, None)
        if asked is None:
            return
        if asked.timer is not None:
            asked.timer.cancel()
        login: AuthResult | None = None
        try:
            login = self._judge(asked, payload)
        except JwtError as error:
            log.error("Auth callout: %s", error)
        asked.deferred.settle(login)

    def _judge(self, asked: _Asked, payload: bytes) -> AuthResult:
        """The login an answer grants. Raises JwtError."""
        options = self.broker.options
        configured = options.authorization.auth_callout
        if configured is None or not payload:
            raise JwtError("empty response")
        if configured.xkey and not payload.startswith(b"eyJ"):
            payload = self._curve.open(payload, configured.xkey)
        now_s = self.broker.clock.now_ns() / 1e9
        user = decode_response(
            payload.decode("utf-8", "replace"),
            issuer=configured.issuer,
            user_nkey=asked.user_nkey,
            server_id=self.broker.server_id,
            now_s=now_s,
        )
        account = user.aud or GLOBAL_ACCOUNT
        if account not in account_names(options):
            raise JwtError(f"account {account!r} is not known here")
        if configured.allowed_accounts and account not in configured.allowed_accounts:
            raise JwtError(f"account {account!r} is not allowed for the auth callout")
        types = user.nats.allowed_connection_types
        if types and asked.peer.connection_type not in types:
            raise JwtError("connection type is not allowed")
        if user.nats.src or user.nats.times:
            raise JwtError("limits of source addresses and times are not offered by eyotd")
        expires_in_s = user.exp - now_s if user.exp else 0.0
        return AuthResult(
            account=account,
            user=user.name or asked.user or asked.user_nkey,
            permissions=permissions_of(user.nats.pub, user.nats.sub, user.nats.resp),
            external=True,
            expires_in_s=expires_in_s,
        )


class CalloutAuthenticator:
    """The configuration's users first, then the service. A `login.Authenticator`."""

    auth_required = True
    wants_nonce = True

    def __init__(self, inner: ConfigAuthenticator, options: Options, ask: Callable[..., None]) -> None:
        self._inner = inner
        self._options = options
        self._ask = ask

    def client(
        self, connect: ClientConnect, nonce: str, peer: Peer, applicant: Applicant | None = None
    ) -> Login | Deferred | None:
        return self._or_ask(self._inner.client(connect, nonce, peer, applicant), connect, peer, applicant)

    def leaf(
        self, connect: LeafConnect, nonce: str, peer: Peer, applicant: Applicant | None = None
    ) -> Login | Deferred | None:
        """Leafs are asked about as clients are, unless the leaf listener has users of its own."""
        decision = self._inner.leaf(connect, nonce, peer, applicant)
        own = self._options.leafnodes.authorization
        if own is not None and (own.user or own.nkey or own.users):
            return decision
        presented = ClientConnect(
            user=connect.user,
            password=connect.password,
            auth_token=connect.auth_token,
            jwt=connect.jwt,
            sig=connect.sig,
            nkey=connect.nkey,
            name=connect.name,
            version=connect.version,
            protocol=connect.protocol,
        )
        return self._or_ask(decision, presented, peer, applicant)

    def _or_ask(
        self, decision: Login | Deferred | None, connect: ClientConnect, peer: Peer, applicant: Applicant | None
    ) -> Login | Deferred | None:
        if decision is not None and not isinstance(decision, Deferred):
            return decision
        outer = Deferred()
        if decision is None:
            self._ask(self._options, connect, peer, applicant, outer)
            return outer

        def decided(login: Login | None) -> None:
            if login is not None:
                outer.settle(login)
            elif not outer.abandoned:
                self._ask(self._options, connect, peer, applicant, outer)

        decision.when_done(decided)
        return outer

    def anonymous(self, peer: Peer) -> Login | None:
        return self._inner.anonymous(peer)


def server_key() -> nkey.Signer:
    """A new key of a server, kept only in memory."""
    return nkey.Signer(nkey.encode_seed("N", os.urandom(32)))


def new_id() -> str:
    """An id of a server that signs nothing: of the same form, from randomness alone."""
    return nkey.encode_public("N", os.urandom(32))
