"""`eyot --group status|sync|doctor|support-bundle`: a line for each device. The commands load this module when a group is asked."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import Struct

from eyot_cli.connection.device import page, support_bundle
from eyot_cli.fleet.asking import ask_group, show_group
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.private_files import write_new
from eyot_cli.terminal.show import count, print_json, span
from eyot_wire.doctor.certificates import certificates
from eyot_wire.doctor.check import Check
from eyot_wire.doctor.installation import installation
from eyot_wire.doctor.links import links
from eyot_wire.doctor.losses import lost_messages
from eyot_wire.doctor.replication import replication
from eyot_wire.quantities import counted
from eyot_wire.status import StatusReport, SyncReport

if TYPE_CHECKING:
    from pathlib import Path

    from nats.aio.client import Client

    from eyot_cli.connection.target import Target
    from eyot_cli.terminal.show import Piece

T = TypeVar("T")
_WORST = ("failure", "warning", "ok")
_STYLES = {"ok": "green", "warning": "yellow", "failure": "red"}
_EXITS = {"ok": 0, "warning": 3, "failure": 4}


class StoredBundle(Struct):
    """A support bundle that was written. `bytes`: of the file."""

    file: str
    bytes: int


async def _decoded(client: Client, name: str, path: str, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(await page(client, name, path), type=kind)
    except msgspec.MsgspecError as error:
        raise Failure(f"its report cannot be read: {error}") from error


# -- status ------------------------------------------------------------------------------------------------------------


def status(target: Target) -> None:
    """Show version, links and streams of each device. Exits with status 3 if one does not answer."""

    async def ask(client: Client, name: str) -> StatusReport:
        return await _decoded(client, name, "/eyot/status", StatusReport)

    columns = ("Eyot", "Up", "Links", ">Streams", ">Messages", "Store")
    sys.exit(show_group(target, "Status", columns, ask_group(target, ask), msgspec.to_builtins, _status_row))


def _status_row(report: StatusReport) -> tuple[Piece, ...]:
    spokes = [link for link in report.links if link.role != "hub"]
    up = sum(link.state == "up" for link in spokes)
    trouble = "" if report.store is None else report.store.error or ""
    return (
        report.version,
        span(report.uptime_s),
        (f"{up} of {len(spokes)} up", "green" if up == len(spokes) else "yellow"),
        count(len(report.streams)),
        count(sum(each.messages for each in report.streams)),
        (trouble, "red") if trouble else "ok",
    )


# -- sync --------------------------------------------------------------------------------------------------------------


def sync(target: Target) -> None:
    """Show what each device holds that its hub lacks. Exits with status 3 unless all are synced."""
    from eyot_cli.fleet.sync import ask_device, order, show_devices

    answers = ask_group(target, ask_device)
    found = sorted((each for each in answers.values() if not isinstance(each, Failure)), key=order)
    if target.as_json:
        print_json(msgspec.to_builtins(found))
    else:
        show_devices(found)
    sys.exit(0 if all(each.state == "synced" for each in found) else 3)


# -- doctor ------------------------------------------------------------------------------------------------------------


def doctor(target: Target) -> None:
    """Show the worst check of each device. Exits as `eyot doctor` does; with status 3 if a device does not answer."""

    async def ask(client: Client, name: str) -> list[Check]:
        report = await _decoded(client, name, "/eyot/status", StatusReport)
        sync_report = await _decoded(client, name, "/eyot/syncz", SyncReport)
        return device_checks(report, sync_report)

    answers = ask_group(target, ask)
    unanswered = show_group(target, "Doctor", ("State", "What", "Found"), answers, msgspec.to_builtins, _worst_row)
    codes = [_EXITS[_worst(each).state] for each in answers.values() if not isinstance(each, Failure)]
    sys.exit(max(unanswered, *codes, 0))


def device_checks(report: StatusReport, sync_report: SyncReport) -> list[Check]:
    """Return the checks that need no client connection at the device."""
    return (
        installation(report)
        + certificates(report)
        + links(report)
        + lost_messages(sync_report)
        + replication(report, sync_report)
    )


def _worst(checks: list[Check]) -> Check:
    return min(checks, key=lambda each: _WORST.index(each.state) if each.state in _WORST else len(_WORST))


def _worst_row(checks: list[Check]) -> tuple[Piece, ...]:
    worst = _worst(checks)
    others = sum(each.state in ("failure", "warning") for each in checks) - 1
    more = f" (and {others} more)" if others > 0 else ""
    name, detail = (
        ("", f"{counted(len(checks), 'check')}") if worst.state == "ok" else (worst.name, worst.detail + more)
    )
    return (worst.state, _STYLES.get(worst.state, "")), name, detail


# -- support bundles ---------------------------------------------------------------------------------------------------


def support_bundles(target: Target, folder: Path) -> None:
    """Write each device's support bundle into a folder. Exits with status 3 if one does not answer."""

    async def ask(client: Client, name: str) -> StoredBundle:
        _, content = await support_bundle(client, name)
        path = folder / f"eyot-support-{name}.tar.gz"
        write_new(path.absolute(), content, replace=True)
        return StoredBundle(str(path), len(content))

    answers = ask_group(target, ask)
    sys.exit(
        show_group(
            target,
            "Support bundles",
            ("File", ">Bytes"),
            answers,
            msgspec.to_builtins,
            lambda each: (each.file, count(each.bytes)),
        )
    )
