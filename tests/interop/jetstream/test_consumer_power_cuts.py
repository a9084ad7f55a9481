"""A worker acknowledges with answers (double acks) while the daemon is killed at random: what was answered never comes
again, and everything comes at least once.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path

import nats
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig

from support.servers.eyotd import Eyotd

CONFIG = "jetstream { store_dir: %WORKDIR%/js }\n"
MESSAGES = 600
KILLS = 6


class Worker:
    """Fetches and acknowledges until nothing is left. `confirmed`: payloads whose acknowledgement was answered."""

    def __init__(self, js: JetStreamContext) -> None:
        self.js = js
        self.confirmed: set[bytes] = set()
        self.seen: set[bytes] = set()
        self.again: list[bytes] = []

    async def run(self) -> None:
        while True:
            with contextlib.suppress(NatsError, OSError):
                info = await self.js.consumer_info("S", "C", timeout=1)
                if not info.num_pending and not info.num_ack_pending:
                    return
                sub = await self.js.pull_subscribe_bind("C", "S")
                for _ in range(5):
                    await self._fetch(sub)
            await asyncio.sleep(0.01)

    async def _fetch(self, sub: JetStreamContext.PullSubscription) -> None:
        for msg in await sub.fetch(20, timeout=1):
            if msg.data in self.confirmed:
                self.again.append(msg.data)
            self.seen.add(msg.data)
            with contextlib.suppress(NatsError):
                await msg.ack_sync(timeout=0.5)
                self.confirmed.add(msg.data)


def test_what_was_confirmed_never_comes_again(tmp_path: Path) -> None:
    with Eyotd(CONFIG, tmp_path) as server:
        asyncio.run(asyncio.wait_for(_play(server), 120))


async def _play(server: Eyotd) -> None:
    nc = await nats.connect(server.client_url(), max_reconnect_attempts=-1, reconnect_time_wait=0.02)
    js = nc.jetstream()
    await js.add_stream(name="S", subjects=["s"])
    await asyncio.gather(*(js.publish("s", b"%d" % i) for i in range(MESSAGES)))
    config = ConsumerConfig(durable_name="C", ack_policy=AckPolicy.EXPLICIT, ack_wait=1, max_ack_pending=100)
    await js.add_consumer("S", config)
    worker = Worker(nc.jetstream(timeout=1))
    working = asyncio.create_task(worker.run())
    for _ in range(KILLS):
        before = len(worker.confirmed)
        while len(worker.confirmed) < before + 20 and not working.done():
            await asyncio.sleep(random.uniform(0.001, 0.02))
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
    await working
    assert worker.again == []
    assert worker.seen == {b"%d" % i for i in range(MESSAGES)}
    await nc.close()
