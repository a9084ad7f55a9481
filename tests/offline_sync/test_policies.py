"""`eyot { sync { } }`: important streams go first; rates, windows and budgets are kept; status names what each stream waits for."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path

import trio
import trio.testing

from eyot_daemon.leaf.status import link_statuses
from eyot_daemon.router.sync_control import SyncControl
from eyot_sync.policy.policy import MeteredPolicy, RemotePolicy, StreamPolicy, StreamRule, SyncPolicies
from eyot_sync.policy.windows import Window
from eyot_wire.status import LinkStatus
from offline_sync.slow_fixture import SlowLinkFixture, slow_link_fixture


def streams(**policies: StreamPolicy) -> SyncPolicies:
    return SyncPolicies(streams=tuple(StreamRule(name=name, policy=policy) for name, policy in policies.items()))


def metered(budget: int, **options: object) -> SyncPolicies:
    policy = MeteredPolicy(budget=budget, **options)  # type: ignore[arg-type]
    return SyncPolicies(remotes=(RemotePolicy(host="hub", port=7422, metered=policy),))


def minute_of_day(fixture: SlowLinkFixture, later_s: float = 0.0) -> int:
    now = datetime.fromtimestamp(fixture.leaf.clock.now_ns() / 1e9 + later_s)
    return now.hour * 60 + now.minute


def link_of(fixture: SlowLinkFixture) -> LinkStatus:
    return next(each for each in link_statuses(fixture.leaf.broker.links) if each.role == "spoke")


def waiting(fixture: SlowLinkFixture, stream: str) -> str | None:
    found = fixture.leaf.stream(stream)
    assert found is not None
    return next((each.waiting for each in found.downstream.statuses()), None)


async def test_the_important_goes_first_however_much_waits(autojump_clock: trio.testing.MockClock) -> None:
    policies = streams(ALARM=StreamPolicy(priority=9), LOG=StreamPolicy(priority=1))
    async with slow_link_fixture(policies) as fixture:
        await fixture.start()
        for name in ("LOG", "PLAIN", "ALARM"):
            await fixture.stream(name, subjects=[f"{name.lower()}.>"])
        fixture.publish("log.a", b"l" * 1000, 300)
        fixture.publish("plain.a", b"p" * 1000, 200)
        for name in ("LOG", "PLAIN", "ALARM"):
            await fixture.copy(f"{name}S", name)
        await trio.sleep(10)
        fixture.publish("alarm.a", b"a" * 500, 20)
        alarms_s = await fixture.until(lambda: fixture.last_seq(fixture.hub, "ALARMS") == 20, 60)
        assert alarms_s < 6, "10 kB at 6 kB/s, and what was under way"
        await fixture.until(lambda: fixture.last_seq(fixture.hub, "PLAINS") == 200, 120)
        assert fixture.last_seq(fixture.hub, "LOGS") < 40, "the log waits"
        await fixture.until(lambda: fixture.last_seq(fixture.hub, "LOGS") == 300, 120)
        assert link_of(fixture).dropped == {"full": 0, "too_large": 0}


async def test_equals_share_the_link(autojump_clock: trio.testing.MockClock) -> None:
    async with slow_link_fixture() as fixture:
        await fixture.start()
        for name in ("A", "B"):
            await fixture.stream(name, subjects=[f"{name.lower()}.>"])
            fixture.publish(f"{name.lower()}.x", b"x" * 1000, 200)
            await fixture.copy(f"{name}S", name)
        await fixture.until(lambda: fixture.last_seq(fixture.hub, "AS") == 200, 300)
        assert fixture.last_seq(fixture.hub, "BS") > 150


async def test_a_streams_bandwidth_is_kept(autojump_clock: trio.testing.MockClock) -> None:
    async with slow_link_fixture(streams(R=StreamPolicy(bandwidth=2000))) as fixture:
        await fixture.start(bytes_per_s=0)
        await fixture.stream("R", subjects=["r.>"])
        fixture.publish("r.a", b"x" * 1000, 100)
        await fixture.copy("ALL", "R")
        lasted_s = await fixture.until(lambda: fixture.last_seq(fixture.hub, "ALL") == 100, 120)
        assert 45 < lasted_s < 70, "112 kB at 2 kB/s"


async def test_a_stream_waits_for_its_window(autojump_clock: trio.testing.MockClock) -> None:
    async with slow_link_fixture() as fixture:
        await fixture.start(bytes_per_s=0)
        start = (minute_of_day(fixture) + 30) % 1440
        window = Window(frozenset(range(7)), start, (start + 10) % 1440)
        fixture.leaf.broker.sync.reload(streams(R=StreamPolicy(windows=(window,))))
        await fixture.stream("R", subjects=["r.>"])
        await fixture.stream("NOW", subjects=["now.>"])
        await fixture.copy("ALL", "R")
        await fixture.copy("NOWS", "NOW")
        fixture.publish("r.a", b"x", 100)
        fixture.publish("now.a", b"x", 100)
        await fixture.until(lambda: fixture.last_seq(fixture.hub, "NOWS") == 100, 10)
        asked = [task.source_consumer.progress.requests for task in fixture.hub.sourcing.tasks()]
        await trio.sleep(60)
        assert fixture.last_seq(fixture.hub, "ALL") == 0
        lags = {task.stream.name: task.report.info().lag for task in fixture.hub.sourcing.tasks()}
        assert lags == {"ALL": 100, "NOWS": 0}, "the leaf says what it holds back"
        waited_s = 60 + await fixture.until(lambda: fixture.last_seq(fixture.hub, "ALL") == 100, 3600)
        assert 28 * 60 < waited_s < 31 * 60
        await trio.sleep(11 * 60)
        fixture.publish("r.a", b"late")
        await trio.sleep(60)
        assert fixture.last_seq(fixture.hub, "ALL") == 100
        assert waiting(fixture, "R") is not None
        requests = [task.source_consumer.progress.requests for task in fixture.hub.sourcing.tasks()]
        assert requests == asked, "readers are kept alive while they wait"
        # A reload that takes the window away is heard within half a minute.
        fixture.leaf.broker.sync.reload(SyncPolicies())
        await fixture.until(lambda: fixture.last_seq(fixture.hub, "ALL") == 101, 31)


async def test_a_remote_is_dialled_within_its_windows_only(autojump_clock: trio.testing.MockClock) -> None:
    async with slow_link_fixture() as fixture:
        fixture.network.dialler("leaf")
        fixture.leaf.clock.offset_s = fixture.hub.clock.offset_s = 0.0
        start = (minute_of_day(fixture, 600)) % 1440
        window = Window(frozenset(range(7)), start, (start + 10) % 1440)
        remote = RemotePolicy(host="hub", port=7422, windows=(window,))
        fixture.leaf.policies = SyncPolicies(remotes=(remote,))
        await fixture.start(bytes_per_s=0)
        await trio.sleep(300)
        link = link_of(fixture)
        assert (link.state, link.attempts) == ("waiting", 0)
        assert link.waiting is not None
        assert link.waiting.startswith("outside its windows until ")
        waited_s = 300 + await fixture.until(lambda: link_of(fixture).state == "up", 600)
        assert 500 < waited_s < 640
        up_s = await fixture.until(lambda: link_of(fixture).state != "up", 700)
        assert 500 < up_s < 610
        await trio.sleep(5)
        assert (link_of(fixture).waiting or "").startswith("outside its windows")


async def test_a_budget_that_is_used_up_ends_the_link_until_the_next_month(
    autojump_clock: trio.testing.MockClock, tmp_path: Path
) -> None:
    async with slow_link_fixture(metered(300_000)) as fixture:
        await fixture.start(bytes_per_s=50_000)
        fixture.leaf.broker.sync.keep_in(tmp_path)
        fixture.nursery.start_soon(fixture.leaf.broker.sync.run)
        await fixture.stream("R", subjects=["r.>"])
        fixture.publish("r.a", b"x" * 1000, 1000)
        await fixture.copy("ALL", "R")
        await fixture.until(lambda: link_of(fixture).state == "up", 10)
        await fixture.until(lambda: link_of(fixture).state != "up", 60)
        link = link_of(fixture)
        now_s = fixture.leaf.clock.now_ns() / 1e9
        assert link.metered is not None
        assert 300_000 <= link.metered.spent_bytes < 400_000
        arrived = fixture.last_seq(fixture.hub, "ALL")
        assert 150 < arrived < 400
        await trio.sleep(120)
        assert (link_of(fixture).waiting or "").startswith("budget used up until 1 ")
        assert (waiting(fixture, "R") or "").startswith("budget used up until 1 ")
        spent = link_of(fixture).metered
        assert spent is not None
        assert spent.spent_bytes == link.metered.spent_bytes, "nothing is spent any more"
        # After a restart it is still used up: what is kept is never less than what was spent.
        (remote,) = fixture.leaf.broker.options.leafnodes.remotes
        for _ in range(200):
            again = SyncControl(fixture.leaf.clock, metered(300_000))
            again.keep_in(tmp_path)
            kept = again.metered_status(remote)
            assert kept is not None
            if kept.spent_bytes >= link.metered.spent_bytes:
                break
            await trio.to_thread.run_sync(time.sleep, 0.05)  # the file is written in a thread, in real time
        assert kept.spent_bytes >= link.metered.spent_bytes
        # A higher budget at a reload: the rest goes at once.
        fixture.leaf.broker.sync.reload(metered(3_000_000))
        await fixture.until(lambda: fixture.last_seq(fixture.hub, "ALL") == 1000, 60)
        # Next month, with the old one.
        fixture.leaf.broker.sync.reload(metered(300_000))
        await fixture.until(lambda: link_of(fixture).state != "up", 60)
        fixture.leaf.clock.offset_s += 32 * 86_400
        fixture.publish("r.a", b"next month")
        await fixture.until(lambda: fixture.last_seq(fixture.hub, "ALL") == 1001, 60)
        assert now_s


async def test_with_hold_the_link_stays_for_everything_but_streams(autojump_clock: trio.testing.MockClock) -> None:
    async with slow_link_fixture(metered(300_000, used_up="hold", reserve=150_000)) as fixture:
        await fixture.start(bytes_per_s=0)
        fixture.leaf.broker.sync.reload(
            SyncPolicies(
                streams=(StreamRule(name="ALARM", policy=StreamPolicy(priority=8)),),
                remotes=metered(300_000, used_up="hold", reserve=150_000).remotes,
            )
        )
        for name in ("R", "ALARM"):
            await fixture.stream(name, subjects=[f"{name.lower()}.>"])
            await fixture.copy(f"{name}S", name)
        fixture.publish("r.a", b"x" * 1000, 1000)
        await trio.sleep(60)
        held_at = fixture.last_seq(fixture.hub, "RS")
        assert 0 < held_at < 400
        spent = link_of(fixture).metered
        assert spent is not None
        assert 150_000 <= spent.spent_bytes < 170_000, "what waits for the link counts before it is sent"
        assert (waiting(fixture, "R") or "").startswith("budget used up but for its reserve until 1 ")
        fixture.publish("alarm.a", b"fire")
        await fixture.until(lambda: fixture.last_seq(fixture.hub, "ALARMS") == 1, 5)
        assert link_of(fixture).state == "up"


async def test_a_metered_link_is_asked_for_life_as_seldom_as_its_policy_says(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with slow_link_fixture(metered(10_000_000, ping_interval_s=300.0)) as fixture:
        await fixture.start(bytes_per_s=0)
        await trio.sleep(60)
        before = link_of(fixture).wire_out_bytes
        await trio.sleep(3600)
        # Its own PINGs, and answers to those of the hub, which it asked to be as patient.
        assert link_of(fixture).wire_out_bytes - before < 6 * 2 * (3600 / 300 + 1)
        assert link_of(fixture).state == "up"


async def test_a_copy_over_a_metered_link_hears_fewer_heartbeats_and_misses_none(
    autojump_clock: trio.testing.MockClock,
) -> None:
    spent: list[int] = []
    for policies in (SyncPolicies(), metered(100_000_000)):
        async with slow_link_fixture(policies) as fixture:
            await fixture.start(bytes_per_s=0)
            await fixture.stream("R", subjects=["r.>"])
            await fixture.copy("ALL", "R")
            await trio.sleep(60)
            before, asked = link_of(fixture).wire_out_bytes, link_of(fixture).in_msgs
            await trio.sleep(3600)
            spent.append(link_of(fixture).wire_out_bytes - before)
            assert link_of(fixture).in_msgs - asked < 10, "the copy has no reason to ask again"
            fixture.publish("r.a", b"late")
            await fixture.until(lambda fixture=fixture: fixture.last_seq(fixture.hub, "ALL") == 1, 2)
    assert spent[1] < spent[0] * 0.4


async def test_a_copy_that_reads_over_a_metered_link_asks_for_fewer_heartbeats(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with slow_link_fixture(SyncPolicies()) as fixture:
        await fixture.start(bytes_per_s=0)
        await _inbound(fixture, "R", count=10)
        await trio.sleep(60)

        async def heard_in_an_hour() -> int:
            before = link_of(fixture).wire_in_bytes
            await trio.sleep(3600)
            return link_of(fixture).wire_in_bytes - before

        plain = await heard_in_an_hour()
        fixture.leaf.broker.sync.reload(metered(100_000_000))
        await trio.sleep(60)
        (copy,) = fixture.leaf.sourcing.tasks()
        requests = copy.report.status().requests
        assert await heard_in_an_hour() < plain * 0.15
        assert copy.report.status().requests == requests, "silence is no reason to ask again"
        fixture.publish("r.a", b"late", at=fixture.hub)
        await fixture.until(lambda: fixture.last_seq(fixture.leaf, "RS") == 11, 2)
        # A consumer that is gone without a word is missed all the same.
        (stream,) = fixture.hub.js.streams()
        assert "error" not in await fixture.hub.request(f"CONSUMER.DELETE.R.{next(iter(stream.consumers))}")
        fixture.publish("r.a", b"later", at=fixture.hub)
        await fixture.until(lambda: fixture.last_seq(fixture.leaf, "RS") == 12, 50)


async def _inbound(fixture: SlowLinkFixture, *names: str, count: int = 100) -> None:
    """Streams at the hub that the leaf copies."""
    for name in names:
        body = {"name": name, "subjects": [f"{name.lower()}.>"]}
        assert "error" not in await fixture.hub.request(f"STREAM.CREATE.{name}", body)
        fixture.publish(f"{name.lower()}.a", b"x" * 1000, count, at=fixture.hub)
    for name in names:
        await fixture.copy(f"{name}S", name, at=fixture.leaf, domain="hub")


async def test_what_is_read_over_a_link_keeps_its_bandwidth(autojump_clock: trio.testing.MockClock) -> None:
    async with slow_link_fixture(streams(RS=StreamPolicy(bandwidth=2000))) as fixture:
        await fixture.start(bytes_per_s=0)
        await _inbound(fixture, "R")
        lasted_s = await fixture.until(lambda: fixture.last_seq(fixture.leaf, "RS") == 100, 120)
        assert 45 < lasted_s < 75, "112 kB at 2 kB/s"


async def test_what_is_read_over_a_link_waits_for_its_window(autojump_clock: trio.testing.MockClock) -> None:
    async with slow_link_fixture() as fixture:
        await fixture.start(bytes_per_s=0)
        start = (minute_of_day(fixture) + 30) % 1440
        window = Window(frozenset(range(7)), start, (start + 10) % 1440)
        fixture.leaf.broker.sync.reload(streams(RS=StreamPolicy(windows=(window,))))
        await _inbound(fixture, "R", "NOW")
        await fixture.until(lambda: fixture.last_seq(fixture.leaf, "NOWS") == 100, 10)
        await trio.sleep(60)
        assert fixture.last_seq(fixture.leaf, "RS") == 0
        (held,) = [task.report.status() for task in fixture.leaf.sourcing.tasks() if task.stream.name == "RS"]
        assert (held.waiting or "").startswith("outside its windows until ")
        waited_s = 60 + await fixture.until(lambda: fixture.last_seq(fixture.leaf, "RS") == 100, 3600)
        assert 28 * 60 < waited_s < 31 * 60
        await trio.sleep(11 * 60)
        fixture.publish("r.a", b"late", at=fixture.hub)
        await trio.sleep(60)
        assert fixture.last_seq(fixture.leaf, "RS") == 100
        fixture.leaf.broker.sync.reload(SyncPolicies())
        await fixture.until(lambda: fixture.last_seq(fixture.leaf, "RS") == 101, 61)


async def test_a_more_important_copy_goes_first(autojump_clock: trio.testing.MockClock) -> None:
    async with slow_link_fixture(streams(AS=StreamPolicy(priority=9), BS=StreamPolicy(priority=1))) as fixture:
        await fixture.start(bytes_per_s=50_000)
        await _inbound(fixture, "A", "B", count=3000)
        await fixture.until(lambda: fixture.last_seq(fixture.leaf, "AS") > 2700, 300)
        assert fixture.last_seq(fixture.leaf, "BS") < 1500
        await fixture.until(lambda: fixture.last_seq(fixture.leaf, "BS") == 3000, 300)
        # What its origin holds back does not catch up: nobody waits for it.
        closed = Window(frozenset(range(7)), (minute_of_day(fixture) + 30) % 1440, (minute_of_day(fixture) + 40) % 1440)
        fixture.hub.broker.sync.reload(streams(A=StreamPolicy(windows=(closed,))))
        fixture.publish("a.a", b"held", 300, at=fixture.hub)
        await trio.sleep(60)
        (important,) = [task.report.info() for task in fixture.leaf.sourcing.tasks() if task.stream.name == "AS"]
        assert important.lag == 300
        fixture.publish("b.a", b"late", at=fixture.hub)
        await fixture.until(lambda: fixture.last_seq(fixture.leaf, "BS") == 3001, 10)


async def test_a_used_up_budget_holds_what_is_read_too(autojump_clock: trio.testing.MockClock) -> None:
    async with slow_link_fixture(metered(300_000, used_up="hold")) as fixture:
        await fixture.start(bytes_per_s=50_000)
        await _inbound(fixture, "R", count=2000)
        await trio.sleep(120)
        held_at = fixture.last_seq(fixture.leaf, "RS")
        assert 0 < held_at < 2000
        (held,) = [task.report.status() for task in fixture.leaf.sourcing.tasks()]
        assert (held.waiting or "").startswith("budget used up until 1 ")
        fixture.leaf.broker.sync.reload(SyncPolicies())
        await fixture.until(lambda: fixture.last_seq(fixture.leaf, "RS") == 2000, 120)
