"""`eyot trust push` and `pull`: accounts to and from servers, or an account server."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import click
import httpx
from nats.aio.client import Client

from eyot_cli.connection.target import Target
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.private_files import read_text
from eyot_cli.trust.checks import account_issues
from eyot_cli.trust.claims import new_user
from eyot_cli.trust.command import TrustCommand, account_option, in_changing_session, in_session
from eyot_cli.trust.keystore import new_pair
from eyot_cli.trust.resolver import DELETE, LIST, LOOKUP, UPDATE, Answer, ask_many, ask_servers, look_up
from eyot_cli.trust.session import Session, account_keys, scoped_keys
from eyot_cli.trust.sharing import account_key
from eyot_cli.trust.store import body
from eyot_cli.values.numbers import FiniteRange
from eyot_wire.quoting import printable
from eyot_wire.trust.creds import Credentials
from eyot_wire.trust.jwt import JwtError
from eyot_wire.trust.jwt_sign import decode_members
from eyot_wire.trust.nkey import is_public

T = TypeVar("T")
#: How long the user that pushes can log in.
_LOGIN_S: Final = 120
_HTTP_TIMEOUT_S: Final = 10


@dataclass(frozen=True)
class Remote:
    """Where accounts go to or come from."""

    session: Session
    target: Target
    url: str
    timeout_s: float

    @property
    def is_http(self) -> bool:
        return self.url.lower().startswith(("http://", "https://"))

    def with_client(self, action: Callable[[Client], Awaitable[T]]) -> T:
        return self.target.with_client(action)

    def over_http(self, method: str, account: str, content: bytes | None = None) -> bytes:
        """Ask an account server; return its answer. Raises Failure."""
        address = f"{self.url.rstrip('/')}/accounts/{account}"
        try:
            answer = httpx.request(
                method, address, content=content, headers={"Content-Type": "application/jwt"}, timeout=_HTTP_TIMEOUT_S
            )
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            raise Failure(f"no answer from {printable(address)}: {printable(str(error))}") from error
        if answer.status_code >= 300:
            raise Failure(f"{printable(address)} answered {answer.status_code}: {printable(answer.text.strip()[:200])}")
        return answer.content


def remote_options(function: Any) -> Any:
    """Add the options that say where accounts go to, and as whom."""
    for option in (
        click.option("-u", "--account-jwt-server-url", "url", metavar="URL", help="server (the operator's)"),
        click.option("--system-account", metavar="NAME", help="system account (the operator's)"),
        click.option("--system-user", metavar="NAME", help="its user to log in as (one made for the moment)"),
        click.option("--timeout", type=FiniteRange(0.1, 600), default=5.0, help="seconds for the first answer"),
    ):
        function = option(function)
    return function


def find_remote(session: Session, flags: dict[str, Any], subjects: tuple[str, ...]) -> Remote:
    """Return the remote of the flags, with a login that may use these subjects. Raises Failure."""
    target = click.get_current_context().find_object(Target)
    assert target is not None
    url = flags["url"] or body(session.store.operator()).get("account_server_url")
    if not url:
        raise Failure(
            "where to? Name a server with -u URL, or for all: `eyot trust edit operator --account-jwt-server-url URL`"
        )
    remote = Remote(session, dataclasses.replace(target, given_server=str(url), context=""), str(url), flags["timeout"])
    if remote.is_http or target.creds is not None:
        return remote
    login = _login(session, flags["system_account"], flags["system_user"], subjects)
    return dataclasses.replace(remote, target=dataclasses.replace(remote.target, login=login))


def _login(session: Session, account: str | None, user: str | None, subjects: tuple[str, ...]) -> Credentials:
    """Return the named user of the system account, or one made for two minutes with nothing but these subjects."""
    key = account_key(session, account) if account else body(session.store.operator()).get("system_account")
    name = session.store.account_of(str(key)) if key else None
    if name is None:
        raise Failure(
            "the operator has no system account here: `eyot trust edit operator --system-account NAME`, or --creds FILE"
        )
    members = session.store.account(name)
    if user is not None:
        public = str(session.store.user(name, user)["sub"])
        pair = session.keystore.find(public)
        if pair is None:
            raise Failure(f"the seed of {public} is not in {session.keystore.root}: see `eyot trust import keys`")
        return Credentials(read_text(session.store.user_path(name, user)), pair.seed)
    strict = bool(body(session.store.operator()).get("strict_signing_key_usage"))
    scoped = {key.get("key") for key in scoped_keys(members)}
    signers = (session.keystore.find(key) for key in account_keys(members, strict=strict) if key not in scoped)
    signer = next((pair for pair in signers if pair is not None), None)
    if signer is None:
        raise Failure(
            f"no key that signs users of {name} is in the keystore: name a user with --system-user, or --creds FILE"
        )
    pair = new_pair("U")
    claims = new_user(pair.public, "eyot trust", scoped=False) | {"exp": int(time.time()) + _LOGIN_S}
    body(claims)["pub"], body(claims)["sub"] = {"allow": list(subjects)}, {"allow": ["_INBOX.>"]}
    if signer.public != members["sub"]:
        body(claims)["issuer_account"] = members["sub"]
    return Credentials(session.sign(claims, signer), pair.seed)


@click.command("push", cls=TrustCommand)
@click.option("-A", "--all", "every", is_flag=True, help="all accounts of the operator")
@click.option("-F", "--force", is_flag=True, help="also accounts with mistakes")
@click.option("-D", "--diff", is_flag=True, help="compare the accounts of store and servers, change nothing")
@click.option("-P", "--prune", is_flag=True, help="delete accounts from the servers that are not in the store")
@click.option("-R", "--account-removal", "removed", metavar="KEY|NAME", help="delete an account from the servers")
@remote_options
@account_option
@in_session
def push(session: Session, account: str | None, every: bool, force: bool, **flags: Any) -> None:
    """Send accounts to the servers.

    The servers apply them at once: revoked users are cut, changed permissions hold.
    """
    if sum(map(bool, (flags["diff"], flags["prune"], flags["removed"]))) > 1:
        raise Failure("--diff, --prune and --account-removal exclude each other: choose one")
    if every and account:
        raise Failure("-A is all accounts, -a is one: leave one out")
    only_remote = flags["diff"] or flags["prune"] or flags["removed"]
    names = session.store.accounts() if every else [] if only_remote else [session.account_name(account)]
    if not force:
        _check_accounts(session, names)
    remote = find_remote(session, flags, (UPDATE, LIST, DELETE))
    if remote.is_http and only_remote:
        raise Failure("--diff, --prune and --account-removal need servers with a nats resolver (nats://)")
    if names:
        push_accounts(remote, names)
    if flags["diff"]:
        _show_difference(remote)
    elif flags["prune"]:
        own = {str(session.store.account(name)["sub"]) for name in session.store.accounts()}
        _delete(remote, sorted(_accounts_on_servers(remote) - own))
    elif flags["removed"]:
        _delete(remote, [account_key(session, flags["removed"])])


def _check_accounts(session: Session, names: list[str]) -> None:
    for name in names:
        found = account_issues(session, name, to_be_signed=session.store.info.managed)
        if found:
            lines = (f"  {each}" for each in found)
            raise Failure(
                f"account {printable(name)} is not pushed, servers would refuse it (--force pushes it):", *lines
            )


def push_accounts(remote: Remote, names: list[str]) -> None:
    """Send accounts of the store, and report each server's answer. Raises Failure if a server refuses, or none answers."""
    report, store = remote.session.report, remote.session.store
    tokens = {name: read_text(store.account_path(name)).encode() for name in names}
    if remote.is_http:
        for name, token in tokens.items():
            remote.over_http("POST", str(store.account(name)["sub"]), token)
            report.ok(f"pushed {printable(name)} to {printable(remote.url)}")
        return

    async def send(client: Client) -> dict[str, list[Answer]]:
        return await ask_many(client, UPDATE, tokens, remote.timeout_s)

    refused = []
    result: dict[str, Any] = {}
    for name, answers in remote.with_client(send).items():
        result[name] = [{"server": each.server, "error": each.error} for each in answers]
        for answer in answers:
            if answer.error:
                refused.append(f"  {printable(name)}: server {answer.server}: {answer.error}")
            else:
                said = answer.data.get("message") if isinstance(answer.data, dict) else answer.data
                report.ok(f"pushed {printable(name)} to server {answer.server}: {printable(str(said))}")
    report.result["pushed"] = result
    if refused:
        raise Failure("servers refused accounts:", *refused)


