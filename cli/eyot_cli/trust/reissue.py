"""`eyot trust reissue operator`: a new identity key for an operator, after the old one was lost or seen."""

from __future__ import annotations

import click

from eyot_cli.terminal.failure import Failure
from eyot_cli.trust.command import TrustGroup, in_changing_session
from eyot_cli.trust.session import Session, operator_keys
from eyot_cli.trust.store import body
from eyot_wire.quoting import printable


@click.group("reissue", cls=TrustGroup)
def reissue() -> None:
    """Give an operator a new identity key."""


@reissue.command("operator")
@click.option("-n", "--name", metavar="NAME", help="name of the operator (the one in use)")
@click.option("--convert-to-signing-key", "convert", is_flag=True, help="keep the old key as a signing key")
@in_changing_session
def reissue_operator(session: Session, name: str | None, convert: bool) -> None:
    """Sign the operator with a new key, and its accounts again.

    The key is made, or given with -K. Accounts are signed again where the old key had signed them.

    Servers and devices know an operator by its key: all servers need the new configuration, and devices that enrolled
    renew only after they enrolled anew. With --convert-to-signing-key accounts stay as they are.
    """
    if name is not None and name != session.store.name:
        session.environment.use(name)
        raise Failure(f"operator {printable(name)} is in use now: run the command again")
    store, members = session.store, session.store.operator()
    if store.info.managed:
        raise Failure("the operator's key is elsewhere: only its owner can give it a new one")
    strict = bool(body(members).get("strict_signing_key_usage"))
    if strict and not convert and not body(members).get("signing_keys"):
        raise Failure("the operator must sign with signing keys and has none: add one, or use --convert-to-signing-key")
    pair = session.key_pair(session.key) if session.key else session.keystore.make("O")
    if pair.role != "O":
        raise Failure(f"{pair.public} is not an operator's key: leave -K out to make one")
    old, session.key = str(members["sub"]), ""
    if convert:
        body(members)["signing_keys"] = sorted({*(body(members).get("signing_keys") or ()), old})
    members["sub"] = pair.public
    trusted = operator_keys(members)
    if not convert and strict and not any(session.keystore.holds(key) for key in trusted):
        raise Failure(f"no signing key of the operator is in {session.keystore.root}, which would sign its accounts")
    session.keystore.add(pair)
    session.save_operator(members)
    session.report.ok(f"operator {printable(store.name)} has the new identity {pair.public}")
    if convert:
        session.report.ok(f"the old key {old} is a signing key")
    for account in store.accounts():
        claims = store.account(account)
        if claims.get("iss") in trusted:
            continue
        session.save_account(claims)
        session.report.ok(f"account {printable(account)} is signed again")
    session.report.result["operator"] = {"name": store.name, "key": pair.public, "was": old}
