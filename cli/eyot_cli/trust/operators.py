"""`eyot trust add|edit operator`, `init`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click
import httpx

from eyot_cli.terminal.failure import Failure
from eyot_cli.trust.claims import (
    add_signing_keys,
    edit_tags,
    edit_times,
    make_system_account,
    new_operator,
    remove_signing_keys,
)
from eyot_cli.trust.command import TrustCommand, in_changing_session, in_session, name_of, name_options, time_options
from eyot_cli.trust.session import Session
from eyot_cli.trust.store import OperatorStore, body
from eyot_cli.trust.tokens import find_token
from eyot_cli.trust.values import split_list
from eyot_wire.host_name import can_be_host
from eyot_wire.quoting import printable
from eyot_wire.trust.jwt import JwtError
from eyot_wire.trust.jwt_account import decode_operator
from eyot_wire.trust.jwt_sign import decode_members
from eyot_wire.trust.nkey import is_public

_SERVICE_SCHEMES: Final = ("nats", "tls", "ws", "wss")
_ACCOUNT_SCHEMES: Final = ("http", "https", *_SERVICE_SCHEMES)
_TIMEOUT_S: Final = 10


@click.command("operator", cls=TrustCommand)
@name_options("operator")
@click.option(
    "-u", "--url", metavar="FILE|URL", help="take an operator's JWT from a file or a URL; its key is elsewhere"
)
@click.option("--generate-signing-key", is_flag=True, help="also make a signing key")
@click.option("-s", "--sys", "system", is_flag=True, help="also make a system account and its user")
@click.option("--force", is_flag=True, help="replace the JWT of an operator taken with --url before")
@time_options
@in_session
def add_operator(
    session: Session, given: str | None, name: str | None, url: str | None, force: bool, **flags: Any
) -> None:
    """Make an operator with its key, and use it."""
    if url:
        _take_operator(session, url, force=force)
        return
    make_operator(session, name_of(given, name, "operator"), **flags)


def make_operator(
    session: Session,
    name: str,
    *,
    generate_signing_key: bool,
    system: bool,
    start: str | None = None,
    expiry: str | None = None,
) -> None:
    """Make an operator with its key (`-K` names one that exists), and use it. Raises Failure."""
    pair = session.key_pair(session.key) if session.key else session.keystore.make("O")
    if pair.role != "O":
        raise Failure(f"{pair.public} is not an operator's key: leave -K out to make one")
    members = new_operator(pair.public, name)
    edit_times(members, start, expiry, session.report)
    store = OperatorStore.create(session.environment.stores, name, managed=False)
    session.key = ""
    session.keystore.add(pair)
    session.report.ok(f"generated and stored operator key {pair.public}")
    store.write_operator(session.sign(members, pair))
    session.environment.use(store.name)
    if generate_signing_key:
        add_signing_keys(session, members, "O", ("generate",))
        session.save_operator(members)
    if system:
        make_system_account(session, members)
        session.save_operator(members)
    session.environment.apply_defaults()
    session.environment.save()
    session.report.result["operator"] = {"name": name, "key": pair.public}
    session.report.ok(f"added operator {printable(name)}")


def _take_operator(session: Session, url: str, *, force: bool) -> None:
    token = find_token(_content(url))
    try:
        claims = decode_operator(token).claims
        members = decode_members(token)
    except JwtError as error:
        raise Failure(f"{printable(url)}: {printable(str(error))}: give the address of an operator's JWT") from error
    called = str(members.get("name") or "")
    if called in session.environment.operators():
        present = session.environment.store(called)
        if present.operator()["sub"] != claims.sub:
            raise Failure(f"another operator is called {printable(called)} here: use another folder, --all-dirs DIR")
        if not force:
            raise Failure(f"operator {printable(called)} exists already: --force replaces its JWT")
        present.write_operator(token)
    else:
        OperatorStore.create(session.environment.stores, called, managed=True).write_operator(token)
    session.environment.use(called)
    session.report.ok(f"imported operator {printable(called)}")


def _content(url: str) -> str:
    try:
        if url.startswith(("http://", "https://")):
            answer = httpx.get(url, timeout=_TIMEOUT_S, follow_redirects=True)
            answer.raise_for_status()
            return answer.text
        return Path(url).expanduser().read_text(errors="replace")
    except OSError as error:
        raise Failure(f"{printable(url)}: {error.strerror}: give a file or an http(s) URL") from error
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
        raise Failure(f"{printable(url)}: {printable(str(error))}") from error


@click.command("operator", cls=TrustCommand)
@click.option("--sk", multiple=True, metavar="KEY", help="add a signing key; `generate` makes one")
@click.option("--rm-sk", multiple=True, metavar="KEY", help="remove a signing key")
@click.option(
    "--require-signing-keys/--no-require-signing-keys", "strict", default=None, help="own keys sign nothing else"
)
@click.option("-u", "--account-jwt-server-url", "server", metavar="URL", help="where push and pull go")
@click.option("--rm-account-jwt-server-url", "rm_server", is_flag=True, help="remove that address")
@click.option("-n", "--service-url", "services", multiple=True, metavar="URL", help="add an address of the service")
@click.option("--rm-service-url", "rm_services", multiple=True, metavar="URL", help="remove such an address")
@click.option("--system-account", "system", metavar="NAME", help="system account, by name or public key")
@click.option("--tag", multiple=True, metavar="TAG", help="add a tag")
@click.option("--rm-tag", multiple=True, metavar="TAG", help="remove a tag")
@time_options
@in_changing_session
def edit_operator(session: Session, **flags: Any) -> None:
    """Change the operator in use."""
    members, report = session.store.operator(), session.report
    nats = body(members)
    add_signing_keys(session, members, "O", flags["sk"])
    remove_signing_keys(members, flags["rm_sk"], report)
    if flags["system"] is not None:
        nats["system_account"] = _account_key(session.store, flags["system"])
        report.ok(f"set system account {nats['system_account']}")
    if flags["server"] is not None:
        nats["account_server_url"] = _check_url(flags["server"], _ACCOUNT_SCHEMES)
        report.ok(f"set account jwt server url to {printable(flags['server'])}")
    if flags["rm_server"]:
        nats.pop("account_server_url", None)
        report.ok("removed account jwt server url")
    _edit_services(nats, flags, session)
    edit_tags(members, flags["tag"], flags["rm_tag"], report)
    edit_times(members, flags["start"], flags["expiry"], report)
    if flags["strict"] is not None:
        _check_strict(session, nats, strict=flags["strict"])
        nats["strict_signing_key_usage"] = flags["strict"]
        report.ok(f"strict signing key usage set to: {str(flags['strict']).lower()}")
    if not report.done:
        raise Failure("nothing to change: see `eyot trust edit operator --help`")
    session.save_operator(members)
    report.ok(f"edited operator {session.store.name}")


def _edit_services(nats: dict[str, Any], flags: dict[str, Any], session: Session) -> None:
    services = [str(each) for each in nats.get("operator_service_urls") or ()]
    for url in split_list(flags["services"]):
        _check_url(url, _SERVICE_SCHEMES)
        services = [*services, url] if url not in services else services
        session.report.ok(f"added service url {printable(url)}")
    for url in split_list(flags["rm_services"]):
        if url not in services:
            raise Failure(
                f"{printable(url)} is no service url: there are {', '.join(map(printable, services)) or 'none'}"
            )
        services.remove(url)
        session.report.ok(f"removed service url {printable(url)}")
    nats["operator_service_urls"] = services
    if not services:
        del nats["operator_service_urls"]


def _check_strict(session: Session, nats: dict[str, Any], *, strict: bool) -> None:
    """Refuse to require signing keys while something is signed by an own key, which servers would then refuse."""
    if not strict:
        return
    if not nats.get("signing_keys"):
        raise Failure("the operator has no signing key, so nobody could sign accounts: add one with --sk generate")
    own = session.store.operator()["sub"]
    for name in session.store.accounts():
        account = session.store.account(name)
        if account.get("iss") == own:
            raise Failure(
                f"account {printable(name)} is signed by the operator's own key, which servers would then refuse: "
                f"sign it again with `eyot trust edit account {printable(name)} -K SIGNING_KEY`"
            )
        for user in session.store.users(name):
            if session.store.user(name, user).get("iss") == account["sub"]:
                raise Failure(
                    f"user {printable(user)} of {printable(name)} is signed by the account's own key, which servers would "
                    f"then refuse: sign it again with `eyot trust edit user {printable(user)} -a {printable(name)} -K SIGNING_KEY`"
                )


def _account_key(store: OperatorStore, text: str) -> str:
    return text if is_public(text, "A") else str(store.account(text)["sub"])


def _check_url(url: str, schemes: tuple[str, ...]) -> str:
    try:
        parts = urlsplit(url)
        whole = parts.scheme.lower() in schemes and can_be_host(parts.hostname or "")
    except ValueError:
        whole = False
    if not whole:
        raise Failure(
            f"{printable(url)} is no address of a server: it begins with {', '.join(f'{each}://' for each in schemes)}"
        )
    return url
