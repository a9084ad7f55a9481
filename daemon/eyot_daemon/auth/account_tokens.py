"""Where accounts' tokens are kept: in memory, or as files `<account>.jwt` of a directory (nats-server's own layout).

A file is replaced as a whole and is on flash before the update is answered.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from eyot_wire.trust import nkey

if TYPE_CHECKING:
    from eyot_daemon.config.operator import ResolverOptions

_SUFFIX = ".jwt"
_DELETED = ".deleted"
DELETE_DISABLED = "delete must be enabled in server config"


class TokenStoreError(Exception):
    """Why a token was not kept or deleted."""


class TokenStoreFullError(TokenStoreError):
    """The directory holds as many tokens as `limit` allows."""


class AccountTokens(Protocol):
    """Tokens by account. `keeps`: an update is still there at the next start; `is_cache`: other servers have them, too."""

    keeps: bool
    is_cache: bool

    @property
    def may_delete(self) -> bool:
        """Does the configuration allow deletions?"""
        ...

    def names(self) -> list[str]: ...

    def load(self, account: str) -> str:
        """Return the account's token, "" if there is none. Raises TokenStoreError."""
        ...

    def save(self, account: str, token: str) -> None:
        """Keep a token in place of the former. Raises TokenStoreError."""
        ...

    def delete(self, account: str) -> None:
        """Delete an account's token. Raises TokenStoreError if there is none, or deletion is not allowed."""
        ...


class MemoryTokens:
    """The tokens that the configuration preloads.

    Updates are refused, since they would not survive a restart: a revocation that was reported as active would be lost.
    """

    keeps = False
    is_cache = False
    may_delete = False

    def __init__(self, preload: Iterable[tuple[str, str]] = ()) -> None:
        self._tokens = dict(preload)

    def names(self) -> list[str]:
        return sorted(self._tokens)

    def load(self, account: str) -> str:
        return self._tokens.get(account, "")

    def save(self, account: str, token: str) -> None:
        raise TokenStoreError("store operation not supported for MEMORY resolver: accounts come from resolver_preload")

    def delete(self, account: str) -> None:
        raise TokenStoreError(DELETE_DISABLED)


class DirectoryTokens:
    """Tokens as files, of which this server is the only master."""

    keeps = True
    is_cache = False

    def __init__(self, options: ResolverOptions, preload: Iterable[tuple[str, str]] = ()) -> None:
        self._options = options
        self._path = Path(options.directory)
        try:
            from eyot_store.directories import make_directories  # a broker without a directory of tokens loads no store

            make_directories(self._path, 0o750)
        except OSError as error:
            raise TokenStoreError(f"account resolver directory: {error}") from error
        for account, token in preload:
            if not self.load(account):
                self.save(account, token)

    @property
    def may_delete(self) -> bool:
        return self._options.allow_delete

    def names(self) -> list[str]:
        found = [path.name.removesuffix(_SUFFIX) for path in self._path.glob(f"*{_SUFFIX}")]
        return sorted(name for name in found if nkey.is_public(name, "A"))

    def load(self, account: str) -> str:
        try:
            return self._file(account).read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return ""
        except (OSError, UnicodeDecodeError) as error:
            raise TokenStoreError(str(error)) from error

    def save(self, account: str, token: str) -> None:
        file = self._file(account)
        if self._options.limit and not file.exists() and len(self.names()) >= self._options.limit:
            raise TokenStoreFullError("jwt store is full")
        fresh = file.with_suffix(".new")
        try:
            fresh.unlink(missing_ok=True)
            made = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640)
            with os.fdopen(made, "w", encoding="utf-8") as out:
                out.write(token)
                out.flush()
                os.fsync(out.fileno())
            fresh.replace(file)
            self._sync()
        except OSError as error:
            raise TokenStoreError(str(error)) from error

    def delete(self, account: str) -> None:
        if not self._options.allow_delete:
            raise TokenStoreError(DELETE_DISABLED)
        file = self._file(account)
        try:
            if self._options.hard_delete:
                file.unlink()
            else:
                file.replace(file.with_name(file.name + _DELETED))
            self._sync()
        except FileNotFoundError:
            return  # deleted already, or never here
        except OSError as error:
            raise TokenStoreError(str(error)) from error

    def _file(self, account: str) -> Path:
        if not nkey.is_public(account, "A"):
            raise TokenStoreError(f"{account!r} is not a public account key")
        return self._path / f"{account}{_SUFFIX}"

    def _sync(self) -> None:
        directory = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


class CachedTokens(DirectoryTokens):
    """Tokens of other servers' accounts, as files: the oldest is evicted, and those older than `ttl_s` are ignored at a start.

    Preloaded tokens count towards the limit, and are not evicted: each start would put them back in another one's place.
    """

    is_cache = True

    def __init__(self, options: ResolverOptions, preload: Iterable[tuple[str, str]] = ()) -> None:
        if options.ttl_s and Path(options.directory).is_dir():
            oldest = time.time() - options.ttl_s
            for path in Path(options.directory).glob(f"*{_SUFFIX}"):
                if path.lstat().st_mtime < oldest:
                    path.unlink(missing_ok=True)
        preloaded = list(preload)
        self._preloaded = {account for account, _ in preloaded}
        super().__init__(options, preloaded)

    def save(self, account: str, token: str) -> None:
        kept = [name for name in self.names() if name != account]
        learned = [name for name in kept if name not in self._preloaded]
        if self._options.limit and len(kept) >= self._options.limit and learned:
            oldest = min(learned, key=lambda name: self._file(name).lstat().st_mtime)
            self._file(oldest).unlink(missing_ok=True)
        super().save(account, token)


class UrlTokens(MemoryTokens):
    """Tokens of an account server, kept in memory."""

    def save(self, account: str, token: str) -> None:
        self._tokens[account] = token


def account_tokens(resolver: ResolverOptions, preload: Iterable[tuple[str, str]]) -> AccountTokens:
    """Return the configured store. Raises TokenStoreError."""
    if resolver.kind == "url":
        return UrlTokens(preload)
    if resolver.kind == "cache":
        return CachedTokens(resolver, preload)
    return DirectoryTokens(resolver, preload) if resolver.kind == "full" else MemoryTokens(preload)
