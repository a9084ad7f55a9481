"""Retained messages: the newest of each subject, bounds, replays in slices, expiry."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

import pytest

from eyot_daemon.mqtt.retained_store import SLICE_MESSAGES, Coming, Replay
from eyot_daemon.mqtt.store_streams import MqttStoreOptions
from eyot_store import StoreOptions
from eyot_store.errors import StoreError
from support.jetstream.damage import damage
from support.jetstream.fixture import header_block
from support.mqtt.fixture import MqttFixture

LARGE = StoreOptions(inline=True, flush=False, map_size=256 << 20)


@pytest.fixture
def fixture(tmp_path: Path) -> MqttFixture:
    return MqttFixture(tmp_path)


class Subscriber:
    """A receiver of replays."""

    def __init__(self, fixture: MqttFixture) -> None:
        self.fixture = fixture
        self.over = False
        self.ready = True
        self.got: list[tuple[bytes, bytes]] = []
        self.most_in_a_turn = 0
        self.slowest_turn_s = 0.0
        self.ended = False

    def message(self, subject: bytes, header: bytes, payload: bytes) -> None:
        self.got.append((subject, payload))
        self.fixture.clock.advance(1e-6)  # as in the daemon: what is set meanwhile is due in a later turn

    def replay(self, *filters: bytes) -> Replay:
        return self.fixture.mqtt.retained.replay(filters, self, self._done)

    def _done(self) -> None:
        self.ended = True

    def run(self) -> list[tuple[bytes, bytes]]:
        """Run turns until the replay has ended."""
        timers, clock = self.fixture.broker.timers, self.fixture.clock
        for _ in range(100_000):
            if self.ended:
                return self.got
            before, begun = len(self.got), perf_counter()
            timers.run_due(clock.monotonic())
            self.slowest_turn_s = max(self.slowest_turn_s, perf_counter() - begun)
            self.most_in_a_turn = max(self.most_in_a_turn, len(self.got) - before)
            self.fixture.commit()
        raise AssertionError("the replay does not end")


def replayed(fixture: MqttFixture, *filters: bytes) -> list[tuple[bytes, bytes]]:
    subscriber = Subscriber(fixture)
    subscriber.replay(*filters)
    return subscriber.run()


def test_the_newest_of_each_subject_is_replayed_oldest_first(fixture: MqttFixture) -> None:
    for number, subject in enumerate((b"a.b", b"a.c", b"a.b", b"x")):
        fixture.retain(subject, b"%d" % number)
    fixture.run()
    assert replayed(fixture, b">") == [(b"a.c", b"1"), (b"a.b", b"2"), (b"x", b"3")]
    assert replayed(fixture, b"a.*") == [(b"a.c", b"1"), (b"a.b", b"2")]
    assert replayed(fixture, b"a.b", b"x", b"none") == [(b"a.b", b"2"), (b"x", b"3")]
    assert replayed(fixture, b"a", b"a.>") == [(b"a.c", b"1"), (b"a.b", b"2")]


def test_an_empty_payload_removes(fixture: MqttFixture) -> None:
    fixture.retain(b"a.b", b"1")
    fixture.retain(b"a.c", b"2")
    fixture.retain(b"a.b", b"")
    fixture.retain(b"none", b"")
    fixture.run()
    assert fixture.results == [""] * 5
    fixture.retain(b"a.c", b"")
    fixture.run()
    fixture = fixture.reopened(crash=True)
    assert replayed(fixture, b">") == []


def test_a_damaged_one_is_left_out_and_takes_no_other_along(fixture: MqttFixture) -> None:
    expires = header_block({"Nats-TTL": "5s"})
    for number in range(1, 5):
        fixture.retain(b"a.%d" % number, b"payload %d." % number, expires if number > 2 else b"")
    fixture.run()
    fixture = fixture.reopened(crash=False)
    damage(fixture, b"payload 1.", b"payload 3.")
    left = [(b"a.2", b"payload 2."), (b"a.4", b"payload 4.")]
    for filters in ((b">",), (b"a.3", b"a.1", b"a.2", b"a.4")):
        assert replayed(fixture, *filters) == left
    found, seq = [], 1
    while seq <= fixture.mqtt.retained.stream.log.committed_seq:
        some, seq = fixture.mqtt.retained.slice_of([b">"], seq, 9, 999)
        found += some
    assert [each.payload for each in found] == [payload for _, payload in left]
    fixture.clock.advance(6)
    fixture.broker.timers.run_due(fixture.clock.monotonic())
    fixture.run()
    assert replayed(fixture, b">") == left[:1]


def test_a_full_store_refuses_new_subjects_and_replaces_known_ones(tmp_path: Path) -> None:
    fixture = MqttFixture(tmp_path, mqtt=MqttStoreOptions(retained_msgs=2))
    for subject in (b"a", b"b", b"c"):
        fixture.retain(subject, b"1")
        fixture.run()
    assert fixture.results[1:3] == ["", ""]
    assert "maximum messages exceeded" in fixture.results[3]
    fixture.retain(b"b", b"2")
    fixture.run()
    assert fixture.results[4] == ""
    assert replayed(fixture, b">") == [(b"a", b"1"), (b"b", b"2")]


def test_a_replay_is_in_slices_and_waits_for_its_receiver(fixture: MqttFixture) -> None:
    for number in range(1000):
        fixture.retain(b"a.%d" % number, b"%d" % number)
    fixture.run()
    subscriber = Subscriber(fixture)
    replay = subscriber.replay(b">")
    fixture.broker.timers.run_due(fixture.clock.monotonic())
    assert len(subscriber.got) == SLICE_MESSAGES
    subscriber.ready = False
    for _ in range(5):
        fixture.broker.timers.run_due(fixture.clock.monotonic())
    assert len(subscriber.got) == SLICE_MESSAGES
    subscriber.ready = True
    replay.resume()
    fixture.broker.timers.run_due(fixture.clock.monotonic())
    assert len(subscriber.got) == 2 * SLICE_MESSAGES
    # What changes meanwhile: removed ones are left out, new ones are not part of it.
    fixture.retain(b"a.999", b"")
    fixture.retain(b"a.998", b"new")
    fixture.commit()
    assert subscriber.run()[-1] == (b"a.997", b"997")
    assert len(subscriber.got) == 998


def test_what_is_on_its_way_to_flash_is_replayed_from_memory_in_place_of_what_is_there(fixture: MqttFixture) -> None:
    for subject in (b"a.replaced", b"a.removed", b"a.kept", b"b"):
        fixture.retain(subject, b"old")
    fixture.run()
    retained = fixture.mqtt.retained
    first, second = Coming(b"a.replaced", b"", b"first"), Coming(b"a.replaced", b"", b"second")
    expired = Coming(b"a.expired", expiring(fixture, -1.0), b"x")
    for coming in (first, second, Coming(b"a.removed", b"", b""), expired, Coming(b"b", b"", b"new")):
        retained.coming(coming)
    retained.settled(first)  # an older one, whose commit says nothing about the newer
    assert replayed(fixture, b"a.*") == [(b"a.kept", b"old"), (b"a.replaced", b"second")]
    assert replayed(fixture, b"a.replaced") == [(b"a.replaced", b"second")]
    assert replayed(fixture, b"a.removed") == []
    retained.settled(second)
    assert replayed(fixture, b"a.replaced") == [(b"a.replaced", b"old")]


def test_what_is_on_its_way_to_flash_is_replayed_in_slices(fixture: MqttFixture) -> None:
    for number in range(SLICE_MESSAGES + 1):
        fixture.mqtt.retained.coming(Coming(b"a.%d" % number, b"", b"%d" % number))
    subscriber = Subscriber(fixture)
    subscriber.replay(b"a.>")
    assert len(subscriber.run()) == SLICE_MESSAGES + 1
    assert subscriber.most_in_a_turn == SLICE_MESSAGES


def test_a_replay_ends_with_its_receiver(fixture: MqttFixture) -> None:
    for number in range(600):
        fixture.retain(b"a.%d" % number, b"x")
    fixture.run()
    subscriber = Subscriber(fixture)
    subscriber.replay(b">")
    fixture.broker.timers.run_due(fixture.clock.monotonic())
    subscriber.over = True
    for _ in range(10):
        fixture.broker.timers.run_due(fixture.clock.monotonic())
    assert len(subscriber.got) == SLICE_MESSAGES
    assert not subscriber.ended


def expiring(fixture: MqttFixture, seconds: float) -> bytes:
    return header_block({"Eyot-Mqtt-Expires": str(fixture.clock.now_ns() + int(seconds * 1e9))})


def test_expired_messages_are_removed_when_they_are_due(fixture: MqttFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    fixture.retain(b"a", b"1", expiring(fixture, 10))
    fixture.retain(b"b", b"1", expiring(fixture, 5))
    fixture.retain(b"c", b"1")
    fixture.retain(b"d", b"1", expiring(fixture, 30))
    fixture.run()
    fixture.retain(b"b", b"2", expiring(fixture, 100))
    fixture.run()
    with monkeypatch.context() as full:  # what a full disk does not remove is removed when there is room
        committer = fixture.store._committer
        full.setattr(committer, "commit", lambda group: [StoreError("full", "as expected")] * len(group))
        fixture.advance(11.0)
        assert [payload for _, payload in fixture.held("$MQTT_rmsgs")] == [b"1", b"1", b"1", b"2"]
    fixture.advance(1.0)
    assert [payload for _, payload in fixture.held("$MQTT_rmsgs")] == [b"1", b"1", b"2"]
    fixture.advance(19.0)
    assert [payload for _, payload in fixture.held("$MQTT_rmsgs")] == [b"1", b"2"]
    assert replayed(fixture, b">") == [(b"c", b"1"), (b"b", b"2")]
    fixture = fixture.reopened(crash=True)
    fixture.advance(50.0)
    fixture.advance(50.0)
    assert replayed(fixture, b">") == [(b"c", b"1")]


def test_a_replay_skips_and_removes_what_has_expired(fixture: MqttFixture) -> None:
    fixture.retain(b"a", b"1", expiring(fixture, 10))
    fixture.retain(b"c", b"1")
    fixture.run()
    fixture.clock.advance(11)  # no timer ran yet
    subscriber = Subscriber(fixture)
    fixture.mqtt.retained.stop()
    subscriber.replay(b">")
    assert subscriber.run() == [(b"c", b"1")]
    fixture.commit()
    assert len(fixture.held("$MQTT_rmsgs")) == 1


@pytest.mark.slow
def test_a_hundred_thousand_retained_messages_hold_up_nobody(tmp_path: Path) -> None:
    fixture = MqttFixture(tmp_path, store_options=LARGE)
    for number in range(100_000):
        fixture.retain(b"site.%d.sensor.%d" % (number // 100, number), b"x" * 64)
        if number % 1000 == 999:
            fixture.commit()
    fixture.run()
    subscriber = Subscriber(fixture)
    begun = perf_counter()
    subscriber.replay(b">")
    assert len(subscriber.run()) == 100_000
    print(f"{perf_counter() - begun:.2f} s, slowest turn {subscriber.slowest_turn_s * 1000:.1f} ms")
    assert subscriber.most_in_a_turn <= SLICE_MESSAGES