def _accounts_on_servers(remote: Remote) -> set[str]:
    """Return the public keys of the accounts that the servers hold."""

    async def ask(client: Client) -> list[Answer]:
        return await ask_servers(client, LIST, b"", remote.timeout_s)

    found: set[str] = set()
    for answer in remote.with_client(ask):
        if answer.error or not isinstance(answer.data, list):
            raise Failure(f"server {answer.server} does not list its accounts: {answer.error or 'not a list'}")
        found.update(key for key in map(str, answer.data) if is_public(key, "A"))
    return found


def _show_difference(remote: Remote) -> None:
    session = remote.session
    held = _accounts_on_servers(remote)
    own = {str(session.store.account(name)["sub"]): name for name in session.store.accounts()}
    session.report.result["diff"] = {
        "both": sorted(set(own) & held),
        "only_store": sorted(set(own) - held),
        "only_servers": sorted(held - set(own)),
    }
    for key in sorted(held | set(own)):
        where = "in both" if key in held and key in own else "only on servers" if key in held else "only in the store"
        session.report.ok(f"{key} {printable(own.get(key, ''))}: {where}")


def _delete(remote: Remote, accounts: list[str]) -> None:
    """Delete accounts from the servers by a request that the operator signs."""
    session = remote.session
    if not accounts:
        session.report.ok("there is nothing to delete: servers and store hold the same accounts")
        return
    signer = session.operator_signer()
    token = session.sign({"sub": signer.public, "nats": {"accounts": accounts}}, signer)

    async def ask(client: Client) -> list[Answer]:
        return await ask_servers(client, DELETE, token.encode(), remote.timeout_s)

    for answer in remote.with_client(ask):
        if answer.error:
            raise Failure(
                f"server {answer.server} does not delete: {answer.error}", "its resolver needs `allow_delete: true`"
            )
        said = answer.data.get("message") if isinstance(answer.data, dict) else answer.data
        session.report.ok(f"server {answer.server}: {printable(str(said))}")
    session.report.result["deleted"] = accounts


