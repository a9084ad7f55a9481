"""Authentication of an accepted leaf node: credentials, the account's limit, and the user's permissions as rules of the link."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from eyot_daemon.auth.login import Applicant, Deferred, Login, Peer, UserToken
from eyot_daemon.net.transport import Transport
from eyot_daemon.router.account import Account
from eyot_daemon.turn.backpressure import Gate
from eyot_daemon.turn.timers import TimerHandle, Timers
from eyot_daemon.turn.wall_timers import WallTimers
from eyot_sync.leaf import errors
from eyot_sync.leaf.events import ConnectReceived, ReplyRule, UserRules
from eyot_sync.leaf.permissions import SubjectRule
from eyot_wire.info import LeafConnect

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


def admit(login: Login | None, account_named: Callable[[str], Account]) -> Admission:
    """Return the admission of a leaf node authenticated as `login`; None: unknown."""
    if login is None:
        return Admission(None, refusal=errors.AUTHORIZATION_VIOLATION)
    account = account_named(login.account)
    if 0 <= account.leafnodes_max <= len(account.leafnodes):
        return Admission(None, login.user, refusal=errors.MAX_ACCOUNT_CONNECTIONS)
    return Admission(account, login.user, _rules(login, account), "", login.expires_in_s, login.token, login.external)


def payload_max(account: Account, token: UserToken | None) -> int:
    """Return the largest message that a leaf node may publish by its account and its token, bytes; -1: no such limit."""
    limits = (account.payload_max, -1 if token is None else token.grant.payload)
    return min((each for each in limits if each >= 0), default=-1)


def _rules(login: Login, account: Account) -> UserRules:
    permissions, most = login.permissions, payload_max(account, login.token)
    if permissions is None:
        return UserRules(payload_max=most)
    responses = permissions.allow_responses
    return UserRules(
        publish=SubjectRule(permissions.publish.allow, permissions.publish.deny),
        subscribe=SubjectRule(permissions.subscribe.allow, permissions.subscribe.deny),
        replies=None if responses is None else ReplyRule(responses.max_messages, responses.expires_s),
        payload_max=most,
    )


class LeafLogin:
    """Decides on the CONNECT of one accepted link, and ends the link when its credential expires.

    `authenticated` receives the peer's login; None: authentication failed.
    """

    __slots__ = (
        "_applicant",
        "_authenticate",
        "_authenticated",
        "_decision",
        "_door",
        "_expiry",
        "_timers",
        "_wall_timers",
    )

    def __init__(
        self,
        applicant: Applicant,
        authenticate: Authenticate,
        timers: Timers,
        wall_timers: WallTimers,
        authenticated: Callable[[ConnectReceived, Login | None], None],
    ) -> None:
        self._applicant = applicant
        self._authenticate = authenticate
        self._timers = timers
        self._wall_timers = wall_timers
        self._authenticated = authenticated
        self._decision: Deferred | None = None  # a pending authentication
        self._door: Gate | None = None  # where the peer waits for that
        self._expiry: TimerHandle | None = None

    def authenticate(self, event: ConnectReceived, peer: Peer) -> None:
        """Authenticate the peer; slow decisions (bcrypt, an auth callout) are awaited."""
        decision = self._authenticate(event.connect, event.nonce.decode(), peer, self._applicant)
        if isinstance(decision, Deferred):
            self._decision = decision
            decision.when_done(lambda login: self._decided(event, login))
            self._door = Gate(self._timers, lambda: self._decision is not None)
        else:
            self._decided(event, decision)

    def _decided(self, event: ConnectReceived, login: Login | None) -> None:
        self._decision = None
        self._let_go()
        self._authenticated(event, login)

    def hold(self, transport: Transport | None) -> None:
        """Stop reading the peer until the decision."""
        if self._decision is not None and self._door is not None and transport is not None:
            transport.hold(self._door)

    def _let_go(self) -> None:
        door, self._door = self._door, None
        if door is not None:
            door.open()

    def expire_in(self, seconds: float, expired: Callable[[], None]) -> None:
        """Limit the duration of a credential; 0: unlimited."""
        if seconds:
            self._expiry = self._wall_timers.call_later(seconds, expired)

    def stop(self) -> None:
        """Abandon the decision when the link ends."""
        if self._decision is not None:
            self._decision.abandoned = True
        self._let_go()
        if self._expiry is not None:
            self._expiry.cancel()
