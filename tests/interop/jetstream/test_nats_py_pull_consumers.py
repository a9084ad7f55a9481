"""Pull consumers and acknowledgements as nats-py sees them, on eyotd and on Debian's nats-server: the same findings.

Where the versions differ (nats-server 2.9.10 here, behaviour of 2.14 announced by eyotd), a scenario leaves the
difference out or is only played on eyotd (test_nats_py_consumers.py); each says why.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from nats.errors import TimeoutError as NatsTimeout

from support.clients.nats_py import Scenario, Table, collect, deliveries, play_on_both, seqs, statuses
from support.servers.server_process import ServerProcess

S = 1_000_000_000


# -- pulling -------------------------------------------------------------------------------------------------------


async def fetch_and_ack(t: Table) -> Any:
    await t.stream()
    await t.fill(5)
    sub = await t.js.pull_subscribe(f"{t.name}.x", durable="C", stream=t.name)
    found = []
    for batch in (2, 3):
        for msg in await sub.fetch(batch, timeout=5):
            found.append((msg.subject.removeprefix(t.name), msg.data, msg.metadata.num_pending))
            await msg.ack_sync()
    info = await t.info()
    return found, info["num_pending"], info["num_ack_pending"], info["ack_floor"]["stream_seq"]


async def fetch_times_out(t: Table) -> Any:
    await t.stream()
    await t.fill(1)
    sub = await t.js.pull_subscribe(f"{t.name}.x", durable="C", stream=t.name)
    got = len(await sub.fetch(5, timeout=3))
    try:
        await sub.fetch(1, timeout=0.3)
    except NatsTimeout:
        return got, "timeout"
    return got, "messages"


async def fetch_waits_for_messages(t: Table) -> Any:
    await t.stream()
    sub = await t.js.pull_subscribe(f"{t.name}.x", durable="C", stream=t.name)

    async def fetch_all() -> list[bytes]:
        """nats-py asks with no_wait: a request ends when all that is stored so far was delivered, if that was anything."""
        found: list[bytes] = []
        while len(found) < 3:
            found += [msg.data for msg in await sub.fetch(3 - len(found), timeout=30)]
        return found

    fetching = asyncio.create_task(fetch_all())

    async def waiting() -> bool:
        return bool((await t.info())["num_waiting"] == 1)

    await t.expect(waiting)
    await t.fill(3)
    return await fetching


async def raw_pull_bodies(t: Table) -> Any:
    await t.stream()
    await t.fill(10)
    await t.consumer(ack_policy="explicit")
    return [seqs(await t.pull(body)) for body in (b"", b"2", {"batch": 3}, {}, b"nonsense")]


async def no_wait(t: Table) -> Any:
    await t.stream()
    await t.consumer(ack_policy="explicit")
    empty = await t.pull({"batch": 2, "no_wait": True})
    await t.fill(1)
    some = await t.pull({"batch": 1, "no_wait": True})
    return statuses(empty), seqs(some)


async def no_wait_partial(t: Table) -> Any:
    """2.9 tells the end of a partial batch with 408; since 2.11 it is 404."""
    await t.stream()
    await t.consumer(ack_policy="explicit")
    await t.fill(2)
    got = await t.pull({"batch": 5, "no_wait": True})
    return seqs(got), [status.split()[0] in ("404", "408") for status in statuses(got)]


async def expiry(t: Table) -> Any:
    await t.stream()
    await t.fill(1)
    await t.consumer(ack_policy="explicit")
    got = await t.pull({"batch": 3, "expires": S // 5}, until=1.0)
    headers = got[-1].headers or {}
    return seqs(got), statuses(got), headers.get("Nats-Pending-Messages"), headers.get("Nats-Pending-Bytes")


async def heartbeats_while_waiting(t: Table) -> Any:
    await t.stream()
    await t.consumer(ack_policy="explicit")
    got = await t.pull({"batch": 1, "expires": S, "idle_heartbeat": 3 * S // 10}, until=1.5)
    too_large = await t.pull({"batch": 1, "expires": S, "idle_heartbeat": S})
    return sorted(set(statuses(got))), statuses(got)[-1], statuses(too_large)


async def max_bytes(t: Table) -> Any:
    await t.stream()
    await t.fill(4, size=500)
    await t.consumer(ack_policy="explicit")
    got = await t.pull({"batch": 4, "max_bytes": 1300, "expires": S}, until=0.6)
    tiny = await t.pull({"batch": 1, "max_bytes": 10, "expires": S}, until=0.6)
    return seqs(got), statuses(got), seqs(tiny), statuses(tiny)


async def limits_on_requests(t: Table) -> Any:
    await t.stream()
    await t.consumer(ack_policy="explicit", max_batch=5, max_expires=2 * S, max_waiting=1)
    refused = [
        statuses(await t.pull({"batch": 6})),
        statuses(await t.pull({"batch": 1, "expires": 3 * S})),
    ]
    inbox = t.nc.new_inbox()
    await t.nc.subscribe(inbox)
    await t.nc.publish(f"$JS.API.CONSUMER.MSG.NEXT.{t.name}.C", b'{"batch":1,"expires":2000000000}', reply=inbox)
    await t.nc.flush()
    refused.append(statuses(await t.pull({"batch": 1})))
    return refused


async def pulling_from_a_push_consumer(t: Table) -> Any:
    await t.stream()
    await t.consumer(ack_policy="explicit", deliver_subject=f"d.{t.name}")
    return statuses(await t.pull(b"1"))


async def several_requests_take_turns(t: Table) -> Any:
    await t.stream()
    await t.consumer(ack_policy="explicit")
    subs = []
    for _ in range(2):
        inbox = t.nc.new_inbox()
        subs.append(await t.nc.subscribe(inbox))
        body = b'{"batch":3,"expires":5000000000}'
        await t.nc.publish(f"$JS.API.CONSUMER.MSG.NEXT.{t.name}.C", body, reply=inbox)
        await t.nc.flush()
    await t.fill(6)
    return [seqs(await collect(sub)) for sub in subs]


# -- acknowledging -------------------------------------------------------------------------------------------------


async def redelivery(t: Table) -> Any:
    await t.stream()
    await t.fill(3)
    await t.consumer(ack_policy="explicit", ack_wait=S // 2)
    first = await t.pull(b"2")
    await first[0].ack_sync()
    second = await t.pull({"batch": 3, "expires": 2 * S}, until=0.8)
    info = await t.info()
    return deliveries(first), sorted(deliveries(second)), info["num_redelivered"], info["num_ack_pending"]


async def nak_and_delayed_nak(t: Table) -> Any:
    await t.stream()
    await t.fill(2)
    await t.consumer(ack_policy="explicit")
    first = await t.pull(b"2")
    # The request waits before anything is due, so that the order does not depend on when it comes.
    inbox = t.nc.new_inbox()
    sub = await t.nc.subscribe(inbox)
    await t.nc.publish(f"$JS.API.CONSUMER.MSG.NEXT.{t.name}.C", b'{"batch":2,"expires":20000000000}', reply=inbox)
    await t.nc.flush()
    await first[0].nak(delay=0.6)
    await first[1].nak()
    again = await collect(sub, until=20.0, count=2)
    return deliveries(first), deliveries(again)


async def term_and_progress(t: Table) -> Any:
    await t.stream()
    await t.fill(2)
    await t.consumer(ack_policy="explicit", ack_wait=S)
    first, second = await t.pull(b"2")
    await first.term()
    for _ in range(4):
        await asyncio.sleep(0.4)
        await second.in_progress()
    await t.nc.flush()
    info = await t.info()
    return info["num_ack_pending"], info["num_redelivered"], info["ack_floor"]["stream_seq"]


async def acknowledge_all(t: Table) -> Any:
    await t.stream()
    await t.fill(5)
    await t.consumer(ack_policy="all")
    got = await t.pull(b"4")
    await got[2].ack_sync()
    info = await t.info()
    return info["num_ack_pending"], info["ack_floor"]["stream_seq"], info["ack_floor"]["consumer_seq"]


async def acknowledge_none(t: Table) -> Any:
    await t.stream()
    await t.fill(3)
    await t.consumer(ack_policy="none")
    got = await t.pull(b"2")
    info = await t.info()
    return seqs(got), info["num_ack_pending"], info["ack_floor"]["stream_seq"], info["num_pending"]


async def acknowledge_twice(t: Table) -> Any:
    await t.stream()
    await t.fill(1)
    await t.consumer(ack_policy="explicit")
    (msg,) = await t.pull(b"1")
    answers = [(await t.nc.request(msg.reply, b"+ACK", timeout=20)).data for _ in range(2)]
    return answers, (await t.info())["num_ack_pending"]


async def acknowledge_and_next(t: Table) -> Any:
    await t.stream()
    await t.fill(4)
    await t.consumer(ack_policy="explicit")
    (msg,) = await t.pull(b"1")
    inbox = t.nc.new_inbox()
    sub = await t.nc.subscribe(inbox)
    await t.nc.publish(msg.reply, b'+NXT {"batch":2}', reply=inbox)
    got = await collect(sub)
    return seqs(got), (await t.info())["num_ack_pending"]


async def floor_over_gaps(t: Table) -> Any:
    await t.stream()
    await t.fill(3, "a")
    await t.fill(2, "b")
    await t.fill(2, "a")
    await t.consumer(ack_policy="explicit", filter_subject=f"{t.name}.a")
    got = await t.pull(b"5")
    floors = []
    for at in (1, 0, 4, 2, 3):
        await got[at].ack_sync()
        floor = (await t.info())["ack_floor"]
        floors.append((floor["consumer_seq"], floor["stream_seq"]))
    return floors


async def max_deliver(t: Table) -> Any:
    await t.stream()
    await t.fill(1)
    heard = await t.nc.subscribe(f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{t.name}.C")
    await t.consumer(ack_policy="explicit", ack_wait=S // 4, max_deliver=2)
    got = await t.pull({"batch": 5, "expires": 2 * S}, until=1.0)
    advisories = await collect(heard, until=1.0, count=1)
    return deliveries(got), len(advisories)


async def max_ack_pending(t: Table) -> Any:
    await t.stream()
    await t.fill(5)
    await t.consumer(ack_policy="explicit", max_ack_pending=2)
    got = await t.pull({"batch": 5, "expires": S // 2}, until=0.8)
    await got[0].ack_sync()
    more = await t.pull({"batch": 5, "expires": S // 2}, until=0.8)
    return seqs(got), seqs(more)


SCENARIOS: list[Scenario] = [
    fetch_and_ack,
    fetch_times_out,
    fetch_waits_for_messages,
    raw_pull_bodies,
    no_wait,
    no_wait_partial,
    expiry,
    heartbeats_while_waiting,
    max_bytes,
    limits_on_requests,
    pulling_from_a_push_consumer,
    several_requests_take_turns,
    redelivery,
    nak_and_delayed_nak,
    term_and_progress,
    acknowledge_all,
    acknowledge_none,
    acknowledge_twice,
    acknowledge_and_next,
    floor_over_gaps,
    max_deliver,
    max_ack_pending,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_the_same_as_nats_server(scenario: Scenario, eyotd: ServerProcess, nats_server: ServerProcess) -> None:
    ours, theirs = play_on_both((eyotd, nats_server), scenario, scenario.__name__.replace("_", "-"))
    assert ours == theirs
