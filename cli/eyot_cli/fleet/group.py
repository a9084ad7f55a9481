"""The command group `eyot fleet`."""

from __future__ import annotations

import click

from eyot_cli.fleet.listing import ls, tokens, withdraw
from eyot_cli.fleet.revoke import revoke
from eyot_cli.fleet.serve import serve
from eyot_cli.fleet.sync import sync
from eyot_cli.fleet.tokens import enrol
from eyot_cli.trust.command import TrustGroup, with_everywhere


@click.group("fleet", cls=TrustGroup)
def fleet() -> None:
    """Enrol devices, ask them, revoke them."""


for _command in (enrol, serve, ls, sync, tokens, withdraw, revoke):
    fleet.add_command(_command)
with_everywhere(fleet)
