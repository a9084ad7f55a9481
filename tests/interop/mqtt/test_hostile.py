"""MQTT peers that do what they should not: each is refused or closed, bounded, and nobody else notices."""

from __future__ import annotations

import json
import random
import socket
import struct
import time
from collections.abc import Callable, Iterator

import pytest

from eyot_wire.mqtt import encoder
from eyot_wire.mqtt.packet_types import PacketType
from eyot_wire.mqtt.packets import Connect, SubscriptionRequest
from eyot_wire.mqtt.properties import Properties
from support.clients.raw_client import RawClient
from support.clients.unknown_peers import own_bytes, push
from support.mqtt.raw_mqtt import Closed, RawMqtt
from support.servers.counted_eyotd import CountedEyotd

CONFIG = """
server_name: mqtt
jetstream { store_dir: "%WORKDIR%/js", max_buffered_size: 8M }
authorization {
    users: [ { user: alice, password: a }, { user: bob, password: b }, { user: eve, password: e,
               permissions: { publish: "eve.>", subscribe: "eve.>" } } ]
    timeout: 60
}
mqtt { listen: "127.0.0.1:%LEAF_PORT%" }
eyot { mqtt { session_queue_msgs: 2000, retained_msgs_max: 3000, max_sessions: 300 } }
"""
MIB = 1 << 20
#: What the allocator keeps for later, and the caches of the first of a kind.
SLACK = 24 * MIB
TOO_LARGE, QUOTA = 0x95, 0x97


class Server:
    """The server with a pair of well-behaved clients, whose messages must arrive whatever others do."""

    def __init__(self, eyotd: CountedEyotd) -> None:
        self.eyotd = eyotd
        self._said = 0
        self._hears = self.client(level=5)
        self._hears.connect("hears", user="alice", password=b"a")
        assert self._hears.subscribe("innocent", qos=1).codes == [1]
        self._says = self.client()
        self._says.connect("says", user="alice", password=b"a")

    def client(self, *, level: int = 4) -> RawMqtt:
        return RawMqtt(self.eyotd.leaf_port, level=level)

    def known(self, client_id: str, *, level: int = 4, clean: bool = True, props: Properties | None = None) -> RawMqtt:
        """A client that is logged in as alice."""
        client = self.client(level=level)
        assert client.connect(client_id, user="alice", password=b"a", clean=clean, props=props).reason == 0
        return client

    def check(self) -> None:
        """Nobody was harmed."""
        self._said += 1
        payload = b"%d" % self._said
        assert self._says.publish_acked("innocent", payload) == 0
        assert self._hears.message().payload == payload
        assert "Traceback" not in self.eyotd.log(), self.eyotd.log()[-3000:]

    def memory(self) -> int:
        self.check()
        return own_bytes(self.eyotd.pid)

    def close(self) -> None:
        self._hears.sock.close()
        self._says.sock.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with CountedEyotd(CONFIG, tmp_path_factory.mktemp("server")) as eyotd:
        server = Server(eyotd)
        yield server
        server.close()


@pytest.fixture
def server(running: Server) -> Iterator[Server]:
    running.check()
    yield running
    running.check()


def eventually(condition: Callable[[], bool], words: Callable[[], str], timeout_s: float = 60.0) -> None:
    until = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until, words()
        time.sleep(0.02)


def ended(client: RawMqtt) -> int | None:
    """Read until the server closes; the reason of its DISCONNECT, None if there was none."""
    reason = None
    try:
        while True:
            got = client.packet()
            if got.type is PacketType.DISCONNECT:
                reason = got.reason
    except (Closed, ConnectionError):
        client.sock.close()
        return reason


# -- peers that nobody knows -------------------------------------------------------------------------------------------


def connect_head(size: int) -> bytes:
    """The beginning of a CONNECT of about `size` bytes."""
    body = b"\0\4MQTT\4\2\0\0" + struct.pack(">H", 65_535)
    length, digits = size, bytearray()
    while True:
        length, digit = length >> 7, length & 0x7F
        digits.append(digit | (0x80 if length else 0))
        if not length:
            return b"\x10" + bytes(digits) + body


