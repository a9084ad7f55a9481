"""Conversations about consumers whose messages come back or are given up, with eyotd and a real nats-server 2.14 at once.

Each conversation is written down here; random ones are in `test_differential.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.jetstream.differential import CONFIG, Ack, Conversation, Delivered, Heard, Operation, Step
from support.jetstream.operations import block
from support.jetstream.peer import Peer
from support.servers.eyotd import Eyotd
from support.servers.newer_nats_server import NewerNatsServer
from support.servers.server_process import ServerProcess

S = 10**9
SHORT = S // 10
LONG = 3600 * S


def api(words: str, body: Any = None, *, reads: bool = False) -> Operation:
    payload = b"" if body is None else json.dumps(body).encode()
    return Operation(f"$JS.API.{words}", payload, reads=reads, certain=True)


def publish(subject: str) -> Operation:
    return Operation(subject, b"some", certain=True)


def stream(**config: Any) -> Operation:
    return api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]} | config)


def consumer(name: str = "c", **config: Any) -> Operation:
    whole = {"name": name, "durable_name": name, "ack_policy": "explicit"} | config
    return api(f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": whole})


def pull(name: str = "c", batch: int = 1, *, delivered: int = 0, **wanted: Any) -> list[Step]:
    """A request that waits for its messages; as many are delivered, unless `delivered` says how many."""
    body = {"batch": batch, "expires": 60 * S} | wanted
    request = Operation(f"$JS.API.CONSUMER.MSG.NEXT.S.{name}", json.dumps(body).encode(), answers=0)
    return [request, Delivered(delivered or batch)]


PUB = publish("s.a")
STATE = api("STREAM.INFO.S", reads=True)
GIVEN_UP = Heard(b"advisory.v1.max_deliver")
ONCE = {"ack_wait": SHORT, "max_deliver": 1}

CONVERSATIONS: dict[str, list[Step]] = {
    "a late acknowledgement takes a message that was given up off its queue": [
        stream(retention="workqueue"), consumer(**ONCE), PUB, *pull(), GIVEN_UP, STATE, Ack(0, b"+ACK", 1), STATE,
    ],
    "so does a late termination": [
        stream(retention="workqueue"), consumer(**ONCE), PUB, *pull(), GIVEN_UP, STATE, Ack(0, b"+TERM late", 1), STATE,
    ],
    "so does a late acknowledgement with interest retention": [
        stream(retention="interest"), consumer(**ONCE), PUB, *pull(), GIVEN_UP, STATE, Ack(0, b"", 1), STATE,
    ],
    "what one consumer gave up stays when another has acknowledged it": [
        stream(retention="interest"), consumer(**ONCE), consumer("d"), PUB, *pull(), GIVEN_UP, *pull("d"), Ack(0, b"+ACK", 1), STATE,
        Ack(1, b"+ACK", 1), STATE,
    ],
    "a late acknowledgement leaves what another consumer has not acknowledged": [
        stream(retention="interest"), consumer(**ONCE), consumer("d"), PUB, *pull(), GIVEN_UP, Ack(0, b"+ACK", 1), STATE,
        *pull("d"), Ack(0, b"+ACK", 1), STATE,
    ],
    "what is given up goes with its stream's purge": [
        stream(retention="interest"), consumer(**ONCE), PUB, *pull(), GIVEN_UP, api("STREAM.PURGE.S"), STATE, Ack(0, b"+ACK", 1),
        PUB, STATE,
    ],
    "what no filter wants any more leaves a stream with interest retention": [
        stream(retention="interest"), consumer(), PUB, publish("s.b"), STATE, consumer(filter_subject="s.b"), STATE,
        consumer("d"), consumer("d", filter_subjects=["s.c"]), consumer(filter_subject="s.c"), STATE,
    ],
    "a shorter wait for acknowledgements holds for what waits already": [
        stream(), consumer(ack_wait=LONG), PUB, publish("s.b"), *pull(batch=2), consumer(ack_wait=SHORT), *pull(batch=2),
    ],
    "so does a shorter backoff": [
        stream(), consumer(ack_wait=LONG), PUB, *pull(), consumer(backoff=[SHORT, LONG]), *pull(),
    ],
    "clients whose pin is gone hear what is left of their request": [
        stream(), consumer(priority_groups=["g"], priority_policy="pinned_client", priority_timeout=SHORT), PUB,
        *pull(batch=5, delivered=1, group="g"), Heard(b"consumer_group_unpinned"), publish("s.b"),
    ],
    "a sample tells which delivery was acknowledged": [
        stream(), consumer(ack_wait=SHORT, sample_freq="100"), PUB, *pull(), *pull(), Ack(0, b"+ACK", 1), Heard(b"metric.v1.consumer_ack"),
    ],
    "an acknowledgement of all before it is not sampled": [
        stream(), consumer(ack_policy="all", sample_freq="100"), PUB, *pull(), Ack(0, b"+ACK", 1), Ack(0, b"", 1),
    ],
    "who asks for the next message gets it, though a reset came in between": [
        stream(), consumer(), PUB, publish("s.b"), *pull(batch=2), api("CONSUMER.RESET.S.c", {"seq": 1}),
        Ack(0, b'+NXT {"batch":1,"expires":60000000000}', 0), Ack(0, b"+NXT 1", 1), Delivered(1), api("CONSUMER.INFO.S.c", reads=True),
    ],
    "a message that nobody wants is the last one, too": [
        stream(retention="interest"), replace(PUB, header=block([("Nats-Msg-Id", "i1")])),
        replace(PUB, header=block([("Nats-Expected-Last-Msg-Id", "i0")])), replace(PUB, header=block([("Nats-Expected-Last-Msg-Id", "i1")])),
        replace(PUB, header=block([("Nats-Expected-Last-Msg-Id", "i1")])), STATE,
    ],
    "times are shown as Go writes them": [
        stream(),
        *[consumer(f"c{at}", deliver_policy="by_start_time", opt_start_time=f"2020-01-01T02:00:00{rest}")
          for at, rest in enumerate((".500+02:00", ".120000-00:00", "+00:00", ".000Z", ".5-07:30", "Z"))],
        consumer("p", pause_until="2036-01-01T02:00:00.500+02:00"), api("CONSUMER.INFO.S.p", reads=True),
        api("CONSUMER.LIST.S", reads=True), api("STREAM.CREATE.M", {"name": "M", "mirror": {"name": "Z", "opt_start_time": "2020-01-01T02:00:00.10+00:00"}}),
    ],
}  # fmt: skip


def renamed(step: Step, name: str) -> Step:
    """The step with another name for the stream: nats-server sometimes refuses a stream that was just deleted."""
    if not isinstance(step, Operation):
        return step
    subject = re.sub(r"\.S(?=\.|$)", f".{name}", step.subject)
    return replace(step, subject=subject, payload=step.payload.replace(b'"S"', f'"{name}"'.encode()))


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    folder: Path = tmp_path_factory.mktemp("consumers")
    with Eyotd(CONFIG, folder / "eyotd") as ours, NewerNatsServer(CONFIG, folder / "theirs") as theirs:
        theirs.hold_directories()
        yield ours, theirs


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_the_same_is_heard(servers: tuple[ServerProcess, ServerProcess], name: str) -> None:
    conversation = Conversation((Peer(servers[0].client_port), Peer(servers[1].client_port)))
    number = list(CONVERSATIONS).index(name)
    first = next(conversation.play([renamed(step, f"S{number}") for step in CONVERSATIONS[name]]), None)
    last = conversation.end()
    for peer in conversation.peers:
        peer.client.sock.close()
    assert first is None, str(first)
    assert last is None, str(last)
