"""The command group `eyot trust`."""

from __future__ import annotations

import click

from eyot_cli.trust import accounts, operators, sharing, users
from eyot_cli.trust.checks import expirations, validate
from eyot_cli.trust.command import TrustGroup, with_everywhere
from eyot_cli.trust.describe import describe
from eyot_cli.trust.environment import env, select
from eyot_cli.trust.generate import generate_config, generate_context, generate_creds, generate_nkey
from eyot_cli.trust.keys import export_group, import_group, list_group
from eyot_cli.trust.reissue import reissue
from eyot_cli.trust.remote import pull, push
from eyot_cli.trust.revocations import revocations
from eyot_cli.trust.setup import init, keystore, rename


@click.group("trust", cls=TrustGroup)
def trust() -> None:
    """Keep operators, accounts and users, in nsc's store."""


@click.group("add", cls=TrustGroup)
def add_group() -> None:
    """Make an operator, account, user, export, import or mapping."""


@click.group("edit", cls=TrustGroup)
def edit_group() -> None:
    """Change an operator, account, user, export or signing key."""


@click.group("delete", cls=TrustGroup)
def delete_group() -> None:
    """Delete an account, user, export, import or mapping."""


@click.group("generate", cls=TrustGroup)
def generate_group() -> None:
    """Write credentials, configuration, activations, keys."""


for _group, _commands in (
    (
        add_group,
        (
            operators.add_operator,
            accounts.add_account,
            users.add_user,
            sharing.add_export,
            sharing.add_import,
            sharing.add_mapping,
        ),
    ),
    (
        edit_group,
        (
            operators.edit_operator,
            accounts.edit_account,
            accounts.edit_signing_key,
            accounts.edit_authcallout,
            users.edit_user,
            sharing.edit_export,
        ),
    ),
    (
        delete_group,
        (
            accounts.delete_account,
            users.delete_user,
            sharing.delete_export,
            sharing.delete_import,
            sharing.delete_mapping,
        ),
    ),
    (generate_group, (generate_creds, generate_config, generate_context, sharing.generate_activation, generate_nkey)),
    (
        trust,
        (
            *(
                init,
                add_group,
                edit_group,
                delete_group,
                rename,
                describe,
                list_group,
                generate_group,
                revocations,
                reissue,
            ),
            *(push, pull, validate, expirations, export_group, import_group, keystore, env, select),
        ),
    ),
):
    for _command in _commands:
        _group.add_command(_command)
with_everywhere(trust)
