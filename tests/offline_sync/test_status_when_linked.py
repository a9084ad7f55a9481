"""When a device publishes its status: soon after the start, when a hub link comes up, and then periodically. Mock clock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

import msgspec
import trio
import trio.testing

from eyot_daemon.config.jetstream import EyotStatusOptions
from eyot_daemon.leaf.status import link_statuses
from eyot_daemon.monitor.device_status import LINK_GAP_S, StatusService
from eyot_daemon.process.service import Runtime
from eyot_wire.status import DeviceStatus
from support.links.leaf_fixture import LeafFixture, Node, hub_and_leaf, leaf_link_fixture, remote, settle, until

EVERY_S = 300.0
SUBJECT = b"fleet.leaf.status"


class OpenRuntime:
    """A daemon that listens already."""

    def when_open(self, step: Callable[[], None]) -> None:
        step()


def publishing(node: Node) -> StatusService:
    node.broker.providers.links = lambda: link_statuses(node.links)
    service = StatusService(node.broker)
    service.start(EyotStatusOptions(subject=SUBJECT, every_s=EVERY_S, account="ACC"), cast("Runtime", OpenRuntime()))
    return service


class Statuses:
    """The statuses that are heard at a node."""

    def __init__(self, node: Node) -> None:
        self._heard = node.subscribe(SUBJECT)

    @property
    def numbers(self) -> list[int]:
        return [self._status(payload).number for payload in self._heard.payloads]

    @property
    def last(self) -> DeviceStatus:
        return self._status(self._heard.payloads[-1])

    @staticmethod
    def _status(payload: bytes) -> DeviceStatus:
        return msgspec.json.decode(payload, type=DeviceStatus)


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[LeafFixture, Node, Node, Statuses, StatusService]]:
    """A hub and a leaf node that is linked and has published its first status."""
    async with leaf_link_fixture() as fixture:
        hub, leaf = await hub_and_leaf(fixture)
        statuses = Statuses(hub)
        await until(lambda: leaf.knows(SUBJECT))
        service = publishing(leaf)
        await until(lambda: statuses.numbers == [1])
        yield fixture, hub, leaf, statuses, service


async def test_the_hub_hears_of_a_device_as_soon_as_its_first_link_is_up(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with leaf_link_fixture() as fixture:
        hub = await fixture.node("hub")
        statuses = Statuses(hub)
        fixture.net.up = False
        leaf = await fixture.node("leaf", remote())
        publishing(leaf)
        await trio.sleep(60)
        fixture.net.restore()
        await until(lambda: leaf.links.is_up("ACC"))
        await settle()
        assert statuses.numbers == [2]  # nobody heard the first one
        assert statuses.last.linked
        await trio.sleep(EVERY_S - 1)
        assert statuses.numbers == [2]
        await trio.sleep(2)
        assert statuses.numbers == [2, 3]


async def test_a_link_that_flaps_causes_one_status_in_so_many_seconds(autojump_clock: trio.testing.MockClock) -> None:
    async with pair() as (fixture, _, leaf, _, _):
        statuses = Statuses(leaf)  # those that a cut loses, too
        begun, connects = trio.current_time(), leaf.links.remotes[0].connects
        while trio.current_time() - begun < 10 * LINK_GAP_S:
            fixture.net.cut()
            await trio.sleep(0.1)
            fixture.net.restore()
            await until(lambda: leaf.links.is_up("ACC"))
            await settle()
        lasted_s = trio.current_time() - begun
        assert leaf.links.remotes[0].connects - connects > 15
        assert 5 <= len(statuses.numbers) <= lasted_s / LINK_GAP_S + 2


async def test_links_from_others_and_a_stopped_service_cause_none(autojump_clock: trio.testing.MockClock) -> None:
    async with pair() as (fixture, _, leaf, statuses, service):
        await fixture.node("below", remote("leaf"))
        await until(lambda: len(leaf.account().leafnodes) == 2)
        await trio.sleep(2 * LINK_GAP_S)
        assert statuses.numbers == [1]
        service.stop()
        fixture.net.cut()
        fixture.net.restore()
        await until(lambda: leaf.links.remotes[0].connects == 2)
        await trio.sleep(2 * EVERY_S)
        assert statuses.numbers == [1]
