"""`eyot-fleet rollout`: a release goes through groups of devices, one ring after the other."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from eyot_fleet.command import BY, HubState, as_json, at_hub, configuration, guarded
from eyot_fleet.device_index import DeviceIndex
from eyot_fleet.errors import FleetError
from eyot_fleet.finite_range import FiniteRange
from eyot_fleet.rollout import HALTED, ROLLED_BACK, RUNNING, Ring, RingProgress, Rollout, progress_of
from eyot_fleet.show import moment, print_json, print_table
from eyot_wire.digits import is_digits

if TYPE_CHECKING:
    from eyot_fleet.desired import Group
    from eyot_fleet.device_record import DeviceRecord

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@click.group()
def rollout() -> None:
    """Bring a release to groups of devices, one ring after the other.

    The signed package must be in the bucket that the devices mirror, open to their rings. Devices install it by themselves.
    """


@rollout.command("start")
@click.argument("name")
@click.option("--version", required=True, help="of the release, without Debian's part (+deb12)")
@click.option(
    "--ring",
    "rings",
    multiple=True,
    required=True,
    metavar="GROUP[:WAIT]",
    help="a group, and how long it runs well before the next ring opens (24h; s, m, h, d)",
)
@click.option(
    "--halt-percent", type=FiniteRange(0, 100), default=5.0, help="halt when more devices of a ring are worse"
)
@click.option(
    "--enough-percent", type=FiniteRange(0, 100), default=90.0, help="devices of a ring that must run the release"
)
@click.option("--grace", default="15m", help="how long a device may be without a link before it counts as worse")
@click.option("--reason", default="", help="why, for the history")
@guarded
def start(
    name: str, version: str, rings: tuple[str, ...], halt_percent: float, enough_percent: float, grace: str, reason: str
) -> None:
    """Start a rollout. The service opens the first ring within seconds, and halts by itself when a ring gets worse."""
    value = Rollout(
        version=version,
        rings=tuple(_ring(text) for text in rings),
        halt_percent=halt_percent,
        enough_percent=enough_percent,
        grace_s=_seconds(grace),
        reason=reason,
    )
    at_hub(configuration(), lambda hub: hub.actions.start_rollout(name, value, BY))


def _ring(text: str) -> Ring:
    group, _, wait = text.partition(":")
    return Ring(group=group, wait_s=_seconds(wait or "0s"))


def _seconds(text: str) -> float:
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not is_digits(number):
        raise FleetError(f"{text[:50]!r} is no time: give a number and s, m, h or d")
    return float(int(number[:12]) * _UNITS[unit])


@rollout.command("ls")
@guarded
def list_rollouts() -> None:
    """List rollouts, the latest first."""
    found = at_hub(configuration(), HubState.rollouts)
    if as_json():
        print_json(found)
        return
    rows = [
        [name, each.version, each.state, _open(each), moment(each.started_at), each.reason]
        for name, each in sorted(found.items(), key=lambda item: -item[1].started_at)
    ]
    print_table(["rollout", "version", "state", "open rings", "started (UTC)", "reason"], rows, "there are no rollouts")


def _open(rollout: Rollout) -> str:
    return f"{len(rollout.opened)} of {len(rollout.rings)}"


@rollout.command("show")
@click.argument("name")
@guarded
def show(name: str) -> None:
    """Show a rollout's rings, and which devices speak against it."""

    async def read(hub: HubState) -> tuple[Rollout | None, dict[str, Group], list[DeviceRecord]]:
        value, _ = await hub.actions.read(Rollout, name)
        return value, await hub.groups(), await hub.devices()

    value, groups, records = at_hub(configuration(), read)
    if value is None:
        raise FleetError(f"there is no rollout {name}")
    now, index = time.time(), DeviceIndex()
    index.listening_since = float("inf")
    for record in records:
        index.put(record, now)
    progress = progress_of(value, groups, index, now)
    if as_json():
        print_json({"rollout": value, "rings": progress})
        return
    print(f"{name}: {value.version}, {value.state}{f' ({value.reason})' if value.reason else ''}")
    heads = ["ring", "open since (UTC)", ">devices", ">heard", ">upgraded", ">no link", ">worse", "which"]
    print_table(heads, [_row(value, number, ring) for number, ring in enumerate(progress)], "there are no rings")


def _row(rollout: Rollout, number: int, ring: RingProgress) -> list[str]:
    is_open = number < len(rollout.opened)
    worse = "; ".join(f"{name}: {why}" for name, why in sorted(ring.worse.items())[:3])
    return [
        ring.group,
        moment(rollout.opened[number].at) if is_open else "",
        *(f"{count:,}" for count in (ring.devices, ring.heard, ring.upgraded, len(ring.unlinked), len(ring.worse))),
        worse,
    ]


@rollout.command("halt")
@click.argument("name")
@click.option("--reason", default="", help="why, for the history")
@guarded
def halt(name: str, reason: str) -> None:
    """Halt a rollout: no further device installs the release."""
    at_hub(configuration(), lambda hub: hub.actions.steer_rollout(name, BY, HALTED, reason))


@rollout.command("resume")
@click.argument("name")
@click.option("--reason", default="", help="why, for the history")
@guarded
def resume(name: str, reason: str) -> None:
    """Go on with a halted rollout. Devices that are worse now halt it no more; further ones do."""
    at_hub(configuration(), lambda hub: hub.actions.steer_rollout(name, BY, RUNNING, reason))


@rollout.command("back")
@click.argument("name")
@click.option("--to", "version", required=True, help="the version that devices of open rings go back to")
@click.option("--reason", required=True, help="why, for the history")
@guarded
def back(name: str, version: str, reason: str) -> None:
    """Roll back. The bucket must have a package of that version, signed as the way back from the release."""
    at_hub(configuration(), lambda hub: hub.actions.steer_rollout(name, BY, ROLLED_BACK, reason, version))
