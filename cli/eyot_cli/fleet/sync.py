"""`eyot fleet sync`: what each device holds that its hub lacks, asked of many devices at the hub."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click
import msgspec
from msgspec import Struct

from eyot_cli.connection.device import page
from eyot_cli.connection.target import Target
from eyot_cli.fleet.asking import asker, with_own_login
from eyot_cli.fleet.selection import select_devices
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.show import print_json, print_line, print_table, span
from eyot_cli.trust.command import TrustCommand, account_option, in_session
from eyot_wire.quoting import printable
from eyot_wire.status import SyncReport
from eyot_wire.sync_headline import sync_headline

if TYPE_CHECKING:
    from nats.aio.client import Client

    from eyot_cli.trust.session import Session

#: States of a device that are shown first: what needs somebody.
_ORDER: Final = ("failing", "incomplete", "unknown", "unread", "behind", "not linked", "synced")
_STYLES: Final = {"synced": "green", "failing": "red", "incomplete": "red", "not linked": "yellow"}


class DeviceSync(Struct, kw_only=True, omit_defaults=True):
    """One device's answer. `state`: that of the local page's first line, or `not linked`."""

    name: str
    state: str
    backlog: int | None = None
    oldest_s: float | None = None
    never_arrived: int = 0
    text: str = ""


@click.command("sync", cls=TrustCommand)
@click.argument("names", metavar="NAME...", nargs=-1)
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="only devices that have this tag")
@click.option("--at-once", type=click.IntRange(1, 1000), default=32, help="devices that are asked at the same time")
@account_option
@in_session
def sync(session: Session, names: tuple[str, ...], tags: tuple[str, ...], at_once: int, account: str | None) -> None:
    """Ask devices whether their hub has everything.

    NAMEs may hold * and ?; without any, all enrolled devices are asked. Those that need somebody come first. A device
    answers what its own `eyot sync` says. Exit status: 0 if all are synced, 3 if one is not.
    """
    target = click.get_current_context().find_object(Target)
    assert target is not None
    of = session.account_name(account)
    wanted = select_devices(session, of, names, {each.lower() for each in tags})
    target = with_own_login(target, session, of, "sync")
    answers = target.with_client(asker(wanted, at_once, ask_device))
    found = sorted((each for each in answers if not isinstance(each, Failure)), key=order)
    if target.as_json:
        print_json(msgspec.to_builtins(found))
    else:
        show_devices(found)
    if any(each.state != "synced" for each in found):
        click.get_current_context().exit(3)


def order(found: DeviceSync) -> tuple[int, str]:
    """Return the sort key of a device: those that need somebody come first."""
    return _ORDER.index(found.state), found.name


async def ask_device(client: Client, name: str) -> DeviceSync:
    """Return what a device says of its backlog; one that does not answer is `not linked`."""
    try:
        found = msgspec.json.decode(await page(client, name, "/eyot/syncz"), type=SyncReport)
    except Failure as failure:
        return DeviceSync(name=name, state="not linked", text=failure.lines[0])
    except msgspec.DecodeError as error:
        return DeviceSync(name=name, state="unknown", text=f"its report cannot be read: {error}")
    headline = sync_headline(found, None)
    ages = [each.oldest_s for each in found.out if each.oldest_s is not None]
    return DeviceSync(
        name=name,
        state=headline.state,
        backlog=max((each.backlog for each in found.out), default=None),
        oldest_s=max(ages, default=None),
        never_arrived=found.never_arrived,
        text=headline.text,
    )


def show_devices(found: list[DeviceSync]) -> None:
    """Print the devices as a table, and how many are synced."""
    rows = [
        (
            each.name,
            (each.state, _STYLES.get(each.state, "")),
            "" if each.backlog is None else f"{each.backlog:,}",
            "" if each.oldest_s is None else span(each.oldest_s),
            f"{each.never_arrived:,}" if each.never_arrived else "",
            each.text,
        )
        for each in found
    ]
    print_table("Devices", ["device", "state", ">backlog", ">oldest", ">never arrived", ""], rows, "none")
    synced = sum(each.state == "synced" for each in found)
    print_line(f"{synced} of {len(found)} synced" + "".join(_others(found)))


def _others(found: list[DeviceSync]) -> list[str]:
    counts = {state: sum(each.state == state for each in found) for state in _ORDER[:-1]}
    return [f", {count} {printable(state)}" for state, count in counts.items() if count]
