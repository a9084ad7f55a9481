"""Random permissions of many users of eyotd and of a real nats-server 2.14: the same may be published, subscribed and received."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from support.clients.plain_client import PlainClient
from support.servers.eyotd import Eyotd
from support.servers.newer_nats_server import NewerNatsServer

USERS = 40
STEPS = 25
TOKENS = ["a", "b", "c", "1"]
QUEUES = ["q", "q.1", "q.1.2", "z"]
QUEUE_PATTERNS = ["q", "q*", "q.1", "*", "q.>", "z"]


def subject(rng: Random, *, wildcards: bool) -> str:
    tokens: list[str] = []
    while not tokens or (rng.random() < 0.6 and len(tokens) < 4):
        tokens.append("*" if wildcards and rng.random() < 0.2 else rng.choice(TOKENS))
    if wildcards and rng.random() < 0.25:
        tokens.append(">")
    return ".".join(tokens)


def entries(rng: Random, *, queues: bool) -> str:
    found = []
    for _ in range(rng.randrange(1, 4)):
        queue = f" {rng.choice(QUEUE_PATTERNS)}" if queues and rng.random() < 0.4 else ""
        found.append(f'"{subject(rng, wildcards=True)}{queue}"')
    return f"[{', '.join(found)}]"


def permissions(rng: Random) -> str:
    found = []
    for name in ("publish", "subscribe"):
        kind, queues = rng.randrange(5), name == "subscribe"
        allow, deny = (f"{side}: {entries(rng, queues=queues)}" for side in ("allow", "deny"))
        if kind:
            found.append(f"{name}: {{{', '.join([[], [allow], [deny], [allow, deny], [allow, deny]][kind])}}}")
    return f"{{{', '.join(found)}}}"


def config(seed: int) -> str:
    rng = Random(seed)
    users = [f"{{user: u{number}, password: u{number}, permissions: {permissions(rng)}}}" for number in range(USERS)]
    return "authorization {\n users = [\n  {user: all, password: all}\n  " + "\n  ".join(users) + "\n ]\n}\n"


def heard(port: int, seed: int) -> list[tuple[Counter[bytes], Counter[bytes]]]:
    """What each user gets, and what somebody who may everything gets of it. Order is left out: the server's choice."""
    listener, publisher = PlainClient(port, "all"), PlainClient(port, "all")
    listener.send(b"SUB > 1\r\n")
    listener.sync()
    found = []
    for number in range(USERS):
        rng = Random(seed * 1000 + number)
        queues = rng.sample(QUEUES, len(QUEUES))  # each once: among several members the server would choose
        client = PlainClient(port, f"u{number}", verbose=True)
        listener.heard.clear()
        for step in range(STEPS):
            _say_something(rng, client, publisher, queues, step)
        client.sync()
        listener.sync()
        found.append((Counter(client.heard), Counter(listener.heard)))
        client.close()
    listener.close()
    publisher.close()
    return found


def _say_something(rng: Random, client: PlainClient, publisher: PlainClient, queues: list[str], step: int) -> None:
    kind = rng.randrange(10)
    if kind < 5:
        queue = f"{queues.pop()} " if queues and rng.random() < 0.4 else ""
        client.send(f"SUB {subject(rng, wildcards=True)} {queue}{step}\r\n".encode())
    elif kind < 6:
        client.send(f"UNSUB {rng.randrange(STEPS)}\r\n".encode())
    elif kind < 8:
        client.send(f"PUB {subject(rng, wildcards=False)} 2\r\nhi\r\n".encode())
    else:
        client.sync()
        publisher.send(f"PUB {subject(rng, wildcards=False)} 2\r\nho\r\n".encode())
        publisher.sync()


@pytest.mark.parametrize("seed", range(2))
def test_everybody_may_the_same(tmp_path: Path, seed: int) -> None:
    text = config(seed)
    with Eyotd(text, tmp_path / "eyotd") as ours, NewerNatsServer(text, tmp_path / "theirs") as theirs:
        pairs = zip(heard(ours.client_port, seed), heard(theirs.client_port, seed), strict=True)
        for number, (one, other) in enumerate(pairs):
            assert one == other, next(line for line in text.splitlines() if f"user: u{number}," in line)
