"""`eyot trust list`, `export keys`, `import keys|account|user`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click

from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.private_files import read_text, write_private
from eyot_cli.terminal.show import print_json, print_table
from eyot_cli.trust.command import FOLDER, TrustGroup, account_option, in_changing_session, in_session
from eyot_cli.trust.keystore import ROLES, SUFFIX, KeyPair
from eyot_cli.trust.session import Session, account_keys, account_mistakes
from eyot_cli.trust.store import body
from eyot_cli.trust.tokens import find_token
from eyot_wire.quoting import printable
from eyot_wire.trust import nkey
from eyot_wire.trust.creds import parse_creds
from eyot_wire.trust.jwt import JwtError
from eyot_wire.trust.jwt_sign import decode_members


class KnownKey(NamedTuple):
    """A key of the operator in use: whose it is, and whether it is a signing key."""

    entity: str
    role: str
    key: str
    signing: bool
    account: str


@click.group("list", cls=TrustGroup)
def list_group() -> None:
    """List operators, accounts, users or keys."""


@list_group.command("operators")
@in_session
def list_operators(session: Session) -> None:
    """List the operators."""
    environment = session.environment
    rows = [(name, str(environment.store(name).operator()["sub"])) for name in environment.operators()]
    _show(session, "Operators", rows, environment.operator)


@list_group.command("accounts")
@in_session
def list_accounts(session: Session) -> None:
    """List the accounts of the operator in use."""
    rows = [(name, str(session.store.account(name)["sub"])) for name in session.store.accounts()]
    _show(session, "Accounts", rows, session.environment.account)


@list_group.command("users")
@account_option
@in_session
def list_users(session: Session, account: str | None) -> None:
    """List the users of an account."""
    of = session.account_name(account)
    rows = [(name, str(session.store.user(of, name)["sub"])) for name in session.store.users(of)]
    _show(session, f"Users of {of}", rows, "")


def _show(session: Session, title: str, rows: list[tuple[str, str]], current: str) -> None:
    if session.report.as_json:
        print_json([{"name": name, "key": key} for name, key in rows])
        return
    shown = [("*" if name == current else "", name, key) for name, key in rows]
    print_table(title, ("", "Name", "Public key"), shown, "there are none")


def known_keys(session: Session) -> Iterator[KnownKey]:
    """Yield the keys of the operator in use, its accounts and their users."""
    operator = session.store.operator()
    yield KnownKey(session.store.name, "O", str(operator["sub"]), False, "")
    for key in body(operator).get("signing_keys") or ():
        yield KnownKey(session.store.name, "O", str(key), True, "")
    for account in session.store.accounts():
        members = session.store.account(account)
        for key in account_keys(members, strict=False):
            yield KnownKey(account, "A", key, key != members["sub"], account)
        curve = (body(members).get("authorization") or {}).get("xkey")
        if curve:
            yield KnownKey(account, "X", str(curve), False, account)
        for user in session.store.users(account):
            yield KnownKey(user, "U", str(session.store.user(account, user)["sub"]), False, account)


def _select_options(function: Any) -> Any:
    for names, text in (
        (("-o", "--operator"), "keys of operators"),
        (("-a", "--accounts"), "keys of accounts"),
        (("-u", "--users"), "keys of users"),
        (("-x", "--curves"), "curve keys"),
        (("-A", "--all"), "all keys"),
        (("--not-referenced",), "keys of the keystore that the operator in use does not name"),
    ):
        function = click.option(*names, is_flag=True, help=text)(function)
    function = click.option("--account", metavar="NAME", help="only keys of this account and its users")(function)
    function = click.option("--user", metavar="NAME", help="only keys of this user")(function)
    return click.option("-f", "--filter", "part", metavar="TEXT", help="only keys that contain this")(function)


def _selected(session: Session, flags: dict[str, Any]) -> list[KnownKey]:
    """Return the keys that the options select. Raises Failure for an account that does not exist."""
    if flags["account"] is not None:
        session.store.account(flags["account"])
    known = list(known_keys(session))
    if flags["not_referenced"]:
        names = {each.key for each in known}
        known = [KnownKey("?", key[0], key, False, "") for key in session.keystore.all() if key not in names]
    chosen = {"O": flags["operator"], "A": flags["accounts"], "U": flags["users"], "X": flags["curves"]}
    every = flags["all"] or not any(chosen.values())
    return [
        each
        for each in known
        if (every or chosen.get(each.role))
        and flags["account"] in (None, each.account)
        and (flags["user"] is None or (each.role == "U" and each.entity == flags["user"]))
        and (flags["part"] or "") in each.key
    ]


@list_group.command("keys")
@_select_options
@click.option("-S", "--show-seeds", is_flag=True, help="show the seeds")
@in_session
def list_keys(session: Session, show_seeds: bool, **flags: Any) -> None:
    """List the keys, and whether the keystore holds them.

    They are those of operator, accounts and users.
    """
    found = []
    for each in _selected(session, flags):
        row = {"entity": each.entity, "role": ROLES[each.role], "key": each.key, "signing_key": each.signing}
        row["stored"] = session.keystore.holds(each.key)
        if show_seeds:
            pair = session.keystore.find(each.key)
            row["seed"] = pair.seed if pair and pair.has_seed else ""
        found.append(row)
    if session.report.as_json:
        print_json(found)
        return
    columns = ("Entity", "Role", "Key", "Signing key", "Stored", *(("Seed",) if show_seeds else ()))
    rows = [
        (
            str(row["entity"]),
            str(row["role"]),
            str(row["key"]),
            "*" if row["signing_key"] else "",
            "*" if row["stored"] else "",
            *((str(row["seed"]),) if show_seeds else ()),
        )
        for row in found
    ]
    print_table("Keys", columns, rows, "there are none")


@click.group("export", cls=TrustGroup)
def export_group() -> None:
    """Export keys."""


@export_group.command("keys")
@click.option("-d", "--dir", "folder", type=FOLDER, required=True, metavar="DIR", help="folder for the files")
@_select_options
@click.option("-F", "--force", is_flag=True, help="replace files that are there")
@click.option("-R", "--remove", is_flag=True, help="remove the keys from the keystore afterwards")
@click.option("--include-jwts", is_flag=True, help="also the JWTs of operator, accounts and users")
@in_session
def export_keys(session: Session, folder: Path, force: bool, remove: bool, include_jwts: bool, **flags: Any) -> None:
    """Write seeds to a folder.

    One file each with mode 0600: for a backup, or to keep the operator's key off line.
    """
    pairs = [pair for each in _selected(session, flags) if (pair := session.keystore.find(each.key)) is not None]
    if not pairs:
        raise Failure("the keystore holds none of these keys: `eyot trust list keys` shows which it holds")
    paths = {pair.public: folder.expanduser() / f"{pair.public}{SUFFIX}" for pair in pairs}
    taken = [path for path in paths.values() if path.exists()]
    if taken and not force:
        raise Failure(f"{taken[0]} exists: replace it with --force, or name another folder")
    for pair in pairs:
        write_private(paths[pair.public], pair.seed.encode())
        session.report.ok(f"exported {pair.public}")
    if include_jwts:
        for path in sorted(session.store.folder.rglob("*.jwt")):
            write_private(folder.expanduser() / path.relative_to(session.store.folder), path.read_bytes())
            session.report.ok(f"exported {path.name}")
    for pair in pairs if remove else ():
        session.keystore.remove(pair.public)
        session.report.ok(f"removed {pair.public} from the keystore")


@click.group("import", cls=TrustGroup)
def import_group() -> None:
    """Import keys, accounts and users."""


@import_group.command("keys")
@click.option("-d", "--dir", "folder", type=FOLDER, required=True, metavar="DIR", help="folder with files of seeds")
@click.option("-R", "--recurse", is_flag=True, help="also folders below")
@in_changing_session
def import_keys(session: Session, folder: Path, recurse: bool) -> None:
    """Store the seeds of a folder's files in the keystore.

    Files are .nk and .creds.
    """
    found = 0
    for path in sorted(folder.expanduser().glob("**/*" if recurse else "*")):
        if path.suffix not in (SUFFIX, ".creds") or not path.is_file():
            continue
        try:
            text = path.read_text(errors="replace")
            pair = KeyPair(parse_creds(text).seed if path.suffix == ".creds" else text)
        except (nkey.NkeyError, OSError) as error:
            session.report.warn(f"{path}: {error}: left out")
            continue
        session.keystore.add(pair)
        session.report.ok(f"{pair.public} was added to the keystore")
        found += 1
    if not found:
        raise Failure(f"{folder} has no seeds in files *{SUFFIX} or *.creds: name another folder, or add --recurse")


@import_group.command("account")
@click.option("-j", "--file", "file", required=True, metavar="FILE", help="file with the account's JWT")
@click.option("--overwrite", is_flag=True, help="replace an account of the same name")
@click.option("--force", is_flag=True, help="take an account of another operator, signed by this operator again")
@click.option("--skip", is_flag=True, help="take an account with mistakes, to correct them here")
@in_changing_session
def import_account(session: Session, file: str, overwrite: bool, force: bool, skip: bool) -> None:
    """Take an account's JWT into the store."""
    token = find_token(read_text(Path(file).expanduser()))
    members = _decoded(token, file, "account")
    called = str(members.get("name") or "")
    if called in session.store.accounts() and not overwrite:
        raise Failure(f"account {printable(called)} exists already: replace it with --overwrite")
    found = account_mistakes(token)
    if found and not skip:
        raise Failure("the account has mistakes, which --skip takes along:", *(f"  {each}" for each in found))
    allowed = [each.key for each in known_keys(session) if each.role == "O"]
    if members.get("iss") in allowed:
        session.store.write_account(called, token)
    elif members.get("iss") == members.get("sub") or force:
        session.save_account(members, tolerated=found)
        session.report.warn(
            "signed with the limits that the account names itself: look at them (describe), and edit them"
        )
    else:
        raise Failure("the account is signed by another operator: --force signs it by this one")
    session.report.ok(f"account {printable(called)} was imported")


