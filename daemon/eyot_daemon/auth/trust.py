"""Whom this server believes in operator mode: the operator's keys, and the accounts whose tokens they signed.

All accounts of the store are taken in at the start; what the configuration says elsewhere of accounts is made from their
tokens (`options`), so that the rest of the daemon knows no difference. An account whose token has expired stays, but
nobody gets in until there is a new one.
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
        """An account's token that a trusted key signed and that breaks no rule. Raises JwtError."""
        account = decode_account(token)
        if name and account.name != name:
            raise JwtError("subject does not match jwt content")
        if account.claims.iss not in self.operator.trusted_keys:
            if account.claims.iss in self.operator.strict_issuers:
                raise JwtError("operator requires issuer to be a signing key")
            raise JwtError("account JWT not signed by trusted operator")
        wrong = mistakes(account)
        if wrong:
            raise JwtError(f"validation errors: [{' '.join(wrong)}]")
        return account

    def accept(self, token: str) -> AccountClaims:
        """Take in a new or changed account and keep its token. Raises JwtError, TokenStoreError."""
        account = self.believe(token)
        self.tokens.save(account.name, account.token)
        # Of two accounts whose imports lead in a circle, the one that came last goes without.
        self.accounts.pop(account.name, None)
        self.accounts[account.name] = account
        return account

    def learn(self, name: str, token: str) -> AccountClaims:
        """Take in an account that was fetched. Raises JwtError, TokenStoreError."""
        account = self.believe(token, name)
        if not account.claims.valid_at(self.now_s):
            raise JwtError("claim is expired")
        self.tokens.save(name, account.token)
        self.accounts.pop(name, None)
        self.accounts[name] = account
        return account

    def keep_fetched(self, before: Trust | None) -> None:
        """A reload: what was fetched by URL is not kept anywhere else. Raises TokenStoreError."""
        resolver = self.operator.resolver
        if before is None or resolver is None or resolver.kind != "url" or before.operator.resolver != resolver:
            return
        for name, account in before.accounts.items():
            if name not in self.accounts and account.claims.iss in self.operator.trusted_keys:
                self.tokens.save(name, account.token)
                self.accounts[name] = account

    def _fetch_system_accounts(self, resolver: ResolverOptions) -> None:
        """The accounts without which the server cannot start. Raises TokenStoreError."""
        from eyot_daemon.auth.account_fetch import fetch_by_url

        for name in {one.body.system_account for one in self.operator.operators} - {""}:
            self.tokens.save(name, fetch_by_url(resolver, name))

    def delete(self, account: str) -> None:
        """Forget an account. Raises TokenStoreError."""
        self.tokens.delete(account)
        self.accounts.pop(account, None)

    def usable(self, name: str) -> AccountClaims | None:
        """The account if users may come: known, pinned if accounts are pinned, its token not expired."""
        pinned = self.operator.pinned
        account = self.accounts.get(name)
        if account is None or not account.claims.valid_at(self.now_s):
            return None
        return account if pinned is None or name in pinned else None

    def signers(self, account: AccountClaims) -> tuple[str, ...]:
        """Whose signature under a user's token the account stands for; of strict operators, never the account's own."""
        issuer = account.claims.iss
        strict = any(
            one.body.strict_signing_key_usage and issuer in one.trusted_keys for one in self.operator.operators
        )
        return account.signing_keys() if strict else (account.name, *account.signing_keys())

    def next_expiry_s(self) -> float | None:
        """When the next account or activation expires, in seconds since the epoch; None: never."""
        return min(
            (at for account in self.accounts.values() for at in _expiries(account) if at > self._looked_s), default=None
        )

    def newly_expired(self) -> list[str]:
        """Accounts that expired, or lost an activation, since the last look."""
        since, now_s = self._looked_s, self.now_s
        self._looked_s = now_s
        return [
            name for name, account in self.accounts.items() if any(since < at <= now_s for at in _expiries(account))
        ]

    def options(self, configured: Options) -> Options:
        """The configuration with the accounts that the tokens make."""
        built = account_options(self.accounts.values(), self.now_s)
        for problem in built.problems:
            log.warning("%s", problem)
        return msgspec.structs.replace(configured, accounts=built.accounts)


def _expiries(account: AccountClaims) -> list[int]:
    """The times, in seconds since the epoch, at which this account is something else without a new token."""
    times = [account.claims.exp]
    for imported in account.body.imports or ():
        if imported.token:
            try:
                times.append(decode(imported.token).exp)
            except JwtError:
                continue
    return [at for at in times if at]
