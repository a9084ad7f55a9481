"""`eyot trust generate creds|config|nkey`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import click

from eyot_cli.connection import contexts
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.private_files import read_text, write_private
from eyot_cli.terminal.show import print_json, print_line
from eyot_cli.trust.command import TrustCommand, account_option, in_session
from eyot_cli.trust.keystore import ROLES, new_pair
from eyot_cli.trust.session import Session
from eyot_cli.trust.sharing import STDOUT, account_key
from eyot_cli.trust.store import body
from eyot_wire.quoting import printable
from eyot_wire.trust.creds import format_creds

_FULL: Final = """resolver {{
    type: full
    # folder of the accounts' JWTs, which `eyot trust push` fills
    dir: {folder}
    # `eyot trust push --prune` deletes only with true; deleted JWTs are renamed
    allow_delete: false
    # how often servers of a cluster compare what they hold
    interval: "2m"
    timeout: "1.9s"
}}
"""
_CACHE: Final = """resolver {{
    type: cache
    dir: {folder}
    # how long an account is kept before it is looked up again
    ttl: "1h"
    timeout: "1.9s"
}}
"""


@click.command("creds", cls=TrustCommand)
@click.option("-n", "--name", metavar="NAME", help="name of the user")
@click.option("-o", "--output-file", "output", metavar="FILE", default=STDOUT, help="file (0600); --: standard output")
@account_option
@in_session
def generate_creds(session: Session, name: str | None, output: str, account: str | None) -> None:
    """Write a user's credentials: its JWT and its seed."""
    called = session.account_name(account)
    users = session.store.users(called)
    user = name or (users[0] if len(users) == 1 else None)
    if user is None:
        raise Failure(f"which user? Name it with -n: {', '.join(map(printable, users)) or 'the account has none'}")
    members = session.store.user(called, user)
    pair = session.keystore.find(str(members["sub"]))
    if pair is None:
        raise Failure(f"the seed of {members['sub']} is not in {session.keystore.root}: see `eyot trust import keys`")
    text = format_creds(read_text(session.store.user_path(called, user)), pair.seed)
    if output == STDOUT:
        _print(session, {"creds": text}, text)
        return
    write_private(Path(output).expanduser(), text.encode())
    session.report.ok(f"wrote credentials to {printable(output)}")


@click.command("config", cls=TrustCommand)
@click.option("--mem-resolver", is_flag=True, help="all accounts in the configuration")
@click.option("--nats-resolver", is_flag=True, help="accounts in a folder, which push fills")
@click.option("--nats-resolver-cache", is_flag=True, help="accounts looked up at servers with a folder")
@click.option("--config-file", "output", metavar="FILE", default=STDOUT, help="file; --: standard output")
@click.option("--dir", "folder", metavar="DIR", default="./jwt", help="folder in which the server keeps accounts")
@click.option("--sys-account", metavar="NAME", help="system account (the operator's)")
@click.option("-F", "--force", is_flag=True, help="replace the file")
@in_session
def generate_config(
    session: Session, output: str, folder: str, sys_account: str | None, force: bool, **kinds: bool
) -> None:
    """Write configuration that trusts the operator.

    It is a part of the configuration of eyotd or nats-server.
    """
    wanted = [kind for kind, chosen in kinds.items() if chosen]
    if len(wanted) != 1:
        raise Failure("choose one of --mem-resolver, --nats-resolver and --nats-resolver-cache")
    operator = session.store.operator()
    system = account_key(session, sys_account) if sys_account else body(operator).get("system_account")
    accounts = {str(session.store.account(name)["sub"]): name for name in session.store.accounts()}
    if wanted[0] != "mem_resolver" and system not in accounts:
        raise Failure(
            "a resolver that push fills needs a system account: `eyot trust edit operator --system-account NAME`"
        )
    parts = [f"# Operator {json.dumps(session.store.name)}", f"operator: {read_text(session.store.operator_path)}"]
    if system:
        parts.append(f"system_account: {system}")
    preloaded = sorted(accounts) if wanted[0] == "mem_resolver" else [str(system)]
    resolver = {"mem_resolver": "resolver: MEMORY\n", "nats_resolver": _FULL, "nats_resolver_cache": _CACHE}[wanted[0]]
    if any(char in "'\"" or not char.isprintable() for char in folder):
        raise Failure("--dir: a folder without quotes in its name")
    parts += ["", resolver.format(folder=f"'{folder}'"), "resolver_preload: {"]
    for public in preloaded:
        token = read_text(session.store.account_path(accounts[public]))
        parts += [f"  # Account {json.dumps(accounts[public])}", f"  {public}: {token}"]
    text = "\n".join([*parts, "}", ""])
    if output == STDOUT:
        _print(session, {"config": text}, text)
        return
    path = Path(output).expanduser()
    if path.exists() and not force:
        raise Failure(f"{printable(output)} exists: replace it with --force, or name another file")
    write_private(
        path, text.encode(), mode=0o644
    )  # a configuration holds no secret, and the daemon reads it as its user
    session.report.ok(f"wrote server configuration to {printable(output)}")