@import_group.command("user")
@click.option("-f", "--file", "file", required=True, metavar="FILE", help="file with the user's JWT or credentials")
@click.option("--overwrite", is_flag=True, help="replace a user of the same name")
@click.option("--skip", is_flag=True, help="take an expired user, to renew it here")
@in_changing_session
def import_user(session: Session, file: str, overwrite: bool, skip: bool) -> None:
    """Take a user's JWT or credentials into the store.

    Credentials hold the seed, too.
    """
    text = read_text(Path(file).expanduser())
    token = find_token(text)
    members = _decoded(token, file, "user")
    called = str(members.get("name") or "")
    signers = {each.key: each.account for each in known_keys(session) if each.role == "A"}
    of = signers.get(str(members.get("iss")))
    if of is None:
        raise Failure(f"no account of this operator has the key {members.get('iss')}, which signed the user")
    if called in session.store.users(of) and not overwrite:
        raise Failure(
            f"user {printable(called)} exists already in account {printable(of)}: replace it with --overwrite"
        )
    if members.get("exp") and int(members["exp"]) <= time.time() and not skip:
        raise Failure(f"user {printable(called)} has expired: --skip takes it, and `edit user --expiry` renews it")
    session.store.write_user(of, called, token)
    if "NKEY SEED" in text:
        pair = KeyPair(parse_creds(text).seed)
        if pair.public != members["sub"]:
            raise Failure(f"{file}: its seed is {pair.public}'s, not the user's: ask for new credentials")
        session.keystore.add(pair)
        session.keystore.write_creds(session.store.name, of, called, token, pair)
    session.report.ok(f"user {printable(called)} was imported into account {printable(of)}")


def _decoded(token: str, file: str, kind: str) -> dict[str, Any]:
    try:
        members = decode_members(token)
    except JwtError as error:
        raise Failure(f"{printable(file)}: {printable(str(error))}") from error
    if body(members).get("type") != kind:
        raise Failure(
            f"{printable(file)} holds a JWT of an {printable(str(body(members).get('type')))}, not of an {kind}"
        )
    return members
