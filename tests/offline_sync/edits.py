"""What operators do by hand that they better would not: consumers of mirrors, messages, limits and whole mirrors are removed and changed."""

from __future__ import annotations

import msgspec
import trio

from eyot_daemon.jetstream.sourcing.source_task import ORIGIN_BEHIND
from offline_sync import archives
from offline_sync.fleet import Fleet
from offline_sync.layout import LIMITS, STREAM
from offline_sync.model import BELIEVED_S, skips


async def remove_consumer(fleet: Fleet) -> None:
    """Somebody deletes the consumers by which mirrors and sources copy a stream, one or all of them."""
    chance = fleet.chance
    places = [
        (node, stream.name, names)
        for node in fleet.nodes.values()
        if node.running and not node.disk_full
        for stream in node.js.streams()
        if (names := [name for name, consumer in stream.consumers.items() if consumer.config.direct])
    ]
    if not places:
        return
    node, stream, names = chance.choice(places)
    for name in names if chance.random() < 0.3 else [chance.choice(names)]:
        answer = await node.request(f"CONSUMER.DELETE.{stream}.{name}") if node.running else None
        fleet.say(f"{node.name} deletes the consumer {name} of {stream}: {answer}")


async def delete_messages(fleet: Fleet) -> None:
    """Some messages are deleted at their origin, one by one: copied ones, and some that are not yet."""
    chance = fleet.chance
    name, stream = chance.choice(fleet.layout.published)
    for _ in range(chance.choice((1, 2, 5, 20))):
        found = fleet.nodes[name].stream(stream)
        if found is None or fleet.nodes[name].disk_full or not found.log.state.messages:
            return
        state = found.log.state
        first = state.first_seq if chance.random() < 0.5 else max(state.first_seq, state.last_seq - 10)
        seq = chance.randint(first, state.last_seq)
        fleet.model.journals[fleet.model.epochs[name, stream]].deleted.add(seq)
        answer = await fleet.nodes[name].request(f"STREAM.MSG.DELETE.{stream}", {"seq": seq})
        fleet.say(f"{name} deletes {seq} of {stream}: {answer}")


async def limit(fleet: Fleet) -> None:
    """A stream that is published to gets other limits, or none."""
    chance, layout = fleet.chance, fleet.layout
    places = [place for place in layout.published if place[1] in ("READINGS", "EVENTS")]
    name, stream = chance.choice(places)
    node = fleet.nodes[name]
    if node.stream(stream) is None or node.disk_full:
        return
    before = layout.streams[name, stream]
    limits = chance.choice((*LIMITS[:5], {}, {}))
    kept = {key: value for key, value in before.items() if key == "allow_msg_ttl" or not key.startswith("max_")}
    config = {**kept, **limits}
    answer = await node.request(f"STREAM.UPDATE.{stream}", {"name": stream, **STREAM, **config})
    fleet.say(f"{name} limits {stream} to {msgspec.json.encode(limits).decode()}: {_said(answer)}")
    if answer is not None and "error" not in answer:
        layout.streams[name, stream] = config
    fleet.check()


async def skip(fleet: Fleet) -> None:
    """A mirror of what is published is told to go on behind its own end when its origin has lost messages, or not to any more."""
    chance, model = fleet.chance, fleet.model
    places = [flow.place for flow in fleet.flows() if flow.mirror and flow.source in model.epochs]
    if not places:
        return
    name, target = chance.choice(places)
    node = fleet.nodes[name]
    stream = node.stream(target)
    if stream is None or not node.running or node.disk_full:
        return
    config = msgspec.to_builtins(stream.config)
    config["metadata"] = {} if skips(stream) else {ORIGIN_BEHIND: "skip"}
    answer = await node.request(f"STREAM.UPDATE.{stream.name}", config)
    model.skipping.add((node.name, stream.name))
    fleet.say(f"{node.name}/{stream.name} has the metadata {config['metadata']}: {_said(answer)}")


async def archive(fleet: Fleet) -> None:
    """One stream that is published to is backed up over the API."""
    chance = fleet.chance
    name, stream = chance.choice([place for place in fleet.layout.published if place[1] != "JOBS"])
    node = fleet.nodes[name]
    taken = await archives.take(node, stream, fleet.model) if node.running else None
    if taken is not None:
        fleet.archives[name, stream] = taken
    fleet.say(f"{name} backs up {stream}: {taken and taken.last_seq}")


async def restore_stream(fleet: Fleet) -> None:
    """A stream is deleted and restored from its backup over the API, with everything that it had then."""
    model = fleet.model
    usable = [
        place
        for place, each in fleet.archives.items()
        if model.epochs[place] == each.epoch and model.journals[each.epoch].lost == each.lost
    ]
    if not usable:
        return
    place = name, stream = fleet.chance.choice(usable)
    node, taken = fleet.nodes[name], fleet.archives[place]
    if node.stream(stream) is None or node.disk_full:
        return
    if node.clock.offset_s < 0:
        return  # what is newer than the last message copied is all that tells new from old then (decision 0007)
    if node.clock.offset_s > taken.offset_s + BELIEVED_S:
        return  # a backup does not tell that the clock was set since: the messages look older than they are
    held = model.numbers_in(node, stream)
    answer = await node.request(f"STREAM.DELETE.{stream}")
    fleet.say(f"{name} deletes {stream}: {_said(answer)}")
    while not node.running:
        await trio.sleep(1)
    if node.stream(stream) is not None:
        return
    model.put_back(place, taken.last_seq, taken.numbers - held)
    node.backup = None  # it would bring back what the stream has lost by now
    node.has_restored_stream = True
    await trio.sleep(fleet.chance.choice((0.0, 0.0, 0.1, 10.0)))
    while node.stream(stream) is None:
        answer = await archives.put_back(node, taken) if node.running and not node.disk_full else None
        fleet.say(f"{name} restores {stream} with all up to {taken.last_seq}: {_said(answer)}")
        if answer is None:
            await trio.sleep(1)
    for worker in fleet.workers:
        if (worker.domain, worker.stream) == place:
            worker.restart()


async def remake_copy(fleet: Fleet) -> None:
    """A mirror, or a stream of sources, from which nobody copies, is deleted and made again."""
    chance, model = fleet.chance, fleet.model
    flows = fleet.flows()
    origins = {flow.source for flow in flows}
    queues = {place for place, epoch in model.epochs.items() if model.journals[epoch].workqueue}
    held = {flow.place for flow in flows if flow.source in queues}
    kinds = {(*flow.place, flow.mirror) for flow in flows}  # a mirror that was promoted stays what it is
    made = {
        place
        for place in fleet.layout.streams
        if (place[0], place[1], "mirror" in fleet.layout.streams[place]) in kinds
    }
    places = sorted(made - origins - held)
    if not places:
        return
    name, stream = chance.choice(places)
    node = fleet.nodes[name]
    if not node.running or node.disk_full:
        return
    answer = await node.request(f"STREAM.DELETE.{stream}")
    fleet.say(f"{name} deletes {stream}, which copies: {_said(answer)}")
    if answer is None or "error" in answer:
        return
    model.restarts_copy((name, stream))
    await trio.sleep(chance.choice((0.0, 0.0, 0.1, 10.0)))
    while not node.running:
        await trio.sleep(1)
    await fleet.make(name, stream)


def _said(answer: dict[str, object] | None) -> object:
    return "done" if answer is not None and "error" not in answer else answer
