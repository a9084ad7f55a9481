"""`eyot trust validate` and `expirations`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.private_files import read_text
from eyot_cli.terminal.show import Piece, print_json, print_table
from eyot_cli.trust.command import TrustCommand, account_option, in_session
from eyot_cli.trust.grants import has_grant
from eyot_cli.trust.session import Session, account_keys, account_mistakes, scoped_keys
from eyot_cli.trust.store import body
from eyot_cli.trust.tokens import find_tokens
from eyot_cli.trust.values import parse_time, show_time
from eyot_wire.quantities import counted
from eyot_wire.quoting import printable
from eyot_wire.trust.jwt import JwtError
from eyot_wire.trust.jwt_sign import ClaimMembers, decode_members


@click.command("validate", cls=TrustCommand)
@click.option("-A", "--all-accounts", is_flag=True, help="all accounts of the operator")
@click.option("-f", "--file", "file", metavar="FILE", help="the JWTs of this file instead, one a line")
@account_option
@in_session
def validate(session: Session, all_accounts: bool, file: str | None, account: str | None) -> None:
    """Check the JWTs of operator, account and users. Exit status 1 if one of them is invalid."""
    issues: list[dict[str, str]] = []
    if file is not None:
        for token in find_tokens(read_text(Path(file).expanduser())):
            issues += _file_issues(token)
    else:
        names = session.store.accounts() if all_accounts else [session.account_name(account)]
        issues += [{"of": f"operator {session.store.name}", "issue": each} for each in _operator_issues(session)]
        for name in names:
            issues += _issues_below(session, name)
        issues += _open_files(session)
    if session.report.as_json:
        print_json({"issues": issues})
    else:
        rows: list[tuple[Piece, ...]] = [(each["of"], each["issue"]) for each in issues]
        print_table("Issues", ("Of", "Issue"), rows, "no issues found")
    if issues:
        raise click.exceptions.Exit(1)


def _file_issues(token: str) -> list[dict[str, str]]:
    try:
        members = decode_members(token)
    except JwtError as error:
        return [{"of": "JWT", "issue": printable(str(error))}]
    kind = str(body(members).get("type"))
    found = [*_time_issues(members), *(account_mistakes(token) if kind == "account" else ())]
    return [{"of": f"{kind} {members.get('name', '')}", "issue": each} for each in found]


def _open_files(session: Session) -> Iterator[dict[str, str]]:
    """Yield the files with seeds that others on the machine may read."""
    for path in session.keystore.files():
        mode = path.stat().st_mode & 0o777
        if mode & 0o077:
            yield {
                "of": str(path),
                "issue": f"has mode {mode:04o}, so others read the seed: chmod 600, and make new keys",
            }


def _operator_issues(session: Session) -> Iterator[str]:
    operator = session.store.operator()
    yield from _time_issues(operator)
    nats = body(operator)
    if operator.get("iss") != operator.get("sub") and operator.get("iss") not in (nats.get("signing_keys") or ()):
        yield "the operator's JWT is signed by another key"
    here = not session.store.info.managed  # the system account of a managed operator is elsewhere
    if here and nats.get("system_account") and session.store.account_of(str(nats["system_account"])) is None:
        yield f"the system account {nats['system_account']} is not in the store"
    if nats.get("strict_signing_key_usage") and not nats.get("signing_keys"):
        yield "signing keys are required, and there are none"


def account_issues(session: Session, name: str, *, to_be_signed: bool = False) -> list[str]:
    """Return why servers would refuse an account, its users left aside.

    `to_be_signed`: an account of a managed operator that signed itself is no issue, since the operator is to get it.
    """
    operator, account = session.store.operator(), session.store.account(name)
    strict = bool(body(operator).get("strict_signing_key_usage"))
    found = [*_time_issues(account), *account_mistakes(read_text(session.store.account_path(name)))]
    trusted = [*(() if strict else (operator["sub"],)), *(body(operator).get("signing_keys") or ())]
    if account.get("iss") == account.get("sub") and session.store.info.managed:
        found += () if to_be_signed else ("signed by itself: send it to the operator, who signs it",)
    elif account.get("iss") not in trusted:
        found.append(
            f"signed by {account.get('iss')}, which the operator does not trust: sign it again, `edit account -K KEY`"
        )
    return found


def _issues_below(session: Session, name: str) -> Iterator[dict[str, str]]:
    for each in account_issues(session, name):
        yield {"of": f"account {name}", "issue": each}
    account = session.store.account(name)
    strict = bool(body(session.store.operator()).get("strict_signing_key_usage"))
    for user in session.store.users(name):
        for each in _user_issues(account, session.store.user(name, user), strict=strict):
            yield {"of": f"user {name}/{user}", "issue": each}


def _user_issues(account: ClaimMembers, user: ClaimMembers, *, strict: bool) -> Iterator[str]:
    yield from _time_issues(user)
    if user.get("iss") not in account_keys(account, strict=strict):
        yield f"signed by {user.get('iss')}, which the account does not trust: edit the user to sign it again"
    if any(key.get("key") == user.get("iss") for key in scoped_keys(account)) and has_grant(body(user)):
        yield "has permissions or limits of its own, though its signing key has a scope"
    revoked: dict[str, int] = body(account).get("revocations") or {}
    if any(revoked.get(key, -1) >= int(user.get("iat") or 0) for key in (str(user["sub"]), "*")):
        yield "is revoked: edit the user for a new JWT, or delete the revocation"


def _time_issues(members: ClaimMembers) -> Iterator[str]:
    now_s = time.time()
    if members.get("exp") and int(members["exp"]) <= now_s:
        yield f"expired at {show_time(int(members['exp']))}: extend it with --expiry (edit)"
    if members.get("nbf") and int(members["nbf"]) > now_s:
        yield f"is valid only from {show_time(int(members['nbf']))}"


@click.command("expirations", cls=TrustCommand)
@click.option("-e", "--within", default="1M", metavar="TIME", help="mark what expires by then: a span or a date")
@click.option("--skip", is_flag=True, help="leave out what does not expire by then")
@in_session
def expirations(session: Session, within: str, skip: bool) -> None:
    """Show what expires when, the next one first.

    Operator, accounts, users, activations and credentials can expire.
    """
    now_s = time.time()
    limit = parse_time(within, now_s)
    rows = []
    for name, kind, expiry in _expiries(session):
        state = "expired" if expiry and expiry <= now_s else "soon" if expiry and expiry <= limit else "valid"
        if not skip or state != "valid":
            rows.append({"of": name, "kind": kind, "state": state, "expires": expiry})
    rows.sort(key=lambda row: (not row["expires"], row["expires"], row["of"]))
    if session.report.as_json:
        print_json(rows)
        return
    shown: list[tuple[Piece, ...]] = [_row(row, now_s) for row in rows]
    print_table(
        f"Expirations (soon: by {show_time(limit)})", ("Of", "Kind", "State", "Expires"), shown, "nothing expires"
    )


def _row(row: dict[str, Any], now_s: float) -> tuple[Piece, ...]:
    style = {"expired": "bold red", "soon": "yellow"}.get(row["state"], "")
    left = (
        f" (in {counted(round((row['expires'] - now_s) / 86400), 'day')})"
        if row["expires"] and row["state"] != "expired"
        else ""
    )
    return row["of"], row["kind"], (row["state"], style), show_time(row["expires"]) + left


def _expiries(session: Session) -> Iterator[tuple[str, str, int]]:
    store = session.store
    yield store.name, "operator", int(store.operator().get("exp") or 0)
    for account in store.accounts():
        members = store.account(account)
        yield f"{store.name}/{account}", "account", int(members.get("exp") or 0)
        for imported in body(members).get("imports") or ():
            if imported.get("token"):
                yield (
                    f"{store.name}/{account}: {imported.get('subject')}",
                    "activation",
                    _expiry_of(str(imported["token"])),
                )
        for user in store.users(account):
            name = f"{store.name}/{account}/{user}"
            yield name, "user", int(store.user(account, user).get("exp") or 0)
            creds = session.keystore.creds_path(store.name, account, user)
            if creds.is_file():
                for token in find_tokens(read_text(creds))[:1]:
                    yield str(creds), "credentials", _expiry_of(token)


def _expiry_of(token: str) -> int:
    try:
        return int(decode_members(token).get("exp") or 0)
    except JwtError as error:
        raise Failure(
            f"a JWT of the store is invalid: {printable(str(error))}: see `eyot trust validate -A`"
        ) from error
