"""The two applications of `link_cuts.py`, each a process of its own with an unchanged nats-py client.

    cut_clients.py publish URL LEDGER     publishes to the stream READINGS until SIGTERM; repeats what was not acknowledged,
                                          with the same `Nats-Msg-Id`
    cut_clients.py consume URL LEDGER     takes from the durable pull consumer `sink` of FLEET until SIGTERM; acknowledges
                                          each message and waits for the confirmation

LEDGER gets one line `id` for each acknowledgement or confirmation, after it was received; the consumer also writes `+id` for each
message that it is given.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import sys
from typing import TextIO

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

BATCH = 8
PAUSE_S = 0.02
ANSWER_WITHIN_S = 1.0
TROUBLE = (NatsError, TimeoutError, OSError)


async def connect(url: str) -> Client:
    async def quiet(_: Exception) -> None:
        """Connections are lost here on purpose."""

    return await nats.connect(url, max_reconnect_attempts=-1, reconnect_time_wait=0.05, error_cb=quiet)


class Publisher:
    """`stop` is looked at between batches: what was begun is repeated until it is acknowledged."""

    def __init__(self, client: Client, ledger: TextIO, stop: asyncio.Event) -> None:
        self._js = client.jetstream(timeout=ANSWER_WITHIN_S)
        self._ledger = ledger
        self._stop = stop

    async def run(self) -> None:
        for first in itertools.count(0, BATCH):
            if self._stop.is_set():
                return
            await asyncio.gather(*(self._publish(f"m{number}") for number in range(first, first + BATCH)))
            await asyncio.sleep(PAUSE_S)

    async def _publish(self, msg_id: str) -> None:
        while True:
            try:
                await self._js.publish("readings.cut", msg_id.encode(), headers={"Nats-Msg-Id": msg_id})
            except TROUBLE:
                await asyncio.sleep(0.05)
            else:
                self._ledger.write(f"{msg_id}\n")
                self._ledger.flush()
                return


class Consumer:
    """Takes batches; a message whose acknowledgement was not confirmed comes again, or had been confirmed all the same."""

    def __init__(self, client: Client, ledger: TextIO, stop: asyncio.Event) -> None:
        self._js = client.jetstream(timeout=ANSWER_WITHIN_S)
        self._ledger = ledger
        self._stop = stop

    async def run(self) -> None:
        bound = await self._js.pull_subscribe_bind("sink", "FLEET")
        while not self._stop.is_set():
            messages: list[Msg] = []
            with contextlib.suppress(*TROUBLE):
                messages = await bound.fetch(64, timeout=ANSWER_WITHIN_S)
            await asyncio.gather(*(self._take(message) for message in messages))

    async def _take(self, message: Msg) -> None:
        msg_id = (message.headers or {}).get("Nats-Msg-Id", "")
        self._note(f"+{msg_id}")
        with contextlib.suppress(*TROUBLE):
            await message.ack_sync(timeout=ANSWER_WITHIN_S)
            self._note(msg_id)

    def _note(self, line: str) -> None:
        self._ledger.write(f"{line}\n")
        self._ledger.flush()


async def run(what: str, url: str, ledger: TextIO) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    client = await connect(url)
    application = Publisher(client, ledger, stop) if what == "publish" else Consumer(client, ledger, stop)
    await application.run()
    await client.close()


if __name__ == "__main__":
    with open(sys.argv[3], "a", encoding="utf-8") as file:
        asyncio.run(run(sys.argv[1], sys.argv[2], file))
