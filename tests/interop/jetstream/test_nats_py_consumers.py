"""The consumer API as nats-py sees it, on eyotd and on Debian's nats-server, and what only eyotd can be asked.

Where the versions differ (nats-server 2.9.10 here, behaviour of 2.14 announced by eyotd), a scenario leaves the
difference out or is only played on eyotd (test_nats_py_consumers.py); each says why.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.errors import TimeoutError as NatsTimeout
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from support.clients.nats_py import Scenario, Table, collect, deliveries, play, play_on_both, seqs, statuses
from support.servers.eyotd import Eyotd
from support.servers.nats_server import NatsServer
from support.servers.server_process import ServerProcess

CONFIG = "jetstream { store_dir: %WORKDIR%/js }\n"
S = 1_000_000_000


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
        config.pop("name", None)  # 2.14 shows what a durable consumer's creation names
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
    again: dict[int, int] = {}  # by sequence: how often it had been delivered when it came first
    async with asyncio.timeout(30):
        while len(again) < 15:
            try:
                for msg in await sub.fetch(15, timeout=3):
                    again.setdefault(msg.metadata.sequence.stream, msg.metadata.num_delivered)
                    await msg.ack_sync()
            except NatsTimeout:
                pass
    # On a busy machine a batch may outlast ack_wait before its end is read: that comes once more then.
    assert sorted(again) == [*range(2, 11, 2), *range(11, 21)]
    assert all(again[seq] >= 2 for seq in range(2, 11, 2))
    assert (await js.consumer_info("S", "C")).num_ack_pending == 0
    await nc.close()
