"""Power cuts at any point between a bridge, its store and its remote: what was stored arrives, with QoS 2 exactly once.

The bridge, the store and the protocol are real; the remote is a model of a broker that keeps its session, and bytes on
their way are lost with a connection. A seed decides every step.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from eyot_daemon.bridge.bridge import Bridge
from eyot_daemon.config.bridges import BridgeOptions
from eyot_daemon.config.leaf import LeafUrl
from eyot_sync.bridge.connection import BridgeConnection
from eyot_sync.link.dialer import TcpDialer
from eyot_wire.mqtt import encoder
from eyot_wire.mqtt.packets import Connack, Connect, Packet, Publish, Pubrel
from eyot_wire.mqtt.properties import Properties
from eyot_wire.mqtt.reader import PacketReader
from eyot_wire.mqtt.reason_codes import ReasonCode
from support.jetstream.damage import damage
from support.jetstream.fixture import Fixture

V5 = 5
MESSAGES = 40
STEPS = 250
SEEDS = 20


class Remote:
    """A broker with one session: `got` is what it owns, in order; `held` the identifiers that are not released."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.got: list[bytes] = []
        self.held: set[int] = set()
        self.refuses = True
        self.known = False
        self.connect()

    def connect(self) -> None:
        self._reader = PacketReader(1 << 20, connect_bytes_max=1 << 20)

    def read(self, data: bytes) -> bytes:
        """Return the answers."""
        return b"".join(self._answer(packet) for packet in self._reader.feed(data))

    def _answer(self, packet: Packet) -> bytes:
        if isinstance(packet, Connect):
            present, self.known = self.known, True
            return encoder.connack(V5, Connack(present, ReasonCode.SUCCESS, Properties(receive_maximum=5)))
        if isinstance(packet, Publish):
            return self._publish(packet)
        if isinstance(packet, Pubrel):
            known = packet.packet_id in self.held
            self.held.discard(packet.packet_id)
            return encoder.pubcomp(V5, packet.packet_id, 0 if known else ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
        return b""

    def _publish(self, packet: Publish) -> bytes:
        refused = self.refuses and self._rng.random() < 0.2 and packet.packet_id not in self.held
        reason = ReasonCode.QUOTA_EXCEEDED if refused else ReasonCode.SUCCESS
        if packet.qos == 1:
            if not refused:
                self.got.append(packet.payload)
            return encoder.puback(V5, packet.packet_id, reason)
        if not refused and packet.packet_id not in self.held:
            self.held.add(packet.packet_id)
            self.got.append(packet.payload)
        return encoder.pubrec(V5, packet.packet_id, reason)


class Gateway:
    """A gateway that crashes, and its remote that does not."""

    def __init__(self, path: Path, qos: int, seed: int) -> None:
        self.rng = random.Random(seed)
        self.remote = Remote(self.rng)
        url = LeafUrl(scheme="mqtt", host="remote", port=1883)
        self.options = BridgeOptions(
            name="cloud", urls=(url,), client_id="gw", streams=("S",), qos=qos, inflight_max=8, retry_s=0.5
        )
        self.fixture = Fixture(path)
        self.fixture.create("S", subjects=["s.>"])
        self.published = 0
        self.begin()

    def begin(self) -> None:
        fixture = self.fixture
        fixture.broker.rng = self.rng
        dialer = TcpDialer(self.rng)
        self.bridge = Bridge(
            fixture.broker, self.options, dialer, env={}, jetstream=lambda: fixture.jsa, sessions=self.no_sessions
        )
        self.connection: BridgeConnection | None = None
        self.to_remote = self.to_bridge = b""

    def no_sessions(self) -> None:  # type: ignore[override]
        raise AssertionError("nothing comes in")

    # -- steps -------------------------------------------------------------------------------------------------------

    def publish(self) -> None:
        for _ in range(self.rng.randrange(1, 9)):
            if self.published < MESSAGES:
                self.published += 1
                self.fixture.put(b"s.a", b"%d" % self.published)

    def connect(self) -> None:
        if self.connection is None:
            self.remote.connect()
            self.connection = self.bridge.begin_connection(None, None)
            self.bridge.pump(self.connection)
            self.to_remote = self.to_bridge = b""

    def disconnect(self) -> None:
        """What is on its way is lost, also in the middle of a packet."""
        if self.connection is not None:
            cut = self.rng.randrange(len(self.to_remote) + 1)
            self.remote.read(self.to_remote[:cut])
            self.bridge.connection_over()
            self.connection = None
            self.to_remote = self.to_bridge = b""

    def send(self) -> None:
        if self.connection is not None:
            self.bridge.pump(self.connection)
            self.to_remote += self.connection.take_output()

    def carry(self) -> None:
        size = self.rng.randrange(1, 200)
        data, self.to_remote = self.to_remote[:size], self.to_remote[size:]
        self.to_bridge += self.remote.read(data)

    def receive(self) -> None:
        if self.connection is not None:
            size = self.rng.randrange(1, 60)
            data, self.to_bridge = self.to_bridge[:size], self.to_bridge[size:]
            now = self.fixture.clock.monotonic()
            self.bridge.handle(self.connection, self.connection.receive(data, now))

    def end_turn(self) -> None:
        self.fixture.broker.flush()

    def commit(self) -> None:
        self.fixture.commit()

    def wait(self) -> None:
        self.fixture.clock.advance(self.rng.choice((0.1, 0.3, 1.0)))
        self.fixture.broker.timers.run_due(self.fixture.clock.monotonic())

    def crash(self) -> None:
        """The power goes: what is not committed is gone, and so is the connection."""
        if self.connection is not None:
            self.remote.read(self.to_remote)
        self.fixture.broker.flush()
        self.fixture.store.crash()
        self.start()

    def stop(self) -> None:
        """The daemon ends before what it sent has reached the remote."""
        self.fixture.js.stop()
        self.fixture.store.close()

    def start(self) -> None:
        self.fixture = Fixture(self.fixture.path, clock=self.fixture.clock)
        self.begin()

    def step(self) -> None:
        often = [self.connect, self.send, self.carry, self.receive, self.receive, self.end_turn, self.commit, self.wait]
        self.rng.choice([*often * 3, self.publish, self.disconnect, self.crash])()

    def finish(self) -> None:
        """Everything is published and arrives."""
        self.remote.refuses = False
        while self.published < MESSAGES:
            self.publish()
        for _ in range(3000):
            for step in (self.connect, self.send, self.carry, self.receive, self.commit, self.wait):
                step()
            (status,) = self.fixture.stream().downstream.statuses()
            if status.confirmed_seq == MESSAGES:
                return
        raise AssertionError(f"{status.confirmed_seq} of {MESSAGES} are confirmed")


@pytest.mark.parametrize("qos", [1, 2])
def test_power_cuts_at_any_point(qos: int, tmp_path: Path) -> None:
    wanted = [b"%d" % number for number in range(1, MESSAGES + 1)]
    for seed in range(SEEDS):
        gateway = Gateway(tmp_path / str(seed), qos, seed)
        for _ in range(STEPS):
            gateway.step()
        gateway.finish()
        got = gateway.remote.got
        assert set(got) == set(wanted), seed
        if qos == 2:
            assert len(got) == MESSAGES, (seed, sorted(each for each in wanted if got.count(each) > 1))
        gateway.stop()


@pytest.mark.parametrize("was_read", [False, True])
def test_a_damaged_message_on_its_way_is_counted_unless_it_arrives(was_read: bool, tmp_path: Path) -> None:
    """Its identifier is known from before the restart, and is cleared at the remote."""
    gateway = Gateway(tmp_path, 2, 0)
    gateway.connect()
    while not gateway.remote.known or gateway.to_bridge:
        for step in (gateway.send, gateway.carry, gateway.receive, gateway.commit):
            step()
    for gateway.published in (1, 2, 3):
        gateway.fixture.put(b"s.a", b"payload %d." % gateway.published)
    while b"payload 3." not in gateway.to_remote:
        gateway.commit()
        gateway.send()
    gateway.stop()
    if was_read:
        gateway.start()
    damage(gateway.fixture, b"payload 2.")
    if not was_read:
        gateway.start()
    gateway.finish()
    (status,) = gateway.fixture.stream().downstream.statuses()
    assert [(each.messages, each.sequences) for each in status.lost] == ([] if was_read else [(1, ["2"])])
    assert gateway.remote.got[:3] == [b"payload 1.", *[b"payload 2."] * was_read, b"payload 3.", b"4"][:3]
    assert not gateway.remote.held
