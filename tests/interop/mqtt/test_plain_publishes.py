"""Plain publishes of a read are one operation where only MQTT clients subscribe: subscribers see no difference.

The oracle is the full rules, packet by packet: a subscription of a NATS client makes them apply to every publish.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from eyot_wire.mqtt import encoder
from eyot_wire.mqtt.packets import SubscriptionRequest
from eyot_wire.mqtt.properties import Properties
from support.mqtt.raw_mqtt import RawMqtt
from support.servers.eyotd import Eyotd
from support.servers.server_process import ServerProcess

CONFIG = """
listen: 127.0.0.1:%CLIENT_PORT%
jetstream { store_dir: "%WORKDIR%/js" }
mqtt { listen: "127.0.0.1:%LEAF_PORT%" }
accounts { A {
    jetstream: enabled
    users: [
        { user: any, password: any }
        { user: some, password: some, permissions {
            publish { allow: [">"], deny: ["t.secret"] }
            subscribe { allow: [">"], deny: ["t.hidden"] }
        } }
    ]
} }
no_auth_user: any
"""
TOPICS = ("t/a", "t/b", "t/secret", "t/hidden", "t//x", "t/1.5", "$own/x", "other")
Seen = list[tuple[str, bytes, int, bool, object]]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with Eyotd(CONFIG, tmp_path) as made:
        yield made


def packets(chance: random.Random, level: int) -> bytes:
    """What a client sends in one piece: runs of one topic, cut by other topics, retained ones and properties."""
    sent = b""
    for _ in range(chance.randrange(1, 30)):
        topic = chance.choice(TOPICS)
        properties = Properties(content_type="x") if level == 5 and chance.random() < 0.1 else None
        retain = chance.random() < 0.1
        for _ in range(chance.choice((1, 1, 2, 40))):
            payload = chance.randbytes(chance.choice((0, 1, 60, 120, 200)))
            sent += encoder.publish(level, topic, payload, retain=retain, properties=properties)
    return sent


@contextmanager
def subscribers(port: int) -> Iterator[dict[str, RawMqtt]]:
    """Clients of all kinds that a run must be judged for."""
    identified = Properties(subscription_identifiers=[7])
    kinds: dict[str, tuple[int, Properties | None, Callable[[RawMqtt], object]]] = {
        "plain-4": (4, None, lambda client: client.subscribe("t/#", "other")),
        "wide-4": (4, None, lambda client: client.subscribe("#")),
        "twice": (4, None, lambda client: client.subscribe("other", "+")),
        "plain-5": (5, None, lambda client: client.subscribe("+/+")),
        "identified": (5, None, lambda client: client.subscribe("t/#", props=identified)),
        "aliased": (5, Properties(topic_alias_maximum=2), lambda client: client.subscribe("t/#", "$own/#")),
        "small": (5, Properties(maximum_packet_size=80), lambda client: client.subscribe("#")),
        "as-published": (
            5,
            None,
            lambda client: client.subscribe(SubscriptionRequest("#", 1, retain_as_published=True)),
        ),
    }
    with ExitStack() as stack:
        made = {}
        for name, (level, properties, subscribe) in kinds.items():
            made[name] = client = stack.enter_context(RawMqtt(port, level=level))
            client.connect(name, user="any", password=b"any", props=properties)
            subscribe(client)
        made["denied"] = denied = stack.enter_context(RawMqtt(port))
        denied.connect("denied", user="some", password=b"some")
        denied.subscribe("t/#")
        yield made


def seen(client: RawMqtt) -> Seen:
    """All messages of a client, up to the answer to a PINGREQ."""
    client.ping()
    kept, client._kept = client._kept, []  # type: ignore[attr-defined]
    return [(got.topic, got.payload, got.qos, got.retain, got.properties) for got in kept]


def traffic(server: ServerProcess) -> dict[str, tuple[int, int, int, int]]:
    """Counters of each MQTT client."""
    connections = server.monitor("/connz")["connections"]
    counters = ("in_msgs", "in_bytes", "out_msgs", "out_bytes")
    return {
        each["mqtt_client"]: tuple(each[name] for name in counters) for each in connections if "mqtt_client" in each
    }


def nats_subscriber(port: int) -> socket.socket:
    """A client of NATS that hears everything."""
    sock = socket.create_connection(("127.0.0.1", port), timeout=20)
    sock.sendall(b'CONNECT {"verbose":false,"user":"any","pass":"any","headers":true}\r\nSUB > 1\r\nPING\r\n')
    said = b""
    while b"PONG\r\n" not in said:
        said += sock.recv(65536)
    return sock


def conversation(server: ServerProcess, seed: int, level: int, user: bytes) -> tuple[dict[str, Seen], object]:
    """What every subscriber sees of one publisher, and what is counted."""
    chance = random.Random(seed)
    with subscribers(server.leaf_port) as clients, RawMqtt(server.leaf_port, level=level) as publisher:
        publisher.connect("publisher", user=user.decode(), password=user)
        publisher.subscribe(SubscriptionRequest("t/a", 0, no_local=level == 5))
        clients["publisher"] = publisher
        for _ in range(4):
            publisher.send(packets(chance, level))
        publisher.ping()
        return {name: seen(client) for name, client in clients.items()}, traffic(server)


@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.parametrize("user", [b"any", b"some"])
def test_a_run_reaches_subscribers_as_its_packets_do(server: ServerProcess, level: int, user: bytes) -> None:
    for seed in range(3):
        clear_retained(server)
        as_runs, counted = conversation(server, seed, level, user)
        clear_retained(server)
        with nats_subscriber(server.client_port):
            one_by_one, counted_alone = conversation(server, seed, level, user)
        for name, messages in one_by_one.items():
            assert as_runs[name] == messages, name
        assert counted == counted_alone
        assert all(as_runs[name] for name in ("plain-4", "plain-5", "identified", "aliased", "small", "denied"))


#: Subscribers of which each alone must be sent the packets of several topics one by one, or not at all.
ODD: dict[str, tuple[int, Properties | None, SubscriptionRequest]] = {
    "none": (4, None, SubscriptionRequest("other", 0)),
    "same level": (4, None, SubscriptionRequest("t/#", 0)),
    "other level": (5, None, SubscriptionRequest("t/#", 1)),
    "aliases": (5, Properties(topic_alias_maximum=2), SubscriptionRequest("t/#", 0)),
    "small": (5, Properties(maximum_packet_size=80), SubscriptionRequest("t/#", 0)),
    "fewer topics": (4, None, SubscriptionRequest("t/+", 0)),
    "one topic": (4, None, SubscriptionRequest("t/b", 0)),
    "not hidden": (4, None, SubscriptionRequest("#", 0)),
}


def in_turn(server: ServerProcess, seed: int, level: int, odd: str, user: bytes) -> tuple[dict[str, Seen], object]:
    """What each subscriber sees of one publisher that publishes on topics in turn, and what is counted."""
    chance = random.Random(seed)
    topics = ["t/a", "t/b", "t//x", "t/1.5", "t/c/d"] + (["$own/x"] if odd == "not hidden" else [])
    client_level, properties, wanted = ODD[odd]
    port = server.leaf_port
    with RawMqtt(port) as plain, RawMqtt(port, level=client_level) as other, RawMqtt(port, level=level) as publisher:
        for name, client in (("plain", plain), ("other", other), ("publisher", publisher)):
            props = properties if client is other else None
            client.connect(name, user=user.decode(), password=user, props=props)
        plain.subscribe("t/#", "$own/#")
        other.subscribe(wanted)
        for _ in range(3):
            sent = []
            for turn in range(60):
                payload = chance.randbytes(chance.choice((0, 1, 60, 120, 200)))
                sent.append(encoder.publish(level, topics[turn % len(topics)], payload))
            publisher.send(b"".join(sent))
        publisher.ping()
        return {"plain": seen(plain), "other": seen(other)}, traffic(server)


@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.parametrize("odd", ODD)
def test_topics_in_turn_reach_subscribers_as_their_packets_do(server: ServerProcess, level: int, odd: str) -> None:
    user = b"some" if odd == "same level" else b"any"
    together, counted = in_turn(server, level, level, odd, user)
    with nats_subscriber(server.client_port):
        one_by_one, counted_alone = in_turn(server, level, level, odd, user)
    assert together == one_by_one
    assert counted == counted_alone
    assert len(together["plain"]) == 180


def clear_retained(server: ServerProcess) -> None:
    with RawMqtt(server.leaf_port) as client:
        client.connect("clears", user="any", password=b"any")
        for topic in TOPICS:
            assert client.publish_acked(topic, retain=True) == 0
