"""What every command of `eyot trust` works with: the store, the keys, who signs, and the report."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.private_files import read_text, write_private
from eyot_cli.terminal.show import print_json, print_line
from eyot_cli.trust.directories import Environment
from eyot_cli.trust.keystore import ROLES, KeyPair, Keystore
from eyot_cli.trust.store import OperatorStore, body
from eyot_wire.quoting import printable
from eyot_wire.trust import nkey
from eyot_wire.trust.jwt import JwtError
from eyot_wire.trust.jwt_account import decode_account
from eyot_wire.trust.jwt_account_check import mistakes
from eyot_wire.trust.jwt_sign import ClaimMembers, sign_members


@dataclass
class Report:
    """What a command did, line by line, and its result for `--json`."""

    as_json: bool
    done: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    result: dict[str, Any] = field(default_factory=dict)

    def ok(self, text: str) -> None:
        self.done.append(text)
        if not self.as_json:
            print_line(f"[ OK ] {text}")

    def warn(self, text: str) -> None:
        self.warnings.append(text)
        if not self.as_json:
            print_line(f"[WARN] {text}", error=True)

    def finish(self) -> None:
        """Print the JSON document, when asked for one and there is something to say."""
        if self.as_json and (self.done or self.warnings or self.result):
            print_json({"done": self.done, "warnings": self.warnings, **self.result})


class Session:
    """One run of a command. All methods raise Failure."""

    def __init__(self, environment: Environment, key: str, report: Report) -> None:
        self.environment = environment
        self.keystore = Keystore(environment.directories.keys)
        #: `-K`: a role, a public key, a seed, or the path of a file with a seed
        self.key = key
        self.report = report
        self._store: OperatorStore | None = None

    @property
    def store(self) -> OperatorStore:
        """The store of the operator in use."""
        if self._store is None:
            self._store = self.environment.store()
        return self._store

    def account_name(self, given: str | None) -> str:
        """Return the named account, or the one in use."""
        name = given or self.environment.account
        if not name:
            if not self.store.accounts():
                raise Failure("the operator has no accounts: make one with `eyot trust add account -n NAME`")
            raise Failure("which account? Name it with -a, or choose one with `eyot trust env -a NAME`")
        self.store.account(name)
        return name

    # -- keys ------------------------------------------------------------------------------------------------------

    def key_pair(self, text: str) -> KeyPair:
        """Return the key pair that a public key (of the keystore), a seed or a file names."""
        text = text.strip()
        if text[:1] in ROLES and nkey.is_public(text, text[:1]):
            pair = self.keystore.find(text)
            if pair is None:
                raise Failure(f"{text} is not in the keystore {self.keystore.root}: see `eyot trust import keys`")
            return pair
        try:
            return KeyPair(text)
        except nkey.NkeyError:
            pass
        path = Path(text).expanduser()
        try:
            return KeyPair(path.read_text(errors="replace"))
        except OSError as error:
            raise Failure(f"{printable(text)} is no role, key, seed or readable file ({error.strerror})") from None
        except nkey.NkeyError as error:
            raise Failure(f"{printable(text)}: {error}") from error

    def public_key(self, text: str, role: str) -> str:
        """Return a public key of a role, given as such, as a seed or as a file. A private key is stored."""
        if nkey.is_public(text.strip(), role):
            return text.strip()
        if text.strip()[:1] in ROLES and nkey.is_public(text.strip(), text.strip()[:1]):
            raise Failure(f"{text.strip()} is a key of {_a(ROLES[text.strip()[:1]])}, not of {_a(ROLES[role])}")
        pair = self.key_pair(text)
        if pair.role != role:
            raise Failure(f"{pair.public} is a key of {_a(ROLES[pair.role])}, not of {_a(ROLES[role])}")
        self.keystore.add(pair)
        return pair.public

    def operator_signer(self, prefer: str = "") -> KeyPair:
        """Return the key that signs accounts: `-K`, else one that the operator's token allows."""
        return self._signer(operator_keys(self.store.operator()), prefer, f"operator {self.store.name}")

    def account_signer(self, account: ClaimMembers, prefer: str = "") -> KeyPair:
        """Return the key that signs users and activations of an account; keys without a scope come first."""
        strict = bool(body(self.store.operator()).get("strict_signing_key_usage"))
        named = f"account {printable(str(account.get('name')))}"
        scopes = {key["role"]: key["key"] for key in scoped_keys(account) if key.get("role")}
        if self.key in scopes:
            return self.key_pair(str(scopes[self.key]))
        return self._signer(account_keys(account, strict=strict), prefer, named)

    def _signer(self, allowed: list[str], prefer: str, whose: str) -> KeyPair:
        if self.key:
            pair = self.key_pair(self.key)
            if pair.public not in allowed:
                raise Failure(f"{pair.public} may not sign for {whose}: `eyot trust list keys` shows the keys that may")
            return pair
        order = [prefer, *allowed] if prefer in allowed else allowed
        for public in order:
            pair_or_none = self.keystore.find(public)
            if pair_or_none is not None:
                return pair_or_none
        if not allowed:
            raise Failure(
                f"{whose} must sign with signing keys and has none: add one with `--sk generate` (edit {whose})"
            )
        raise Failure(
            f"no key that may sign for {whose} is in the keystore {self.keystore.root}: import one of",
            *(f"  {key}" for key in allowed),
        )

    # -- writing ---------------------------------------------------------------------------------------------------

    def save_operator(self, members: ClaimMembers) -> None:
        """Sign the operator's token with its own key, and store it."""
        pair = self.keystore.find(str(members["sub"]))
        if pair is None:
            raise Failure(f"the operator's own key {members['sub']} signs its token and is not in {self.keystore.root}")
        self.store.write_operator(self.sign(members, pair))

    def save_account(
        self, members: ClaimMembers, *, tolerated: list[str] | None = None, path: Path | None = None
    ) -> None:
        """Sign an account's token and store it under its name, or as `path`.

        Mistakes are refused, except those that the stored token has already, and those in `tolerated`.
        """
        signer = self._account_claims_signer(members)
        token = self.sign(members, signer)
        path = path or self.store.account_path(str(members["name"]))
        present = account_mistakes(read_text(path)) if path.exists() else []
        found = [each for each in account_mistakes(token) if each not in (*present, *(tolerated or ()))]
        if found:
            raise Failure("nothing is changed, the account's token would be invalid:", *(f"  {each}" for each in found))
        write_private(path, token.encode())

    def _account_claims_signer(self, members: ClaimMembers) -> KeyPair:
        if not self.store.info.managed or self.key:
            return self.operator_signer(prefer=str(members.get("iss", "")))
        pair = self.keystore.find(str(members["sub"]))
        if pair is None:
            raise Failure(
                f"a managed account signs itself, and its key {members['sub']} is not in {self.keystore.root}"
            )
        self.report.warn(
            "the operator's key is elsewhere: the account signed itself. Send it to the operator, or push it"
        )
        return pair

    def save_user(self, account: ClaimMembers, members: ClaimMembers, signer: KeyPair) -> None:
        """Sign a user's token, store it, and write its credentials if its key is here."""
        name, of = str(members["name"]), str(account["name"])
        if signer.public == account["sub"]:
            body(members).pop("issuer_account", None)
        else:
            body(members)["issuer_account"] = account["sub"]
        self._pass_revocation(account, str(members["sub"]))
        token = self.sign(members, signer)
        self.store.write_user(of, name, token)
        pair = self.keystore.find(str(members["sub"]))
        if pair is None:
            self.report.ok("no credentials file: the user's private key is not in the keystore")
            return
        path = self.keystore.write_creds(self.store.name, of, name, token, pair)
        self.report.result["creds"] = str(path)
        self.report.ok(f"generated user creds file {path}")

    def _pass_revocation(self, account: ClaimMembers, user: str) -> None:
        """Wait until a new token is later than the user's revocation: both have whole seconds."""
        revoked: dict[str, int] = body(account).get("revocations") or {}
        left_s = max(revoked.get(user, 0), revoked.get("*", 0)) + 1 - time.time()
        if 0 < left_s <= 2:
            time.sleep(left_s)
        elif left_s > 2:
            self.report.warn("the user is revoked until a later time: see `eyot trust revocations list-users`")

    def sign(self, members: ClaimMembers, pair: KeyPair) -> str:
        """Return the signed token."""
        try:
            return sign_members(members, pair.signer, int(time.time()))
        except JwtError as error:
            raise Failure(printable(str(error))) from error


def account_mistakes(token: str) -> list[str]:
    """Return what nats-server would refuse in an account's token."""
    try:
        return mistakes(decode_account(token))
    except JwtError as error:
        return [printable(str(error))]


def scoped_keys(account: ClaimMembers) -> list[dict[str, Any]]:
    """Return the signing keys of an account that have a scope, as objects of its token."""
    return [key for key in body(account).get("signing_keys") or () if isinstance(key, dict)]


def account_keys(account: ClaimMembers, *, strict: bool) -> list[str]:
    """Return the keys that may sign for an account: its own (not if `strict`), signing keys, keys with a scope."""
    plain = [str(key) for key in body(account).get("signing_keys") or () if isinstance(key, str)]
    own = [] if strict else [str(account["sub"])]
    return own + plain + [str(key.get("key", "")) for key in scoped_keys(account)]


def operator_keys(operator: ClaimMembers) -> list[str]:
    """Return the keys that may sign an operator's accounts: its own (not if it requires signing keys), signing keys."""
    own = [] if body(operator).get("strict_signing_key_usage") else [str(operator["sub"])]
    return own + [str(key) for key in body(operator).get("signing_keys") or ()]


def _a(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aou" and noun != "user" else f"a {noun}"
