"""Consumers as nats-py sees them, on eyotd and on Debian's nats-server: the same scenarios, the same findings.

Where the versions differ (nats-server 2.9.10 here, behaviour of 2.12 announced by eyotd), a scenario leaves the
difference out or is only played on eyotd (ONLY_NEW); each says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.errors import TimeoutError as NatsTimeout
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from support.eyotd import Eyotd
from support.nats_py import Scenario, Table, collect, deliveries, play, play_on_both, seqs, statuses
from support.nats_server import NatsServer
from support.server_process import ServerProcess

CONFIG = "jetstream { store_dir: %WORKDIR%/js }\n"
S = 1_000_000_000


@pytest.fixture(scope="module")
def eyotd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with Eyotd(CONFIG, tmp_path_factory.mktemp("eyotd")) as server:
        yield server


@pytest.fixture(scope="module")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with NatsServer(CONFIG, tmp_path_factory.mktemp("nats-server")) as server:
        yield server


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
    got = len(await sub.fetch(5, timeout=0.5))
    try:
        await sub.fetch(1, timeout=0.3)
    except NatsTimeout:
        return got, "timeout"
    return got, "messages"


async def fetch_waits_for_messages(t: Table) -> Any:
    await t.stream()
    sub = await t.js.pull_subscribe(f"{t.name}.x", durable="C", stream=t.name)
    fetching = asyncio.create_task(sub.fetch(3, timeout=5))

    async def waiting() -> bool:
        return bool((await t.info())["num_waiting"] == 1)

    await t.expect(waiting)
    await t.fill(3)
    return [msg.data for msg in await fetching]


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
    await first[0].nak(delay=0.6)
    await first[1].nak()
    again = await t.pull({"batch": 2, "expires": 2 * S}, until=1.2, count=2)
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
    answers = [(await t.nc.request(msg.reply, b"+ACK", timeout=2)).data for _ in range(2)]
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


# -- the API -------------------------------------------------------------------------------------------------------


async def refusals(t: Table) -> Any:
    await t.stream()
    pull = {"durable_name": "C", "ack_policy": "explicit"}
    push = {"durable_name": "C", "deliver_subject": "d"}
    found = []
    for config in (
        {**push, "deliver_subject": "d.*"},
        {**push, "deliver_subject": f"{t.name}.1"},
        {**push, "max_waiting": 1},
        {**push, "ack_policy": "none", "max_ack_pending": 1},
        {**push, "idle_heartbeat": 1000},
        {**push, "flow_control": True},
        {**pull, "rate_limit_bps": 1},
        {**pull, "idle_heartbeat": S},
        {**pull, "flow_control": True},
        {**pull, "max_expires": 1},
        {**pull, "direct": True},
        {**push, "direct": True},
        {**pull, "opt_start_seq": 3},
        {**pull, "deliver_policy": "by_start_sequence"},
        {**pull, "deliver_policy": "by_start_time"},
        {**pull, "deliver_policy": "last_per_subject"},
        {**pull, "deliver_policy": "new", "opt_start_time": "2001-01-01T00:00:00Z"},
        {**pull, "sample_freq": "x"},
        {**pull, "max_deliver": 1, "backoff": [1, 2]},
        {**pull, "description": "x" * 5000},
        {**pull, "name": "D"},
        {"ack_policy": "explicit"},
        {"durable_name": "D", "ack_policy": "explicit"},
    ):
        body = {"stream_name": t.name, "config": config}
        answer = await t.api(f"CONSUMER.DURABLE.CREATE.{t.name}.C", body)
        found.append((answer["error"]["err_code"], answer["error"]["code"], answer["error"]["description"]))
    for words, body in (
        (f"CONSUMER.CREATE.{t.name}", {"stream_name": t.name, "config": pull}),
        (f"CONSUMER.CREATE.{t.name}", {"stream_name": "other", "config": {}}),
        ("CONSUMER.CREATE.none", {"stream_name": "none", "config": {}}),
        (f"CONSUMER.CREATE.{t.name}.C.{t.name}.a", {"stream_name": t.name, "config": {"name": "C"}}),
        (f"CONSUMER.INFO.{t.name}.none", None),
        (f"CONSUMER.DELETE.{t.name}.none", None),
        ("CONSUMER.NAMES.none", None),
        ("CONSUMER.LIST.none", None),
        (f"CONSUMER.INFO.{t.name}.none", {"a": 1}),
    ):
        error = (await t.api(words, body))["error"]
        found.append((error["err_code"], error["code"], error["description"]))
    return found


async def refused_updates(t: Table) -> Any:
    """Not here: a pull consumer made a push consumer, where 2.9 complains of max_waiting and 2.12 says what is wrong."""
    await t.stream()
    base = {"ack_policy": "explicit", "deliver_policy": "all"}
    await t.consumer(**base)
    found = []
    for change in (
        {"ack_policy": "all"},
        {"deliver_policy": "new"},
        {"replay_policy": "original"},
        {"max_waiting": 7},
    ):
        error = (await t.consumer(**{**base, **change}))["error"]
        found.append((error["err_code"], error["description"]))
    changed = await t.consumer(**base, max_deliver=5, ack_wait=7 * S, max_ack_pending=3, description="d")
    config = changed["config"]
    found.append((config["max_deliver"], config["ack_wait"], config["max_ack_pending"], config["description"]))
    return found


async def defaults(t: Table) -> Any:
    """2.10 and later add `metadata`; the rest is the same."""
    await t.stream()
    found = []
    for i, config in enumerate(
        (
            {"ack_policy": "explicit"},
            {},
            {"ack_policy": "all", "backoff": [S, 2 * S], "max_deliver": 3},
            {"deliver_subject": "d.x", "idle_heartbeat": S, "flow_control": True},
        )
    ):
        config = (await t.consumer(f"C{i}", **config))["config"]
        config.pop("metadata", None)
        found.append(config)
    answer = await t.api(f"CONSUMER.CREATE.{t.name}", {"stream_name": t.name, "config": {"deliver_subject": "d.y"}})
    config = answer["config"]
    config.pop("metadata", None)
    config.pop("name", None)
    return [*found, config, len(answer["name"])]


async def names_list_delete(t: Table) -> Any:
    await t.stream()
    empty = await t.api(f"CONSUMER.LIST.{t.name}")
    for name in ("b", "a", "c"):
        await t.consumer(name, ack_policy="explicit")
    names = await t.api(f"CONSUMER.NAMES.{t.name}", {"offset": 1})
    listed = await t.api(f"CONSUMER.LIST.{t.name}")
    deleted = await t.api(f"CONSUMER.DELETE.{t.name}.b")
    after = await t.api(f"CONSUMER.NAMES.{t.name}")
    names.pop("type")
    return (
        (empty["total"], empty["consumers"]),
        names,
        [each["name"] for each in listed["consumers"]],
        deleted,
        after["consumers"],
    )


async def deleting_tells_those_who_wait(t: Table) -> Any:
    await t.stream()
    await t.consumer(ack_policy="explicit")
    inbox = t.nc.new_inbox()
    sub = await t.nc.subscribe(inbox)
    await t.nc.publish(f"$JS.API.CONSUMER.MSG.NEXT.{t.name}.C", b'{"batch":1,"expires":20000000000}', reply=inbox)
    await t.nc.flush()
    await t.api(f"CONSUMER.DELETE.{t.name}.C")
    return statuses(await collect(sub, until=1.0, count=1))


async def ephemeral_goes_by_itself(t: Table) -> Any:
    await t.stream()
    config = {"deliver_subject": f"d.{t.name}", "inactive_threshold": S // 2}
    sub = await t.nc.subscribe(f"d.{t.name}")
    await t.api(f"CONSUMER.CREATE.{t.name}", {"stream_name": t.name, "config": config})
    await asyncio.sleep(1.0)
    there = (await t.api(f"CONSUMER.NAMES.{t.name}"))["total"]
    await sub.unsubscribe()

    async def gone() -> bool:
        return bool((await t.api(f"CONSUMER.NAMES.{t.name}"))["total"] == 0)

    await t.expect(gone)
    return there


async def hidden_consumer_of_a_mirror(t: Table) -> Any:
    await t.stream()
    await t.fill(5)
    await t.api(f"STREAM.PURGE.{t.name}", {"seq": 3})
    found: list[Any] = []
    for start in (None, 4, 99):
        subject = f"$JS.M.{t.name}{start}"
        config = {
            "deliver_policy": "by_start_sequence" if start else "all",
            "ack_policy": "none",
            "ack_wait": 79_200 * S,
            "max_deliver": 1,
            "replay_policy": "instant",
            "idle_heartbeat": S // 2,
            "flow_control": True,
            "deliver_subject": subject,
            "num_replicas": 0,
            "direct": True,
        }
        if start:
            config["opt_start_seq"] = start
        created = await t.api(f"CONSUMER.CREATE.{t.name}", {"stream_name": t.name, "config": config})
        sub = await t.nc.subscribe(subject)
        got = await collect(sub, until=0.8, count=6)
        # Whether a flow control request falls into the first half second depends on the heartbeat's phase.
        said = {status for status in statuses(got) if "FlowControl" not in status}
        found.append((created["delivered"]["stream_seq"], created["num_pending"], deliveries(got), said))
        await sub.unsubscribe()
    found.append((await t.api(f"CONSUMER.NAMES.{t.name}"))["total"])
    found.append((await t.api(f"STREAM.INFO.{t.name}"))["state"]["consumer_count"])
    return found


async def key_value_watch(t: Table) -> Any:
    kv = await t.js.create_key_value(bucket=t.name, history=5)
    for key, value in (("a", b"1"), ("b", b"2"), ("a", b"3")):
        await kv.put(key, value)
    watcher = await kv.watchall()
    found: list[Any] = []
    async for update in watcher:
        found.append(None if update is None else (update.key, update.value, update.operation))
        if update is None:
            break
    await kv.put("c", b"4")
    await kv.delete("a")
    for _ in range(2):
        update = await watcher.updates(timeout=5)
        found.append((update.key, update.value, update.operation))
    await watcher.stop()
    history = [(entry.value, entry.operation) for entry in await kv.history("a")]
    return found, history, sorted(await kv.keys())


async def work_queue(t: Table) -> Any:
    await t.stream(retention="workqueue")
    await t.fill(4, "a")
    await t.fill(1, "b")
    await t.consumer("A", ack_policy="explicit", filter_subject=f"{t.name}.a")
    errors = [
        (await t.consumer("B", ack_policy="explicit"))["error"]["err_code"],
        (await t.consumer("B", ack_policy="explicit", filter_subject=f"{t.name}.*"))["error"]["err_code"],
        (await t.consumer("B", ack_policy="explicit", filter_subject=f"{t.name}.b", deliver_policy="new"))["error"][
            "err_code"
        ],
    ]
    for msg in await t.pull(b"3", name="A"):
        await msg.ack_sync()

    async def one_left() -> bool:
        return bool((await t.api(f"STREAM.INFO.{t.name}"))["state"]["messages"] == 2)

    await t.expect(one_left)
    return errors, (await t.info("A"))["num_pending"]


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
    refusals,
    refused_updates,
    defaults,
    names_list_delete,
    deleting_tells_those_who_wait,
    ephemeral_goes_by_itself,
    hidden_consumer_of_a_mirror,
    key_value_watch,
    work_queue,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_the_same_as_nats_server(scenario: Scenario, eyotd: ServerProcess, nats_server: ServerProcess) -> None:
    ours, theirs = play_on_both((eyotd, nats_server), scenario, scenario.__name__.replace("_", "-"))
    assert ours == theirs


# -- across accounts -----------------------------------------------------------------------------------------------

TWO_ACCOUNTS = """jetstream { store_dir: %WORKDIR%/js }
accounts {
  OWNER {
    users: [{ user: owner, password: owner }]
    jetstream: enabled
    exports: [
      { service: "$JS.API.>", response: stream }
      { service: "$JS.ACK.>" }
      { service: "$JS.FC.>" }
      { stream: "deliver.>" }
    ]
  }
  GUEST {
    users: [{ user: guest, password: guest }]
    imports: [
      { service: { account: OWNER, subject: "$JS.API.>" }, to: "JS.owner.API.>" }
      { service: { account: OWNER, subject: "$JS.ACK.>" } }
      { service: { account: OWNER, subject: "$JS.FC.>" } }
      { stream: { account: OWNER, subject: "deliver.>" } }
    ]
  }
}
"""


def test_pulling_and_being_pushed_across_accounts(tmp_path: Path) -> None:
    found = []
    for kind in (Eyotd, NatsServer):
        with kind(TWO_ACCOUNTS, tmp_path / kind.name) as server:
            found.append(asyncio.run(_across_accounts(server)))
    assert found[0] == found[1]


async def _across_accounts(server: ServerProcess) -> Any:
    owner = await nats.connect(server.client_url("owner"))
    guest = await nats.connect(server.client_url("guest"))
    js, borrowed = owner.jetstream(), guest.jetstream(prefix="JS.owner.API")
    await js.add_stream(name="S", subjects=["s.>"])
    for i in range(5):
        await js.publish("s.x", b"%d" % i)
    sub = await borrowed.pull_subscribe("s.>", durable="C", stream="S")
    pulled = await sub.fetch(3, timeout=5)
    for msg in pulled:
        await msg.ack_sync(timeout=5)
    found = [(msg.subject, msg.data) for msg in pulled], (await js.consumer_info("S", "C")).num_ack_pending
    listener = await guest.subscribe("deliver.z")
    config = ConsumerConfig(
        durable_name="P",
        deliver_subject="deliver.z",
        ack_policy=AckPolicy.EXPLICIT,
        flow_control=True,
        idle_heartbeat=0.5,
    )
    await borrowed.add_consumer("S", config)
    pushed = [await listener.next_msg(timeout=5) for _ in range(5)]
    for msg in pushed:
        await guest.request(msg.reply, b"+ACK", timeout=5)
    heartbeat = await listener.next_msg(timeout=5)
    acked = (await js.consumer_info("S", "P")).num_ack_pending
    await owner.close()
    await guest.close()
    return found, [(msg.subject, msg.data) for msg in pushed], acked, statuses([heartbeat])


# -- only eyotd ----------------------------------------------------------------------------------------------------


async def many_filters(t: Table) -> Any:
    """2.10."""
    await t.stream()
    for subject in ("a", "b", "c", "a"):
        await t.fill(1, subject)
    config = ConsumerConfig(
        durable_name="C", filter_subjects=[f"{t.name}.a", f"{t.name}.c"], ack_policy=AckPolicy.EXPLICIT
    )
    info = await t.js.add_consumer(t.name, config)
    sub = await t.js.pull_subscribe_bind("C", t.name)
    return info.num_pending, seqs(await sub.fetch(3, timeout=5))


async def pause_and_resume(t: Table) -> Any:
    """2.11."""
    await t.stream()
    await t.fill(1)
    await t.consumer(ack_policy="explicit")
    paused = await t.api(f"CONSUMER.PAUSE.{t.name}.C", {"pause_until": "2100-01-01T00:00:00Z"})
    nothing = await t.pull({"batch": 1, "expires": S // 4}, until=0.5)
    await t.api(f"CONSUMER.PAUSE.{t.name}.C")
    return paused["paused"], statuses(nothing), seqs(await t.pull({"batch": 1, "expires": S}))


async def missing_consumer_has_no_responders(t: Table) -> Any:
    """2.10: nobody responds; before, the request timed out."""
    await t.stream()
    return statuses(await t.pull(b"1", name="none"))


@pytest.mark.parametrize(
    ("scenario", "found"),
    [
        (many_filters, (3, [1, 3, 4])),
        (pause_and_resume, (True, ["408 Request Timeout"], [1])),
        (missing_consumer_has_no_responders, ["503"]),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_newer_than_debian(scenario: Scenario, found: Any, eyotd: ServerProcess) -> None:
    assert play(eyotd, scenario, scenario.__name__.replace("_", "-")) == found


def test_acknowledged_messages_stay_acknowledged_through_a_power_cut(tmp_path: Path) -> None:
    with Eyotd(CONFIG, tmp_path) as server:
        asyncio.run(_power_cut(server))


async def _power_cut(server: ServerProcess) -> None:
    nc = await nats.connect(server.client_url(), max_reconnect_attempts=-1, reconnect_time_wait=0.05)
    js = nc.jetstream()
    await js.add_stream(name="S", subjects=["s"])
    for i in range(20):
        await js.publish("s", b"%d" % i)
    await js.add_consumer(
        "S",
        ConsumerConfig(durable_name="C", ack_policy=AckPolicy.EXPLICIT, ack_wait=2, deliver_policy=DeliverPolicy.ALL),
    )
    sub = await js.pull_subscribe_bind("C", "S")
    got = await sub.fetch(10, timeout=5)
    for msg in got[::2]:
        await msg.ack_sync()
    server.kill()
    server.start()
    async with asyncio.timeout(10):
        while nc.stats["reconnects"] == 0:  # until then requests go to the dead connection
            await asyncio.sleep(0.02)
    info = await js.consumer_info("S", "C")
    assert (info.num_ack_pending, info.num_pending) == (5, 10)
    again: list[tuple[int, int]] = []
    async with asyncio.timeout(30):
        while len(again) < 15:
            try:
                for msg in await sub.fetch(15, timeout=3):
                    again.append((msg.metadata.sequence.stream, msg.metadata.num_delivered))
                    await msg.ack_sync()
            except NatsTimeout:
                pass
    assert sorted(again) == [(seq, 2) for seq in range(2, 11, 2)] + [(seq, 1) for seq in range(11, 21)]
    assert (await js.consumer_info("S", "C")).num_ack_pending == 0
    await nc.close()
