"""What people do to a fleet: publish, change configurations, delete, purge, back up and restore."""

from __future__ import annotations

import msgspec
import trio

from offline_sync.domains import Config, renamed
from offline_sync.fleet import Fleet
from offline_sync.flows import TOPICS
from offline_sync.layout import HUB, SECOND, SHAPES, STREAM
from offline_sync.model import Violation
from offline_sync.node import Node


async def work(fleet: Fleet) -> None:
    """Somebody publishes."""
    node, stream = fleet.chance.choice(list(fleet.model.epochs))
    fleet.publish(node, stream, fleet.chance.choice((1, 3, 10, 40)))


async def burst(fleet: Fleet) -> None:
    """Somebody publishes much at once."""
    node, stream = fleet.chance.choice(list(fleet.model.epochs))
    for _ in range(fleet.chance.randint(1, 3)):
        fleet.publish(node, stream, fleet.chance.choice((100, 200, 400)))
        await trio.sleep(fleet.chance.choice((0.0, 0.02)))


async def recreate(fleet: Fleet) -> None:
    """A stream is deleted at its origin and made again: what was not copied of it is lost with the will of its owner."""
    name, stream = fleet.chance.choice(fleet.layout.published)
    node = fleet.nodes[name]
    if not node.running or node.disk_full or node.stream(stream) is None:
        return
    answer = await node.request(f"STREAM.DELETE.{stream}")
    fleet.say(f"{name} deletes {stream}: {answer}")
    await trio.sleep(fleet.chance.choice((0.0, 0.1, 10.0)))
    if node.running:
        await fleet.make(name, stream)


async def purge(fleet: Fleet) -> None:
    """A stream is purged at its origin: as a whole, up to a sequence, or one topic of it."""
    chance = fleet.chance
    name, stream = chance.choice(fleet.layout.published)
    log_of = fleet.nodes[name].stream(stream)
    if log_of is None or fleet.nodes[name].disk_full:
        return
    state = log_of.log.state
    below = chance.randint(min(state.first_seq, state.last_seq), state.last_seq) + 1
    if chance.random() < 0.4:
        below = state.last_seq + 1
    body: dict[str, object] = {"seq": below}
    topic = chance.randrange(TOPICS) if chance.random() < 0.4 else None
    if topic is not None:
        body["filter"] = f"{stream.lower()}.{name}.t{topic}"
    fleet.model.journals[fleet.model.epochs[name, stream]].purges.append((below, topic))
    answer = await fleet.nodes[name].request(f"STREAM.PURGE.{stream}", body)
    fleet.say(f"{name} purges {stream}, {msgspec.json.encode(body).decode()}: {answer}")


async def resource(fleet: Fleet) -> None:
    """The hub's stream takes a leaf's readings otherwise, not at all, or again; once or a few times in a row."""
    chance, hub = fleet.chance, fleet.hub
    leaf = chance.choice(fleet.leaves)
    for _ in range(chance.choice((1, 1, 2, 3))):
        stream = hub.stream("ALL")
        if stream is None or hub.disk_full:
            return
        shape = chance.choice((*SHAPES, "not at all", "not at all"))
        domain = fleet.layout.domains[leaf]
        kept = [each for each in msgspec.to_builtins(stream.config.sources) if not _is_of(each, domain)]
        fleet.model.flows.mixed.add((HUB, "ALL", leaf))
        config = {"name": "ALL", **STREAM, "sources": kept + fleet.layout.source(leaf, shape)}
        answer = await hub.request("STREAM.UPDATE.ALL", config)
        said = "done" if answer is not None and "error" not in answer else answer
        fleet.say(f"{HUB} takes readings of {leaf} {shape}: {said}")
        await trio.sleep(chance.choice((0.0, 0.0, 0.05, 1.0)))


def _is_of(source: dict[str, dict[str, str]], domain: str) -> bool:
    return source["name"] == "READINGS" and source["external"]["api"] == f"$JS.{domain}.API"  # type: ignore[comparison-overlap]


async def rename(fleet: Fleet) -> None:
    """A leaf gets another domain; what copies it at the hub is told where it is now, sooner or later."""
    chance, layout = fleet.chance, fleet.layout
    leaf = fleet.nodes[chance.choice(fleet.leaves)]
    hubs = fleet.hubs
    if not all(node.running and not node.disk_full for node in (leaf, *hubs)):
        return
    if any("mirror" in layout.streams[place] for place in layout.streams if leaf.name in place[1]):
        return  # a mirror keeps its origin for good
    before, after = leaf.domain, layout.rename(leaf.name)
    fleet.say(f"{leaf.name} is in the domain {after} from now on")
    await leaf.crash(silent=False)
    leaf.domain = after
    await fleet.start(leaf)
    await trio.sleep(chance.choice((0.0, 1.0, 5.0)))
    for node in hubs:
        for place in list(layout.streams):
            found = node.stream(place[1]) if place[0] == node.name else None
            if found is None:
                continue
            config: Config = msgspec.to_builtins(found.config)
            changed = renamed(config, before, after)
            while changed != config and found.config.sources:
                answer = await node.request(f"STREAM.UPDATE.{place[1]}", changed) if node.running else None
                if answer is not None and "error" not in answer:
                    break
                await trio.sleep(1)
        # Whoever restores a hub from before that names the domain as it is now.
        node.backup = None


