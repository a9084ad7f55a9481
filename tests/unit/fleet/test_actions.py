"""What operators may ask of the service."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
import trio

from eyot_fleet.actions import Actions
from eyot_fleet.audit import Audit
from eyot_fleet.desired import DesiredError, DeviceSettings
from eyot_fleet.device_record import DeviceRecord
from eyot_fleet.state import State


class Bucket:
    """A bucket in memory."""

    def __init__(self, **values: Any) -> None:
        self.values = {key: msgspec.json.encode(value) for key, value in values.items()}

    async def get(self, key: str) -> Any:
        value = self.values.get(key)
        return None if value is None else SimpleNamespace(key=key, value=value, revision=1)

    async def put(self, key: str, value: bytes, revision: int) -> int:
        self.values[key] = value
        return revision + 1


class Lines:
    async def note(self, *_: object, **__: object) -> None: ...


def forget(record: DeviceRecord) -> DeviceSettings:
    """Forget a device; what is desired of it then."""
    state = SimpleNamespace(devices=Bucket(pump=record), desired=Bucket())
    actions = Actions(cast("State", state), cast("Audit", Lines()))

    async def ask() -> None:
        await actions.forget("pump", "ada", "scrapped")

    trio.run(ask)
    return msgspec.json.decode(state.desired.values["device.pump"], type=DeviceSettings)


def test_a_device_whose_link_nobody_watches_is_forgotten_once_it_is_silent() -> None:
    """Without the hub's system account nothing says that a link has ended."""
    now = time.time()
    with pytest.raises(DesiredError, match="is linked"):
        forget(DeviceRecord(name="pump", linked=True, heard_at=now, every_s=3600.0))
    assert forget(DeviceRecord(name="pump", linked=True, heard_at=now - 86_400.0, every_s=60.0)).forgotten
    assert forget(DeviceRecord(name="pump", linked=False, heard_at=now, every_s=3600.0)).forgotten
