"""Reading a stream in order: what is delivered before its consumer's state is told is waited for."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest

from eyot_cli.jetstream.stored import in_order


@dataclass
class Consumer:
    """An ordered consumer with these messages, of which the server had sent `sent` when it told its state; none has come by then."""

    messages: int
    sent: int
    taken: int = 0
    ended = False

    async def consumer_info(self) -> SimpleNamespace:
        return SimpleNamespace(
            num_pending=self.messages - self.sent,
            delivered=SimpleNamespace(consumer_seq=self.sent, stream_seq=self.sent),
        )

    async def next_msg(self, timeout: float) -> SimpleNamespace:
        self.taken += 1
        assert self.taken <= self.messages, "nothing is left to wait for"
        return SimpleNamespace(number=self.taken, metadata=SimpleNamespace(num_pending=self.messages - self.taken))

    async def unsubscribe(self) -> None:
        self.ended = True


@pytest.mark.parametrize(("messages", "sent"), [(0, 0), (1, 0), (1, 1), (3, 0), (3, 2), (3, 3)])
async def test_all_that_is_there_is_read(messages: int, sent: int) -> None:
    consumer = Consumer(messages, sent)

    async def subscribe(*_: object, **__: object) -> Consumer:
        return consumer

    target = SimpleNamespace(jetstream=lambda _: SimpleNamespace(subscribe=subscribe), timeout_s=5.0)
    read = in_order(cast("Any", target), cast("Any", None), "S", ">")
    assert [cast("Any", each).number async for each in read] == [*range(1, messages + 1)]
    assert consumer.ended
