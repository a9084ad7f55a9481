"""Who a leaf is that dialled us: credentials, the account's limit, and the permissions of its user as rules of the link."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from eyot_daemon.auth.login import Applicant, Deferred, Login, Peer, UserToken
from eyot_daemon.router.account import Account
from eyot_daemon.turn.backpressure import Gate
from eyot_daemon.turn.timers import TimerHandle
from eyot_sync.leaf import errors
from eyot_sync.leaf.events import ConnectReceived, ReplyRule, UserRules
from eyot_sync.leaf.permissions import SubjectRule
from eyot_wire.info import LeafConnect

if TYPE_CHECKING:
    from eyot_daemon.leaf.link import LeafConnection
    from eyot_daemon.router.broker import Broker

log = logging.getLogger("eyot.leaf")

Authenticate = Callable[[LeafConnect, str, Peer, Applicant], Login | Deferred | None]


class Admission(NamedTuple):
    """The verdict on a CONNECT: an account, or the words of the refusal."""

    account: Account | None
    user: str = ""
    rules: UserRules = UserRules()
    refusal: str = ""
    expires_in_s: float = 0.0  # 0: never
    token: UserToken | None = None  # in operator mode
    external: bool = False  # decided by an auth callout


def admit(login: Login | None, broker: Broker) -> Admission:
    """What becomes of a leaf that was found to be `login`; None: nobody we know."""
    if login is None:
        return Admission(None, refusal=errors.AUTHORIZATION_VIOLATION)
    account = broker.add_account(login.account)
    if 0 <= account.leafnodes_max <= len(account.leafnodes):
        return Admission(None, login.user, refusal=errors.MAX_ACCOUNT_CONNECTIONS)
    return Admission(account, login.user, _rules(login), "", login.expires_in_s, login.token, login.external)


def _rules(login: Login) -> UserRules:
    permissions = login.permissions
    if permissions is None:
        return UserRules()
    responses = permissions.allow_responses
    return UserRules(
        publish=SubjectRule(permissions.publish.allow, permissions.publish.deny),
        subscribe=SubjectRule(permissions.subscribe.allow, permissions.subscribe.deny),
        replies=None if responses is None else ReplyRule(responses.max_messages, responses.expires_s),
    )


class LeafLogin:
    """Decides on the CONNECT of one accepted link, and ends the link when its credential expires."""

    __slots__ = ("_authenticate", "_decision", "_door", "_expiry", "_link")

    def __init__(self, link: LeafConnection, authenticate: Authenticate) -> None:
        self._link = link
        self._authenticate = authenticate
        self._decision: Deferred | None = None  # who this is gets decided elsewhere
        self._door: Gate | None = None  # where the peer waits for that
        self._expiry: TimerHandle | None = None

    def authenticate(self, event: ConnectReceived) -> None:
        """What takes longer than a turn (bcrypt, an auth callout) is awaited."""
        link = self._link
        decision = self._authenticate(event.connect, event.nonce.decode(), link.peer, link)
        if isinstance(decision, Deferred):
            self._decision = decision
            decision.when_done(lambda login: self._authenticated(event, login))
            self._door = Gate(link.links.broker.timers, lambda: self._decision is not None)
            self.hold()
        else:
            self._authenticated(event, decision)

    def hold(self) -> None:
        """While it is being decided who the peer is, it is not read."""
        transport = self._link.transport
        if self._decision is not None and self._door is not None and transport is not None:
            transport.hold(self._door)

    def _let_go(self) -> None:
        door, self._door = self._door, None
        if door is not None:
            door.open()

    def stop(self) -> None:
        """The link ended."""
        if self._decision is not None:
            self._decision.abandoned = True
        self._let_go()
        if self._expiry is not None:
            self._expiry.cancel()

    def _authenticated(self, event: ConnectReceived, login: Login | None) -> None:
        self._decision = None
        self._let_go()
        link = self._link
        if link.closed:
            return
        broker, session = link.links.broker, link.session
        admission = admit(login, broker)
        account = admission.account
        if account is None:
            log.error("%r - %s: leafnode %r, user %r", link, admission.refusal, event.connect.name, event.connect.user)
            link.handle(session.reject(admission.refusal))
            return
        link.user, link.token, link.external = admission.user, admission.token, admission.external
        link.account_name = account.name
        if admission.expires_in_s:
            expired = errors.USER_EXPIRED
            self._expiry = broker.timers.call_later(admission.expires_in_s, lambda: link.close(expired))
        link.handle(
            session.accept_connect(
                broker.clock.monotonic(), account=account.name, is_system=account.is_system, user=admission.rules
            )
        )