@click.command("pull", cls=TrustCommand)
@click.option("-A", "--all", "every", is_flag=True, help="all accounts that the servers hold")
@click.option("-F", "--overwrite-newer", is_flag=True, help="replace accounts of the store that are newer")
@remote_options
@account_option
@in_changing_session
def pull(session: Session, account: str | None, every: bool, overwrite_newer: bool, **flags: Any) -> None:
    """Take accounts from the servers into the store."""
    remote = find_remote(session, flags, (LIST, LOOKUP.format("*")))
    if every and not remote.is_http:
        keys = sorted(_accounts_on_servers(remote))
    else:
        names = session.store.accounts() if every else [session.account_name(account)]
        keys = [str(session.store.account(name)["sub"]) for name in names]
    pulled = []
    for key, token in _fetched(remote, keys).items():
        if not token:
            session.report.warn(f"{key}: the servers do not have it")
            continue
        if _take(session, key, token, overwrite_newer=overwrite_newer):
            pulled.append(key)
    session.report.result["pulled"] = pulled


def _fetched(remote: Remote, keys: list[str]) -> dict[str, str | None]:
    if remote.is_http:
        return {key: remote.over_http("GET", key).decode(errors="replace").strip() for key in keys}

    async def ask(client: Client) -> dict[str, str | None]:
        return {key: await look_up(client, key, remote.timeout_s) for key in keys}

    return remote.with_client(ask)


def _take(session: Session, key: str, token: str, *, overwrite_newer: bool) -> bool:
    """Store a pulled account; return whether it was stored. What the operator did not sign, or is older, stays out."""
    store, report = session.store, session.report
    operator = store.operator()
    try:
        members = decode_members(token)
    except JwtError as error:
        report.warn(f"{key}: left out: {printable(str(error))}")
        return False
    name = str(members.get("name") or "")
    trusted = (operator["sub"], *(body(operator).get("signing_keys") or ()))
    own = store.account_of(key)
    if members.get("sub") != key or body(members).get("type") != "account" or members.get("iss") not in trusted:
        report.warn(f"{key}: left out: this operator did not sign it as this account")
    elif own is not None and own != name:
        report.warn(f"{key}: left out: it is called {printable(own)} here, {printable(name)} on the servers")
    elif own is None and name in store.accounts():
        report.warn(f"{key}: left out: another account is called {printable(name)} here")
    elif (
        own is not None
        and not overwrite_newer
        and int(store.account(own).get("iat") or 0) > int(members.get("iat") or 0)
    ):
        report.warn(f"{printable(own)}: left out: the store's is newer; push it, or replace it with --overwrite-newer")
    else:
        store.write_account(name, token)
        report.ok(f"pulled account {printable(name)}")
        return True
    return False
