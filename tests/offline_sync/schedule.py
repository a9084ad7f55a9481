"""What happens to a fleet: one fault or some work after the other, drawn from the fleet's generator."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from offline_sync.fleet import HUB, Fleet

_YEAR_S = 365 * 86400
_CLOCKS = (0.0, -57 * _YEAR_S, 10 * _YEAR_S, -10 * _YEAR_S, 3600.0, -5.0)
Step = Callable[[Fleet], Awaitable[None]]


async def work(fleet: Fleet) -> None:
    """Somebody publishes."""
    node, stream = fleet.chance.choice(list(fleet.model.lives))
    fleet.publish(node, stream, fleet.chance.choice((1, 3, 10, 40)))


async def cut(fleet: Fleet) -> None:
    leaf = fleet.chance.choice(fleet.leaves)
    fleet.say(f"link of {leaf} is cut")
    fleet.network.cut(leaf)


async def restore(fleet: Fleet) -> None:
    leaf = fleet.chance.choice(fleet.leaves)
    fleet.say(f"link of {leaf} is back")
    fleet.network.restore(leaf)


async def flap(fleet: Fleet) -> None:
    leaf = fleet.chance.choice(fleet.leaves)
    fleet.say(f"link of {leaf} flaps")
    for _ in range(fleet.chance.randint(2, 6)):
        fleet.network.cut(leaf)
        await trio.sleep(fleet.chance.uniform(0, 0.5))
        fleet.network.restore(leaf)
        await trio.sleep(fleet.chance.uniform(0, 2))


async def half_open(fleet: Fleet) -> None:
    leaf = fleet.chance.choice(fleet.leaves)
    fleet.say(f"link of {leaf} is half-open")
    fleet.network.swallow(leaf)


async def slow(fleet: Fleet) -> None:
    leaf = fleet.chance.choice(fleet.leaves)
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
    name = chance.choice((HUB, *fleet.leaves))
    await fleet.crash(name, silent=chance.random() < 0.5, back_after_s=chance.choice((0.0, 0.1, 3.0, 20.0)))


async def disk(fleet: Fleet) -> None:
    node = fleet.nodes[fleet.chance.choice((HUB, *fleet.leaves))]
    fleet.say(f"disk of {node.name} {'has room again' if node.disk_full else 'is full'}")
    node.set_disk_full(not node.disk_full)


async def clock(fleet: Fleet) -> None:
    node = fleet.nodes[fleet.chance.choice((HUB, *fleet.leaves))]
    node.clock.offset_s = fleet.chance.choice(_CLOCKS)
    fleet.say(f"clock of {node.name} is off by {node.clock.offset_s:.0f} s")


async def recreate(fleet: Fleet) -> None:
    """A stream is deleted at its origin and made again: what was not copied of it is lost with the will of its owner."""
    leaf = fleet.chance.choice(fleet.leaves)
    node = fleet.nodes[leaf]
    if not node.running or node.disk_full or node.stream("READINGS") is None:
        return
    answer = await node.request("STREAM.DELETE.READINGS")
    fleet.say(f"{leaf} deletes READINGS: {answer}")
    await trio.sleep(fleet.chance.choice((0.0, 0.1, 10.0)))
    await fleet.publish_to(leaf, "READINGS")


STEPS: dict[Step, float] = {
    work: 10,
    cut: 2,
    restore: 3,
    flap: 1,
    half_open: 1,
    slow: 1,
    crash: 3,
    disk: 1,
    clock: 1,
    recreate: 0.5,
}


async def play(fleet: Fleet, steps: int) -> None:
    """`steps` steps with pauses between them, the model checked after each."""
    kinds, weights = list(STEPS), list(STEPS.values())
    for _ in range(steps):
        (step,) = fleet.chance.choices(kinds, weights)
        await step(fleet)
        await trio.sleep(fleet.chance.choice((0.0, 0.01, 0.1, 0.5, 2.0, 8.0)))
        fleet.check()
