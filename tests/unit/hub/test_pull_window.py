"""What a reader asks for: never more than two requests for half of `fetch_bytes` each, or one message by itself."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
import pytest

from eyot_hub.connection import ConnectOptions
from eyot_hub.jetstream import ConsumerInfo, Delivered
from eyot_hub.range_reader import READ_BYTES, ReadOptions, StreamRange, _Pull
from eyot_wire import frames
from eyot_wire.info import ServerInfo
from eyot_wire.scanner import Scanner

FETCH_BYTES = 4 << 20
TOO_LARGE = b"NATS/1.0 409 Message Size Exceeds MaxBytes\r\n\r\n"


class Consumer:
    """The server's side of a pull consumer: messages of given sizes, requests served in their order, as nats-server does."""

    def __init__(self, sizes: list[int]) -> None:
        self.options = ConnectOptions(("h",))
        self.info = ServerInfo(max_payload=64 << 20)
        self.sizes = sizes
        self.requests: list[tuple[bytes, dict[str, int]]] = []
        self.asked: list[dict[str, int]] = []
        self.under_way_max = 0

    def settle(self) -> None:
        pass

    def send(self, data: bytes) -> None:
        for op in Scanner("server").feed(data):
            if isinstance(op, frames.Pub):
                body = msgspec.json.decode(op.payload)
                self.asked.append(body)
                self.requests.append((op.reply, body))

    def serve(self) -> Iterator[int | bytes]:
        """Messages (their sizes) and statuses (reply subjects of the requests they end), in order."""
        sent = 0
        while self.requests and self.sizes:
            reply, body = self.requests[0]
            left = body.get("max_bytes", 1 << 62)
            if self.sizes[0] > left:
                self.requests.pop(0)
                yield reply
                continue
            size = self.sizes.pop(0)
            sent += size
            self.under_way_max = max(self.under_way_max, sent)
            if "max_bytes" in body:
                body["max_bytes"] = left - size
            body["batch"] -= 1
            if not body["batch"]:
                self.requests.pop(0)
            yield size


@pytest.mark.parametrize("seed", range(20))
def test_the_window_is_bounded(seed: int) -> None:
    chance = np.random.default_rng(seed)
    sizes = chance.choice(
        [200, 5_000, 700_000, 1_900_000, 2_200_000, 30_000_000], 400, p=[0.5, 0.2, 0.1, 0.1, 0.09, 0.01]
    )
    consumer = Consumer(sizes.tolist())
    options = ReadOptions(consumer.options, "$JS.API", fetch_bytes=FETCH_BYTES)
    pull = _Pull(consumer, options, StreamRange("S", "t", 1, 400), ConsumerInfo("c", Delivered()))  # type: ignore[arg-type]
    while consumer.sizes:
        pull.ask(5000)
        assert consumer.requests, "nothing was asked for"
        # Everything that is under way is scanned at once, or cut anywhere.
        served = list(consumer.serve())
        while served:
            cut = int(chance.integers(1, len(served) + 1))
            scan, served = served[:cut], served[cut:]
            deliveries = 0
            for one in scan:
                if isinstance(one, bytes):
                    pull.take(frames.encode_msg(one, b"d", b"", TOO_LARGE, b""), deliveries)
                else:
                    deliveries += 1
            pull.received += deliveries
            if served:
                pull.ask(5000)
                served += consumer.serve()
    assert max(body.get("max_bytes", 0) for body in consumer.asked) <= FETCH_BYTES // 2
    assert all(body["batch"] <= 1 for body in consumer.asked if "max_bytes" not in body)
    assert consumer.under_way_max <= max(FETCH_BYTES, 30_000_000) + FETCH_BYTES + READ_BYTES
