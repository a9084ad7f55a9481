"""A user of the account for one command: it exists in this process's memory, and may do only what the command does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eyot_cli.terminal.failure import Failure
from eyot_cli.trust.claims import new_user
from eyot_cli.trust.keystore import new_pair
from eyot_cli.trust.session import Report, scoped_keys
from eyot_cli.trust.store import body
from eyot_wire.quoting import printable
from eyot_wire.trust.creds import Credentials

if TYPE_CHECKING:
    from eyot_cli.trust.session import Session


def own_login(session: Session, account: str, *, hears: list[str], publishes: list[str], called: str) -> Credentials:
    """Return a new user that may subscribe to `hears` and publish to `publishes`. Raises Failure."""
    session.key, session.report = "", Report(session.report.as_json)
    members = session.store.account(account)
    signer = session.account_signer(members)
    if signer.public in {scope.get("key") for scope in scoped_keys(members)}:
        raise Failure(
            f"account {printable(account)} needs a signing key without a scope:",
            f"  eyot trust edit account {printable(account)} --sk generate, then `eyot trust push -a {printable(account)}`",
        )
    pair = new_pair("U")
    claims = new_user(pair.public, called, scoped=False)
    body(claims)["sub"], body(claims)["pub"] = {"allow": hears}, {"allow": publishes}
    if signer.public != members["sub"]:
        body(claims)["issuer_account"] = members["sub"]
    return Credentials(session.sign(claims, signer), pair.seed)