UNKNOWN: dict[str, Callable[[Server], bytes]] = {
    "nothing": lambda server: b"",
    "a CONNECT of 256 MB": lambda server: connect_head(268_435_000) + bytes(MIB),
    "a CONNECT of 1 MB": lambda server: connect_head(1_000_000) + b"x" * 900_000,
    "a CONNECT that is nearly there": lambda server: connect_head(48_000) + b"x" * 47_000,
    "a CONNECT and much behind it": lambda server: (
        encoder.connect(Connect(4, "x", True, 0, "alice", b"wrong")) + encoder.PINGREQ * 400_000
    ),
    "a publish first": lambda server: encoder.publish(4, "a", bytes(900_000), qos=0),
}


@pytest.mark.parametrize("form", UNKNOWN)
def test_peers_without_a_login_use_little(server: Server, form: str) -> None:
    """At most 64 KiB each, as on the other listeners."""
    data, peers = UNKNOWN[form](server), 24

    def crowd() -> list[socket.socket]:
        return [push(server.client().sock, data) for _ in range(peers)]

    for sock in crowd():
        sock.close()
    before = server.memory()
    sockets = crowd()
    each = (server.memory() - before) / peers
    for sock in sockets:
        sock.close()
    assert each < 64 * 1024 + MIB / peers, f"{each / 1024:.0f} KiB each"


# -- connections that end anywhere -------------------------------------------------------------------------------------


def packets_of(level: int) -> list[bytes]:
    """One packet of each kind that a client may send, in an order that makes sense."""
    subscribe = struct.pack(">H", 1) + (b"\0" if level == 5 else b"") + b"\0\5cut/#\2"
    unsubscribe = struct.pack(">H", 2) + (b"\0" if level == 5 else b"") + b"\0\5cut/#"
    return [
        encoder.connect(Connect(level, f"cut-{level}", True, 0, "alice", b"a")),
        b"\x82" + bytes((len(subscribe),)) + subscribe,
        encoder.publish(level, "cut/0", b"payload", qos=0),
        encoder.publish(level, "cut/1", b"payload", qos=1, packet_id=3),
        encoder.publish(level, "cut/2", b"payload", qos=2, packet_id=4),
        encoder.publish(level, "cut/3", b"payload", qos=1, packet_id=5, retain=True),
        encoder.pubrel(level, 4),
        b"\xa2" + bytes((len(unsubscribe),)) + unsubscribe,
        encoder.PINGREQ,
    ]


@pytest.mark.parametrize("level", [4, 5])
def test_connections_that_end_within_each_packet_leave_nothing(server: Server, level: int) -> None:
    packets = packets_of(level)
    cuts = [(number, size) for number, packet in enumerate(packets) for size in range(0, len(packet) + 1, 3)]
    kept = ("eyot_daemon.client.clients.ClosedClient", "eyot_daemon.turn.timers.TimerHandle")

    def cut_all(*, reset: bool) -> None:
        for number, size in cuts:
            client = server.client(level=level)
            client.send(b"".join(packets[:number]) + packets[number][:size])
            if reset:
                client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sock.close()

    sockets = server.eyotd.connections()

    def gone() -> bool:
        return server.eyotd.connections() <= sockets

    cut_all(reset=True)
    eventually(gone, lambda: "sockets are kept")
    before = server.eyotd.objects()
    for reset in (False, True):
        cut_all(reset=reset)
    eventually(gone, lambda: "sockets are kept")

    def left() -> dict[str, int]:
        # The store keeps what its journal holds and its file does not yet: that is not the connections'.
        more = server.eyotd.objects() - before
        return {
            kind: count
            for kind, count in more.items()
            if kind not in kept and not kind.startswith("eyot_store.") and count >= len(cuts) // 4
        }

    eventually(lambda: not left(), lambda: f"left behind: {left()}")


# -- who does not read -------------------------------------------------------------------------------------------------


def test_a_reader_that_stops_gets_less_and_holds_up_nobody(server: Server) -> None:
    """QoS 0 is dropped beyond a bound; QoS 1 waits in the queue up to its bound, and then the publisher is told."""
    slow = server.known("slow", level=5, clean=False, props=Properties(session_expiry_interval=3600))
    slow.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    assert slow.subscribe("flood/0", qos=0).codes == [0]
    assert slow.subscribe("flood/1", qos=1).codes == [1]
    before = server.memory()
    with server.known("floods", level=5) as floods:
        for _ in range(60):
            floods.send(encoder.publish(5, "flood/0", bytes(100_000), qos=0) * 10)
        floods.ping()
        assert server.memory() - before < SLACK, "messages of QoS 0 pile up"
        reasons = [floods.publish_acked("flood/1", bytes(1000)) for _ in range(2100)]
        assert set(reasons[:1900]) == {0}
        assert reasons[-1] == QUOTA, "the bound of the queue"
        assert server.memory() - before < SLACK
    slow.sock.close()
    server.known("slow").disconnect()  # clean: the queue ends
    with server.known("floods", level=5) as floods:
        assert floods.publish_acked("flood/1", b"x") in (0, 0x10)


