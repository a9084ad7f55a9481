"""`eyot trust init`, `rename` and `keystore`."""

from __future__ import annotations

import os
from pathlib import Path

import click
import msgspec

from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.private_files import check_name, make_folder, remove
from eyot_cli.trust import key_token
from eyot_cli.trust.accounts import make_account
from eyot_cli.trust.claims import new_user
from eyot_cli.trust.command import FOLDER, TrustCommand, TrustGroup, in_changing_session, in_session
from eyot_cli.trust.operators import make_operator
from eyot_cli.trust.session import Session
from eyot_cli.values.paths import FilePath
from eyot_wire.quantities import counted
from eyot_wire.quoting import printable


@click.command("init", cls=TrustCommand)
@click.option("-n", "--name", metavar="NAME", required=True, help="name of operator, account and user")
@click.option("-d", "--dir", "folder", type=FOLDER, metavar="DIR", help="folder of the stores")
@in_session
def init(session: Session, name: str, folder: Path | None) -> None:
    """Make an operator, its accounts and a user at once.

    There is a system account, an account and a user afterwards.
    """
    if folder is not None:
        session.environment.stores = folder.expanduser().absolute()
    make_operator(session, name, generate_signing_key=True, system=True)
    make_account(session, name, None)
    account = session.store.account(name)
    user = new_user(session.keystore.generate("U").public, name, scoped=False)
    session.save_user(account, user, session.account_signer(account))
    session.report.ok(
        f"created user {printable(name)}: `eyot trust generate config --mem-resolver` is the server's part"
    )


@click.group("rename", cls=TrustGroup)
def rename() -> None:
    """Rename an account."""


@rename.command("account")
@click.argument("old")
@click.argument("new")
@in_changing_session
def rename_account(session: Session, old: str, new: str) -> None:
    """Give an account another name.

    Its key, users and connections stay.
    """
    called = check_name(new, "an account")
    members, store = session.store.account(old), session.store
    folder, creds = store.account_path(called).parent, session.keystore.creds_path(store.name, called, "x").parent
    for path in (folder, creds):
        if path.exists():
            raise Failure(f"{path} exists: choose another name, or move it away")
    # The new token lies beside the old one until the folder has its name: a power cut leaves one account, under either.
    members["name"] = called
    inside = store.account_path(old).parent
    session.save_account(members, path=inside / f"{called}.jwt")
    try:
        os.rename(inside, folder)
        previous = session.keystore.creds_path(store.name, old, "x").parent
        if previous.exists():
            os.rename(previous, creds)
    except OSError as error:
        raise Failure(f"{folder}: {error.strerror}: correct the cause, and rename again") from error
    remove(folder / f"{old}.jwt")
    session.environment.account = called
    session.environment.apply_defaults()
    session.environment.save()
    session.report.ok(
        f"renamed account {printable(old)} to {printable(called)}: push it, so that servers show the new name"
    )


@click.group("keystore", cls=TrustGroup)
def keystore() -> None:
    """Encrypt the keystore, or keep keys in a PKCS#11 token."""


@keystore.command("encrypt")
@in_changing_session
def encrypt_keystore(session: Session) -> None:
    """Encrypt the seeds by a passphrase.

    Seeds made later are encrypted, too. nsc cannot read them until they are decrypted.

    The passphrase comes from the file that EYOT_TRUST_PASSPHRASE_FILE names, or from the terminal.
    """
    count = session.keystore.encrypt()
    session.report.result["encrypted"] = count
    session.report.ok(f"encrypted {counted(count, 'seed')} in {session.keystore.root}; credentials files stay readable")


@keystore.command("decrypt")
@in_changing_session
def decrypt_keystore(session: Session) -> None:
    """Write the seeds in plain text again, for nsc."""
    count = session.keystore.decrypt()
    session.report.result["decrypted"] = count
    session.report.ok(f"decrypted {counted(count, 'seed')} in {session.keystore.root}")


@keystore.command("pkcs11")
@click.option(
    "--module",
    type=FilePath(dir_okay=False),
    metavar="FILE",
    help="the token's PKCS#11 module, a shared library",
)
@click.option("--token", default="", metavar="LABEL", help="label of the token")
@click.option("--move", is_flag=True, help="move the present keys of operators and accounts into the token")
@click.option("--off", is_flag=True, help="make new keys in files again; keys in the token stay there")
@in_changing_session
def use_token(session: Session, module: Path | None, token: str, move: bool, off: bool) -> None:
    """Keep the keys of operators and accounts in a PKCS#11 token.

    New keys are made in the token, and cannot leave it. nsc cannot sign with them. Users' keys stay files.

    The PIN comes from the file that EYOT_TRUST_PIN_FILE names, or from the terminal.
    """
    root, present = session.keystore.root, key_token.read_file(session.keystore.root)
    if off:
        if module or token or move:
            raise Failure("--off goes alone")
        if present is None:
            raise Failure(f"the keystore {root} uses no token")
        key_token.write_file(root, msgspec.structs.replace(present, makes_keys=False))
        session.report.ok("new keys are files; keys in the token stay there")
        return
    if present is None and (module is None or not token):
        raise Failure("which token? Name its module with --module FILE, and its label with --token LABEL")
    where = key_token.TokenFile(
        module=str(module.absolute()) if module else present.module if present else "",
        token=token or (present.token if present else ""),
    )
    if present is not None and (where.module, where.token) != (present.module, present.token):
        session.report.warn(f"keys that lie in the token {printable(present.token)} are not found in the new one")
    opened = key_token.KeyToken(where)
    try:
        opened.open()
    finally:
        opened.close()
    make_folder(root)
    key_token.write_file(root, where)
    count = session.keystore.move_to_token() if move else 0
    session.report.result |= {"token": where.token, "moved": count}
    session.report.ok(f"keys of operators and accounts are made in the token {printable(where.token)}")
    if count:
        session.report.ok(f"moved {counted(count, 'key')} into it: credentials and backups may still hold their seeds")
