"""`eyot trust env`, `select`: the operator and account in use."""

from __future__ import annotations

from pathlib import Path

import click

from eyot_cli.terminal.show import print_json, print_table
from eyot_cli.trust.command import TrustCommand, TrustGroup, in_session
from eyot_cli.trust.session import Session
from eyot_cli.values.paths import FilePath


@click.command("env", cls=TrustCommand)
@click.option("-s", "--store", metavar="DIR", type=FilePath(file_okay=False), help="use this folder of stores")
@click.option("-o", "--operator", metavar="NAME", help="use this operator")
@click.option("-a", "--account", metavar="NAME", help="use this account")
@in_session
def env(session: Session, store: Path | None, operator: str | None, account: str | None) -> None:
    """Show or change folders, operator and account in use."""
    environment = session.environment
    if store is not None:
        environment.stores = store.expanduser().absolute()
        environment.apply_defaults()
        environment.save()
    if operator or account:
        environment.use(operator or environment.store().name, account or "")
    shown = {
        "config_dir": str(environment.directories.config),
        "store_dir": str(environment.stores),
        "keystore_dir": str(environment.directories.keys),
        "operator": environment.operator,
        "account": environment.account,
    }
    if session.report.as_json:
        print_json(shown)
    else:
        labels = ("Configuration", "Stores", "Keystore", "Operator", "Account")
        print_table(
            "", ("", ""), [(label, value or "none") for label, value in zip(labels, shown.values(), strict=True)], ""
        )


@click.group("select", cls=TrustGroup)
def select() -> None:
    """Choose the operator or account in use."""


@select.command("operator")
@click.argument("name")
@in_session
def select_operator(session: Session, name: str) -> None:
    """Use this operator."""
    session.environment.use(name)
    session.report.ok(f"selected operator {name}")


@select.command("account")
@click.argument("name")
@in_session
def select_account(session: Session, name: str) -> None:
    """Use this account."""
    session.environment.use(session.store.name, name)
    session.report.ok(f"selected account {name}")