@pytest.mark.parametrize(
    "flood",
    [
        encoder.PINGREQ,
        encoder.pubrel(4, 7),
        encoder.pubrec(4, 7),
        encoder.puback(4, 7),
        encoder.pubcomp(4, 7),
        b"\xa2\x07\0\2\0\3a/b",
    ],
    ids=["PINGREQ", "PUBREL", "PUBREC", "PUBACK", "PUBCOMP", "UNSUBSCRIBE"],
)
def test_storms_of_small_packets_from_who_does_not_read(server: Server, flood: bytes) -> None:
    client = server.known("storm")
    client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    before = server.memory()
    data = flood * (65_536 // len(flood))
    client.sock.settimeout(0.5)
    most = 0
    for turn in range(100):
        try:
            client.send(data)
        except OSError:  # the server does not read on
            break
        if not turn % 20:
            most = max(most, server.memory())
    assert max(most, server.memory()) - before < 96 * MIB, "answers pile up"
    client.sock.close()


# -- floods of state ---------------------------------------------------------------------------------------------------


def test_65535_publishes_of_qos_2_that_are_never_released(server: Server) -> None:
    """A client of 3.1.1 cannot be told a maximum; what it holds is bounded by the identifiers that there are."""
    with server.known("hoarder", clean=False) as client:
        before = server.memory()
        for first in range(1, 65_536, 500):
            ids = range(first, min(first + 500, 65_536))
            client.send(b"".join(encoder.publish(4, "hoard", b"%d" % each, qos=2, packet_id=each) for each in ids))
            for each in ids:
                got = client.packet()
                assert (got.type, got.packet_id) == (PacketType.PUBREC, each)
        assert server.memory() - before < 64 * MIB
        client.publish("hoard", b"7", qos=2, packet_id=7, dup=True)
        assert client.expect(PacketType.PUBREC).packet_id == 7
        client.send(b"".join(encoder.pubrel(4, each) for each in range(1, 65_536)))
        for each in range(1, 65_536):
            got = client.packet()
            assert (got.type, got.packet_id) == (PacketType.PUBCOMP, each)
    server.known("hoarder").disconnect()


def test_receive_maximum_counts_qos_2_until_its_pubcomp(server: Server) -> None:
    """MQTT 5, 4.9: PUBREC frees nothing, PUBCOMP does, and a new connection begins anew."""
    expiry = Properties(session_expiry_interval=3600)
    with server.client(level=5) as client:
        connack = client.connect("counts", user="alice", password=b"a", clean=False, props=expiry)
        assert connack.properties is not None
        window = connack.properties.receive_maximum or 65_535
        for each in range(1, window + 1):
            client.publish("counted", b"x", qos=2, packet_id=each)
            assert client.expect(PacketType.PUBREC).packet_id == each
        client.send(encoder.pubrel(5, 1))
        assert client.expect(PacketType.PUBCOMP).packet_id == 1
        client.publish("counted", b"x", qos=2, packet_id=window + 1)
        assert client.expect(PacketType.PUBREC).packet_id == window + 1
        client.publish("counted", b"x", qos=1, packet_id=window + 2)
        assert client.expect(PacketType.DISCONNECT).reason == 0x93
    with server.known("counts", level=5, clean=False, props=expiry) as client:
        client.publish("counted", b"x", qos=2, packet_id=2, dup=True)
        assert client.expect(PacketType.PUBREC).packet_id == 2
        assert client.publish_acked("counted", b"x") < 0x80
        client.send(encoder.pubrel(5, 2))
        assert client.expect(PacketType.PUBCOMP).packet_id == 2
    server.known("counts").disconnect()


def test_retained_messages_up_to_their_bound(server: Server) -> None:
    with server.known("retains", level=5) as client:
        reasons = [client.publish_acked(f"kept/{number}", b"x", retain=True) for number in range(3100)]
        refused = [reason for reason in reasons if reason >= 0x80]
        assert set(refused) == {QUOTA}
        assert 3000 - 50 <= len(reasons) - len(refused) <= 3000
        assert client.publish_acked("kept/1", b"y", retain=True) < 0x80, "replacing needs no room"
    stored = 3100 - len(refused)
    for level in (4, 5):
        with server.known("reads", level=level) as reader:
            # More than the session may keep in memory: they come as fast as they are acknowledged.
            assert reader.subscribe("kept/#", qos=1).codes == [1]
            topics = {reader.message().topic for _ in range(stored)}
            assert len(topics) == stored
            assert reader.is_quiet()
    with server.known("retains", level=5) as client:
        for number in range(3100):
            assert client.publish_acked(f"kept/{number}", b"", retain=True) < 0x80


def test_sessions_up_to_their_bound(server: Server) -> None:
    refused = 0
    names = [f"many-{number}" for number in range(320)]
    expiry = Properties(session_expiry_interval=3600)
    for name in names:
        with server.client(level=5) as client:
            reason = client.connect(name, user="alice", password=b"a", clean=False, props=expiry).reason
            assert reason in (0, QUOTA)
            refused += reason == QUOTA
    assert 20 <= refused <= 30
    for name in names[: 320 - refused]:
        server.known(name).disconnect()
    server.known(names[-1]).disconnect()


@pytest.mark.parametrize("persistent", [False, True])
def test_a_thousand_filters_in_one_packet(server: Server, persistent: bool) -> None:
    props = Properties(session_expiry_interval=3600 if persistent else 0)
    with server.known("filters", level=5, clean=False, props=props) as client:
        wanted = [SubscriptionRequest(f"f/{number}/+", 1) for number in range(1000)]
        assert client.subscribe(*wanted).codes == [1] * 1000
        assert client.publish_acked("f/777/x", b"found") == 0
        assert client.message().payload == b"found"
        assert client.unsubscribe(*[each.filter for each in wanted]).codes == [0] * 1000
        client.disconnect()
    server.known("filters").disconnect()


@pytest.mark.parametrize("persistent", [False, True])
def test_50000_filters_in_a_session(server: Server, persistent: bool) -> None:
    """They are taken up to a bound, or refused with a reason; others are served meanwhile."""
    props = Properties(session_expiry_interval=3600 if persistent else 0)
    worst = 0.0
    with server.known("greedy", level=5, clean=False, props=props) as client:
        before, codes = server.memory(), []
        for first in range(0, 50_000, 1000):
            wanted = [SubscriptionRequest(f"g/{number}", 1) for number in range(first, first + 1000)]
            begun = time.monotonic()
            codes += client.subscribe(*wanted).codes
            server.check()
            worst = max(worst, time.monotonic() - begun)
            if codes[-1] >= 0x80:
                break
        assert set(codes) <= {1, QUOTA}
        assert worst < 5, f"others waited {worst:.1f} s"
        assert server.memory() - before < 200 * MIB
        client.disconnect()
    server.known("greedy").disconnect()


# -- take-over ---------------------------------------------------------------------------------------------------------


def test_a_storm_of_take_overs(server: Server) -> None:
    """Many owners of one id push each other off: one is left, and it is served."""
    before = server.memory()
    clients = []
    for _ in range(12):
        client = server.client(level=5)
        client.send(encoder.connect(Connect(5, "twin", False, 0, "alice", b"a")))
        client.sock.settimeout(0.05)
        clients.append(client)
    until = time.monotonic() + 60
    while len(clients) > 1:
        assert time.monotonic() < until, f"{len(clients)} are left"
        for client in list(clients):
            try:
                got = client.packet()
                assert (got.type, got.reason) in ((PacketType.CONNACK, 0), (PacketType.DISCONNECT, 0x8E))
            except TimeoutError:
                continue
            except Closed:
                clients.remove(client)
                client.sock.close()
    clients[0].sock.settimeout(20)
    clients[0].disconnect()
    assert server.memory() - before < SLACK


def test_another_user_cannot_take_over(server: Server) -> None:
    owner = server.known("owned", level=5, clean=False, props=Properties(session_expiry_interval=60))
    owner.subscribe("owned/t", qos=1)
    for level, refused in ((4, 5), (5, 0x87)):
        for clean in (True, False):
            with server.client(level=level) as thief:
                assert thief.connect("owned", clean=clean, user="bob", password=b"b").reason == refused
    owner.ping()
    owner.sock.close()
    for clean in (True, False):  # nor while its owner is away
        with server.client() as thief:
            assert thief.connect("owned", clean=clean, user="bob", password=b"b").reason == 5
    with server.client(level=5) as back:
        assert back.connect("owned", clean=False, user="alice", password=b"a").present


# -- odd packets -------------------------------------------------------------------------------------------------------


def test_topics_of_every_size_and_kind(server: Server) -> None:
    """A topic is taken whole or refused; the client goes on where the protocol has an answer (MQTT 5)."""
    odd = [
        "t/" + "x" * 65_000,
        "/" * 32_000,
        "a" * 200 + "/" + "b" * 300,
        "." * 20_000,
        "with space",
        "tab\there",
        "a/*/b",
        "a/>",
        "$SYS/broker",
        "$JS/API/STREAM/DELETE/ORD",
        "$MQTT/sess/x",
        "$KV/a/b",
        "_INBOX/x",
        "\ufeffbom",
        "del\x7f",
        "🙂",
    ]
    for topic in odd:
        for qos, retain in ((0, False), (1, False), (1, True), (2, False)):
            with server.known("odd", level=5, clean=False, props=Properties(session_expiry_interval=60)) as client:
                assert client.subscribe("#", qos=2).codes == [2]
                try:
                    reason = client.publish_acked(topic, b"x", qos=qos, retain=retain)
                    assert reason in (0, 0x10, 0x87, 0x90, 0x97), (topic[:30], qos, hex(reason))
                    client.ping()
                except (Closed, OSError) as error:
                    raise AssertionError(f"{topic[:30]!r} with QoS {qos} ends the connection") from error
            server.known("odd").disconnect()
            server.check()
    with server.known("odd", level=5) as client:
        for topic in odd:
            assert client.publish_acked(topic, b"", retain=True) in (0, 0x10, 0x87, 0x90)


def test_a_payload_that_is_too_large(server: Server) -> None:
    with server.known("large", level=5) as client:
        client.publish("large", bytes(MIB + 1), qos=1)
        assert ended(client) == TOO_LARGE
    with server.known("large", level=5) as client:
        client.send(b"\x30\xff\xff\xff\x7f")
        assert ended(client) == TOO_LARGE


def test_no_property_of_a_device_steers_a_stream(server: Server) -> None:
    with RawClient(server.eyotd.client_port, user="alice", **{"pass": "a"}) as nats:
        body = json.dumps({"name": "STEER", "subjects": ["steer.>"], "allow_rollup_hdrs": True}).encode()
        nats.send(b"SUB in 1\r\nPUB $JS.API.STREAM.CREATE.STEER in %d\r\n%b\r\n" % (len(body), body))
        assert b'"error"' not in nats.until(b"}\r\n")
        evil = [("Nats-Rollup", "all"), ("Nats-Expected-Stream", "OTHER"), ("a\r\nNats-Rollup", "all"), ("", "x")]
        with server.known("steers", level=5) as client:
            for number in range(3):
                assert client.publish_acked("steer/a", b"%d" % number, props=Properties(user_properties=evil)) == 0
        nats.send(b"PUB $JS.API.STREAM.INFO.STEER in 0\r\n\r\n")
        assert b'"messages":3' in nats.until(b"}\r\n").replace(b" ", b"")


def test_keep_alive_ends_half_open_links_and_no_others(server: Server) -> None:
    silent, talks, never = (server.client(level=5) for _ in range(3))
    begun = time.monotonic()  # before the silence begins, however slow the machine is
    for client, name, seconds in ((silent, "silent", 1), (talks, "talks", 1), (never, "never", 0)):
        assert client.connect(name, user="alice", password=b"a", keep_alive=seconds).reason == 0
    silent.sock.settimeout(10)
    while True:
        talks.ping()
        silent.sock.settimeout(0.3)
        try:
            got = silent.packet()
        except TimeoutError:
            assert time.monotonic() - begun < 60
            continue
        assert (got.type, got.reason) == (PacketType.DISCONNECT, 0x8D)
        break
    assert time.monotonic() - begun > 1.4
    never.ping()
    for client in (silent, talks, never):
        client.sock.close()


def test_random_bytes_after_connect(server: Server) -> None:
    chance = random.Random(5)
    for _ in range(300):
        client = server.known("noise", level=chance.choice((4, 5)))
        packets = b"".join(chance.sample(packets_of(client.level)[1:], 4))
        data = bytearray(packets)
        for _ in range(chance.randrange(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        push(client.sock, bytes(data))
        client.sock.close()
