"""`eyot fleet ls`, `tokens` and `withdraw`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click
import msgspec

from eyot_cli.fleet.records import Records
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.show import print_json, print_table
from eyot_cli.trust.command import TrustCommand, account_option, in_changing_session, in_session
from eyot_cli.trust.values import show_time
from eyot_wire.quoting import printable

if TYPE_CHECKING:
    from eyot_cli.trust.session import Session


@click.command("ls", cls=TrustCommand)
@account_option
@in_session
def ls(session: Session, account: str | None) -> None:
    """List the devices that were enrolled."""
    found = list(Records(session.store, session.account_name(account)).devices())
    if session.report.as_json:
        print_json(msgspec.to_builtins(found))
        return
    rows = [
        (
            each.name,
            each.key,
            show_time(each.enrolled_at),
            _validity(each.expires),
            each.facts.get("model", ""),
            each.facts.get("serial", ""),
            each.facts.get("version", ""),
        )
        for each in found
    ]
    heads = ["name", "key", "enrolled", "valid until", "model", "serial", "Eyot"]
    print_table("Devices", heads, rows, "none is enrolled: see `eyot fleet enrol`")


@click.command("tokens", cls=TrustCommand)
@account_option
@in_session
def tokens(session: Session, account: str | None) -> None:
    """List enrolment tokens, used ones too."""
    found = list(Records(session.store, session.account_name(account)).tokens())
    if session.report.as_json:
        print_json(msgspec.to_builtins(found))
        return
    rows = [
        (
            each.names,
            each.id,
            each.role,
            str(each.left),
            _validity(each.valid_until),
            each.last[0] if each.last else "",
        )
        for each in found
    ]
    print_table("Tokens", ["for", "id", "role", ">left", "valid until", "last used by"], rows, "there are none")


@click.command("withdraw", cls=TrustCommand)
@click.argument("wanted", metavar="TOKEN...", nargs=-1, required=True)
@account_option
@in_changing_session
def withdraw(session: Session, wanted: tuple[str, ...], account: str | None) -> None:
    """Make tokens useless.

    They are named by id, or by the name that they are for. Devices that they enrolled stay.
    """
    records = Records(session.store, session.account_name(account))
    known = list(records.tokens())
    for each in wanted:
        found = [record for record in known if each in (record.id, record.names)]
        if not found:
            raise Failure(f"there is no token {printable(each)}: see `eyot fleet tokens`")
        for record in found:
            records.note("withdrawn", name=record.names, token=record.id)
            records.remove_token(record.id)
            session.report.ok(f"withdrew the token {record.id} for {printable(record.names)}")


def _validity(until: int) -> str:
    if not until:
        return "always"
    return show_time(until) if until > time.time() else f"{show_time(until)} (expired)"
