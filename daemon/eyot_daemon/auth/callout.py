"""Auth callout: a service in one account decides which connections are admitted, and as which user.

The service itself connects as one of `auth_users`. Every other CONNECT, also that of a configured user, is described in
a signed request on `$SYS.REQ.USER.AUTH`. The connection waits for the answer, at most its authentication timeout.
Without a service or a timely answer, or with an invalid answer (`callout_rules`), the result is Authorization
Violation. Source: NATS ADR-26.
"""

from __future__ import annotations

import logging
import os
import secrets
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from eyot_daemon.auth.callout_rules import Answer, CalloutRules, ConfiguredRules, OperatorRules, without_questions
from eyot_daemon.auth.configured import AuthResult, ConfigAuthenticator
from eyot_daemon.auth.login import Applicant, Deferred, Login, Peer
from eyot_daemon.config.accounts import GLOBAL_ACCOUNT
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
    encode_request,
)
from eyot_wire.trust.jwt import JwtError

if TYPE_CHECKING:
    from eyot_daemon.auth.operator import OperatorAuthenticator
    from eyot_daemon.auth.trust import Trust
    from eyot_wire.trust.jwt_account import AccountClaims

log = logging.getLogger("eyot.auth")

#: Connections that wait for an answer; more are refused at once.
WAITING_MAX = 4096
_TYPES = {"STANDARD": "nats", "WEBSOCKET": "websocket", "MQTT": "mqtt", "MQTT_WS": "mqtt"}


class _Asked:
    """One question on its way."""

    __slots__ = ("deferred", "peer", "rules", "timer", "user", "user_nkey")

    def __init__(self, deferred: Deferred, rules: CalloutRules, peer: Peer, user_nkey: str, user: str) -> None:
        self.deferred = deferred
        self.rules = rules
        self.peer = peer
        self.user_nkey = user_nkey
        self.user = user
        self.timer: TimerHandle | None = None


