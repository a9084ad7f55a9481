"""Reading a stream in order: what is delivered before its consumer's state is told is waited for."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import eyot_cli
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


def test_every_generator_is_closed_before_its_connection() -> None:
    """Output that ends early (`eyot stream view S | head -1`) leaves a loop; a generator that ends its consumer then needs the client."""
    for file in sorted(Path(eyot_cli.__file__).parent.rglob("*.py")):
        text = file.read_text()
        nodes = list(ast.walk(ast.parse(text))) if "async for" in text else []
        held = {
            item.optional_vars.id
            for node in nodes
            if isinstance(node, ast.AsyncWith)
            for item in node.items
            if isinstance(item.optional_vars, ast.Name) and ast.unparse(item.context_expr).startswith("aclosing(")
        }
        read = {
            ast.unparse(node.iter) for node in nodes if isinstance(node, ast.AsyncFor)
        }  # comprehensions read to the end
        assert not read - held, f"{file}: hold {', '.join(read - held)} by aclosing"
