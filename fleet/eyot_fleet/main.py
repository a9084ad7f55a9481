"""`eyot-fleet`: the service, and the operator's commands on its state at the hub."""

from __future__ import annotations

import logging
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec
import trio

from eyot_fleet.command import BY, HubState, as_json, at_hub, configuration, guarded
from eyot_fleet.config import FleetConfig, address
from eyot_fleet.connection import connected
from eyot_fleet.desired import AGE_MAX_S, BYTES_MAX, PRIORITY_MAX, DeviceSettings, Group, SourceRule
from eyot_fleet.device_index import DeviceIndex
from eyot_fleet.device_query import PAGE_SIZE_MAX, SORTS, DeviceQuery
from eyot_fleet.device_record import STATES, DeviceRecord
from eyot_fleet.errors import FleetError
from eyot_fleet.finite_range import FiniteRange
from eyot_fleet.group_summary import GroupSummary, summaries
from eyot_fleet.rollout import Rollout
from eyot_fleet.rollout_commands import rollout
from eyot_fleet.show import HEADS, device_row, moment, print_json, print_table
from eyot_wire.program import INTERRUPTED, run_program
from eyot_wire.quantities import counted
from eyot_wire.quoting import printable
from eyot_wire.untrusted import decode_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from eyot_fleet.connection import Connection
    from eyot_fleet.permission_check import Needs
    from eyot_fleet.service import Service
    from eyot_fleet.web.site import Site

T = TypeVar("T")
DEFAULT_CONFIG: Final = "/etc/eyot/fleet.toml"
#: How long a command waits for the service to forget a device, seconds.
FORGOTTEN_S: Final = 30.0
PAGES_MAX: Final = 1_000_000


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-c", "--config", "path", default=DEFAULT_CONFIG, envvar="EYOT_FLEET_CONFIG", help="the configuration file"
)
@click.option("--json", "as_json", is_flag=True, help="print JSON")
@click.version_option(package_name="eyot")
@click.pass_context
def cli(context: click.Context, path: str, as_json: bool) -> None:
    """Know every device of a fleet, and what it should be."""
    context.obj = (Path(path), as_json)


@cli.command()
@guarded
def serve() -> None:
    """Run the service until SIGTERM or SIGINT."""
    config = configuration()

    logging.basicConfig(format="%(message)s", level=logging.INFO, stream=sys.stderr)
    trio.run(_serve, config)


async def _serve(config: FleetConfig) -> None:
    from eyot_fleet.metrics import Pages
    from eyot_fleet.service import Service
    from eyot_serving import http_server

    listener = _listen(config.http.listen)
    service = Service(config)
    page = _page(config, service)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_until_signal, nursery.cancel_scope)
        nursery.start_soon(http_server.serve, listener, Pages(service, page).answer)
        nursery.start_soon(service.run)
        if page is not None:
            nursery.start_soon(page.run)


def _page(config: FleetConfig, service: Service) -> Site | None:
    """Return the page with its socket, if there is one. Raises ConfigError."""
    if config.web is None:
        return None
    from eyot_fleet.web.hub_backend import HubBackend
    from eyot_fleet.web.site import Site

    site = Site(config.web, config.hub, HubBackend(service))
    site.listen()
    return site


def _listen(text: str) -> socket.socket:
    host, port = address(text, "http.listen")
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise FleetError(f"http.listen: {text}: {error.strerror}") from None


