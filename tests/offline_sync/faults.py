"""Faults of links, power, disks and clocks, as steps of a schedule."""

from __future__ import annotations

import trio

from offline_sync.changes import work
from offline_sync.fleet import Fleet
from offline_sync.layout import HUB, HUB_ADDRESSES

_YEAR_S = 365 * 86400
_CLOCKS = (0.0, -57 * _YEAR_S, 10 * _YEAR_S, -10 * _YEAR_S, 3600.0, -5.0)


async def cut(fleet: Fleet) -> None:
    leaf = fleet.chance.choice(fleet.links)
    part = fleet.chance.random()
    if part < 0.5:
        await work(fleet)
        await trio.sleep(fleet.chance.uniform(0, 0.05))
        fleet.say(f"connections of {leaf} end in the middle of a frame")
        fleet.network.tear(leaf, 2 * part)
        return
    fleet.say(f"link of {leaf} is cut")
    fleet.network.cut(leaf)


async def restore(fleet: Fleet) -> None:
    leaf = fleet.chance.choice(fleet.links)
    fleet.say(f"link of {leaf} is back")
    fleet.network.restore(leaf)


async def flap(fleet: Fleet) -> None:
    """It goes and returns; in between nothing answers, or something that accepts connections and resets them."""
    leaf = fleet.chance.choice(fleet.links)
    fleet.say(f"link of {leaf} flaps")
    for _ in range(fleet.chance.randint(2, 6)):
        fleet.network.cut(leaf)
        await trio.sleep(fleet.chance.uniform(0, 0.5))
        fleet.network.restore(leaf)
        await trio.sleep(fleet.chance.uniform(0, 2))
    fleet.network.cut(leaf)
    fleet.network.reset_at_accept(leaf, resets=True)
    fleet.network.restore(leaf)
    await trio.sleep(fleet.chance.uniform(0.5, 4))
    fleet.network.reset_at_accept(leaf, resets=False)


async def half_open(fleet: Fleet) -> None:
    leaf = fleet.chance.choice(fleet.links)
    fleet.say(f"link of {leaf} is half-open")
    fleet.network.swallow(leaf)


async def one_way(fleet: Fleet) -> None:
    leaf, outward = fleet.chance.choice(fleet.links), fleet.chance.random() < 0.5
    fleet.say(f"link of {leaf} carries nothing more {'to' if outward else 'from'} the hub")
    fleet.network.swallow_one_way(leaf, outward=outward)


async def linger(fleet: Fleet) -> None:
    """The leaf loses its connection and dials anew, while what it sent on the old one is still on its way."""
    leaf, extra_s = fleet.chance.choice(fleet.links), fleet.chance.choice((0.3, 1.0, 3.0, 8.0))
    await work(fleet)
    await trio.sleep(fleet.chance.uniform(0, 0.05))
    fleet.say(f"link of {leaf} breaks at its end; what is under way arrives {extra_s} s late")
    fleet.network.linger(leaf, extra_s)


async def slow(fleet: Fleet) -> None:
    leaf = fleet.chance.choice(fleet.links)
    link = fleet.network.links[leaf]
    link.delay_s = fleet.chance.choice((0.0, 0.02, 0.2))
    link.bytes_per_s = fleet.chance.choice((0.0, 6_250.0, 100_000.0))
    fleet.say(f"link of {leaf}: {link.delay_s} s delay, {link.bytes_per_s:.0f} bytes/s")


async def crash(fleet: Fleet) -> None:
    """Often right after somebody has published, when things are under way."""
    chance = fleet.chance
    if chance.random() < 0.7:
        await work(fleet)
        await trio.sleep(chance.uniform(0, 0.3))
    name = chance.choice(list(fleet.nodes))
    await fleet.crash(name, silent=chance.random() < 0.5, back_after_s=chance.choice((0.0, 0.1, 3.0, 20.0)))


async def move_hub(fleet: Fleet) -> None:
    """The hub fails and is started again from its store on another address; or only its name is pointed elsewhere."""
    chance, hub = fleet.chance, fleet.hub
    (address,) = (each for each in HUB_ADDRESSES if each not in hub.addresses)
    hub.addresses = (address,)
    if chance.random() < 0.3:
        fleet.say(f"{HUB} can be dialled at {address} only; links that are up stay")
        if hub.running:
            fleet.network.place(HUB, hub.addresses)
        return
    fleet.say(f"{HUB} moves to {address}")
    await fleet.crash(HUB, silent=chance.random() < 0.5, back_after_s=chance.choice((0.0, 1.0, 20.0)))


async def disk(fleet: Fleet) -> None:
    node = fleet.nodes[fleet.chance.choice(list(fleet.nodes))]
    fleet.say(f"disk of {node.name} {'has room again' if node.disk_full else 'is full'}")
    node.set_disk_full(not node.disk_full)


async def clock(fleet: Fleet) -> None:
    node = fleet.nodes[fleet.chance.choice(list(fleet.nodes))]
    if node.was_restored or node.has_restored_stream or not node.running:
        return  # what is newer than the last message copied is all that tells new from old there (decision 0007)
    node.clock.offset_s = fleet.chance.choice(_CLOCKS)
    fleet.say(f"clock of {node.name} is off by {node.clock.offset_s:.0f} s")


async def leap(fleet: Fleet) -> None:
    """A node without a battery-backed clock starts once with another time, and is right again the next time, or while
    it runs; a time server may be in reach then.
    """
    chance = fleet.chance
    node = fleet.nodes[chance.choice(list(fleet.nodes))]
    if node.was_restored or node.has_restored_stream or not node.running:
        return
    before = node.clock.offset_s
    await node.crash(silent=chance.random() < 0.5)
    node.clock.offset_s = chance.choice((14.3, 0.01, -31.7)) * _YEAR_S + chance.uniform(0, 1e6)
    fleet.say(f"{node.name} starts with its clock off by {node.clock.offset_s:.0f} s")
    await trio.sleep(chance.choice((0.0, 1.0, 10.0)))
    await fleet.start(node)
    await trio.sleep(chance.choice((0.1, 1.0, 20.0)))
    fleet.check()
    off = chance.random() < 0.5 and node.running
    if off:
        await node.crash(silent=False)
    node.clock.offset_s = before
    node.clock.has_time_server = chance.random() < 0.5
    fleet.say(
        f"the clock of {node.name} is what it was{', a time server in reach' if node.clock.has_time_server else ''}"
    )
    if off:
        await fleet.start(node)
