"""What consumers deliver, and push consumers, as nats-py sees them, on eyotd and on Debian's nats-server.

Where the versions differ (nats-server 2.9.10 here, behaviour of 2.14 announced by eyotd), a scenario leaves the
difference out or is only played on eyotd (test_nats_py_consumers.py); each says why.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from support.clients.nats_py import Scenario, Table, collect, play_on_both, seqs, statuses
from support.servers.server_process import ServerProcess

S = 1_000_000_000


# -- what is delivered ---------------------------------------------------------------------------------------------


async def filtered_pending(t: Table) -> Any:
    await t.stream()
    for i in range(9):
        await t.fill(1, "a" if i % 3 else "b")
    created = await t.consumer(ack_policy="explicit", filter_subject=f"{t.name}.a")
    got = await t.pull(b"4")
    info = await t.info()
    return created["num_pending"], [msg.metadata.num_pending for msg in got], info["num_pending"]


async def deliver_policies(t: Table) -> Any:
    await t.stream()
    for subject in ("a", "b", "a", "c", "b"):
        await t.fill(1, subject)
    found = []
    for i, config in enumerate(
        (
            {"deliver_policy": "all"},
            {"deliver_policy": "last"},
            {"deliver_policy": "last", "filter_subject": f"{t.name}.a"},
            {"deliver_policy": "new"},
            {"deliver_policy": "by_start_sequence", "opt_start_seq": 3},
            {"deliver_policy": "last_per_subject", "filter_subject": f"{t.name}.>"},
            {"deliver_policy": "by_start_time", "opt_start_time": "2001-01-01T00:00:00Z"},
        )
    ):
        created = await t.consumer(f"C{i}", ack_policy="explicit", **config)
        got = await t.pull({"batch": 10, "expires": S // 4}, name=f"C{i}", until=0.5)
        found.append((created["num_pending"], created["delivered"]["stream_seq"], seqs(got)))
    return found


async def headers_only(t: Table) -> Any:
    await t.stream()
    await t.js.publish(f"{t.name}.x", b"12345", headers={"A": "b"})
    await t.fill(1)
    await t.consumer(ack_policy="explicit", headers_only=True)
    return [(msg.data, dict(msg.headers or {})) for msg in await t.pull(b"2")]


async def purged_and_deleted_messages(t: Table) -> Any:
    await t.stream()
    await t.fill(6)
    await t.consumer(ack_policy="explicit")
    got = await t.pull(b"2")
    await t.api(f"STREAM.MSG.DELETE.{t.name}", {"seq": 4})
    pending = (await t.info())["num_pending"]
    more = await t.pull(b"2")
    await t.api(f"STREAM.PURGE.{t.name}")

    async def nothing_pending() -> bool:
        info = await t.info()
        return bool(info["num_pending"] == 0 and info["num_ack_pending"] == 0)

    await t.expect(nothing_pending)
    await t.fill(1)
    return seqs(got), pending, seqs(more), seqs(await t.pull({"batch": 1, "expires": S}))


# -- pushing -------------------------------------------------------------------------------------------------------


async def push_with_callback(t: Table) -> Any:
    await t.stream()
    await t.fill(5)
    got: list[tuple[bytes, int]] = []
    done = asyncio.Event()

    async def handler(msg: Any) -> None:
        got.append((msg.data, msg.metadata.num_pending))
        await msg.ack()
        if len(got) == 7:
            done.set()

    await t.js.subscribe(f"{t.name}.x", durable="C", stream=t.name, cb=handler, manual_ack=True)
    await t.fill(2)
    await asyncio.wait_for(done.wait(), 10)

    async def acked() -> bool:
        return bool((await t.info())["num_ack_pending"] == 0)

    await t.expect(acked)
    info = await t.info()
    return [data for data, _ in got], [pending for _, pending in got][-1], info["push_bound"]


async def push_queue_group(t: Table) -> Any:
    await t.stream()
    got: list[int] = []

    async def handler(msg: Any) -> None:
        got.append(msg.metadata.sequence.stream)

    for _ in range(3):
        await t.js.subscribe(f"{t.name}.x", queue="workers", stream=t.name, cb=handler)
    await t.fill(30)

    async def all_there() -> bool:
        return len(got) >= 30

    await t.expect(all_there)
    await asyncio.sleep(0.2)
    info = await t.api(f"CONSUMER.LIST.{t.name}")
    return sorted(got) == list(range(1, 31)), [c["config"]["deliver_group"] for c in info["consumers"]]


async def push_stops_without_listener(t: Table) -> Any:
    await t.stream()
    subject = f"d.{t.name}"
    await t.consumer(deliver_subject=subject, ack_policy="explicit")
    await t.fill(2)
    unbound = (await t.info()).get("push_bound", False)
    sub = await t.nc.subscribe(subject)
    first = seqs(await collect(sub))
    await sub.unsubscribe()
    await t.nc.flush()
    await t.fill(2)
    sub = await t.nc.subscribe(subject)
    return unbound, first, seqs(await collect(sub))


async def idle_heartbeats(t: Table) -> Any:
    await t.stream()
    await t.fill(2)
    subject = f"d.{t.name}"
    await t.consumer(deliver_subject=subject, ack_policy="none", idle_heartbeat=S // 5)
    sub = await t.nc.subscribe(subject)
    got = await collect(sub, until=1.0, count=4)
    headers = dict(got[-1].headers or {})
    return seqs(got), statuses(got), headers["Nats-Last-Consumer"], headers["Nats-Last-Stream"], got[-1].reply


async def ordered_consumer(t: Table) -> Any:
    await t.stream()
    await t.fill(200)
    sub = await t.js.subscribe(f"{t.name}.x", ordered_consumer=True)
    got = [await sub.next_msg(timeout=5) for _ in range(200)]
    info = await sub.consumer_info()
    config = info.config
    await sub.unsubscribe()
    return (
        seqs(got) == list(range(1, 201)),
        [m.metadata.sequence.consumer for m in got] == list(range(1, 201)),
        (config.ack_policy, config.max_deliver, config.flow_control, config.idle_heartbeat, config.mem_storage),
    )


async def ordered_consumer_with_flow_control(t: Table) -> Any:
    """20 MB, far beyond the first window: only answered flow control lets it through."""
    await t.stream()
    payload = b"x" * 200_000
    for _ in range(100):
        await t.js.publish(f"{t.name}.x", payload)
    sub = await t.js.subscribe(f"{t.name}.x", ordered_consumer=True, pending_bytes_limit=-1)
    total = 0
    for _ in range(100):
        total += len((await sub.next_msg(timeout=10)).data)
    return total


async def ordered_consumer_after_its_server_side_is_lost(t: Table) -> Any:
    await t.stream()
    await t.fill(5)
    sub = await t.js.subscribe(f"{t.name}.x", ordered_consumer=True, idle_heartbeat=0.3)
    first = seqs([await sub.next_msg(timeout=5) for _ in range(5)])
    names = (await t.api(f"CONSUMER.NAMES.{t.name}"))["consumers"]
    for name in names:
        await t.api(f"CONSUMER.DELETE.{t.name}.{name}")
    await t.fill(3)
    return first, seqs([await sub.next_msg(timeout=20) for _ in range(3)])


async def bound_flow_control_raw(t: Table) -> Any:
    """Unanswered flow control stops delivery and is named in heartbeats."""
    await t.stream()
    for _ in range(40):
        await t.js.publish(f"{t.name}.x", b"x" * 100_000)
    subject = f"d.{t.name}"
    await t.consumer(deliver_subject=subject, ack_policy="none", flow_control=True, idle_heartbeat=S // 2)
    sub = await t.nc.subscribe(subject)
    got = await collect(sub, until=1.0, count=24)
    requests = [msg.reply for msg in got if msg.reply.startswith("$JS.FC.")]
    stalled = [dict(msg.headers or {}).get("Nats-Consumer-Stalled") for msg in got if not msg.reply]
    before = len(seqs(got))
    await t.nc.publish(requests[0])
    total = before
    while total < 40:
        total += len(seqs([await sub.next_msg(timeout=5)]))
    return len(requests), requests[0].rpartition(".")[0], set(stalled) == {requests[0]}, 15 <= before <= 25


SCENARIOS: list[Scenario] = [
    filtered_pending,
    deliver_policies,
    headers_only,
    purged_and_deleted_messages,
    push_with_callback,
    push_queue_group,
    push_stops_without_listener,
    idle_heartbeats,
    ordered_consumer,
    ordered_consumer_with_flow_control,
    ordered_consumer_after_its_server_side_is_lost,
    bound_flow_control_raw,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_the_same_as_nats_server(scenario: Scenario, eyotd: ServerProcess, nats_server: ServerProcess) -> None:
    ours, theirs = play_on_both((eyotd, nats_server), scenario, scenario.__name__.replace("_", "-"))
    assert ours == theirs