class Callout:
    """Asks services; one per server. `signer`: the key whose public part is the server's id."""

    def __init__(self, broker: Broker, signer: nkey.Signer) -> None:
        self.broker = broker
        self._signer = signer
        self._curve = CurveKey(os.urandom(32))
        self._waiting: dict[bytes, _Asked] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._prefix = b"$SYS._INBOX." + secrets.token_hex(4).encode() + b"."

    def ask(
        self, rules: CalloutRules, connect: ClientConnect, peer: Peer, applicant: Applicant | None, deferred: Deferred
    ) -> None:
        """Settle `deferred` with the service's answer."""
        account = self.broker.accounts.get(rules.account)
        if account is None or len(self._waiting) >= WAITING_MAX:
            deferred.settle(None)
            return
        known = self._subscriptions.get(account.name)
        if known is None or known.account is not account:
            self._subscriptions[account.name] = account.subscribe(
                self._prefix + b"*", CallbackDest(self._answered, Kind.SYSTEM, "auth callout")
            )
        user = nkey.encode_public("U", os.urandom(32))
        now_s = self.broker.clock.now_ns() // 10**9
        timeout_s = self.broker.options.authorization.timeout_s
        payload = encode_request(
            self._describe(rules, connect, peer, applicant, user),
            self._signer,
            receiver=rules.issuer,
            issued_s=now_s,
            expires_s=now_s + max(1, round(timeout_s)),
        )
        header = b""
        if rules.xkey:
            payload = self._curve.seal(payload, rules.xkey)
            header = set_field(b"", XKEY_HEADER, self._curve.public_key.encode())
        token = secrets.token_hex(8).encode()
        asked = self._waiting[token] = _Asked(deferred, rules, peer, user, presented_as(connect))
        deferred.has_clock = True
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
        rules: CalloutRules,
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
                xkey=self._curve.public_key if rules.xkey else "",
            ),
            user_nkey=user_nkey,
            client_info=ClientInformation(
                host=peer.host,
                id=0 if applicant is None else applicant.cid,
                user=presented_as(connect),
                name=connect.name,
                kind="Leafnode" if peer.connection_type.startswith("LEAFNODE") else "Client",
                type=_TYPES.get(peer.connection_type, ""),
                mqtt_id="" if applicant is None else applicant.mqtt_client,
                nonce="" if applicant is None or not connect.sig else applicant.nonce,
            ),
            connect_opts=ConnectOptions(
                # Without an operator nats-server drops what CONNECT says of a JWT; MQTT has its password in that place.
                jwt=connect.jwt if rules.takes_tokens or peer.is_mqtt else "",
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
            login = asked.rules.grant(self._opened(asked, payload))
        except JwtError as error:
            log.error("Auth callout: %s", error)
        asked.deferred.settle(login)

    def _opened(self, asked: _Asked, payload: bytes) -> Answer:
        """Return the decrypted answer. Raises JwtError."""
        if not payload:
            raise JwtError(f'auth callout violation: "no reason supplied" on account "{asked.rules.account}"')
        if asked.rules.xkey and not payload.startswith(b"eyJ"):
            payload = self._curve.open(payload, asked.rules.xkey)
        return Answer(
            token=payload.decode("utf-8", "replace"),
            user_nkey=asked.user_nkey,
            user=asked.user,
            server_id=self.broker.server_id,
            peer=asked.peer,
            now_s=self.broker.clock.now_ns() / 1e9,
        )


def presented_as(connect: ClientConnect) -> str:
    """Return a connection's name for itself, as nats-server shows it."""
    return connect.nkey or connect.user or ("[REDACTED]" if connect.auth_token else "")


Ask = Callable[[CalloutRules, ClientConnect, Peer, Applicant | None, Deferred], None]


class CalloutAuthenticator:
    """Asks the service about all users except its own (`auth_users`), whom the configuration authenticates.

    A `login.Authenticator`. Configured users of accounts outside `allowed_accounts` are not sent to the service either.
    """

    auth_required = True
    wants_nonce = True

    def __init__(self, inner: ConfigAuthenticator, options: Options, ask: Ask) -> None:
        configured = options.authorization.auth_callout
        assert configured is not None
        self._inner = inner
        self._options = options
        self._ask = ask
        self._rules = ConfiguredRules(options)
        self._own_users, self._allowed = configured.auth_users, configured.allowed_accounts

    def client(
        self, connect: ClientConnect, nonce: str, peer: Peer, applicant: Applicant | None = None
    ) -> Login | Deferred | None:
        decision = self._inner.client(connect, nonce, peer, applicant)
        return self._or_ask(decision, self._stand_in(connect), peer, applicant)

    def leaf(
        self, connect: LeafConnect, nonce: str, peer: Peer, applicant: Applicant | None = None
    ) -> Login | Deferred | None:
        """Authenticate a leaf node as clients are, unless the leaf listener has users of its own."""
        decision = self._inner.leaf(connect, nonce, peer, applicant)
        own = self._options.leafnodes.authorization
        if own is not None and (own.user or own.nkey or own.users):
            return decision
        return self._or_ask(decision, self._stand_in(as_client(connect)), peer, applicant)

    def anonymous(self, peer: Peer) -> Login | None:
        """Return the login without credentials: only a user whom the service does not decide may stand in."""
        login = self._inner.anonymous(peer)
        if login is None or self._is_asked_about(login, login.user, peer):
            return None
        return self._known(login)

    def _stand_in(self, connect: ClientConnect) -> ClientConnect:
        """Return the presented credentials; without any, those of `no_auth_user`."""
        name = self._options.no_auth_user
        if not name or connect.user or connect.password or connect.auth_token or connect.nkey:
            return connect
        user = next((one for one in self._options.users if name in (one.user, one.nkey)), None)
        if user is None:
            return connect
        return msgspec.structs.replace(connect, user=user.user, password=user.password, nkey=user.nkey)

    def _is_asked_about(self, login: Login | None, name: str, peer: Peer) -> bool:
        account = GLOBAL_ACCOUNT if login is None else login.account
        is_leaf = peer.connection_type.startswith("LEAFNODE")
        if not is_leaf and account != GLOBAL_ACCOUNT and self._allowed and account not in self._allowed:
            return False
        return name not in self._own_users

    def _known(self, login: Login) -> Login:
        """Return the login of a user admitted by the configuration. In the service's account, only the server sends requests."""
        if login.account != self._rules.account:
            return login
        permissions = without_questions(login.permissions)
        return AuthResult(account=login.account, user=login.user, permissions=permissions, token=login.token)

    def _or_ask(
        self, decision: Login | Deferred | None, connect: ClientConnect, peer: Peer, applicant: Applicant | None
    ) -> Login | Deferred | None:
        outer = Deferred()

        def decided(login: Login | None) -> None:
            name = login.user if login is not None and login.user else presented_as(connect)
            if not self._is_asked_about(login, name, peer):
                outer.settle(None if login is None else self._known(login))
            elif not outer.abandoned:
                self._ask(self._rules, connect, peer, applicant, outer)

        if isinstance(decision, Deferred):
            decision.when_done(decided)
        else:
            decided(decision)
        return outer.outcome if outer.settled else outer


class OperatorCallout:
    """Operator mode: asks the service of a user's account, if its token configures one (`authorization`).

    A `login.Authenticator`. Its own users (`auth_users`) are admitted by their tokens alone. Every other user needs a
    valid token as well, often one shared by all: it selects the account whose service is asked.
    """

    auth_required = True
    wants_nonce = True

    def __init__(self, inner: OperatorAuthenticator, trust: Trust, ask: Ask) -> None:
        self._inner = inner
        self._trust = trust
        self._ask = ask

    def client(
        self, connect: ClientConnect, nonce: str, peer: Peer, applicant: Applicant | None = None
    ) -> Login | Deferred | None:
        return self._or_ask(self._inner.client(connect, nonce, peer, applicant), connect, peer, applicant)

    def leaf(
        self, connect: LeafConnect, nonce: str, peer: Peer, applicant: Applicant | None = None
    ) -> Login | Deferred | None:
        return self._or_ask(self._inner.leaf(connect, nonce, peer, applicant), as_client(connect), peer, applicant)

    def anonymous(self, peer: Peer) -> Login | None:
        login = self._inner.anonymous(peer)
        if login is None or self._asked_account(login) is not None:
            return None
        return login

    def _asked_account(self, login: Login) -> AccountClaims | None:
        """Return the account whose service decides about a user; None: the token decided."""
        account = self._trust.usable(login.account)
        users = () if account is None else account.body.authorization.auth_users or ()
        return account if users and login.user not in users else None

    def _or_ask(
        self, decision: Login | Deferred | None, connect: ClientConnect, peer: Peer, applicant: Applicant | None
    ) -> Login | Deferred | None:
        if decision is None or isinstance(decision, Deferred):
            return decision
        account = self._asked_account(decision)
        if account is None:
            return decision
        outer = Deferred()
        self._ask(OperatorRules(self._trust, account), connect, peer, applicant, outer)
        return outer.outcome if outer.settled else outer


def as_client(connect: LeafConnect) -> ClientConnect:
    """Return a leaf node's credentials in the form of a client's CONNECT."""
    return ClientConnect(
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


def server_key() -> nkey.Signer:
    """Return a new server key, kept only in memory."""
    return nkey.Signer(nkey.encode_seed("N", os.urandom(32)))


def new_id() -> str:
    """Return an id for a server that signs nothing: the same form, from randomness alone."""
    return nkey.encode_public("N", os.urandom(32))
