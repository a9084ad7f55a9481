"""A confirmation that comes when its sender has left already belongs to that sender, not to this server.

nats-server sends its answers to flow control from a queue of its own, so that they may follow the LS- of the deliver
subject. Such an answer once made a downstream of "this server" that never reads: the leaf node was never synced again.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest

from support.links.raw_leaf import Peer
from support.servers.eyotd import Eyotd

CONFIG = """
server_name: origin
jetstream { store_dir: "%WORKDIR%/store", domain: origin }
leafnodes { listen: "127.0.0.1:%LEAF_PORT%", no_advertise: true }
accounts { ACC: { users: [{user: good, password: good}], jetstream: enabled } }
"""
COPY = {
    "stream_name": "S",
    "config": {
        "deliver_subject": "$JS.M.aaaaaaaa", "deliver_policy": "all", "ack_policy": "none", "max_deliver": 1, "flow_control": True,
        "idle_heartbeat": 1_000_000_000, "direct": True,
    },
}  # fmt: skip
#: A request of flow control.
ASKED = rb"\$JS\.M\.aaaaaaaa (\$JS\.FC\.S\.\S+) "


@pytest.fixture
def origin(tmp_path: Path) -> Iterator[Eyotd]:
    with Eyotd(CONFIG, tmp_path) as server:
        yield server


def lmsg(subject: str, body: bytes = b"", reply: str = "") -> bytes:
    return f"LMSG {subject} {reply + ' ' if reply else ''}{len(body)}\r\n".encode() + body + b"\r\n"


async def publish(origin: Eyotd) -> None:
    """Make the stream S and store three messages."""
    client = await nats.connect(origin.client_url("good"))
    try:
        js = client.jetstream(timeout=30)
        await js.add_stream(name="S", subjects=["s"])
        for number in range(3):
            await js.publish("s", b"%d" % number)
    finally:
        await client.close()


@pytest.mark.parametrize("order", ["the answer first", "the answer behind the end of the interest"])
def test_whose_confirmation_it_is(order: str, origin: Eyotd) -> None:
    asyncio.run(publish(origin))
    hub = Peer(origin.leaf_port, user="good", name="hub").linked()
    hub.send(b"LS+ $JS.M.aaaaaaaa\r\nLS+ answers\r\n")
    hub.send(lmsg("$JS.API.CONSUMER.CREATE.S", json.dumps(COPY).encode(), "answers"))
    asked = re.search(ASKED, hub.until(ASKED, 60))
    assert asked is not None
    answer = asked[1]
    both = [lmsg(answer.decode()), b"LS- $JS.M.aaaaaaaa\r\n"]
    hub.send(b"".join(both if order == "the answer first" else reversed(both)) + b"PING\r\n")
    hub.until(rb"PONG\r\n(?s:.*)PONG\r\n", 60)
    (status,) = origin.monitor("/eyot/syncz")["out"]
    assert (status["peer"], status["last_seq"]) == ("hub", 3)
    if order == "the answer first":
        assert status["confirmed_seq"] == 3
    hub.close()
