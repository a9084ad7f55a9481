"""The trusted keys in operator mode, and the accounts whose tokens they signed.

All accounts of the store are loaded at the start. `options` builds the configuration's accounts from their tokens, so
that the rest of the daemon is independent of the mode. An account with an expired token stays, but its users are
refused until there is a new token.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from eyot_daemon.auth.account_tokens import AccountTokens, TokenStoreError, account_tokens
from eyot_daemon.auth.claims_accounts import account_options
from eyot_daemon.config.operator import OperatorOptions, ResolverOptions
from eyot_daemon.config.options import Options
from eyot_wire.trust.jwt import JwtError, decode
from eyot_wire.trust.jwt_account import AccountClaims, decode_account
from eyot_wire.trust.jwt_account_check import mistakes

log = logging.getLogger("eyot.auth")


class InvalidAccount(JwtError):
    """An account's JWT says what it may not say."""


class Trust:
    """The accounts of operator mode. `now_ns`: the wall clock."""

    def __init__(self, operator: OperatorOptions, now_ns: Callable[[], int]) -> None:
        assert operator.resolver is not None
        self.operator = operator
        self.accounts: dict[str, AccountClaims] = {}
        self._now_ns = now_ns
        self._looked_s = self.now_s
        self.tokens: AccountTokens = account_tokens(operator.resolver, operator.preload)
        if operator.resolver.kind == "url":
            self._fetch_system_accounts(operator.resolver)
        for name in self.tokens.names():
            try:
                self.accounts[name] = self.believe(self.tokens.load(name), name)
            except (JwtError, TokenStoreError) as error:
                log.error("Account %s cannot be used: %s", name, error)

    @property
    def now_s(self) -> float:
        """Seconds since the epoch."""
        return self._now_ns() / 1e9

    def believe(self, token: str, name: str = "") -> AccountClaims:
        """Decode an account's token that a trusted key signed and that is valid. Raises JwtError."""
        account = decode_account(token)
        if name and account.name != name:
            raise JwtError("subject does not match jwt content")
        if account.claims.iss not in self.operator.trusted_keys:
            if account.claims.iss in self.operator.strict_issuers:
                raise JwtError("operator requires issuer to be a signing key")
            raise JwtError("account JWT not signed by trusted operator")
        wrong = mistakes(account)
        if wrong:
            raise InvalidAccount(f"validation errors: [{' '.join(wrong)}]")
        return account

    def accept(self, token: str) -> AccountClaims:
        """Accept a new or changed account and store its token. Raises JwtError, TokenStoreError."""
        account = self.believe(token)
        self.tokens.save(account.name, account.token)
        # Of two accounts whose imports form a cycle, the later one loses its import.
        self.accounts.pop(account.name, None)
        self.accounts[account.name] = account
        return account

    def learn(self, name: str, token: str) -> AccountClaims:
        """Accept an account that was fetched. Raises JwtError, TokenStoreError."""
        account = self.believe(token, name)
        if not account.claims.valid_at(self.now_s):
            raise JwtError("claim is expired")
        self.tokens.save(name, account.token)
        self.accounts.pop(name, None)
        self.accounts[name] = account
        return account

    def keep_fetched(self, before: Trust | None) -> None:
        """Keep fetched tokens over a reload: those fetched by URL are stored nowhere else. Raises TokenStoreError."""
        resolver = self.operator.resolver
        if before is None or resolver is None or resolver.kind != "url" or before.operator.resolver != resolver:
            return
        for name, account in before.accounts.items():
            if name not in self.accounts and account.claims.iss in self.operator.trusted_keys:
                self.tokens.save(name, account.token)
                self.accounts[name] = account

    def _fetch_system_accounts(self, resolver: ResolverOptions) -> None:
        """Fetch the accounts without which the server cannot start. Raises TokenStoreError."""
        # Loaded only where it is used.
        from eyot_daemon.auth.account_server import fetch_by_url

        for name in {one.body.system_account for one in self.operator.operators} - {""}:
            self.tokens.save(name, fetch_by_url(resolver, name))

    def delete(self, account: str) -> None:
        """Forget an account. Raises TokenStoreError."""
        self.tokens.delete(account)
        self.accounts.pop(account, None)

    def usable(self, name: str) -> AccountClaims | None:
        """Return the account if users may connect: known, pinned if accounts are pinned, its token not expired."""
        pinned = self.operator.pinned
        account = self.accounts.get(name)
        if account is None or not account.claims.valid_at(self.now_s):
            return None
        return account if pinned is None or name in pinned else None

    def signers(self, account: AccountClaims) -> tuple[str, ...]:
        """Return the keys that may sign users of the account; for strict operators, never the account's own key."""
        issuer = account.claims.iss
        strict = any(
            one.body.strict_signing_key_usage and issuer in one.trusted_keys for one in self.operator.operators
        )
        return account.signing_keys() if strict else (account.name, *account.signing_keys())

    def next_change_s(self) -> float | None:
        """Return when time changes an account next, in seconds since the epoch; None: never, unless the clock is set back."""
        return min(
            (at for account in self.accounts.values() for at in _changes_at(account) if at > self._looked_s),
            default=None,
        )

    @property
    def changes_with_time(self) -> bool:
        """Whether any account does: it, or an activation that it has, begins or expires."""
        return any(_changes_at(account) for account in self.accounts.values())

    def changed_by_time(self) -> list[str]:
        """Return the accounts that began or expired, or with an activation that did, since the last call.

        A clock that was set back between takes an expiry back.
        """
        before, self._looked_s = self._looked_s, self.now_s
        first, last = sorted((before, self._looked_s))
        return [
            name for name, account in self.accounts.items() if any(first < at <= last for at in _changes_at(account))
        ]

    def options(self, configured: Options) -> Options:
        """Return the configuration with the accounts that the tokens define."""
        built = account_options(self.accounts.values(), self.now_s)
        for problem in built.problems:
            log.warning("%s", problem)
        return msgspec.structs.replace(configured, accounts=built.accounts)


def _changes_at(account: AccountClaims) -> list[int]:
    """Return the times, in seconds since the epoch, at which this account changes without a new token."""
    times = [account.claims.nbf, account.claims.exp]
    for imported in account.body.imports or ():
        if imported.token:
            try:
                activation = decode(imported.token)
            except JwtError:
                continue
            times += (activation.nbf, activation.exp)
    return [at for at in times if at]
