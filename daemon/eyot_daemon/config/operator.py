"""Operator mode: JWTs that an operator's keys sign define accounts and users, not the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from eyot_daemon.config.tls import TlsOptions

if TYPE_CHECKING:
    from eyot_wire.trust.jwt_account import OperatorClaims

ResolverKind = Literal["memory", "full", "cache", "url"]


class ResolverOptions(Struct, frozen=True, kw_only=True):
    """Where accounts' tokens are kept: in memory only, or as files of `directory`, one per account.

    `url` and `cache` fetch unknown accounts: from an account server at `url`, or from other servers. `limit`: the most
    tokens, 0: unlimited (`cache`: the oldest is evicted). `hard_delete`: delete files, instead of renaming them.
    `ttl_s`: how long a cached token is valid after a start, 0: forever.
    """

    kind: ResolverKind
    directory: str = ""
    allow_delete: bool = False
    hard_delete: bool = False
    limit: int = 0
    url: str = ""
    tls: TlsOptions | None = None
    ttl_s: float = 0.0

    @property
    def fetches(self) -> bool:
        """Whether unknown accounts are fetched."""
        return self.kind in ("cache", "url")


class OperatorOptions(Struct, frozen=True, kw_only=True):
    """`operator`, `resolver` and related options. `preload`: (account, token); `pinned`: the only accounts, None: all."""

    operators: tuple[OperatorClaims, ...] = ()
    trusted_keys: tuple[str, ...] = ()
    resolver: ResolverOptions | None = None
    preload: tuple[tuple[str, str], ...] = ()
    pinned: frozenset[str] | None = None
    default_sentinel: str = ""

    @property
    def strict_issuers(self) -> frozenset[str]:
        """Operators that sign with their signing keys only."""
        return frozenset(one.claims.sub for one in self.operators if one.body.strict_signing_key_usage)
