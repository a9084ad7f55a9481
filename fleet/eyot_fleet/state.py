"""The service's state at the hub: KV buckets of devices, desired and reported configuration, and histories.

| bucket | key | value |
|---|---|---|
| `<name>_DEVICES` | device | `DeviceRecord` |
| `<name>_HISTORY` | device | the device's day (`history.py`) |
| `<name>_DESIRED` | `device.<name>`, `group.<name>`, `sources.<name>`, `rollout.<name>` | `desired.py`, `rollout.py`; 64 revisions |
| `<name>_REPORTED` | device | `ConfigReport`; 16 revisions |
| `<name>_STATE` | `leader`, `position.<stream>` | who leads; up to where a stream of statuses was read |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from eyot_fleet.bucket import Bucket, BucketConfig

if TYPE_CHECKING:
    from eyot_fleet.config import StateConfig
    from eyot_fleet.jetstream import JetStream

DESIRED_HISTORY: Final = 64
REPORTED_HISTORY: Final = 16


class State:
    """The buckets at one connection."""

    def __init__(self, jetstream: JetStream, config: StateConfig) -> None:
        def bucket(name: str, description: str, history: int = 1) -> Bucket:
            made = BucketConfig(
                name=f"{config.name}_{name}", description=description, history=history, replicas=config.replicas
            )
            return Bucket(jetstream, made)

        self.devices = bucket("DEVICES", "What is known of each device")
        self.history = bucket("HISTORY", "The last day of each device")
        self.desired = bucket("DESIRED", "What devices should be", DESIRED_HISTORY)
        self.reported = bucket("REPORTED", "What devices have applied", REPORTED_HISTORY)
        self.state = bucket("STATE", "Who leads, and positions")

    async def open(self) -> None:
        """Create what is missing. Raises FleetError."""
        for each in (self.state, self.desired, self.reported, self.devices, self.history):
            await each.open()