async def promote(fleet: Fleet) -> None:
    """The hub's ALL is lost; its mirror takes its place and its sources."""
    hub = fleet.hub
    whole, standby = hub.stream("ALL"), hub.stream("STANDBY")
    mixed = any((node, stream) == (HUB, "ALL") for node, stream, _ in fleet.model.flows.mixed)
    if "mirror" in fleet.layout.streams.get((SECOND, "ALL"), {}):
        return  # which would have nothing to copy from any more
    if whole is None or standby is None or standby.config.mirror is None or hub.disk_full or mixed:
        return
    sources = msgspec.to_builtins(whole.config.sources)
    answer = await hub.request("STREAM.DELETE.ALL")
    fleet.say(f"{HUB} loses ALL, STANDBY takes its place: {answer}")
    if hub.running:
        await hub.request("STREAM.UPDATE.STANDBY", {"name": "STANDBY", **STREAM, "sources": sources})


async def reload(fleet: Fleet) -> None:
    node = fleet.nodes[fleet.chance.choice(fleet.diallers)]
    if node.running:
        fleet.say(f"{node.name} reloads its remotes")
        node.reload_remotes()


async def back_up(fleet: Fleet) -> None:
    """A node is taken down, its directory copied, and started again."""
    node = fleet.nodes[fleet.chance.choice(list(fleet.nodes))]
    if node.running:
        await _back_up(fleet, node)


async def _back_up(fleet: Fleet, node: Node) -> None:
    fleet.check()
    await node.crash(silent=False)
    node.back_up()
    fleet.model.backed_up(node.name)
    fleet.say(f"{node.name} is backed up")
    await fleet.start(node)


async def set_back(fleet: Fleet) -> None:
    """A node is taken back to its backup while its link is down, and stores new messages under sequences that it gave
    before; its readers come later.
    """
    chance = fleet.chance
    node = fleet.nodes[chance.choice((HUB, *fleet.leaves))]
    if not node.running or node.disk_full:
        return
    mine = [place for place in fleet.model.epochs if place[0] == node.name]
    if node.backup is None or chance.random() < 0.5:
        await _back_up(fleet, node)
        for _ in range(chance.randint(1, 3)):
            fleet.publish(*chance.choice(mine), chance.choice((1, 3, 10)))
            await trio.sleep(chance.choice((0.1, 0.5, 2.0)))
    for link in fleet.links if node is fleet.hub else fleet.links_of(node.name):
        fleet.network.cut(link)
    await _take_back(fleet, node)
    for _ in range(chance.randint(1, 4)):
        fleet.publish(*chance.choice(mine), chance.choice((1, 3, 10, 40)))
        await trio.sleep(chance.choice((0.0, 0.1, 1.0)))


async def take_back(fleet: Fleet) -> None:
    """A node fails for good and is set up again, from its last backup if there is one."""
    node = fleet.nodes[fleet.chance.choice(list(fleet.nodes))]
    if node.running and not node.disk_full:
        await _take_back(fleet, node)


async def fail_over(fleet: Fleet) -> None:
    """The first hub fails.

    Leaves find the second by their list of addresses; it may be told to gather by itself from now on. The first comes
    back as it was, or restored from a backup, or empty.
    """
    chance, hub, second = fleet.chance, fleet.hub, fleet.second
    if second is None or not hub.running or hub.disk_full:
        return
    fleet.check()
    fleet.say(f"{HUB} fails")
    await hub.crash(silent=chance.random() < 0.5)
    await trio.sleep(chance.choice((0.0, 0.5, 5.0, 20.0)))
    if chance.random() < 0.6:
        await _take_over(fleet, second)
    for _ in range(chance.randint(1, 3)):
        await work(fleet)
        await trio.sleep(chance.choice((0.0, 1.0, 5.0, 20.0)))
    if chance.random() < 0.3:
        await _take_back(fleet, hub)
    else:
        await fleet.start(hub)


async def _take_over(fleet: Fleet, second: Node) -> None:
    """The second hub's copy of ALL becomes a stream that copies from the leaves."""
    copy = second.stream("ALL")
    mixed = any((node, stream) == (HUB, "ALL") for node, stream, _ in fleet.model.flows.mixed)
    if copy is None or copy.config.mirror is None or second.disk_full or mixed:
        return
    sources = fleet.layout.streams[HUB, "ALL"]["sources"]
    answer = await second.request("STREAM.UPDATE.ALL", {"name": "ALL", **STREAM, "sources": sources})
    if answer is None or "error" in answer:
        raise Violation(f"{SECOND} cannot take over: {answer}")
    fleet.layout.streams[SECOND, "ALL"] = {"sources": sources}
    fleet.say(f"{SECOND} takes over")


async def _take_back(fleet: Fleet, node: Node) -> None:
    fleet.check()
    node.clock.offset_s = max(node.clock.offset_s, node.clock.latest_offset_s)
    node.was_restored = True
    await fleet.take_back(node)
