"""Operator mode: accounts and users are JWTs that an operator's keys vouch for, not parts of the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from eyot_daemon.config.tls import TlsOptions

if TYPE_CHECKING:
    from eyot_wire.trust.jwt_account import OperatorClaims

ResolverKind = Literal["memory", "full", "cache", "url"]


class ResolverOptions(Struct, frozen=True, kw_only=True):
    """Where accounts' tokens are kept: only in memory, or as files of `directory`, one an account. `url` and `cache` ask for others: an
    account server at `url`, or other servers.

    `limit`: how many there may be, 0 no limit (`cache`: the oldest makes room). `hard_delete`: a deleted one is gone, else its file is
    renamed. `ttl_s`: how long a cached one is used after a start, 0 without end.
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
        """Accounts that are not known are asked for."""
        return self.kind in ("cache", "url")


class OperatorOptions(Struct, frozen=True, kw_only=True):
    """`operator`, `resolver` and what belongs to them. `preload`: (account, token); `pinned`: the only accounts, None all."""

    operators: tuple[OperatorClaims, ...] = ()
    trusted_keys: tuple[str, ...] = ()
    resolver: ResolverOptions | None = None
    preload: tuple[tuple[str, str], ...] = ()
    pinned: frozenset[str] | None = None
    default_sentinel: str = ""

    @property
    def strict_issuers(self) -> frozenset[str]:
        """Operators who sign with their signing keys only."""
        return frozenset(one.claims.sub for one in self.operators if one.body.strict_signing_key_usage)
