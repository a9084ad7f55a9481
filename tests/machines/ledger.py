"""What a machine acknowledged, and whether it still has all of it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator

import nats
from nats.js import JetStreamContext
from nats.js.errors import NotFoundError, ServiceUnavailableError

#: Generous: the machine is emulated, and others may use this one.
PATIENCE_S = 120.0
IN_FLIGHT = 8
#: Between messages of one publisher while something else happens, so that reading all of them takes no longer than what happens.
PAUSE_S = 0.1
STREAM, SUBJECT = "READINGS", "readings.a"


class Ledger:
    """Publishes numbered messages to a machine's stream, and compares what is stored with what was acknowledged."""

    def __init__(self, port: int) -> None:
        self._url = f"nats://127.0.0.1:{port}"
        self._next = 0
        #: sequence of each number that was acknowledged
        self.acknowledged: dict[int, int] = {}

    def publish(self, count: int) -> None:
        """Publish so many messages and await their acknowledgements."""
        asyncio.run(self._publish(count, None))

    @contextlib.contextmanager
    def publishing(self) -> Iterator[None]:
        """Publish without a pause meanwhile, through everything that happens to the daemon and to the machine."""
        done = threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(self._publish(None, done)))
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def check(self) -> int:
        """Compare; return how many messages the stream has. Raises AssertionError."""
        stored = asyncio.run(self._stored())
        numbers = list(stored.values())
        assert len(set(numbers)) == len(numbers), "a message is there twice"
        lost = [number for number, seq in self.acknowledged.items() if stored.get(seq) != number]
        assert not lost, f"acknowledged and lost: {lost[:10]} of {len(self.acknowledged)}"
        return len(stored)

    async def _publish(self, count: int | None, done: threading.Event | None) -> None:
        client = await nats.connect(
            self._url,
            connect_timeout=int(PATIENCE_S),
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.2,
            error_cb=_ignore,
        )
        jetstream = client.jetstream(timeout=PATIENCE_S if done is None else 5.0)
        await _make_stream(jetstream)
        end = None if count is None else self._next + count

        async def publisher() -> None:
            while (end is None or self._next < end) and not (done is not None and done.is_set()):
                number = self._next
                self._next += 1
                with contextlib.suppress(nats.errors.Error):  # no acknowledgement: stored, or not
                    ack = await jetstream.publish(SUBJECT, b"%d" % number)
                    self.acknowledged[number] = ack.seq
                if done is not None:
                    await asyncio.sleep(PAUSE_S)
                else:
                    assert number in self.acknowledged, f"message {number} was not acknowledged"

        await asyncio.gather(*(publisher() for _ in range(IN_FLIGHT)))
        with contextlib.suppress(Exception):
            await asyncio.wait_for(client.close(), 5)

    async def _stored(self) -> dict[int, int]:
        """Number of each sequence of the stream."""
        client = await nats.connect(self._url, connect_timeout=int(PATIENCE_S))
        jetstream = client.jetstream(timeout=PATIENCE_S)
        last = (await jetstream.stream_info(STREAM)).state.last_seq
        subscription = await jetstream.subscribe("", stream=STREAM, ordered_consumer=True)
        stored: dict[int, int] = {}
        while last not in stored:
            message = await subscription.next_msg(timeout=PATIENCE_S)
            stored[message.metadata.sequence.stream] = int(message.data)
        await client.close()
        return stored


async def _make_stream(jetstream: JetStreamContext) -> None:
    """Create the stream if there is none, once JetStream runs."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            await jetstream.stream_info(STREAM)
            return
        except NotFoundError:
            await jetstream.add_stream(name=STREAM, subjects=["readings.>"])
            return
        except (ServiceUnavailableError, nats.errors.Error):
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.5)


async def _ignore(_: Exception) -> None:
    """Cuts are what is tested."""