async def _until_signal(scope: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            scope.cancel()
            return


@cli.command()
@click.option("--offline", is_flag=True, help="only the file, without the hub")
@guarded
def check(offline: bool) -> None:
    """Check the configuration, the logins, and what these may do.

    The certificate and key of the page are read, as the service reads them.
    """
    config = configuration()
    if config.web is not None:
        config.web.tls_context()
    said = {"config": "ok"}
    if not offline:
        said |= trio.run(_asked_at_hub, config)
    if as_json():
        print_json(said)
    else:
        print("\n".join(f"{key}: {printable(value)}" for key, value in said.items()))


async def _asked_at_hub(config: FleetConfig) -> dict[str, str]:
    from eyot_fleet.permission_check import SYSTEM_NEEDS, hub_needs

    async with connected(config.hub, "eyot-fleet check") as connection:
        found = {"hub": f"{connection.info.server_name or connection.server} {connection.info.version}"}
        found["permissions"] = await _allowed(connection, hub_needs(config), "hub")
    if config.system is not None:
        async with connected(config.system_login(), "eyot-fleet check") as connection:
            found["system"] = await _allowed(connection, SYSTEM_NEEDS, "system")
    return found


async def _allowed(connection: Connection, needs: Needs, section: str) -> str:
    """Return "ok", or that the permissions are not known. Raises FleetError for those that are lacking."""
    from eyot_fleet.permission_check import lacking
    from eyot_wire.user_info import USER_INFO

    found = await lacking(connection, needs)
    if found is None:
        return f"the hub takes the login; its permissions are not known: it may not publish to {USER_INFO}, or hear the answer"
    if found:
        raise FleetError(f"[{section}]: the login may not {', '.join(found)}")
    return "ok"


# -- devices ---------------------------------------------------------------------------------------------------------


@cli.command("ls")
@click.argument("text", nargs=-1)
@click.option("--label", "labels", multiple=True, help="only devices with this label")
@click.option("--state", "states", multiple=True, type=click.Choice(STATES), help="only devices in this state")
@click.option("--alert", "alerts", multiple=True, help="only devices with this kind of alert; * for any")
@click.option("--sort", type=click.Choice(list(SORTS)), default="state", help="order of the rows")
@click.option("--descending", is_flag=True, help="the greatest first")
@click.option("--page", type=click.IntRange(1, PAGES_MAX), default=1, help="which page")
@click.option("--size", type=click.IntRange(1, PAGE_SIZE_MAX), default=50, help="devices of a page")
@guarded
def list_devices(
    text: tuple[str, ...],
    labels: tuple[str, ...],
    states: tuple[str, ...],
    alerts: tuple[str, ...],
    sort: str,
    descending: bool,
    page: int,
    size: int,
) -> None:
    """List devices, those that need somebody first.

    TEXT is searched in names, labels, domains, versions and alerts. The state is as the service has written it.
    """
    query = DeviceQuery(
        text=" ".join(text),
        labels=labels,
        states=states,
        alerts=alerts,
        sort=sort,
        descending=descending,
        page=page - 1,
        size=size,
    )
    query.check()

    now = time.time()
    index = _evaluated(at_hub(configuration(), HubState.devices), now)
    found = index.query(query)
    if as_json():
        print_json(found)
        return
    print_table(HEADS, [device_row(record, now) for record in found.devices], "no such device")
    counts = ", ".join(f"{found.states[state]} {state}" for state in STATES if state in found.states)
    print(f"{found.total:,} of {counted(found.fleet, 'device')}{': ' + counts if counts else ''}")


@cli.command()
@click.argument("name")
@guarded
def show(name: str) -> None:
    """Show all that is known of a device, as JSON."""

    async def read(hub: HubState) -> bytes | None:
        found = await hub.state.devices.get(name)
        return None if found is None else found.value

    value = at_hub(configuration(), read)
    if value is None:
        raise FleetError(f"no device {name} is known")
    print_json(decode_json(value, DeviceRecord))


@cli.command()
@click.argument("name")
@click.argument("labels", nargs=-1)
@click.option("--reason", default="", help="why, for the history")
@guarded
def label(name: str, labels: tuple[str, ...], reason: str) -> None:
    """Set the operator's own labels of a device.

    Without LABELS there are none. Those of its enrolment stay.
    """
    _change_device(name, lambda hub: hub.actions.set_labels(name, labels, BY, reason))


@cli.command()
@click.argument("name")
@click.option("--reason", required=True, help="why nothing of the device is needed any more")
@guarded
def release(name: str, reason: str) -> None:
    """Let the hub remove a device's sources.

    What the device has stored and the hub has not copied never arrives. What the hub has stays.
    """
    _change_device(name, lambda hub: hub.actions.release(name, BY, reason))


@cli.command()
@click.argument("name")
@click.option("--reason", required=True, help="why the device is gone for good")
@guarded
def forget(name: str, reason: str) -> None:
    """Forget a device that is gone for good.

    Its sources, state, alerts and settings go. It must be revoked, or never have been enrolled. What it stored and the hub
    has not copied never arrives. What the hub has stays, and so does the audit. A device that is enrolled with this name
    later is a new one.
    """

    async def ask(hub: HubState) -> bool:
        await hub.actions.forget(name, BY, reason)
        with trio.move_on_after(FORGOTTEN_S):
            while True:
                found = await hub.state.desired.get(f"device.{name}")
                if found is None or found.value is None:
                    return True
                await trio.sleep(0.5)
        return False

    if at_hub(configuration(), ask):
        print(f"{name} is forgotten")
    else:
        print(f"{name}: noted; the service forgets it as soon as it runs and its sources are removed")


def _evaluated(records: list[DeviceRecord], now: float) -> DeviceIndex:
    """Return devices with their states at `now`, as the service has written them."""
    index = DeviceIndex()
    index.listening_since = float("inf")
    for record in records:
        index.put(record, now)
    return index


# -- what is desired -------------------------------------------------------------------------------------------------


@cli.group()
def group() -> None:
    """Set what all devices with certain labels should be."""


@group.command("ls")
@guarded
def list_groups() -> None:
    """List the groups, the one that needs somebody most first."""
    now = time.time()

    async def read(hub: HubState) -> tuple[dict[str, Group], list[DeviceRecord]]:
        return await hub.groups(), await hub.devices()

    groups, records = at_hub(configuration(), read)
    found = summaries(groups, _evaluated(records, now))
    if as_json():
        print_json(found)
        return
    heads = ["group", "labels", ">devices", "worst", "states", ">backlog", ">alerts", ">not applied"]
    print_table(heads, [_group_row(each) for each in found], "there are no groups")


def _group_row(each: GroupSummary) -> list[str]:
    states = ", ".join(f"{each.states[state]} {state}" for state in STATES if state in each.states)
    numbers = (each.backlog, each.alerted, each.not_applied)
    return [
        each.name,
        " ".join(each.labels) or "every device",
        f"{each.devices:,}",
        each.worst,
        states,
        *(f"{number:,}" for number in numbers),
    ]


@group.command("set")
@click.argument("name")
@click.option("--label", "labels", multiple=True, help="a device must have all; without any, all devices belong")
@click.option(
    "--priority",
    type=click.IntRange(-PRIORITY_MAX, PRIORITY_MAX),
    default=0,
    help="of groups that say different, the highest counts",
)
@click.option("--settings", type=click.File("rb"), required=True, help="a JSON file with the blocks sync and flash")
@click.option("--reason", default="", help="why, for the history")
@guarded
def set_group(name: str, labels: tuple[str, ...], priority: int, settings: Any, reason: str) -> None:
    """Make or change a group."""
    value = Group(labels=labels, priority=priority, settings=_settings(settings.read()), reason=reason)
    at_hub(configuration(), lambda hub: hub.actions.write(name, value, BY))


@cli.command("set")
@click.argument("name")
@click.option("--settings", type=click.File("rb"), required=True, help="a JSON file with the blocks sync and flash")
@click.option("--reason", default="", help="why, for the history")
@guarded
def set_device(name: str, settings: Any, reason: str) -> None:
    """Set the settings of one device.

    They count before those of its groups.
    """
    found = _settings(settings.read())

    async def write(hub: HubState) -> None:
        value, revision = await hub.actions.read(DeviceSettings, name)
        made = msgspec.structs.replace(value or DeviceSettings(), settings=found, reason=reason)
        await hub.actions.write(name, made, BY, revision)

    _change_device(name, write)


def _change_device(name: str, change: Callable[[HubState], Awaitable[object]]) -> None:
    """Write what is desired of a device, and say so where no device of that name is known: a name may be mistyped."""

    async def write(hub: HubState) -> bool:
        await change(hub)
        return await hub.state.devices.get(name) is not None

    if not at_hub(configuration(), write):
        print(f"eyot-fleet: no device {name} is known yet: this waits for it", file=sys.stderr)


@cli.group()
def sources() -> None:
    """Say which streams of the devices the hub sources."""


@sources.command("set")
@click.argument("name")
@click.option("--stream", required=True, help="the devices' stream")
@click.option("--label", "labels", multiple=True, help="a device must have all; without any, all devices")
@click.option("--shard-size", type=click.IntRange(1, 5000), default=200, help="sources of one stream at the hub")
@click.option("--replicas", type=click.Choice(["1", "3", "5"]), default="1", help="of the streams at the hub")
@click.option(
    "--max-age",
    type=FiniteRange(0, AGE_MAX_S),
    default=0.0,
    help="how long the hub keeps a message, seconds; 0: always",
)
@click.option(
    "--max-bytes", type=click.IntRange(-1, BYTES_MAX), default=-1, help="bytes of one stream at the hub; -1: no bound"
)
@click.option("--filter", "filter_subject", default="", help="only messages of this subject")
@click.option("--reason", default="", help="why, for the history")
@guarded
def set_sources(
    name: str,
    stream: str,
    labels: tuple[str, ...],
    shard_size: int,
    replicas: str,
    max_age: float,
    max_bytes: int,
    filter_subject: str,
    reason: str,
) -> None:
    """Make or change a rule about STREAM of each device.

    The hub's streams NAME-0, NAME-1 and so on source it.
    """
    value = SourceRule(
        stream=stream,
        labels=labels,
        shard_size=shard_size,
        replicas=int(replicas),
        max_age_s=max_age,
        max_bytes=max_bytes,
        filter_subject=filter_subject,
        reason=reason,
    )
    at_hub(configuration(), lambda hub: hub.actions.write(name, value, BY))


def _settings(text: bytes) -> dict[str, Any]:
    try:
        found = decode_json(text)
    except msgspec.DecodeError as error:
        raise FleetError(f"--settings: {error}") from None
    if not isinstance(found, dict):
        raise FleetError('--settings: expected a map, as in {"sync": {"streams": {"LOGS": {"priority": 2}}}}')
    return found


_FORMS: Final[dict[str, type[DeviceSettings] | type[Group] | type[SourceRule] | type[Rollout]]] = {
    "device": DeviceSettings,
    "group": Group,
    "sources": SourceRule,
    "rollout": Rollout,
}


@cli.command("desired")
@guarded
def list_desired() -> None:
    """List groups, rules and settings of devices."""

    async def read(hub: HubState) -> list[dict[str, Any]]:
        return [
            {"key": entry.key, "revision": entry.revision, "value": decode_json(entry.value)}
            for entry in await hub.state.desired.all()
            if entry.value is not None
        ]

    found = at_hub(configuration(), read)
    if as_json():
        print_json(found)
        return
    rows = [[each["key"], str(each["revision"]), _short(each["value"])] for each in sorted(found, key=_key)]
    print_table(["what", ">revision", "value"], rows, "nothing is desired")


def _key(each: dict[str, Any]) -> str:
    return str(each["key"])


@cli.command()
@click.argument("kind", type=click.Choice(list(_FORMS)))
@click.argument("name")
@guarded
def history(kind: str, name: str) -> None:
    """Show what was desired before, by whom and why, the latest first."""
    found = at_hub(configuration(), lambda hub: hub.actions.history(_FORMS[kind], name))
    if as_json():
        print_json(found)
        return
    rows = []
    for each in found:
        value = each.value
        rows.append(
            [
                str(each.revision),
                moment(each.at),
                "" if value is None else value.by,
                "removed" if value is None else _short(msgspec.to_builtins(value)),
                "" if value is None else value.reason,
            ]
        )
    print_table([">revision", "when (UTC)", "by", "value", "reason"], rows, "there is no history")


@cli.command()
@click.argument("kind", type=click.Choice(list(_FORMS)))
@click.argument("name")
@guarded
def remove(kind: str, name: str) -> None:
    """Remove a group, a rule, a rollout or a device's settings. Streams at the hub stay, with all that they hold."""
    if not at_hub(configuration(), lambda hub: hub.actions.remove(_FORMS[kind], name, BY)):
        raise FleetError(f"there is no {kind} {name}")


@cli.command()
@click.option("--count", type=click.IntRange(1, 1000), default=50, help="lines")
@guarded
def audit(count: int) -> None:
    """Show the last lines of the audit stream, the latest first."""
    found = at_hub(configuration(), lambda hub: hub.audit.latest(count))
    if as_json():
        print_json(found)
        return
    rows = [[each.at[:19], each.event, each.by, each.target, each.error or _short(each.detail)] for each in found]
    print_table(["when (UTC)", "event", "by", "to", ""], rows, "there are no lines")


def _short(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 120 else text[:117] + "..."


cli.add_command(rollout)


def main() -> int:
    """Run the command; return its exit status."""
    return run_program("eyot-fleet", _main)


def _main() -> int:
    try:
        code = cli.main(prog_name="eyot-fleet", standalone_mode=False)
    except click.ClickException as wrong:
        wrong.show()
        return wrong.exit_code
    except click.Abort:
        return INTERRUPTED
    return code if isinstance(code, int) else 0
