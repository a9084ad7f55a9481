"""Runs of QoS 1 that are only stored are one operation: publishers, streams and queues see no difference.

The oracle is the full rules, packet by packet: a subscription of a NATS client makes them apply to every publish.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import nats
import pytest

from eyot_wire.mqtt import encoder
from eyot_wire.mqtt.packet_types import PacketType
from eyot_wire.mqtt.properties import Properties
from support.mqtt.raw_mqtt import RawMqtt
from support.servers.eyotd import Eyotd

CONFIG = """
listen: 127.0.0.1:%CLIENT_PORT%
jetstream { store_dir: "%WORKDIR%/js" }
mqtt { listen: "127.0.0.1:%LEAF_PORT%" }
eyot { mqtt { session_queue_msgs: %ROOM% } }
accounts { A {
    jetstream: enabled
    mappings: { "m.from": "f.mapped" }
    users: [
        { user: any, password: any }
        { user: some, password: some, permissions { publish { allow: [">"], deny: ["s.denied"] } } }
    ]
} }
no_auth_user: any
"""
#: `s` is stored by a stream, `f` by one with little room, `q` by the queue of a session, `sq` by both, `n` by none.
TOPICS = ("s/a", "f/a", "f/b", "s/denied", "q/x", "sq/x", "n/x", "m/from")


async def prepare(nc: Any, level: int) -> None:
    """Make the streams; a refusal would end a connection of 3.1.1, sooner or later."""
    js = nc.jetstream()
    await js.add_stream(name="ALL", subjects=["s.>", "sq.>"])
    room = 25 if level == 5 else 100_000
    await js.add_stream(name="FEW", subjects=["f.>"], max_msgs=room, discard="new")


async def stored(nc: Any) -> list[list[tuple[int, str, bytes, object]]]:
    """What the streams hold."""
    js, found = nc.jetstream(), []
    for name in ("ALL", "FEW", "$MQTT_msgs"):
        state = (await js.stream_info(name)).state
        messages = [await js.get_msg(name, seq) for seq in range(1, state.last_seq + 1)]
        assert messages
        found.append([(each.seq, each.subject, each.data, each.headers) for each in messages])
    return found


def packets(chance: random.Random, level: int) -> tuple[bytes, int]:
    """What a client sends in one piece, and how many answers are due: runs, cut by other topics, retained ones and QoS 0."""
    sent, due = b"", 0
    for _ in range(chance.randrange(1, 12)):
        topic = chance.choice(TOPICS)
        properties = Properties(content_type="x") if level == 5 and chance.random() < 0.1 else None
        qos, retain = chance.choice((1, 1, 1, 1, 0)), chance.random() < 0.05
        for _ in range(chance.choice((1, 1, 2, 20))):
            payload = chance.randbytes(chance.choice((0, 1, 60, 120, 200)))
            due += qos
            packet_id = due % 60_000 + 1 if qos else 0
            sent += encoder.publish(
                level, topic, payload, qos=qos, retain=retain, packet_id=packet_id, properties=properties
            )
    return sent, due


def conversation(folder: Path, seed: int, level: int, user: str, *, watched: bool) -> list[object]:
    """What a publisher is answered, what is counted, and what streams and queues hold."""
    chance = random.Random(seed)
    with Eyotd(CONFIG.replace("%ROOM%", "60" if level == 5 else "100000"), folder) as server:
        said: list[object] = []

        async def play() -> None:
            nc = await nats.connect(f"nats://127.0.0.1:{server.client_port}")
            await prepare(nc, level)
            with RawMqtt(server.leaf_port) as away:
                away.connect("away", clean=False)
                away.subscribe("q/#", "sq/#", qos=1)
            if watched:

                async def heard(_: Any) -> None: ...

                for subject in ("s.>", "f.>", "q.>", "sq.>"):
                    await nc.subscribe(subject, cb=heard)
                await nc.flush()
            said.extend(await asyncio.to_thread(publish, server, chance, level, user))
            said.append(await stored(nc))
            await nc.close()

        asyncio.run(play())
        return said


def publish(server: Eyotd, chance: random.Random, level: int, user: str) -> list[object]:
    with RawMqtt(server.leaf_port, level=level) as publisher:
        publisher.connect("publisher", user=user, password=user.encode())
        answers: list[object] = []
        for _ in range(6):
            sent, due = packets(chance, level)
            publisher.send(sent)
            for _ in range(due):
                got = publisher.expect(PacketType.PUBACK)
                answers.append((got.packet_id, got.reason, got.properties.reason_string))
        (client,) = [each for each in server.monitor("/connz")["connections"] if each.get("mqtt_client") == "publisher"]
        return [*answers, client["in_msgs"], client["in_bytes"]]


@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.parametrize("user", ["any", "some"])
def test_a_run_is_stored_and_answered_as_its_packets_are(tmp_path: Path, level: int, user: str) -> None:
    for seed in range(2):
        folders = [tmp_path / f"{kind}-{seed}" for kind in ("runs", "alone")]
        for folder in folders:
            folder.mkdir()
        as_runs = conversation(folders[0], seed, level, user, watched=False)
        one_by_one = conversation(folders[1], seed, level, user, watched=True)
        assert as_runs == one_by_one
        reasons = {each[1] for each in as_runs if isinstance(each, tuple)}
        assert reasons >= ({0, 0x10, 0x97} if level == 5 else {0})
