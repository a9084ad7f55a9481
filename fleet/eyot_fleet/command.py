"""What the commands of `eyot-fleet` share: the configuration, the state at the hub, errors as one line."""

from __future__ import annotations

import sys
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec
import trio
from msgspec import Struct

from eyot_fleet.config import FleetConfig, read_config
from eyot_fleet.connection import connected
from eyot_fleet.desired import Group
from eyot_fleet.device_record import DeviceRecord
from eyot_fleet.errors import ConfigError, FleetError
from eyot_fleet.rollout import Rollout
from eyot_wire.quoting import printable
from eyot_wire.untrusted import decode_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from eyot_fleet.actions import Actions
    from eyot_fleet.audit import Audit
    from eyot_fleet.bucket import Bucket
    from eyot_fleet.state import State

T = TypeVar("T")
F = TypeVar("F", bound=Struct)
#: sysexits.h: a mistake on the command line or in the configuration does not mend itself.
EX_CONFIG: Final = 78
BY: Final = "command line"


class HubState:
    """What a command uses at the hub."""

    def __init__(self, state: State, audit: Audit, actions: Actions) -> None:
        self.state, self.audit, self.actions = state, audit, actions

    async def devices(self) -> list[DeviceRecord]:
        """Return what is known of all devices; a record that cannot be read is told. Raises FleetError."""
        return list((await _values(self.state.devices, ">", DeviceRecord)).values())

    async def groups(self) -> dict[str, Group]:
        """Return all groups. Raises FleetError."""
        return await _values(self.state.desired, "group.*", Group)

    async def rollouts(self) -> dict[str, Rollout]:
        """Return all rollouts. Raises FleetError."""
        return await _values(self.state.desired, "rollout.*", Rollout)


async def _values(bucket: Bucket, keys: str, form: type[F]) -> dict[str, F]:
    found = {}
    for entry in await bucket.all(keys):
        if entry.value is not None:
            try:
                found[entry.key.rpartition(".")[2]] = decode_json(entry.value, form)
            except msgspec.DecodeError as error:
                print(f"eyot-fleet: {printable(entry.key)}: {error}", file=sys.stderr)
    return found


def guarded(command: Callable[..., T]) -> Callable[..., T]:
    """Turn errors into one line and an exit status."""

    @wraps(command)
    def run(*args: Any, **words: Any) -> T:
        try:
            return command(*args, **words)
        except ConfigError as error:
            print(f"eyot-fleet: {printable(str(error))}", file=sys.stderr)
            sys.exit(EX_CONFIG)
        except FleetError as error:
            print(f"eyot-fleet: {printable(str(error))}", file=sys.stderr)
            sys.exit(1)

    return run


def at_hub(config: FleetConfig, use: Callable[[HubState], Awaitable[T]]) -> T:
    """Run a command with the state at the hub. Raises FleetError."""
    from eyot_fleet.actions import Actions
    from eyot_fleet.audit import Audit
    from eyot_fleet.jetstream import JetStream
    from eyot_fleet.state import State

    async def run() -> T:
        async with connected(config.hub, "eyot-fleet command") as connection:
            jetstream = JetStream(connection)
            state, audit = State(jetstream, config.state), Audit(jetstream, config.state)
            await state.open()
            await audit.open()
            return await use(HubState(state, audit, Actions(state, audit)))
        raise AssertionError("the block returns or raises")

    return trio.run(run)


def configuration() -> FleetConfig:
    """Return the configuration that the command line names. Raises ConfigError."""
    path, _ = click.get_current_context().find_root().obj
    return read_config(path)


def as_json() -> bool:
    """Return whether JSON is asked for."""
    return bool(click.get_current_context().find_root().obj[1])
