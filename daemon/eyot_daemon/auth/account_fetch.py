"""Fetches unknown accounts when one of their users connects: by URL or from other servers.

With `resolver: URL(...)` the token is requested over HTTP, `<url><account>`, outside the loop. With `type: cache` other
servers are asked, through `$SYS.REQ.ACCOUNT.<A>.CLAIMS.LOOKUP` in the system account (over a leaf link bound to it).
Accounts that a fetched one imports from are fetched as well. Connections wait as for an auth callout; the time limit is
nats-server's.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING

from eyot_daemon.auth.account_server import TIMEOUT_S, fetch_by_url
from eyot_daemon.auth.account_tokens import TokenStoreError
from eyot_daemon.auth.login import Applicant, Deferred, Login, Peer
from eyot_daemon.router.broker import Broker
from eyot_daemon.router.subscription import CallbackDest, Kind, Origin, Subscription
from eyot_wire.info import ClientConnect, LeafConnect
from eyot_wire.trust import nkey
from eyot_wire.trust.jwt import JwtError, decode

if TYPE_CHECKING:
    from eyot_daemon.auth.callout import OperatorCallout
    from eyot_daemon.auth.operator import OperatorAuthenticator
    from eyot_daemon.auth.trust import Trust
    from eyot_daemon.config.operator import ResolverOptions

log = logging.getLogger("eyot.auth")

#: The most concurrent requests; beyond it an account counts as unknown.
WAITING_MAX = 256

#: (account, callback with the token, "" for none)
Ask = Callable[[str, Callable[[str], None]], None]


class UrlAsk:
    """Requests tokens from an account server, outside the loop."""

    def __init__(
        self, resolver: ResolverOptions, in_background: Callable[[Callable[[], bool], Callable[[bool], None]], None]
    ) -> None:
        self._resolver = resolver
        self._in_background = in_background

    def __call__(self, account: str, then: Callable[[str], None]) -> None:
        got = ""

        def check() -> bool:
            nonlocal got
            try:
                got = fetch_by_url(self._resolver, account)
            except TokenStoreError as error:
                log.warning("%s", error)
            return bool(got)

        self._in_background(check, lambda _: then(got))


class PeersAsk:
    """Requests tokens from other servers in the system account; the first token wins."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting: dict[bytes, Callable[[str], None]] = {}
        self._subscription: Subscription | None = None
        self._prefix = b"$SYS._INBOX." + secrets.token_hex(8).encode() + b"."

    def __call__(self, account: str, then: Callable[[str], None]) -> None:
        system = self._broker.system_account
        if system is None:
            then("")
            return
        if self._subscription is None or self._subscription.account is not system:
            dest = CallbackDest(self._answered, Kind.SYSTEM, "account tokens")
            self._subscription = system.subscribe(self._prefix + b"*", dest)
        token = secrets.token_hex(8).encode()
        self._waiting[token] = then
        self._broker.timers.call_later(TIMEOUT_S, lambda: self._settle(token, ""))
        system.publish(f"$SYS.REQ.ACCOUNT.{account}.CLAIMS.LOOKUP".encode(), self._prefix + token)

    def _settle(self, token: bytes, text: str) -> None:
        then = self._waiting.pop(token, None)
        if then is not None:
            then(text)

    def _answered(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> None:
        if payload:  # an empty answer is of a server that does not know it
            self._settle(subject.rpartition(b".")[2], payload.decode("utf-8", "replace"))


class AccountFetcher:
    """Fetches accounts, and those they import from. `learned` is called with new tokens."""

    def __init__(self, trust: Callable[[], Trust], ask: Ask, learned: Callable[[list[str]], None]) -> None:
        self._trust = trust
        self._ask = ask
        self._learned = learned
        self._waiting: dict[str, list[Callable[[], None]]] = {}

    def want(self, account: str, then: Callable[[], None]) -> None:
        """Call `then` when the account is known, or cannot be fetched."""
        waiting = self._waiting.get(account)
        if waiting is not None:
            waiting.append(then)
        elif len(self._waiting) >= WAITING_MAX:
            then()
        else:
            self._waiting[account] = [then]
            self._ask(account, lambda token: self._came(account, token))

    def _came(self, account: str, token: str) -> None:
        further: list[str] = []
        if token:
            try:
                claims = self._trust().learn(account, token)
                further = sorted({one.account for one in claims.body.imports or () if self._lacks(one.account)})
            except (JwtError, TokenStoreError) as error:
                log.error("Account %s cannot be used: %s", account, error)
                token = ""
        left = len(further)

        def done() -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                if token:
                    self._learned([account])
                for then in self._waiting.pop(account, ()):
                    then()

        if not further:
            done()
        for name in further:
            self.want(name, done)

    def _lacks(self, account: str) -> bool:
        # An account that is already being fetched, perhaps since it imports from here in turn, is not awaited.
        return account not in self._trust().accounts and account not in self._waiting and nkey.is_public(account, "A")


class FetchingAuthenticator:
    """Fetches the account that a user's token names before it is decided about. A `login.Authenticator`."""

    auth_required = True
    wants_nonce = True

    def __init__(self, inner: OperatorAuthenticator | OperatorCallout, trust: Trust, fetcher: AccountFetcher) -> None:
        self._inner = inner
        self._trust = trust
        self._fetcher = fetcher

    def client(
        self, connect: ClientConnect, nonce: str, peer: Peer, applicant: Applicant | None = None
    ) -> Login | Deferred | None:
        return self._after_fetch(connect.jwt, lambda: self._inner.client(connect, nonce, peer, applicant))

    def leaf(
        self, connect: LeafConnect, nonce: str, peer: Peer, applicant: Applicant | None = None
    ) -> Login | Deferred | None:
        return self._after_fetch(connect.jwt, lambda: self._inner.leaf(connect, nonce, peer, applicant))

    def anonymous(self, peer: Peer) -> Login | None:
        return self._inner.anonymous(peer)

    def _after_fetch(self, token: str, decide: Callable[[], Login | Deferred | None]) -> Login | Deferred | None:
        account = self._unknown(token or self._trust.operator.default_sentinel)
        if not account:
            return decide()
        outer = Deferred()

        def known() -> None:
            if outer.abandoned:
                return
            decision = decide()
            if isinstance(decision, Deferred):
                decision.when_done(outer.settle)
            else:
                outer.settle(decision)

        self._fetcher.want(account, known)
        return outer

    def _unknown(self, token: str) -> str:
        """Return an account that must be fetched: unknown, or expired; "" if there is none."""
        try:
            user = decode(token)
        except JwtError:
            return ""
        pinned, account = self._trust.operator.pinned, user.account
        if user.kind != "user" or not nkey.is_public(account, "A") or (pinned is not None and account not in pinned):
            return ""
        known = self._trust.accounts.get(account)
        return account if known is None or not known.claims.valid_at(self._trust.now_s) else ""
