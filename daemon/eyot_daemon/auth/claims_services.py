"""Services of the system account for accounts' tokens, as `nsc push` and `nsc pull` use them.

`$SYS.REQ.CLAIMS.UPDATE` and `$SYS.REQ.ACCOUNT.<A>.CLAIMS.UPDATE` (and the older `$SYS.ACCOUNT.<A>.CLAIMS.UPDATE`) store
a token, `.CLAIMS.LOOKUP` returns one, `$SYS.REQ.CLAIMS.LIST`, `.PACK` and `.DELETE` concern all tokens. A deletion is a
token that an operator's key signed about itself. As in nats-server a cache takes updates of accounts that it knows, and
leaves LOOKUP and PACK to the servers that have all.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from eyot_daemon.auth.account_tokens import DELETE_DISABLED, TokenStoreError
from eyot_daemon.auth.trust import InvalidAccount, Trust
from eyot_daemon.router.account import Account
from eyot_daemon.router.subscription import CallbackDest, Kind, Origin, SubjectSpace, Subscription
from eyot_wire.trust import nkey
from eyot_wire.trust.jwt import JwtError, decode
from eyot_wire.trust.jwt_account import decode_deletion

log = logging.getLogger("eyot.auth")

Handler = Callable[[Subscription, bytes, bytes, bytes, bytes, Origin | None], None]

_ACCOUNT_TOKEN = {6: 3, 5: 2}  # which token of the subject is the account, by the number of tokens


class ClaimsServices:
    """Answers in the system account. `changed` is called with the accounts whose tokens changed or were deleted."""

    def __init__(
        self,
        trust: Callable[[], Trust],
        server_info: Callable[[], dict[str, Any]],
        changed: Callable[[list[str]], None],
    ) -> None:
        self._trust = trust
        self._server_info = server_info
        self._changed = changed

    def start(self, system: Account) -> None:
        """Subscribe. Where nothing is kept, as in nats-server only an update by the account's name is answered."""
        tokens = self._trust().tokens
        updates: tuple[tuple[bytes, Handler], ...] = (
            (b"$SYS.REQ.ACCOUNT.*.CLAIMS.UPDATE", self._update),
            (b"$SYS.ACCOUNT.*.CLAIMS.UPDATE", self._update),
        )
        services: tuple[tuple[bytes, Handler], ...] = (
            (b"$SYS.REQ.CLAIMS.UPDATE", self._update),
            (b"$SYS.REQ.CLAIMS.LIST", self._list),
            (b"$SYS.REQ.CLAIMS.DELETE", self._delete),
        )
        of_all: tuple[tuple[bytes, Handler], ...] = (
            (b"$SYS.REQ.ACCOUNT.*.CLAIMS.LOOKUP", self._lookup),
            (b"$SYS.REQ.CLAIMS.PACK", self._pack),
        )
        for subject, handler in (
            updates + (services if tokens.keeps else ()) + (of_all if tokens.keeps and not tokens.is_cache else ())
        ):
            system.subscribe(subject, CallbackDest(handler, Kind.SYSTEM, "claims"))

    def _update(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> None:
        tokens = subject.decode("utf-8", "replace").split(".")
        named = tokens[_ACCOUNT_TOKEN[len(tokens)]] if b"ACCOUNT" in subject else ""
        account = "n/a"
        trust = self._trust()
        what = "jwt update cache" if trust.tokens.is_cache else "jwt update"
        try:
            text = payload.decode("utf-8", "replace")
            account = decode(text).sub
            if named and account != named:
                account = named
                raise JwtError("subject does not match jwt content")
            if trust.tokens.is_cache and account not in trust.accounts:
                trust.believe(text)
                self._grant(sub.account, reply, account, f"{what} skipped")
                return
            trust.accept(text)
        except (JwtError, TokenStoreError) as error:
            failed = f"{what} resulted in error"
            if isinstance(error, InvalidAccount):
                failed = f"{what if trust.tokens.is_cache else 'jwt'} validation failed"
            self._refuse(sub.account, reply, account, f"{failed} - {error}")
            return
        self._changed([account])
        self._grant(sub.account, reply, account, what.replace("update", "updated"))

    def _lookup(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> None:
        name = subject.decode("utf-8", "replace").split(".")[3]
        if not reply:
            return
        try:
            token = self._trust().tokens.load(name)
        except TokenStoreError as error:
            log.error("Error looking up account %s: %s", name, error)
            return  # only the absence of a token is an empty answer
        sub.account.publish(reply, payload=token.encode())

    def _list(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> None:
        if reply:
            answer = {"data": self._trust().tokens.names(), "server": self._server_info()}
            sub.account.publish(reply, payload=msgspec.json.encode(answer))

    def _pack(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> None:
        """Send all tokens, one per message, then an empty one; only the latter if the requester has the same tokens."""
        if not reply:
            return
        store = self._trust().tokens
        try:
            tokens = {name: store.load(name) for name in store.names()}
        except TokenStoreError as error:
            log.error("Pack request error: %s", error)
            return
        if payload != pack_hash(tokens.values()):
            for name, token in tokens.items():
                sub.account.publish(reply, payload=f"{name}|{token}".encode())
        sub.account.publish(reply)

    def _delete(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> None:
        issuer = ""
        try:
            claims, names = decode_deletion(payload.decode("utf-8", "replace"))
            issuer = claims.sub
            self._check_deletion(claims.iss, issuer, names, sub.account.name)
        except JwtError as error:
            self._refuse(sub.account, reply, "", f"delete accounts request by {issuer} failed - {error}")
            return
        gone, wrong = [], []
        for name in names:
            try:
                self._trust().delete(name)
                gone.append(name)
            except TokenStoreError as error:
                wrong.append(str(error))
        self._changed(gone)
        if wrong:
            what = f"deleted {len(gone)} accounts, failed for {len(wrong)} - {'; '.join(wrong)}"
            self._refuse(sub.account, reply, "", what)
        else:
            self._grant(sub.account, reply, "", f"deleted {len(gone)} accounts")

    def _check_deletion(self, issuer: str, subject: str, names: tuple[str, ...], system: str) -> None:
        if not self._trust().tokens.may_delete:
            raise JwtError(DELETE_DISABLED)
        if issuer != subject:
            raise JwtError("not self signed")
        if issuer not in self._trust().operator.trusted_keys:
            raise JwtError("not trusted")
        if not all(nkey.is_public(name, "A") for name in names):
            raise JwtError("malformed request")
        if system in names:
            raise JwtError("not allowed to delete system account")

    def _grant(self, account: SubjectSpace, reply: bytes, name: str, message: str) -> None:
        log.info("%s%s", message, f" - {name}" if name else "")
        self._publish_answer(account, reply, {"data": _of_account(name) | {"code": 200, "message": message}})

    def _refuse(self, account: SubjectSpace, reply: bytes, name: str, why: str) -> None:
        log.error("%s%s", f"{name}: " if name else "", why)
        self._publish_answer(account, reply, {"error": _of_account(name) | {"code": 500, "description": why}})

    def _publish_answer(self, account: SubjectSpace, reply: bytes, answer: dict[str, Any]) -> None:
        if reply:
            account.publish(reply, payload=msgspec.json.encode({"server": self._server_info()} | answer))


def _of_account(name: str) -> dict[str, Any]:
    return {"account": name} if name else {}


def pack_hash(tokens: Iterable[str]) -> bytes:
    """Return a hash of a set of tokens: their SHA-256 digests, xor-ed."""
    total = 0
    for token in tokens:
        total ^= int.from_bytes(hashlib.sha256(token.encode()).digest())
    return total.to_bytes(32)
