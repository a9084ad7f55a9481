"""Random conversations of clients with eyotd and with a real nats-server 2.14: every client receives the same.

One client says well-formed things in every spelling, three others listen; compared is what each gets, without regard to the order
in which several subscriptions get one message, which is the server's choice. Left out are what clients never send and where
nats-server's answer is an accident: a second CONNECT (drops the subscriptions made before), -ERR (hangs up, but takes in
what comes after it in the same read).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from support.clients import hostile
from support.clients.conversation import CONFIG, play
from support.servers.eyotd import Eyotd
from support.servers.newer_nats_server import NewerNatsServer
from support.servers.server_process import ServerProcess

CONVERSATIONS = 600
#: Mappings are taken out: nats-server 2.14.6 maps some messages of a connection only after a while.
PLAIN_CONFIG = CONFIG.replace('mappings = { b: "mapped.b" }', "")
INVALID_SUBJECT = b"-ERR 'Invalid Publish Subject'\r\n"
_LEFT_OUT = re.compile(rb"(?im)^(connect|-err)[ \t].*$")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    folder: Path = tmp_path_factory.mktemp("beside")
    with Eyotd(PLAIN_CONFIG, folder / "eyotd") as ours, NewerNatsServer(PLAIN_CONFIG, folder / "theirs") as theirs:
        yield ours, theirs


def said(seed: int) -> bytes:
    """What the client of this seed says."""
    rng = Random(seed)
    user = rng.choice([b"all", b"all", b"few", b"answers"])
    verbose, pedantic = (rng.choice([b"true", b"false", b"false", b"false"]) for _ in range(2))
    echo, no_responders = (rng.choice([b"true", b"false"]) for _ in range(2))
    start = (
        b'CONNECT {"user":"%b","pass":"%b","verbose":%b,"pedantic":%b,"echo":%b,"headers":true,"no_responders":%b}\r\n'
    ) % (user, user, verbose, pedantic, echo, no_responders)
    if rng.random() < 0.5:
        start += b"SUB a 1\r\nSUB a.* 2\r\nSUB > 3\r\nSUB a q 4\r\nUNSUB 2 3\r\nSUB _INBOX.x.* 5\r\n"
    body = b""
    while len(body) < 20:
        # A conversation that lasts: what makes servers hang up is compared with one frame at its end.
        body += b"".join(
            frame for _ in range(rng.randrange(12)) if not _LEFT_OUT.match(frame := hostile.traffic(rng, "PUB", 1))
        )
    return start + body + b"PING\r\n"


def frames(heard: bytes) -> list[bytes]:
    """The frames in `heard`, sorted. nats-server says it again when the end of a message came in another read: once is enough."""
    found: list[bytes] = []
    at = 0
    while at < len(heard):
        end = heard.find(b"\r\n", at) + 2
        if end < 2:
            end = len(heard)
        elif heard.startswith((b"MSG ", b"HMSG "), at):
            end += int(heard[at:end].split()[-1]) + 2
        if heard[at:end] != INVALID_SUBJECT or INVALID_SUBJECT not in found:
            found.append(heard[at:end])
        at = end
    return sorted(found)


@pytest.mark.parametrize("part", range(3))
def test_everybody_hears_the_same(servers: tuple[ServerProcess, ServerProcess], part: int) -> None:
    for seed in range(part, CONVERSATIONS, 3):
        words = said(seed)
        ours, theirs = (play(server.client_port, [words]) for server in servers)
        assert frames(ours.answer) == frames(theirs.answer), f"seed {seed}: {words!r}"
        for one, other in zip(ours.listeners, theirs.listeners, strict=True):
            assert frames(one) == frames(other), f"seed {seed}: {words!r}"