@click.command("context", cls=TrustCommand)
@account_option
@click.option("-u", "--user", metavar="NAME", required=True, help="name of the user")
@click.option("--context", "called", metavar="NAME", required=True, help="name of the context")
@in_session
def generate_context(session: Session, account: str | None, user: str, called: str) -> None:
    """Make a context for `eyot` and `nats`.

    It holds the user's credentials file and the operator's service URLs. A context of that name keeps its other members.
    """
    of = session.account_name(account)
    session.store.user(of, user)
    creds = session.keystore.creds_path(session.store.name, of, user)
    if not creds.is_file():
        raise Failure(f"{creds} is not there: `eyot trust generate creds` writes credentials, if the seed is here")
    path = contexts.path_of(called)
    members = contexts.members(called) if path.exists() else {}
    urls = body(session.store.operator()).get("operator_service_urls") or ()
    members |= {"creds": str(creds)} | ({"url": ",".join(map(str, urls))} if urls else {})
    members.setdefault("description", f"user {user} of account {of}, operator {session.store.name}")
    contexts.make_folder()
    write_private(path, json.dumps(members, indent=2).encode())
    session.report.result["context"] = {"name": called, "file": str(path)}
    session.report.ok(f"wrote context {printable(called)}: {path}")


@click.command("nkey", cls=TrustCommand)
@click.option("-o", "--operator", is_flag=True, help="an operator's")
@click.option("-a", "--account", is_flag=True, help="an account's")
@click.option("-u", "--user", is_flag=True, help="a user's")
@click.option("-x", "--curve", is_flag=True, help="a curve key, for encryption")
@click.option("-S", "--store", is_flag=True, help="keep the seed in the keystore instead of printing it")
@in_session
def generate_nkey(session: Session, store: bool, **kinds: Any) -> None:
    """Make key pairs."""
    letters = [letter for letter, role in ROLES.items() if kinds.get(role)]
    if not letters:
        raise Failure("which kind of key? --operator, --account, --user or --curve")
    made = []
    for letter in letters:
        pair = session.keystore.make(letter) if store else new_pair(letter)
        if store:
            path = session.keystore.add(pair)
            session.report.ok(f"{ROLES[letter]} key stored {path}")
            made.append({"key": pair.public, "path": str(path)})
        else:
            made.append({"key": pair.public, "seed": pair.seed})
    session.report.result["keys"] = made
    if not session.report.as_json:
        for key in made:
            for line in (key[name] for name in ("seed", "key") if name in key):
                print_line(line)


def _print(session: Session, value: dict[str, str], text: str) -> None:
    if session.report.as_json:
        print_json(value)
        return
    for line in text.splitlines():
        print_line(line)
