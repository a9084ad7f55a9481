"""The gateway's application: a real nats-py client that publishes every reading until it is acknowledged.

Runs as a process of its own: `publisher.py URL LEDGER COUNT WINDOW`. It writes one line `id<TAB>sequence<TAB>ms` to LEDGER
for each acknowledgement, after it has it. A publish that fails (the broker was killed) is repeated with the same
`Nats-Msg-Id` until it is acknowledged, as applications do.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TextIO

import nats
from nats.errors import Error as NatsError
from readings import Reading, machine, weather

# A round of live metrics after so many weather readings.
LIVE_EVERY = 100
# A publish without an answer for so long is repeated.
ACK_TIMEOUT_S = 2


def script(count: int) -> Iterator[Reading]:
    """Weather readings with the machine's own metrics in between; `count` in all."""

    def mixed() -> Iterator[Reading]:
        for number, reading in enumerate(weather()):
            if number % LIVE_EVERY == 0:
                yield from machine(datetime.now(UTC).isoformat(), number // LIVE_EVERY)
            yield reading
        for number in itertools.count(500_000):
            yield from machine(datetime.now(UTC).isoformat(), number)

    return itertools.islice(mixed(), count)


class Publisher:
    """Keeps `window` publishes in flight; repeats what was not acknowledged."""

    def __init__(self, url: str, ledger: TextIO, window: int) -> None:
        self._url = url
        self._ledger = ledger
        self._window = asyncio.Semaphore(window)
        self._begun = time.monotonic()
        self.repeated = 0

    async def run(self, readings: Iterator[Reading]) -> None:
        async def quiet(_: Exception) -> None:
            """The story cuts and kills on purpose: lost connections are not news here."""

        client = await nats.connect(
            self._url, max_reconnect_attempts=-1, reconnect_time_wait=0.05, error_cb=quiet, name="readings"
        )
        self._jetstream = client.jetstream(timeout=ACK_TIMEOUT_S)
        async with asyncio.TaskGroup() as tasks:
            for reading in readings:
                await self._window.acquire()
                tasks.create_task(self._publish(reading))
        await client.close()

    async def _publish(self, reading: Reading) -> None:
        try:
            while True:
                try:
                    ack = await self._jetstream.publish(
                        reading.subject, reading.payload, headers={"Nats-Msg-Id": reading.id}
                    )
                    break
                except (NatsError, TimeoutError, OSError):
                    self.repeated += 1
                    await asyncio.sleep(0.05)
            elapsed_ms = (time.monotonic() - self._begun) * 1000
            self._ledger.write(f"{reading.id}\t{ack.seq}\t{elapsed_ms:.0f}\n")
            self._ledger.flush()
        finally:
            self._window.release()


def main() -> None:
    url, ledger_path, count, window = sys.argv[1:5]
    with open(ledger_path, "a", encoding="utf-8") as ledger:
        publisher = Publisher(url, ledger, int(window))
        asyncio.run(publisher.run(script(int(count))))
    print(f"repeated {publisher.repeated}")


if __name__ == "__main__":
    main()
